
# The worker's loop hears of all its sessions, and waits for none: what one of
# them does costs the others nothing.  Needs a test build, in which a few locks
# can be made to fill a session.

use strict;
use warnings;

use List::Util qw(sum);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SlowCalls;
use Test::More;
use Time::HiRes qw(sleep time);
use ZkCluster;
use ZkProxy;
use ZkWire;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};

my $timeout = 20;
my $bytes = contender_bytes('x');
my $zk = ZooKeeper->new;
$zk->start;
my $proxy = ZkProxy->new;
my $slow = SlowCalls->new;
my $a = $slow->preloaded(
	sub {
		zk_cluster(
			'a', $zk,
			'install_path' => $ENV{ZKLOCK_TEST_INSTALL},
			'zklock.servers' => $zk->connstr_through($proxy, 'a'),
			'zklock.session_timeout' => "${timeout}s",
			'zklock.path_bytes' => 2 * $bytes,
			'zklock.sessions' => 5);
	});
wait_connected($a);
$a->safe_psql('postgres', 'CREATE TABLE t (i int)');

sub session_of_first { return (split /\n/, session_of($a))[0]; }

# Wait until a backend waits for ZooKeeper.
sub wait_waiting
{
	my ($session) = @_;

	$a->poll_query_until('postgres', 'SELECT count(*) = 1 FROM zk_locks WHERE NOT granted AND pid = ' . $session->pid);
	return;
}

# A backend that holds these locks until it unlocks them.
sub keeper
{
	my $keeper = ZkWire->new($a);

	is($keeper->run("SELECT zk_lock('$_', session => true)")->{sqlstate}, undef, "lock $_") for @_;
	return $keeper;
}

#
# News of the first session come while the loop deals with those of the second
#

# The second session has x, the first has room for one lock.
my $first = keeper(qw(p q));
my $second = keeper('x');
$a->poll_query_until('postgres', q{SELECT count(*) = 2 AND bool_and(state = 'connected') FROM zk_sessions});
$first->run(q{SELECT zk_unlock('q')});
$a->poll_query_until('postgres', "SELECT min(path_bytes) = $bytes FROM zk_sessions WHERE path_bytes > 0");
$second->run(q{SET zklock.commit_check = 'quorum'});
my $taker = ZkWire->new($a);
$taker->run(q{SELECT zk_lock('y')});

# The first session has nothing under way.
sub wait_idle
{
	$a->poll_query_until('postgres', "SELECT path_bytes = $bytes FROM zk_sessions LIMIT 1");
	return;
}

# Each ends without an error.
sub end_calls
{
	for my $session (@_)
	{
		while ($session->busy) { ZkWire::wait_any(60, $session); }
		my $error = $session->result->{message};
		die "$error\n" if defined $error;
	}
	return;
}

# How long it takes the second session to prove that it is alive, and a call to
# take a lock in the first: one after the other, or together, when the answers for
# both come while the loop reads its eventfd.
sub duration
{
	my ($together) = @_;

	wait_idle();
	my $began = time;
	$second->send('INSERT INTO t VALUES (1)');
	if   ($together) { sleep 0.02; }
	else             { end_calls($second); }
	$taker->send(q{SELECT zk_lock('y')});
	end_calls($second, $taker);
	return time - $began;
}

# The same of several rounds: one after the other, and together.
sub durations
{
	my ($apart, $together) = (0, 0);

	for (1 .. 10)
	{
		$apart += duration(0);
		$together += duration(1);
	}
	note sprintf 'apart %.2f s, together %.2f s', $apart, $together;
	return ($apart, $together);
}

$proxy->delay(50);
$slow->delay_read(60);
my ($apart, $together) = durations();
cmp_ok($together / $apart, '<', 1.2, 'both together take no longer than one after the other');

# Where such news are lost, they are seen when something else wakes the loop.
$slow->delay_read(0);
my $total = sum(durations());
$a->append_conf('postgresql.conf', 'zklock.mutation = wake_late');
$a->reload;
$a->poll_query_until('postgres', q{SELECT current_setting('zklock.mutation') = 'wake_late'});
cmp_ok(sum(durations()) / $total, '>', 1.5, 'a mutation that loses wake-ups is seen');
$a->append_conf('postgresql.conf', 'zklock.mutation = none');
$a->reload;

$proxy->delay(0);

#
# The library resolves names, for another session
#

# Make the first session prove that it is alive, by a COMMIT under its lock.
sub commits
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($first->run('INSERT INTO t VALUES (1)')->{message}, undef, $name);
	return;
}


my $lease_end = q{SELECT clock_timestamp() + lease FROM zk_sessions LIMIT 1};

# A backend that wants a lock in a session that is not there yet, while the
# library resolves names for that.
sub asks_for_another
{
	my ($lock) = @_;
	my $waiter = ZkWire->new($a);

	$slow->hold('getaddrinfo');
	$waiter->send("SELECT zk_lock('$lock', session => true)");
	wait_waiting($waiter);
	$slow->wait_held('getaddrinfo', worker_of($a));
	return $waiter;
}

$first->run(q{SET zklock.commit_check = 'quorum'; SET statement_timeout = '60s'});
is($taker->run(q{SELECT zk_lock('y', session => true)})->{message}, undef, 'the first session is full');
is($second->run(q{SELECT zk_lock('z', session => true)})->{message}, undef, 'the second session is full');

my $waiter = asks_for_another('a');
my $end = value($a, $lease_end);
commits('a COMMIT under a lock of the first session ends while names are resolved');
$a->poll_query_until('postgres', "SELECT ($lease_end) > '$end'::timestamptz + interval '1 s'");
pass('and its lease goes on');
is($taker->run(q{SELECT zk_unlock('y')})->{out}, 't', 'a lock of the first session is given back');
wait_no_contenders($zk, 'y');
is($taker->run(q{SELECT zk_lock('y', session => true)})->{message}, undef, '... and taken');
ok($waiter->busy, 'while the call that needs the third waits');

$slow->release('getaddrinfo');
end_calls($waiter);
is(value($a, q{SELECT count(*) FROM zk_sessions WHERE state = 'connected'}), 3, 'it is there when they are resolved');

#
# It closes a session
#

$slow->hold('zookeeper_close');
$waiter->vanish;
$slow->wait_held('zookeeper_close', worker_of($a));
my $handles = $slow->handles(worker_of($a));
commits('a COMMIT ends while a session is closed');
$waiter = ZkWire->new($a);
$waiter->send(q{SELECT zk_lock('b', session => true)});
wait_waiting($waiter);
$slow->release('zookeeper_close');
end_calls($waiter);
is(value($a, q{SELECT count(*) FROM zk_sessions WHERE state = 'connected'}), 3, 'then another is opened in its place');
is($slow->handles(worker_of($a)), $handles + 1, '... with one handle more');

#
# The worker, and the server, end while names are resolved
#

is($waiter->run(q{SELECT zk_lock('c', session => true)})->{message}, undef, 'the third session is full');
my $id = session_of_first();
my $worker = worker_of($a);
my $other = asks_for_another('d');
kill 'TERM', $worker;
wait_next_worker($a, $worker);
pass('a worker that is terminated makes room for the next');
$slow->release('getaddrinfo');
end_calls($other);
is(session_of_first(), $id, '... which goes on with the session');
commits('a COMMIT ends');

is($other->run(q{SELECT zk_lock('e', session => true)})->{message}, undef, 'the fourth session is full');
$other = asks_for_another('f');
$a->stop('fast');
ok(!grep({ $zk->fourlw('dump') =~ /\b$_\b/ } $id), 'a fast shutdown ends the first session');
ok(!-e session_file($a), '... and leaves nothing to the next start');
$slow->release('getaddrinfo');

done_testing();
