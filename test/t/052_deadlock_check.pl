
# Deadlocks of two instances, the victim in either, in zk_deadlocks of both; and no
# deadlock is looked for with zklock.deadlock_check off: what was published is taken
# back.  The search goes on when the session has ended.

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
my $client = $zk->client;
my $a = zk_cluster('a', $zk, 'deadlock_timeout' => '200ms');
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

my $second = ZkSession->new($a);
my $third = ZkSession->new($b);
$second->run_ok("BEGIN; SELECT zk_lock('x')");
$third->run_ok("BEGIN; SELECT zk_lock('y')");
$second->send("SELECT zk_lock('y')");
$second->wait_waiting(2);
$third->send("SELECT zk_lock('x')");
is($third->result->{sqlstate}, '40P01', 'a deadlock is found');
is($second->result->{message}, undef, 'the other one goes on');
members_are("a waits for y, victim: f, local: t\nb waits for x, victim: t, local: f",
	'zk_deadlocks has both members');
$_->run('ROLLBACK') for ($second, $third);

# Now the victim is of the other instance.
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
poll_until(sub { told($zk, 'keep', 'x') }, 'the wait to be published');
pass('the wait is published');
check('off');
poll_until(sub { !told($zk, 'keep', 'x') }, 'the wait to be taken back');
pass('it is taken back when the check is off');
$third->send("SELECT zk_lock('x')");
$third->wait_waiting(1);
check('on');

# third's wait would be taken over by fourth's, if that failed
is($second->result->{sqlstate}, '40P01', 'the deadlock is found when the check is on again');
$second->run('ROLLBACK');
is($_->result->{message}, undef, 'others go on') for ($fourth, $third);
$third->run('ROLLBACK');

# The session ends while a wait is published: the holder has lost its lock, and the
# next deadlock is found in the next session.
$third->run_ok("BEGIN; SELECT zk_lock('y')");
$second->run_ok("BEGIN; SELECT zk_lock('x')");
$fourth->send("SELECT zk_lock('x')");
$fourth->wait_waiting(2);
$second->send("SELECT zk_lock('y')");
poll_until(sub { told($zk, 'keep', 'x') }, 'the wait to be published again');
lose_session($a, $client);
is($fourth->result->{message}, undef, 'who waited for the lost lock has it');
$fourth->run('ROLLBACK');
$second->result;
$second->run('ROLLBACK');
$second->run_ok("BEGIN; SELECT zk_lock('x')");
$second->send("SELECT zk_lock('y')");
$second->wait_waiting(2);
$third->send("SELECT zk_lock('x')");
is($second->result->{sqlstate}, '40P01', 'a deadlock is found in the next session');
is($third->result->{message}, undef, 'the other one goes on once more');
members_are("a waits for y, victim: t, local: t\nb waits for x, victim: f, local: f",
	'... by both instances');
$_->run('ROLLBACK') for ($second, $third);
$_->quit for ($third, $fourth, $second);

done_testing();
