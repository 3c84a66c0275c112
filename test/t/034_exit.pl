
# The end of a process that holds a lock of the session, while nobody knows
# whether that is still its own: ZooKeeper has been away for longer than the
# lease.  PostgreSQL commits when it removes temporary tables, and what waits or
# fails there cannot be ended by anybody.  And a shutdown meanwhile.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my $proxy = ZkProxy->new;
my $a = zk_cluster('a', $zk,
	'zklock.servers' => $zk->connstr_through($proxy, 'a'),
	'zklock.session_timeout' => '4s');

sub temp_tables
{
	return value($a, q{SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'});
}

# A session that holds a lock, and has a temporary table of later, or of before.
sub holder_with_table
{
	my ($lock, $before) = @_;
	my $s = ZkSession->new($a);
	my @statements = ("SELECT zk_lock('$lock', session => true)", 'CREATE TEMP TABLE t (n int)');

	$s->run_ok($_) for $before ? reverse @statements : @statements;
	return $s;
}

# ZooKeeper is away for longer than the lease.
sub wait_no_lease
{
	$a->poll_query_until('postgres',
		q{SELECT lease <= '0'::interval AND state <> 'connected' FROM zk_session});
	return;
}

sub has_ended
{
	my ($s, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( $a->poll_query_until('postgres',
			'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . $s->pid),
		"$name: its backend ends");
	return;
}

sub is_free
{
	my ($lock) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$foreign->unlock($foreign->lock(lock_dir($lock)));
	pass("the lock \"$lock\" is free for others");
	return;
}

sub stopping
{
	my $offset = -s $a->logfile;

	system_or_bail('pg_ctl', '-D', $a->data_dir, '-m', 'fast', '--no-wait', 'stop');
	$a->wait_for_log(qr/received fast shutdown request/, $offset);
	return;
}

sub has_stopped
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(eval { poll_until(sub { !-e $a->data_dir . '/postmaster.pid' }, 'the end of a'); 1 }, $name)
	  or die $@;
	$a->_update_pid(0);
	return;
}

#
# A backend ends
#

{
	my %s = map { ($_ => holder_with_table($_)) } qw(quits terminated idle commits lost);

	$s{before} = holder_with_table('before', 1);
	$s{idle}->run_ok('BEGIN; INSERT INTO t VALUES (1)');
	$s{commits}->run_ok('BEGIN; INSERT INTO t VALUES (1)');
	is(temp_tables(), 6, 'everybody has a temporary table');

	$proxy->refuse('a-0');
	wait_no_lease();
	$s{commits}->send('COMMIT');
	$s{commits}->wait_waiting(2);
	value($a, "SELECT pg_terminate_backend($_)") for map { $s{$_}->pid } qw(terminated idle commits);
	$s{$_}->quit for qw(quits before);
	has_ended($s{quits}, 'a client that disconnects');
	has_ended($s{before}, 'one whose temporary table is older than its lock');
	has_ended($s{terminated}, 'a session that is terminated');
	has_ended($s{idle}, 'the same in a transaction');
	has_ended($s{commits}, 'the same in a COMMIT that waits');
	is($s{commits}->result->{sqlstate}, '57P01', '... whose client gets the error');
	is(temp_tables(), 1, 'their temporary tables have gone');
	is(value($a, q{SELECT string_agg(name, ' ') FROM zk_locks}), 'lost', 'and so have their locks');

	# so do those of who has lost its lock, if the session has not ended by itself
	$foreign->kill_session(session_of($a));
	$proxy->thaw;
	wait_connected($a);
	$a->poll_query_until('postgres', 'SELECT lost FROM zk_locks');
	$s{lost}->quit;
	has_ended($s{lost}, 'a session that has lost its lock');
	is(temp_tables(), 0, 'its temporary table has gone');
	is_free($_) for sort keys %s;
	$_->quit for values %s;
	poll_until(sub { !all_contenders($zk) }, 'all contenders to be gone');
}

#
# A shutdown without ZooKeeper
#

{
	my $s = holder_with_table('x');

	$proxy->refuse('a-0');
	wait_no_lease();
	stopping();
	has_stopped('a fast shutdown without ZooKeeper ends');
	ok(-e session_file($a), 'what could not be closed is remembered');
	$s->quit;
	$proxy->thaw;
	$a->start;
	wait_connected($a);
	is_free('x');
	is(temp_tables(), 0, 'nothing is left');
}

#
# A shutdown that takes long, and ZooKeeper comes back: it is for the worker to
# see the holder out, since there will be no other
#

{
	# A server that starts slowly answers a client that comes too early only when
	# the client tries again, after two thirds of the timeout.
	$a->append_conf('postgresql.conf', "zklock.session_timeout = '15s'");
	$a->restart;
	wait_connected($a);

	my $s = holder_with_table('x');
	my $worker = worker_of($a);
	my $offset = -s $a->logfile;
	my $restarting = qr/restarting the zklock worker/;

	# ZooKeeper itself ends, so that the session lives when it is back
	stop_process($s->pid);
	$zk->kill9;
	wait_no_lease();
	my $since = time;
	stopping();

	# a worker goes that has had no connection for 10 s
	poll_until(sub { time - $since > 12 || slurp_file($a->logfile, $offset) =~ $restarting },
		'the time after which a worker is replaced');
	unlike(slurp_file($a->logfile, $offset), $restarting, 'the worker does not go');
	ok(-e $a->data_dir . '/postmaster.pid', 'nor does the server while a holder cannot');

	# neither for new settings
	$a->append_conf('postgresql.conf', "zklock.session_timeout = '5s'");
	kill 'HUP', $worker;
	$zk->start;
	$a->wait_for_log(qr/\[$worker\] .*connected to ZooKeeper/, $offset);
	pass('it connects again');
	kill 'CONT', $s->pid;
	has_stopped('the shutdown ends with the holder');
	ok(!-e session_file($a), 'the session is closed');
	unlike(slurp_file($a->logfile, $offset), $restarting, 'by the same worker');
	is_free('x');
	$s->quit;
	$a->start;
	is(temp_tables(), 0, 'nothing is left');
}

unlike(slurp_file($a->logfile), qr/PANIC|TRAP|was terminated by signal/, 'no process has crashed');
$a->stop;

done_testing();
