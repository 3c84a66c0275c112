# Copyright (c) 2026, zklock developers

# A deadlock between instances that closes while a worker restarts, a connection
# is lost or ZooKeeper is away ends as any other: with one victim.  What a worker
# has said of a wait that is over does not stay.
#
# And how long it takes from the closing of a cycle to the error: reported, and tested
# only where a worker is kept from the processor within a scan.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX qw(ceil);
use SlowCalls;
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
use ZkCluster;
use ZkProxy;
use ZkScene;
use ZkSession;
use ZkWire;
use ZooKeeper;

my $timeout = 0.3;

# How many cycles of two instances there are, and 0.3 times as many of five, for
# each deadlock_timeout.
my $cycles = soak(1, 20);

my $proxy = ZkProxy->new;
my $zk = ZooKeeper->new;
$zk->start;
my $slow = SlowCalls->new;
my @nodes = $slow->preloaded(
	sub {
		zk_clusters(
			$zk, [qw(a b c d e)],
			'zklock.servers' => sub { $zk->connstr_through($proxy, $_[0]) },
			'zklock.session_timeout' => '60s',
			'log_statement' => 'none',
			'autovacuum' => 'off',
			'deadlock_timeout' => 1000 * $timeout . 'ms');
	});
my %node;
@node{qw(a b c)} = @nodes[ 0 .. 2 ];
my $client = $zk->client(timeout => 60);

sub lock { return "SELECT zk_lock('$_[0]')"; }

# Faults: each is a function that takes names of instances, begins, and returns
# one that ends it and waits until they are connected again.

sub new_worker
{
	my (@names) = @_;
	my %pid = map { $_ => worker_of($node{$_}) } @names;

	kill 'TERM', values %pid;
	return sub {
		wait_next_worker($node{$_}, $pid{$_}), wait_connected($node{$_}) for @names;
	};
}

sub lost_connection
{
	my (@names) = @_;

	$proxy->refuse(map { "$_-0" } @names);
	$node{$_}->poll_query_until('postgres', "SELECT state <> 'connected' FROM zk_session") for @names;
	return sub {
		$proxy->thaw(map { "$_-0" } @names);
		wait_connected($node{$_}) for @names;
	};
}

sub no_zookeeper
{
	$zk->kill9;
	return sub {
		$zk->start;
		wait_connected($_) for values %node;
	};
}

my $n = 0;
for my $fault (
	[ 'a new worker', \&new_worker ],
	[ 'a lost connection', \&lost_connection ],
	[ 'no ZooKeeper', \&no_zookeeper ])
{
	my ($what, $begin) = @$fault;

	for my $names ($what eq 'no ZooKeeper' ? ['a'] : (['a'], ['b'], [ 'a', 'b' ]))
	{
		my $title = $what eq 'no ZooKeeper' ? $what : "$what of " . join(' and ', @$names);

		# the last wait is asked for meanwhile
		for my $closing ('one', 'two')
		{
			my $other = $closing eq 'one' ? 'two' : 'one';
			my %wants = (one => "y$n", two => "x$n");
			my $s = ZkScene->new($zk, "$title, then $closing closes it", one => $node{a}, two => $node{b});

			$s->does(one => lock("x$n"));
			$s->does(two => lock("y$n"));
			$s->waits($other => lock($wants{$other}), queue => { $wants{$other} => 2 });
			my $end = $begin->(@$names);
			$s->closes($closing => lock($wants{$closing}));
			$end->();
			$s->closed;
			$s->ends(first => 'two');
			$n++;
		}

		# or all wait already
		my $s = ZkScene->new($zk, "$title, once it is closed",
			one => $node{a}, two => $node{b}, three => $node{c});
		$s->does(one => lock("x$n"));
		$s->does(two => lock("y$n"));
		$s->does(three => lock("z$n"));
		$s->waits(one => lock("y$n"), queue => { "y$n" => 2 });
		$s->waits(two => lock("z$n"), queue => { "z$n" => 2 });
		$s->closes(three => lock("x$n"));
		wait_contenders($zk, "x$n", 2);
		$begin->(@$names)->();
		$s->closed;
		$s->ends(first => 'three');
		$n++;
	}
}

#
# What was published is taken back
#

# One that holds x and has waited for y for long, behind another client.
sub published
{
	my $s = ZkSession->new($node{a});
	my $y = $client->lock(lock_dir('y'));
	my $w = ZkSession->new($node{b});

	$s->run_ok(q{BEGIN; SELECT zk_lock('x'); SAVEPOINT s});
	$w->send(lock('x'));
	$s->send(lock('y'));
	poll_until(sub { told($zk, 'keep', 'x') }, 'the wait to be published');
	return ($s, $w, $y);
}

sub taken_back
{
	my ($what, $s, $w, $y) = @_;

	poll_until(sub { !told($zk, 'keep', 'x') }, 'the wait to be taken back');
	is(scalar(grep { /./ } contenders($zk, 'x')), 2, "$what: it is taken back, and the lock is kept");
	$client->unlock($y);
	$s->run_ok('ROLLBACK');
	$w->result;
	$_->quit for ($s, $w);
	wait_no_contenders($zk, $_) for ('x', 'y');
	return;
}

if (ZkScene::checks())
{
	my @all = my ($s, $w, $y) = published();
	$node{a}->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $s->pid . ')');
	is($s->result->{sqlstate}, '57014', 'a wait that is canceled');
	$s->run_ok('ROLLBACK TO s');
	taken_back('canceled', @all);

	for my $fault ([ 'a new worker', \&new_worker ], [ 'a lost connection', \&lost_connection ])
	{
		my ($what, $begin) = @$fault;

		@all = ($s, $w, $y) = published();
		my $end = $begin->('a');
		$node{a}->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $s->pid . ')');
		is($s->result->{sqlstate}, '57014', "$what: the wait is canceled meanwhile");
		$s->run_ok('ROLLBACK TO s');
		$end->();
		taken_back($what, @all);
	}

	@all = ($s, $w, $y) = published();
	$node{a}->safe_psql('postgres', 'ALTER SYSTEM SET zklock.deadlock_check = off');
	$node{a}->reload;
	poll_until(sub { !told($zk, 'keep', 'x') }, 'the wait to be taken back');
	pass('off: it is taken back');
	$node{a}->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $s->pid . ')');
	is($s->result->{sqlstate}, '57014', 'off: the wait goes on');
	$s->run_ok('ROLLBACK TO s');
	$node{a}->safe_psql('postgres', 'ALTER SYSTEM RESET zklock.deadlock_check');
	$node{a}->reload;
	taken_back('off', @all);

	my $left = sub { return grep { $_[0]->($_) } eval { $client->ls('/zklock/%waits') }; };
	poll_until(sub { !$left->(sub { 1 }) }, 'nothing to be left below %waits');
	pass('nothing is left below %waits');
	ZkScene::report($timeout);
}
is(join(' ', map { $_->safe_psql('postgres', 'SELECT sessions FROM zk_session') } values %node),
	'1 1 1', 'no session has ended');

#
# A member gives up while others are to confirm
#

# The owner's instance does not confirm until the holder has given up: then its
# own edge is there still, but that of the victim's instance is not.
if (ZkScene::checks())
{
	for my $name (qw(a b))
	{
		$node{$name}->append_conf('postgresql.conf', "deadlock_timeout = '5s'");
		$node{$name}->reload;
		$node{$name}->poll_query_until('postgres',
			"SELECT setting = '5000' FROM pg_settings WHERE name = 'deadlock_timeout'");
	}
	$node{a}->safe_psql('postgres', 'CREATE TABLE t AS SELECT 1 AS i');
	my $worker = worker_of($node{b});
	my $confirms = sub { return scalar grep { /^[0-9a-f]{32}\./ } eval { $client->ls('/zklock/%waits') } };
	my $s = ZkScene->new($zk, 'a member gives up while others are to confirm',
		holder => $node{a}, owner => $node{b}, victim => $node{a});

	$s->does(holder => lock('x'));
	$s->does(owner => lock('y'));
	$s->does(victim => 'UPDATE t SET i = i');
	$s->waits(owner => lock('x'), queue => { x => 2 });
	$s->waits(victim => lock('y'), queue => { y => 2 });
	poll_until(sub { told($zk, 'keep', 'y') }, 'the owner to publish');
	kill STOP => $worker;
	$s->does(holder => 'SAVEPOINT s');
	$s->waits(holder => 'UPDATE t SET i = i', tier => 1);
	poll_until(sub { $confirms->() == 1 }, 'its instance to confirm');
	$node{a}->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $s->pid('holder') . ')');
	$s->gives_up(holder => 'ROLLBACK TO s');
	kill CONT => $worker;
	poll_until(sub { $confirms->() == 0 }, 'that to be taken back');
	$s->does(holder => 'COMMIT');
	$s->ends(victims => 0);
	wait_no_contenders($zk, $_) for ('x', 'y');
}

#
# How long it takes
#

if (!ZkScene::checks())
{
	done_testing();
	exit;
}

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
# others soon: in one of three deadlocks at least, since the machine may stand
# still in one.
{
	my $a = $nodes[0];
	my $time;

	$a->append_conf('postgresql.conf', 'log_min_messages = debug2');
	$a->reload;
	$a->poll_query_until('postgres', "SELECT current_setting('log_min_messages') = 'debug2'");
	$slow->delay_scan(500);
	for (1 .. 3)
	{
		$time = cycle(2, sub { $a->wait_for_log(qr/waits for slots/, -s $a->logfile); });
		diag sprintf('a deadlock where each scan takes 0.5 s: %.3f s', $time);
		last if $time < 6;
	}
	$slow->delay_scan(0);
	cmp_ok($time, '<', 6, 'a deadlock ends soon though scans take long');
}

done_testing();
