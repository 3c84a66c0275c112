# Copyright (c) 2026, zklock developers

# Many edges: a session that holds many locks which others want waits for one
# more.  All of that is told, other sessions are served meanwhile, and a deadlock by
# way of the lock that was taken last ends.
#
# The worker's CPU, the longest call of another session and how long the deadlock
# lasts are reported.
# ZKLOCK_TEST_EDGES is the number of locks (default 1150).

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $edges = $ENV{ZKLOCK_TEST_EDGES} || 1150;

my $zk = ZooKeeper->new;
$zk->start;
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
sub cpu
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
sub kept
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

done_testing();
