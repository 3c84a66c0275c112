
# Slots: a call that finds all in use waits for those that are being released.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;
my $node = zk_cluster('a', $zk,
	'zklock.session_timeout' => '60s',
	'zklock.max_locks' => 64);
my $full = {
	sqlstate => '53200',
	message => 'out of lock slots',
	detail => 'All 64 slots for locks in ZooKeeper are in use.',
	hint => qr/zklock\.max_locks/
};

# names of so many locks that nobody has had
my $names = 0;
sub new_names
{
	my ($n) = @_;

	return 'ARRAY[' . join(',', map { "'n" . $names++ . "'" } 1 .. $n) . ']';
}

sub wait_for_room
{
	my ($session) = @_;

	$node->poll_query_until('postgres',
		q{SELECT wait_event IN ('ZkLockRoom', 'Extension') AND clock_timestamp() - query_start > '2 s' FROM pg_stat_activity WHERE pid = }
		  . $session->pid);
	ok(!$session->done, "a call waits for what is being released");
	return;
}

# half of the slots and a half again, with nothing between
is(sql($node, join ';', map { 'SELECT zk_lock_all(' . new_names(33) . ')' } 1 .. 30)->{message},
	undef, 'new names, again and again');

# ZooKeeper does not answer the deletes
for my $call (
	[ 'SELECT zk_lock_all(' . new_names(40) . ')', '' ],
	[ "SELECT zk_try_lock('try', '1 h')", 't' ],
	[ 'SELECT zk_lock_any(' . new_names(2) . ') IS NOT NULL', 't' ],
	[ "SELECT zk_acquire('semaphore', 2)", '' ])
{
	my $holder = ZkSession->new($node);
	my $waiter = ZkSession->new($node);

	$holder->run_ok('BEGIN; SELECT zk_lock_all(' . new_names(64) . ');');
	error_is($waiter->run($call->[0]), $full, 'no room: locks are held');
	$zk->pause;
	$holder->run_ok('COMMIT');
	$holder->quit;
	$waiter->send($call->[0]);
	wait_for_room($waiter);
	$zk->resume;
	is($waiter->result->{out}, $call->[1], 'there is room when they are gone');
	$waiter->quit;
	$node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zk_locks');
}

# the wait ends with the call
{
	my $holder = ZkSession->new($node);
	my $waiter = ZkSession->new($node);

	$holder->run_ok('BEGIN; SELECT zk_lock_all(' . new_names(64) . ');');
	$zk->pause;
	$holder->run_ok('COMMIT');
	is($waiter->run("SELECT zk_try_lock('x', '100 ms')")->{out}, 'f', 'not in time: false');
	is($waiter->run("SELECT zk_lock('x', '100 ms')")->{sqlstate}, '55P03', 'not in time: an error');
	is($waiter->run("SET lock_timeout = '100 ms'; SELECT zk_lock_any(ARRAY['x', 'y']);")->{sqlstate},
		'55P03', 'lock_timeout');
	$waiter->run_ok('RESET lock_timeout');
	$waiter->send("SELECT zk_lock('x')");
	wait_for_room($waiter);
	value($node, 'SELECT pg_cancel_backend(' . $waiter->pid . ')');
	is($waiter->result->{sqlstate}, '57014', 'it is canceled');
	$zk->resume;
	$waiter->run_ok("SELECT zk_lock('x')");
	$_->quit for ($holder, $waiter);
}

done_testing();
