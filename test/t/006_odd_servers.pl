# What a server may answer that no client expects: an answer that makes the
# client library fail an assertion, a delete that it refuses, and the end of
# the session while a flight is being sent.

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

# A server of odd_server.py, and where it listens.
sub start_odd
{
	my ($manner) = @_;
	my ($in, $port) = ('', '');
	my $run = IPC::Run::start(
		[ '/usr/bin/python3', "$FindBin::Bin/../lib/odd_server.py", $manner ],
		'<', \$in, '>', \$port);

	poll_until(sub { $run->pump_nb; $port =~ /\n/ }, 'the odd server to listen');
	chomp $port;
	return { run => $run, in => \$in, address => "127.0.0.1:$port" };
}

sub stop_odd
{
	my ($odd) = @_;

	${ $odd->{in} } = undef;
	$odd->{run}->finish;
	return;
}

sub wait_server
{
	my ($address) = @_;

	poll_until(
		sub { $a->safe_psql('postgres', 'SELECT server FROM zk_session') eq $address },
		"the worker to be with $address");
	return;
}

#
# An assertion of the client library takes down the worker, and nothing else
#

{
	my $session = ZkSession->new($a);
	my $odd = start_odd('unasked');

	$session->run_ok('CREATE TEMP TABLE alive AS SELECT 1');
	$a->safe_psql('postgres', "ALTER SYSTEM SET zklock.servers = '$odd->{address}'");
	$a->reload;
	$a->wait_for_log(qr/FATAL:  the ZooKeeper client library failed an assertion/);
	$session->run_ok('SELECT * FROM alive', 'other sessions live on');

	$a->safe_psql('postgres', 'ALTER SYSTEM RESET zklock.servers');
	$a->reload;
	wait_server($zk->connstr);
	$session->run_ok("BEGIN; SELECT zk_lock('x')", 'and lock');
	$session->run_ok('COMMIT');
	wait_no_contenders($zk, 'x');
	$session->quit;

	unlike(slurp_file($a->logfile), qr/terminating any other active server processes/,
		'the server has not crashed');
	stop_odd($odd);
}

#
# The session ends while the worker sends a long flight, which has a multi at
# its end
#

for my $chroot ('', '/below')
{
	my $root = '/d' x 40;
	my $session = ZkSession->new($a);
	my $odd = start_odd('refuse');
	my $log = -s $a->logfile;

	$a->safe_psql('postgres', "ALTER SYSTEM SET zklock.servers = '$odd->{address}$chroot'");
	$a->safe_psql('postgres', "ALTER SYSTEM SET zklock.auth = 'odd:secret'");
	$a->reload;
	wait_server($odd->{address});
	$session->run_ok("BEGIN; SET LOCAL zklock.root = '$root'");
	$session->send("SELECT zk_lock_all(array_agg('d' || i)) FROM generate_series(1, 200) i");
	$a->wait_for_log(qr/ZooKeeper refused the credentials/, $log);

	$a->safe_psql('postgres', 'ALTER SYSTEM RESET zklock.servers');
	$a->safe_psql('postgres', 'ALTER SYSTEM RESET zklock.auth');
	$a->reload;
	wait_server($zk->connstr);
	is($session->result->{sqlstate}, undef, "locks after a session that ended: \"$chroot\"");
	$session->run_ok('COMMIT');
	$session->quit;
	unlike(slurp_file($a->logfile), qr/terminating any other active server processes/,
		'the server has not crashed');
	stop_odd($odd);
}

$a->stop('fast');

done_testing();
