
# Takers of a claimed lock in the instance of the claim: a deadlock with a
# transaction that uses the claim is PostgreSQL's, and nobody else finds it, too;
# a lock that a session holds in some other way is no use of a claim.

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
my ($node, $other) = zk_clusters($zk, [qw(a b)],
	'zklock.session_timeout' => '20s',
	'deadlock_timeout' => '50ms');

value($node, 'CREATE TABLE rows (id int PRIMARY KEY, n int)');
value($node, 'INSERT INTO rows VALUES (1, 0)');

my $row = 'UPDATE rows SET n = n + 1 WHERE id = 1';

# A user of a claim and a taker wait for each other.  The user's wait ends first;
# long before, the worker has looked for deadlocks, since another instance waits.
# A taker of the shared lock has a contender of its own, behind the claim's.
for my $case (
	[ "SET deadlock_timeout = '2 s'", '40P01', 'by deadlock_timeout', 'false', 2 ],
	[ "SET lock_timeout = '2 s'", '55P03', 'by lock_timeout', 'false', 2 ],
	[ "SET deadlock_timeout = '2 s'", '40P01', 'by deadlock_timeout, shared', 'true', 3 ],
	[ "SET lock_timeout = '2 s'", '55P03', 'by lock_timeout, shared', 'true', 3 ])
{
	my ($setting, $sqlstate, $how, $shared, $contenders) = @$case;
	my $token = value($node, "SELECT zk_claim('c', '1 h')");
	my $user = ZkSession->new($node);
	my $taker = ZkSession->new($node);

	$user->run_ok("SET deadlock_timeout = '60 s'; $setting; BEGIN; SELECT zk_use_claim('$token');");
	$taker->run_ok("SET deadlock_timeout = '60 s'; BEGIN; $row;");
	$taker->send("SELECT zk_lock('c', shared => $shared)");
	$taker->wait_waiting(1);
	my $elsewhere = waiter($other, 'c', $contenders);
	wait_contenders($zk, 'c', $contenders);
	is($user->run($row)->{sqlstate}, $sqlstate, "one of a user and a taker fails, $how");
	$user->run('ROLLBACK');
	is(value($node, "SELECT zk_end_claim('$token')"), 't', 'the claim goes on');
	is($taker->result->{sqlstate}, undef, 'and the other one gets the lock');
	$taker->run_ok('COMMIT');
	is($elsewhere->result->{sqlstate}, undef, 'and so does the other instance');
	$elsewhere->run_ok('COMMIT');
	$_->quit for ($user, $taker, $elsewhere);
}

# A session-scoped lock from the time when locks were this instance's alone, whose
# heavyweight lock PostgreSQL has released: others may claim it.
{
	my $exclusion = sub {
		alter_system($node, 'zklock.exclusion' => $_[0]);
		$node->poll_query_until('postgres', "SELECT current_setting('zklock.exclusion') = '$_[0]'");
	};
	my $holder = ZkSession->new($node);

	$exclusion->('instance');
	poll_until(sub { $holder->run('SHOW zklock.exclusion')->{out} eq 'instance' }, 'the session to see it');
	$holder->run("SELECT zk_lock('x', session => true), pg_advisory_unlock_all()");
	$exclusion->('fleet');
	my $token = value($node, "SELECT zk_claim('x', '1 h')");

	poll_until(sub { $holder->run('SHOW zklock.exclusion')->{out} eq 'fleet' }, 'the session to see it');
	error_is($holder->run("SELECT zk_use_claim('$token')"),
		{
			sqlstate => '55000',
			message => 'cannot use the claim of lock "x"',
			detail => 'This session has held the lock since "zklock.exclusion" was "instance".',
			hint => 'Release the lock first.'
		},
		'such a lock is no use of the claim');
	is(value($node, 'SELECT users FROM zk_claims'), 0, 'and there is none');
	$holder->run_ok("SELECT zk_unlock('x')");
	$holder->run_ok("SELECT zk_use_claim('$token')", 'then it is used');
	$holder->quit;
	is(value($node, "SELECT zk_end_claim('$token')"), 't', 'the claim goes on');
}

done_testing();
