# Copyright (c) 2026, zklock developers

# Many edges: a session that holds many locks which others want waits for one
# more.  All of their notes tell of it, other sessions are served meanwhile, and a
# deadlock by way of the lock that was taken last ends.
#
# The worker's CPU and the longest call of another session are reported.
# ZKLOCK_TEST_EDGES is the number of locks (default 1150).

use strict;
use warnings;

use List::Util qw(max);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
use ZkCluster;
use ZkSession;
use ZkWire;
use ZooKeeper;

my $edges = $ENV{ZKLOCK_TEST_EDGES} || 1150;
my $timeout = 3;

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my ($a, $b) = zk_clusters(
	$zk, [qw(a b)],
	'zklock.session_timeout' => '60s',
	'deadlock_timeout' => "${timeout}s",
	'log_min_messages' => 'debug2',
	'log_statement' => 'none');
my @names = map { "held.$_" } (1 .. $edges);
my @dirs = map { lock_dir($_) } @names;
my $worker = worker_of($a);

# The worker's CPU, in s.
sub cpu
{
	my @fields = split / /, (slurp_file("/proc/$worker/stat") =~ /\) (.*)/)[0];

	return ($fields[11] + $fields[12]) / 100;
}

# Wait until so many notes tell, while another session takes and releases locks;
# returns its longest call, in ms.
sub wait_told
{
	my ($n) = @_;
	my $other = ZkWire->new($a);
	my $longest = 0;
	my $calls = 0;
	my $told = 0;

	poll_until(
		sub {
			for my $i (1 .. 20)
			{
				my $begun = clock_gettime(CLOCK_MONOTONIC);
				my $result = $other->run("SELECT zk_lock('other." . $calls++ . q{')});

				die $result->{message} if $result->{sqlstate};
				$longest = max($longest, 1000 * (clock_gettime(CLOCK_MONOTONIC) - $begun));
			}
			my $now = $foreign->tellers(@dirs);
			note(sprintf '%d notes after %.2f s of CPU', $now, cpu()) if $now != $told;
			$told = $now;
			return $told == $n;
		},
		"$n notes to tell");
	return $longest;
}

my $holder = ZkSession->new($a);
my $waiter = ZkSession->new($b);

$waiter->run_ok("BEGIN; SELECT zk_lock('wanted')", 'one session holds one lock');
$holder->run_ok(
	"BEGIN; SELECT zk_lock('held.' || i) FROM generate_series(1, $edges) i",
	'another one holds many');
my @behind = $foreign->enqueue_each(\@dirs);
is(scalar @behind, $edges, "which others want, $edges in all");

my $cpu = cpu();
$holder->send("SELECT zk_lock('wanted')");
$holder->wait_waiting(2);
my $longest = wait_told($edges);
cmp_ok($longest, '<', 1000 * $timeout,
	"until all notes tell of the wait, no call of another session takes deadlock_timeout");
diag(sprintf '%d edges: %.2f s of CPU, %.2f ms an edge; the longest call of another session: %.0f ms',
	$edges, cpu() - $cpu, 1000 * (cpu() - $cpu) / $edges, $longest);

# the next in its queue is to be the session that closes the cycle
$foreign->unlock($behind[-1]);
my $closed = clock_gettime(CLOCK_MONOTONIC);
$waiter->send("SELECT zk_lock('$names[-1]')");
poll_until(sub { $holder->done || $waiter->done }, 'the deadlock to end');
my $took = clock_gettime(CLOCK_MONOTONIC) - $closed;
error_is($waiter->result, { sqlstate => '40P01' }, 'the one that began last fails')
  if $waiter->done;
cmp_ok($took, '<', 10 * $timeout, 'the deadlock ends within 10 * deadlock_timeout');
diag(sprintf 'the deadlock: %.1f s, %.2f s of CPU', $took, cpu() - $cpu);
is($a->safe_psql('postgres', 'SELECT sum(deadlocks) FROM zk_stat')
	  + $b->safe_psql('postgres', 'SELECT sum(deadlocks) FROM zk_stat'),
	1, 'one victim');
$holder->quit;
$waiter->quit;
$foreign->unlock($_) for @behind[ 0 .. $#behind - 1 ];

#
# One session holds one lock and waits for more than are looked at together,
# whichever of them it is that matters
#

$timeout = 0.3;
for my $node ($a, $b)
{
	$node->append_conf('postgresql.conf', "deadlock_timeout = '300ms'");
	$node->reload;
	$node->poll_query_until('postgres',
		"SELECT setting = '300' FROM pg_settings WHERE name = 'deadlock_timeout'");
}
for my $which (1, 100)
{
	my @all = map { sprintf 'some.%03d', $_ } (1 .. 100);
	my $wanted = $all[ $which - 1 ];
	my @held = map { $foreign->lock(lock_dir($_)) } grep { $_ ne $wanted } @all;
	my ($one, $two) = (ZkSession->new($a), ZkSession->new($b));

	$one->run_ok("BEGIN; SELECT zk_lock('x.$which')", 'one holds a lock');
	$two->run_ok("BEGIN; SELECT zk_lock('$wanted')", "and another one $wanted");
	$one->send("SELECT zk_lock_all('{" . join(',', @all) . "}')");
	wait_contenders($zk, $wanted, 2);
	$two->send("SELECT zk_lock('x.$which')");
	poll_until(sub { $one->done || $two->done }, 'the deadlock to end');
	is(($one->done ? $one : $two)->result->{sqlstate},
		'40P01', "of 100 locks that one waits for, $wanted closes a deadlock");
	$foreign->unlock($_) for @held;
	$_->quit for ($one, $two);
}
done_testing();
