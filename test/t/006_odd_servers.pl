# What a server may answer that no client expects: an answer that makes the
# client library fail an assertion, and a delete that it refuses.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my $a = zk_cluster('a', $zk, 'zklock.session_timeout' => '60s');

#
# A delete that is refused is tried again
#

{
	my $dir = lock_dir('kept');
	my $holder = holder($a, 'kept');

	$foreign->set_acl($dir, 'no delete');
	$holder->run_ok('COMMIT', 'the holder commits');
	$a->wait_for_log(qr/WARNING:  could not delete contender "\Q$dir\E\//);
	is(sql($a, "SELECT zk_try_lock('kept')")->{out}, 'f', 'a try does not wait for it');
	is(sql($a, "SELECT zk_try_lock('kept', '1ms')")->{out}, 'f', '... nor with a timeout');
	sql_error($a, "SET lock_timeout = '1ms'; SELECT zk_lock('kept')",
		{ sqlstate => '55P03', message => 'could not obtain lock "kept" in ZooKeeper' },
		'lock_timeout bounds the wait');

	my $waiter = waiter($a, 'kept', 2);
	$foreign->set_acl($dir, 'open');
	is($waiter->result->{sqlstate}, undef, 'who waits has the lock in the end');
	is(scalar(contenders($zk, 'kept')), 1, 'with a new contender');
	$waiter->run_ok('COMMIT');
	wait_no_contenders($zk, 'kept');
	$_->quit for ($holder, $waiter);
}

#
# An assertion of the client library takes down the worker, and nothing else
#

{
	my $session = ZkSession->new($a);
	my ($in, $port) = ('', '');
	my $odd = IPC::Run::start([ '/usr/bin/python3', "$FindBin::Bin/../lib/odd_server.py" ],
		'<', \$in, '>', \$port);

	$session->run_ok('CREATE TEMP TABLE alive AS SELECT 1');
	poll_until(sub { $odd->pump_nb; $port =~ /\n/ }, 'the odd server to listen');
	chomp $port;

	$a->safe_psql('postgres', "ALTER SYSTEM SET zklock.servers = '127.0.0.1:$port'");
	$a->reload;
	$a->wait_for_log(qr/FATAL:  the ZooKeeper client library failed an assertion/);
	$session->run_ok('SELECT * FROM alive', 'other sessions live on');

	$a->safe_psql('postgres', 'ALTER SYSTEM RESET zklock.servers');
	$a->reload;
	poll_until(
		sub {
			$a->safe_psql('postgres', 'SELECT server FROM zk_session') eq $zk->connstr;
		},
		'the worker to be with ZooKeeper again');
	$session->run_ok("BEGIN; SELECT zk_lock('x')", 'and lock');
	$session->run_ok('COMMIT');
	wait_no_contenders($zk, 'x');
	$session->quit;

	unlike(slurp_file($a->logfile), qr/terminating any other active server processes/,
		'the server has not crashed');
	$in = undef;
	$odd->finish;
}

$a->stop('fast');

done_testing();
