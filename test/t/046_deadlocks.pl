
# Deadlocks between two instances: one victim, which gets 40P01, and the other
# goes on; by way of other backends of its instance as well.  While nobody has
# waited for long there is no request for that.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};
my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my $proxy = ZkProxy->new;
my $servers = $zk->connstr_through($proxy, 'a');
$proxy->count('a-0');

# PostgreSQL::Test::Cluster sets cluster_name, too.
# log_lock_waits, which is on by default from PostgreSQL 19 on, has the queue read,
# the owner of a lock that is retained by habit watches it, and who waits for long
# looks again.
my %settings = (
	install_path => $ENV{ZKLOCK_TEST_INSTALL},
	'log_lock_waits' => 'off',
	'zklock.session_timeout' => '10s',
	'zklock.retain_time' => 0,
	'zklock.look_again' => 'off');
my $a = zk_cluster('shop_a', $zk, 'zklock.servers' => $servers, %settings);
my $b = zk_cluster('shop_b', $zk, %settings);
my $room = lock_dir('x') =~ s{[^/]*$}{%waits}r;

# The room where instances confirm deadlocks becomes empty.
sub wait_quiet
{
	my ($name) = @_;

	poll_until(
		sub {
			my @left = $foreign->exists($room) ? $foreign->ls($room) : ();

			return !@left;
		},
		'the instances to tidy up');
	pass($name);
	return;
}

sub victim_like
{
	my ($result, $lines, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return error_is(
		$result,
		{   sqlstate => '40P01',
			message => 'deadlock detected',
			detail => join("\n", @$lines),
			hint => 'See server log for query details.' },
		$name);
}

sub line
{
	my ($waiter, $cluster, $lock, $owner, $other) = @_;

	return sprintf
	  'Process %d of instance %s waits for exclusive lock "%s" in ZooKeeper; blocked by process %d of instance %s.',
	  $waiter->pid, $cluster, $lock, $owner->pid, $other;
}

#
# Nothing while nobody waits for long: other instances' contenders come and go,
# and only the last wait lasts for deadlock_timeout, of a backend that holds
# nothing.
#

sub asked
{
	my ($before) = @_;
	my $now = $proxy->requests('a-0');
	my %asked = map { $_ => $now->{$_} - ($before->{$_} // 0) } keys %$now;

	delete @asked{ grep { !$asked{$_} } keys %asked };
	return \%asked;
}

# How often a has written its own znode in %clusters, which is no note.
sub marks
{
	my $clusters = $room =~ s/%waits$/%clusters/r;
	my @nodes = map { $foreign->get("$clusters/$_") } $foreign->ls($clusters);
	my ($own) = grep { $_->{data} =~ /shop_a/ } @nodes;

	return $own->{version};
}

# All that it has written since then is that.
sub only_marks
{
	my ($asked, $before, $name) = @_;
	my $sets = delete $asked->{set} // 0;

	poll_until(sub { marks() - $before >= $sets }, "$name: $sets writes of its own znode");
	pass($name);
	return;
}

{
	my $first = ZkSession->new($a);
	my $second = ZkSession->new($b);

	my $marks = marks();
	my $before = $proxy->requests('a-0');
	for my $round (1 .. 20)
	{
		$second->run_ok("BEGIN; SELECT zk_lock('x')", 'b takes x') if $round == 1;
		$second->run("BEGIN; SELECT zk_lock('x')") if $round > 1;
		$first->send("BEGIN; SELECT zk_lock('z'); SELECT zk_lock('x'); COMMIT");
		wait_contenders($zk, 'x', 2);
		$second->run('COMMIT');
		is($first->result->{message}, undef, 'a waits for a moment') if $round == 1;
		$first->result if $round > 1;
	}
	my $asked = asked($before);
	only_marks($asked, $marks, 'nothing is written to any note');
	ok(!$foreign->exists($room), 'there is no room for deadlocks');

	# long, but it keeps nobody
	$second->run("BEGIN; SELECT zk_lock('x')");
	$first->run('BEGIN');
	$before = $proxy->requests('a-0');
	$first->send("SELECT zk_lock('x')");
	$first->wait_waiting(2);
	# the last request of who queues is for the data of the contender ahead
	poll_until(sub { asked($before)->{get} }, 'it to have queued');
	$marks = marks();
	$before = $proxy->requests('a-0');
	poll_until(sub { (asked($before)->{check} // 0) >= 4 }, 'four seconds');
	$asked = asked($before);
	delete @$asked{qw(check ping)};
	only_marks($asked, $marks, 'nothing for a long wait, nor to a note');
	is_deeply($asked, {}, 'nothing for a long wait that keeps nobody');
	$second->run('COMMIT');
	$first->result;
	$first->run('COMMIT');
	$_->quit for ($first, $second);
}

#
# Two instances, two locks
#

{
	my $first = holder($a, 'x');
	my $second = holder($b, 'y');
	my $log_a = -s $a->logfile;
	my $log_b = -s $b->logfile;

	$first->send("SELECT zk_lock('y')");
	$first->wait_waiting(2);
	$second->send("SELECT zk_lock('x')");
	my $result = $second->result;
	victim_like(
		$result,
		[   line($second, 'shop_b', 'x', $first, 'shop_a'),
			line($first, 'shop_a', 'y', $second, 'shop_b') ],
		'the transaction that began last fails');
	like($result->{stderr}, qr/while waiting for lock "x" in ZooKeeper/, 'its wait is named');
	$second->run_ok('ROLLBACK');
	is($first->result->{message}, undef, 'then it goes on');
	$first->run_ok('COMMIT');

	my $log = slurp_file($b->logfile, $log_b);
	like($log, qr/deadlock detected/, 'the log of its instance has the deadlock');
	like(
		$log,
		qr/Process ${\$second->pid}: SELECT zk_lock\('x'\)/,
		'... with its statement');
	unlike(slurp_file($a->logfile, $log_a), qr/deadlock detected/, 'that of the other has no error');
	$_->quit for ($first, $second);
	wait_quiet('nothing is left of it');
}

#
# By way of a row: first waits in its instance for third, that in ZooKeeper
#

$a->safe_psql('postgres', 'CREATE TABLE stock (id int PRIMARY KEY, n int)');
$a->safe_psql('postgres', 'INSERT INTO stock VALUES (1, 0)');
{
	my $first = holder($a, 'x');
	my $second = holder($b, 'y');
	my $third = ZkSession->new($a);

	$third->run_ok('BEGIN');
	$third->run_ok('UPDATE stock SET n = n + 1 WHERE id = 1');
	$second->send("SELECT zk_lock('x')");
	$second->wait_waiting(2);
	$third->send("SELECT zk_lock('y')");
	$third->wait_waiting(2);
	$first->send('UPDATE stock SET n = n + 1 WHERE id = 1');
	my $result = $third->result;
	victim_like(
		$result,
		[   'Process '
			  . $first->pid
			  . ' of instance shop_a waits for process '
			  . $third->pid
			  . ' of the same instance.',
			line($third, 'shop_a', 'y', $second, 'shop_b'),
			line($second, 'shop_b', 'x', $first, 'shop_a') ],
		'a deadlock through a row lock');
	$third->run_ok('ROLLBACK');
	is($first->result->{message}, undef, 'who waited for the row goes on');
	$first->run_ok('COMMIT');
	is($second->result->{message}, undef, '... and then the other instance');
	$second->run_ok('COMMIT');
	$_->quit for ($first, $second, $third);
	wait_quiet('nothing is left of that');
}

poll_until(sub { !$foreign->exists($room) }, 'the directory to be removed');
pass('the directory that is not needed any more goes');

undef $foreign;

retire($a, $b);

#
# Deadlocks of two instances, the victim in either, in zk_deadlocks of both; and no
# deadlock is looked for with zklock.deadlock_check off: what was published is taken
# back.  The search goes on when the session has ended.
#

{
	my $client = $zk->client;
	my $a = zk_cluster('a', $zk, 'deadlock_timeout' => '200ms');
	my $b = zk_cluster('b', $zk, 'deadlock_timeout' => '200ms');

	# The members of the latest deadlock, as a knows it.
	my sub members_are
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

	my sub check
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

	retire($a, $b);
}

#
# Many edges: a session that holds many locks which others want waits for one
# more.  All of that is told, other sessions are served meanwhile, and a deadlock by
# way of the lock that was taken last ends.
#
# The worker's CPU, the longest call of another session and how long the deadlock
# lasts are reported.
# ZKLOCK_TEST_EDGES is the number of locks (default 1150).
#

{
	my $edges = $ENV{ZKLOCK_TEST_EDGES} || 1150;

	my $foreign = $zk->client(timeout => 60);
	my ($a, $b) = zk_clusters(
		$zk, [qw(a b)],
		'zklock.session_timeout' => '60s',
		'deadlock_timeout' => '3s',
		'log_min_messages' => 'debug2',
		'log_statement' => 'none');
	my @names = map { "held.$_" } (1 .. $edges);
	my @dirs = map { lock_dir($_) } @names;
	my $worker = worker_of($a);

	# The worker's CPU, in s.
	my sub cpu
	{
		my @fields = split / /, (slurp_file("/proc/$worker/stat") =~ /\) (.*)/)[0];

		return ($fields[11] + $fields[12]) / 100;
	}

	# A session that takes and releases locks until it is told to stop.
	$a->safe_psql('postgres', 'CREATE TABLE granted (ms float8); CREATE TABLE stop ()');
	my $others = q{
		DO $$
		DECLARE
			asked timestamptz;
		BEGIN
			FOR i IN 1 .. 1000000 LOOP
				asked := clock_timestamp();
				PERFORM zk_lock('other.' || i);
				INSERT INTO granted SELECT 1000 * extract(epoch FROM clock_timestamp() - asked);
				COMMIT;
				EXIT WHEN EXISTS (SELECT FROM stop);
			END LOOP;
		END $$};

	# How many of these locks are told to be kept.
	my sub kept
	{
		my $texts = join '', map { $foreign->get("/zklock/%waits/$_")->{data} }
		  grep { /-\d{10}$/ } eval { $foreign->ls('/zklock/%waits') };
		my %kept = map { ($_ => 1) } $texts =~ /^keep x (\S+) /mg;

		return scalar grep { $kept{$_} } @dirs;
	}

	my $holder = ZkSession->new($a);
	my $waiter = ZkSession->new($b);

	$waiter->run_ok("BEGIN; SELECT zk_lock('wanted')", 'one session holds one lock');
	$holder->run_ok(
		"BEGIN; SELECT zk_lock('held.' || i) FROM generate_series(1, $edges) i",
		'another one holds many');
	my @behind = $foreign->enqueue_each(\@dirs);
	is(scalar @behind, $edges, "which others want, $edges in all");

	my $other = ZkSession->new($a);
	my $cpu = cpu();
	$other->send($others);
	$a->poll_query_until('postgres', 'SELECT EXISTS (SELECT FROM granted)');
	$holder->send("SELECT zk_lock('wanted')");
	$holder->wait_waiting(2);
	poll_until(sub { kept() == $edges }, "$edges locks to be published");
	pass('all are published');
	$a->safe_psql('postgres', 'INSERT INTO stop DEFAULT VALUES');
	is($other->result->{message}, undef, 'another session takes locks meanwhile');
	diag(sprintf '%d edges: %.2f s of CPU, %.2f ms an edge; the longest call of another session: %.0f ms',
		$edges, cpu() - $cpu, 1000 * (cpu() - $cpu) / $edges, value($a, 'SELECT max(ms) FROM granted'));

	# the next in its queue is to be the session that closes the cycle
	$foreign->unlock($behind[-1]);
	my $closed = clock_gettime(CLOCK_MONOTONIC);
	$waiter->send("SELECT zk_lock('$names[-1]')");
	poll_until(sub { $holder->done || $waiter->done }, 'the deadlock to end');
	my $took = clock_gettime(CLOCK_MONOTONIC) - $closed;
	error_is($waiter->result, { sqlstate => '40P01' }, 'the one that began last fails')
	  if $waiter->done;
	diag(sprintf 'the deadlock: %.1f s, %.2f s of CPU', $took, cpu() - $cpu);
	is($a->safe_psql('postgres', 'SELECT sum(deadlocks) FROM zk_stat')
		  + $b->safe_psql('postgres', 'SELECT sum(deadlocks) FROM zk_stat'),
		1, 'one victim');
	$holder->quit;
	$waiter->quit;
	$foreign->unlock($_) for @behind[ 0 .. $#behind - 1 ];
}

done_testing();
