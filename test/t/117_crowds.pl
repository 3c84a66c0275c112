# Copyright (c) 2026, zklock developers

# A client of ZooKeeper makes tens of thousands of znodes where instances list:
# in %waits, in %clusters, and in a lock directory; and with each change instances
# list them again.  Meanwhile lock calls of others go on.  What counts is the time
# for which the worker keeps them waiting: that of the processor that its loop
# takes, which does not depend on what else the machine does.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $crowd = 60_000;
my $changes = 10;

# ms
my $longest = 100;

my $zk = ZooKeeper->new;
$zk->start;
my ($a, $b) = zk_clusters(
	$zk, [ 'a', 'b' ],
	'zklock.session_timeout' => '20s',
	'deadlock_timeout' => '100ms');
my $stranger = $zk->client(timeout => 60);
my %caller = map { $_->name => ZkSession->new($_) } ($a, $b);
my $caller = $caller{a};
my %worker = map { $_->name => worker_of($_) } ($a, $b);

# The processor time of a worker's loop, in ms.
sub busy
{
	my ($worker) = @_;
	my $stat = slurp_file("/proc/$worker/task/$worker/stat");
	my @fields = split ' ', $stat =~ s/^.*\) //sr;

	return ($fields[11] + $fields[12]) * 10;
}

$_->run_ok('CREATE TEMP TABLE calls (ms float)') for values %caller;

# Calls for locks that nobody else wants, each by way of ZooKeeper.
my $calls = 0;

sub call
{
	my ($what) = @_;
	my $name = 'other' . $calls++;

	is( $caller->run(
			"DO \$\$ DECLARE since timestamptz; BEGIN FOR i IN 1 .. 10 LOOP since := clock_timestamp();"
			  . " PERFORM zk_lock('$name-' || i, '1 min'); COMMIT;"
			  . " INSERT INTO calls VALUES (extract(epoch FROM clock_timestamp() - since) * 1000); COMMIT; END LOOP; END \$\$")->{sqlstate},
		undef,
		"$what: other locks are taken");
	return;
}

# Changes of a directory with a crowd, and calls behind each, beside another
# session's query.
sub scene
{
	my ($what, $pattern, $beside, $query) = @_;
	my $data = $beside ? 'x' : '';    # those of clients that live

	$stranger->create_crowd($pattern, 0, $crowd, $data);
	call("$what, before");
	$caller->run_ok('TRUNCATE calls');

	my %before = map { $_ => busy($worker{$_}) } keys %worker;
	for my $change (1 .. $changes)
	{
		$stranger->create_crowd($pattern, $crowd + $change, 1, $data);
		$beside->send($query) if $beside;
		call("$what, change $change");
		$beside->result if $beside;
	}
	for my $node ($a, $b)
	{
		my $name = $node->name;
		my $spent = busy($worker{$name}) - $before{$name};

		note("$what: ${name}'s worker took $spent ms for $changes changes");
		cmp_ok($spent, '<', $changes * $longest, "$what: no change keeps ${name}'s worker busy for longer than $longest ms");
		is(worker_of($node), $worker{$name}, "$what: ${name}'s worker lives");
	}
	note("$what: the longest call took " . $caller->run_ok('SELECT round(max(ms)::numeric, 1) FROM calls') . ' ms');
	$stranger->delete_crowd($pattern, 0, $crowd);
	$stranger->delete_crowd($pattern, $crowd + 1, $changes);
	return;
}

sub waits_below
{
	my ($name) = @_;
	my $holder = holder($b, $name);
	my $held = holder($a, "held $name");

	$held->send("SELECT zk_lock('$name')");
	return sub { $holder->run_ok('COMMIT'); $held->result; $held->run_ok('COMMIT'); $_->quit for ($holder, $held); };
}

call('nobody');

# Members of the fleet, which the worker lists
scene('members', '/zklock/%%clusters/%08x-0000-4000-8000-000000000000-cluster');

# Deadlocks: a wait is told, and %waits is listed and watched
{
	my $end = waits_below('y');
	my $theirs = $stranger->enqueue(lock_dir('held y'));

	poll_until(sub { $stranger->exists('/zklock/%waits') }, 'the directory where deadlocks are confirmed');
	scene('texts', '/zklock/%%waits/z-%010d');
	scene('confirms', '/zklock/%%waits/0123456789abcdef0123456789abcdef.%d');
	scene('anything', '/zklock/%%waits/anything-%d');
	$stranger->delete($theirs);
	$end->();
}

# A lock directory: the owner's instance lists it, and so does each new contender
{
	my $end = waits_below('crowded');
	my $beside = ZkSession->new($b);

	$caller = $caller{b};
	scene('contenders', '/zklock/crowded/_c_89ab0123-4567-4def-8edc-ba9876543210-lock-%010d');
	scene('no contenders', '/zklock/crowded/x%d');
	$stranger->create('/zklock/tried');
	scene('tries', '/zklock/tried/_c_89ab0123-4567-4def-8edc-ba9876543210-lock-%010d',
		$beside, q{SELECT zk_try_lock('tried')});
	$beside->quit;
	$end->();
}

# Locks of all instances, more than fit into an answer of 8 MB
{
	my $fits = 4_000;
	my $n = 9_000;
	my $data = 'x' x 1000;
	my $contender = '/many/%d/_c_89ab0123-4567-4def-8edc-ba9876543210-lock-0000000001';
	my $all = "SET zklock.root = '/many'; SELECT count(*), count(holder) FROM zk_fleet_locks()";

	$stranger->create('/many');
	$stranger->create_crowd('/many/%d', 0, $n);
	$stranger->create_crowd($contender, 0, $fits, $data);
	is(sql($a, $all)->{out}, "$fits|$fits", 'many locks: all are shown');
	$stranger->create_crowd($contender, $fits, $n - $fits, $data);
	error_is(sql($a, $all),
		{
			sqlstate => '54000',
			message => 'too many locks below "/many"',
			detail => 'An answer has at most 8 MB.',
			hint => 'Call zk_queue() for single locks, or look at zk_locks in each server.'
		},
		'many locks: more than fit into an answer');
	is(worker_of($a), $worker{a}, 'many locks: the worker lives');
}

$_->quit for values %caller;
$_->stop for ($a, $b);
done_testing();
