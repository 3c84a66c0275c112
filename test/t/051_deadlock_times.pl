# Copyright (c) 2026, zklock developers

# How long it takes from the closing of a cycle to the error: reported, and tested
# only where a worker is kept from the processor within a scan.

use strict;
use warnings;

use List::Util qw(max);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX qw(ceil);
use SlowCalls;
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
use ZkCluster;
use ZkWire;
use ZooKeeper;

# How many cycles of two instances there are, and 0.3 times as many of five, for
# each deadlock_timeout.
my $cycles = soak(1, 20);

my $zk = ZooKeeper->new;
$zk->start;
my $slow = SlowCalls->new;
my @nodes = $slow->preloaded(
	sub {
		zk_clusters(
			$zk, [qw(a b c d e)],
			'zklock.session_timeout' => '60s',
			'log_statement' => 'none',
			'autovacuum' => 'off');
	});
my @wires = map { ZkWire->new($_) } @nodes;
my $round = 0;

sub now { return clock_gettime(CLOCK_MONOTONIC); }

# One cycle of n instances; returns the time from its closing to the error.
# "ready" is called when all but the last of them wait.
sub cycle
{
	my ($n, $ready) = @_;
	my @in = @wires[ 0 .. $n - 1 ];
	my @names = map { "cycle$round.$_" } (0 .. $n - 1);
	my ($victims, $error) = (0);

	$round++;
	for my $i (0 .. $n - 1)
	{
		my $result = $in[$i]->run("BEGIN; SELECT zk_lock('$names[$i]')");
		die $result->{message} if $result->{sqlstate};
	}
	for my $i (0 .. $n - 2)
	{
		$in[$i]->send("SELECT zk_lock('$names[$i + 1]')");
		wait_contenders($zk, $names[ $i + 1 ], 2);
	}
	$ready->() if $ready;
	my $closed = now();
	$in[-1]->send("SELECT zk_lock('$names[0]')");
	while (my @busy = grep { $_->busy } @in)
	{
		my @ended = ZkWire::wait_any($PostgreSQL::Test::Utils::timeout_default, @busy)
		  or die "a deadlock that stays\n";
		my $now = now();

		for my $wire (@ended)
		{
			my $state = $wire->result->{sqlstate} // '';

			if ($state eq '40P01')
			{
				$victims++;
				$error //= $now;
			}
			elsif ($state ne '') { die $wire->result->{message}; }
			$wire->run('COMMIT');
		}
	}
	die "$victims victims\n" if $victims != 1;
	return $error - $closed;
}

for my $timeout (1000, 100)
{
	for my $node (@nodes)
	{
		$node->append_conf('postgresql.conf', "deadlock_timeout = ${timeout}ms");
		$node->reload;
	}
	for my $node (@nodes)
	{
		$node->poll_query_until('postgres',
			"SELECT setting = '$timeout' FROM pg_settings WHERE name = 'deadlock_timeout'");
	}
	for my $n (2, 5)
	{
		my $many = $n == 2 ? $cycles : ceil(0.3 * $cycles);
		my @times = sort { $a <=> $b } map { cycle($n) } (1 .. $many);
		my $bound = 2 * $timeout / 1000 + 1;

		diag sprintf('deadlock_timeout = %d ms, %d cycles of %d instances: median %.3f s, longest %.3f s, '
			  . '%d longer than %.1f s', $timeout, $many, $n, $times[ @times / 2 ], $times[-1],
			scalar(grep { $_ > $bound } @times), $bound);
		is(scalar @times, $many, "$many cycles of $n instances: each has one victim");
	}
}

# A scan in which the worker is kept from the processor for 0.5 s is followed by
# others soon.
{
	my $a = $nodes[0];

	$a->append_conf('postgresql.conf', 'log_min_messages = debug2');
	$a->reload;
	$a->poll_query_until('postgres', "SELECT current_setting('log_min_messages') = 'debug2'");
	$slow->delay_scan(500);
	my $time = cycle(2, sub { $a->wait_for_log(qr/waits for slots/, -s $a->logfile); });
	$slow->delay_scan(0);
	diag sprintf('a deadlock where each scan takes 0.5 s: %.3f s', $time);
	cmp_ok($time, '<', 6, 'a deadlock ends soon though scans take long');
}
done_testing();
