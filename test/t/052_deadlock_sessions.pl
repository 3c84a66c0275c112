
# A deadlock of an instance whose contenders are in several sessions: notes are
# written in the session of their contender.  And no deadlock is looked for with
# zklock.deadlock_check off; what was published is taken back.  Needs a test
# build, in which two locks can be made to fill a session.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};

my $bytes = contender_bytes('x');
my $zk = ZooKeeper->new;
$zk->start;
my $client = $zk->client;
my $a = zk_cluster(
	'a', $zk,
	'install_path' => $ENV{ZKLOCK_TEST_INSTALL},
	'deadlock_timeout' => '200ms',
	'zklock.path_bytes' => 2 * $bytes,
	'zklock.sessions' => 4);
my $b = zk_cluster('b', $zk, 'deadlock_timeout' => '200ms');

# The members of the latest deadlock, as a knows it.
sub members_are
{
	my ($expected, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($a->safe_psql('postgres', q{
		SELECT string_agg(format('%s waits for %s, victim: %s, local: %s',
								 cluster_name, d.name, victim, local), E'\n' ORDER BY cluster_name)
		  FROM zk_deadlocks d WHERE id = (SELECT max(id) FROM zk_deadlocks)}),
		$expected, $name);
	return;
}

# What the owner of a lock says of itself.
sub note_of
{
	my ($name) = @_;
	my ($owner) = contenders($zk, $name);

	return $client->get(lock_dir($name) . "/$owner")->{data};
}

sub check
{
	my ($value) = @_;

	for my $node ($a, $b)
	{
		$node->safe_psql('postgres', "ALTER SYSTEM SET zklock.deadlock_check = $value");
		$node->reload;
		$node->poll_query_until('postgres', 'SHOW zklock.deadlock_check', $value);
	}
	return;
}

# The first two locks fill the first session of a, so x and z are in the next.
my $full = ZkSession->new($a);
$full->run_ok("BEGIN; SELECT zk_lock_all('{p,q}')", 'the first session is full');
my $second = ZkSession->new($a);
my $third = ZkSession->new($b);
$second->run_ok("BEGIN; SELECT zk_lock('x')");
is($a->safe_psql('postgres', 'SELECT count(*) FROM zk_sessions'), 2, 'the next lock is in another one');
$third->run_ok("BEGIN; SELECT zk_lock('y')");
$second->send("SELECT zk_lock('y')");
$second->wait_waiting(2);
$third->send("SELECT zk_lock('x')");
is($third->result->{sqlstate}, '40P01', 'a deadlock is found');
is($second->result->{message}, undef, 'the other one goes on');
members_are("a waits for y, victim: f, local: t\nb waits for x, victim: t, local: f",
	'zk_deadlocks has both members');
$_->run('ROLLBACK') for ($second, $third);

# Now the victim is of the instance with two sessions.
$third->run_ok("BEGIN; SELECT zk_lock('y')");
$second->run_ok("BEGIN; SELECT zk_lock('x')");
$third->send("SELECT zk_lock('x')");
$third->wait_waiting(2);
$second->send("SELECT zk_lock('y')");
is($second->result->{sqlstate}, '40P01', 'its act goes through, too');
is($third->result->{message}, undef, 'the other one goes on again');
members_are("a waits for y, victim: t, local: t\nb waits for x, victim: f, local: f",
	'... and of the next deadlock');
$_->run('ROLLBACK') for ($second, $third);

# A wait that keeps others, and no deadlock: its edge comes and goes.
my $fourth = ZkSession->new($b);
$third->run_ok("BEGIN; SELECT zk_lock('y')");
$second->run_ok("BEGIN; SELECT zk_lock('x')");
$fourth->send("SELECT zk_lock('x')");
$fourth->wait_waiting(2);
$second->send("SELECT zk_lock('y')");
poll_until(sub { note_of('x') =~ / waits=/ }, 'the wait to be published');
pass('the wait is published');
my $owner = $b->safe_psql('postgres', "SELECT owner FROM zk_queue('x') WHERE \"position\" = 1");
like($owner, qr/ pid=\d+/, 'zk_queue shows who owns the lock');
unlike($owner, qr/waits=/, '... without what workers tell each other');
check('off');
poll_until(sub { note_of('x') !~ / waits=/ }, 'the wait to be taken back');
pass('it is taken back when the check is off');
$third->send("SELECT zk_lock('x')");
$third->wait_waiting(1);
check('on');

# third's wait would be taken over by fourth's, if that failed
is($second->result->{sqlstate}, '40P01', 'the deadlock is found when the check is on again');
$second->run('ROLLBACK');
is($_->result->{message}, undef, 'others go on') for ($fourth, $third);
$third->run('ROLLBACK');

# The first session, in which a looks for deadlocks, ends while a wait is published
# in the other one.
my $first = (split /\n/, session_of($a))[0];
$third->run_ok("BEGIN; SELECT zk_lock('y')");
$second->run_ok("BEGIN; SELECT zk_lock('x')");
$fourth->send("SELECT zk_lock('x')");
$fourth->wait_waiting(2);
$second->send("SELECT zk_lock('y')");
poll_until(sub { note_of('x') =~ / waits=/ }, 'the wait to be published again');
end_session($a, $client, $first);
$a->poll_query_until('postgres',
	"SELECT count(*) = 2 AND bool_and(state = 'connected' AND session_id <> '$first') FROM zk_sessions");
$third->send("SELECT zk_lock('x')");
is($second->result->{sqlstate}, '40P01', 'the deadlock is found in the next one');
members_are("a waits for y, victim: t, local: t\nb waits for x, victim: f, local: f",
	'... by both instances');
$second->run('ROLLBACK');
is($_->result->{message}, undef, 'others go on once more') for ($fourth, $third);
$_->quit for ($third, $fourth, $second, $full);

done_testing();
