
# The worker's loop hears of all its sessions, and waits for none: what one of
# them does costs the others nothing.  Needs a test build, in which a few locks
# can be made to fill a session.

use strict;
use warnings;

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

my $timeout = 60;
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
			'zklock.sessions' => 4);
	});
wait_connected($a);
$a->safe_psql('postgres', 'CREATE TABLE t (i int)');

sub value { return $a->safe_psql('postgres', $_[0]); }

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
$a->poll_query_until('postgres', q{SELECT count(*) = 2 AND bool_and(state = 'connected') FROM zk_session});
$first->run(q{SELECT zk_unlock('q')});
$a->poll_query_until('postgres', "SELECT min(path_bytes) = $bytes FROM zk_session WHERE path_bytes > 0");
$second->run(q{SET zklock.commit_check = 'quorum'});
my $taker = ZkWire->new($a);
$taker->run(q{SELECT zk_lock('y')});

# The first session has nothing under way.
sub wait_idle
{
	$a->poll_query_until('postgres', "SELECT path_bytes = $bytes FROM zk_session LIMIT 1");
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
(undef, $together) = durations();
$a->append_conf('postgresql.conf', 'zklock.mutation = wake_late');
$a->reload;
$a->poll_query_until('postgres', q{SELECT current_setting('zklock.mutation') = 'wake_late'});
cmp_ok((durations())[1] / $together, '>', 1.5, 'a mutation that loses wake-ups is seen');
$a->append_conf('postgresql.conf', 'zklock.mutation = none');
$a->reload;

$first->run('SELECT zk_unlock_all()');
done_testing();
