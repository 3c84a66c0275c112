# Copyright (c) 2026, zklock developers

# zk_lock_all takes its locks one after the other, in the byte order of their
# paths: what it has while it waits, what it checks before it takes any, how it
# ends at each point, that it begins again when it has lost one, and that many
# callers with overlapping names, in any order, over two instances, all go on.

use strict;
use warnings;

use List::Util qw(shuffle);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZkWire;
use ZooKeeper;

seed();

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my ($a, $b) = zk_clusters(
	$zk, [qw(a b)],
	'zklock.retain_time' => 0,
	'log_min_messages' => 'debug1',
	'max_prepared_transactions' => 0);
my $all = "zk_lock_all(ARRAY['y', 'Z', 'x'])";
my @order = qw(Z x y);    # by bytes, whatever the collation

# What a session has and wants: names, and a "?" after one that it waits for.
sub locks
{
	my ($session) = @_;

	return value($session->{node},
		q{SELECT string_agg(name || CASE WHEN granted THEN '' ELSE '?' END, ' ' ORDER BY name COLLATE "C")}
		  . " FROM zk_locks WHERE pid = $session->{pid}");
}

sub nothing_is_left
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_no_contenders($zk, $_) for @order;
	comes_to(
		sub { join ' ', map { value($_, 'SELECT count(*) FROM zk_locks') } ($a, $b) },
		'0 0', "$name: nothing is left");
	return;
}

#
# One lock at a time, in one order
#

for my $tier (1, 2)
{
	for my $n (0 .. $#order)
	{
		my $ahead = holder($tier == 1 ? $a : $b, $order[$n]);
		my $waiter = waiter($a, undef, $tier, "SELECT $all");

		comes_to(
			sub { locks($waiter) },
			join(' ', @order[ 0 .. $n - 1 ], "$order[$n]?"),
			"tier $tier: it has the $n locks before $order[$n], and wants no other");
		is(scalar(contenders($zk, $_)), 0, "... there is no contender for $_")
		  for @order[ $n + 1 .. $#order ];
		is(sql($b, "SELECT zk_try_lock('$_')")->{out}, 'f', "... and nobody else gets $_")
		  for @order[ 0 .. $n - 1 ];
		hand_over($ahead, $waiter, '... until it has all');
		nothing_is_left("tier $tier, $order[$n]");
	}
}

#
# Its end, at each of them, in both tiers
#

my %end = (
	cancel => [ '57014', sub { value($a, 'SELECT pg_cancel_backend(' . $_[0]->pid . ')') } ],
	terminate => [ '57P01', sub { value($a, 'SELECT pg_terminate_backend(' . $_[0]->pid . ')') } ],
	timeout => [ '55P03', sub { }, "zk_lock_all(ARRAY['y', 'Z', 'x'], '300ms')" ],
	lock_timeout => [ '55P03', sub { }, $all, "SET lock_timeout = '300ms'" ]);

for my $tier (1, 2)
{
	for my $how (sort keys %end)
	{
		for my $n (0 .. $#order)
		{
			my ($sqlstate, $act, $call, $before) = @{ $end{$how} };
			my $ahead = holder($tier == 1 ? $a : $b, $order[$n]);
			my $session = ZkSession->new($a);

			$session->run_ok($before) if $before;
			$session->send('SELECT ' . ($call // $all));
			if ($how !~ /timeout/)
			{
				comes_to(
					sub { locks($session) },
					join(' ', @order[ 0 .. $n - 1 ], "$order[$n]?"),
					"$how, tier $tier: it waits for $order[$n]");
				$act->($session);
			}
			is($session->result->{sqlstate}, $sqlstate, "$how, tier $tier, at $order[$n]");
			wait_no_contenders($zk, $_) for grep { $_ ne $order[$n] } @order;
			$ahead->run_ok('COMMIT');
			nothing_is_left("$how, tier $tier, at $order[$n]");
			$_->quit for ($ahead, $session);
		}
	}
}

#
# An error that is caught: exactly its own counts go, and at once, though the
# transaction has changed something
#

for my $scope ('transaction', 'session')
{
	my $ahead = holder($b, 'y');
	my $s = ZkSession->new($a);
	my $session = $scope eq 'session' ? 'true' : 'false';

	$s->run_ok('CREATE TEMP TABLE IF NOT EXISTS changed (i int)');
	$s->run_ok("BEGIN; INSERT INTO changed VALUES (1); SELECT zk_lock('x', session => $session)");
	$s->run_ok(
		"DO \$\$ BEGIN PERFORM zk_lock_all(ARRAY['y', 'Z', 'x'], '100ms', session => $session);"
		  . ' EXCEPTION WHEN lock_not_available THEN NULL; END $$',
		"$scope: the error is caught");
	wait_no_contenders($zk, 'Z');
	is(locks($s), 'x', '... what it had before it still has');
	is(sql($b, "SELECT zk_try_lock('Z')")->{out}, 't', '... the rest is free before the COMMIT');
	if ($scope eq 'session')
	{
		$s->run_ok('COMMIT');
		is($s->run_ok("SELECT zk_unlock('x')"), 't', '... once');
		is($s->run_ok("SELECT zk_unlock('x')"), 'f', '... and not twice');
	}
	else
	{
		$s->run_ok("SELECT zk_unlock('x'); COMMIT", '... and can be given back');
	}
	$_->quit for ($ahead, $s);
	nothing_is_left("caught, $scope");
}

#
# What is checked before it takes any
#

{
	my $ahead = $foreign->lock(lock_dir('Z'));
	my $s = ZkSession->new($a);

	$s->run_ok("BEGIN; SELECT zk_lock('y', shared => true)");
	is($s->run("SELECT $all")->{sqlstate}, '55000',
		'a shared lock that it would make exclusive: refused, though another one is not free');
	$s->run('ROLLBACK');
	is($s->run("SELECT zk_lock_all(ARRAY['Z', ''])")->{sqlstate}, '22023', 'a name that is none: the same');
	$foreign->unlock($ahead);
	$s->quit;
	nothing_is_left('checked');
}

#
# The session is lost: it gives all back, and begins again, in its time
#

for my $scope ('transaction', 'session', 'session, and zklock.terminate_on_loss')
{
	my $ahead = $foreign->lock(lock_dir('y'));
	my $s = ZkSession->new($a);
	my $session = $scope =~ /^session/ ? 'true' : 'false';
	my $offset = -s $a->logfile;

	$s->run_ok('SET zklock.terminate_on_loss = on') if $scope =~ /terminate/;
	$s->send("SELECT zk_lock_all(ARRAY['y', 'Z', 'x'], session => $session)");
	comes_to(sub { locks($s) }, 'Z x y?', "$scope: it waits for the last one");
	lose_session($a, $foreign);
	$a->wait_for_log(qr/has lost one of the first 3 of 3 locks, and begins again/, $offset);
	comes_to(sub { locks($s) }, 'Z x y?', '... waits for it again, with the others in the new session');
	ok(!$s->done, '... and goes on');
	$foreign->unlock($ahead);
	is($s->result->{message}, undef, '... until it has all');
	$s->run_ok('SELECT zk_unlock_all()');
	$s->quit;
	nothing_is_left("lost, $scope");
}

# in the first tier, it notices that it has lost one when it has all
{
	my $ahead = holder($b, 'y');
	my $local = waiter($a, 'y', 2);
	my $s = ZkSession->new($a);
	my $offset = -s $a->logfile;

	$s->send("SELECT $all");
	comes_to(sub { locks($s) }, 'Z x y?', 'it waits behind a session of its own instance');
	lose_session($a, $foreign);
	wait_no_contenders($zk, 'x');
	$ahead->run_ok('COMMIT');
	is($local->result->{message}, undef, 'the other one has the lock');
	$local->run_ok('COMMIT');
	is($s->result->{message}, undef, 'and then it has all');
	$a->wait_for_log(qr/has lost one of the first 3 of 3 locks, and begins again/, $offset);
	$_->quit for ($ahead, $local, $s);
	nothing_is_left('lost in tier 1');
}

# not in time
{
	my $ahead = $foreign->lock(lock_dir('y'));
	my $s = ZkSession->new($a);

	$s->send("SELECT zk_lock_all(ARRAY['y', 'Z', 'x'], '8s')");
	comes_to(sub { locks($s) }, 'Z x y?', 'it waits for the last one');
	lose_session($a, $foreign);
	is($s->result->{sqlstate}, '55P03', 'one timeout for all that it does');
	$foreign->unlock($ahead);
	$s->quit;
	nothing_is_left('lost, not in time');
}

#
# 30 clients, of two instances, each with two to four of six names, in any order
#

my $rounds = soak(30, 300);
my @names = map { "some/$_" } (1 .. 6);
my $shared = sub { rand() < 0.2 ? 'true' : 'false' };

$_->safe_psql(
	'postgres', q{
	CREATE TABLE waits (client int, ms float8);
	CREATE PROCEDURE take(client int, names text[], shared boolean) LANGUAGE plpgsql AS $$
	DECLARE
		began timestamptz := clock_timestamp();
	BEGIN
		PERFORM zk_lock_all(names, shared => shared);
		INSERT INTO waits VALUES (client,
			1000 * extract(epoch FROM clock_timestamp() - began));
		PERFORM pg_sleep(0.001);
	END $$}) for ($a, $b);
for my $mode ('exclusive', 'exclusive and shared')
{
	my @clients = map { ZkWire->new($_ % 2 ? $a : $b) } (1 .. 30);
	my @left = ($rounds) x @clients;
	my %number = map { $clients[$_] => $_ } (0 .. $#clients);
	my @errors;
	my $begin = sub {
		my ($client) = @_;
		my @some = (shuffle @names)[ 0 .. 1 + int rand 3 ];

		$client->send("CALL take($number{$client}, ARRAY["
			  . join(',', map { "'$_'" } @some) . '], '
			  . ($mode =~ /shared/ ? $shared->() : 'false') . ')');
	};

	$_->safe_psql('postgres', 'TRUNCATE waits') for ($a, $b);
	$begin->($_) for @clients;
	while (my @busy = grep { $_->busy } @clients)
	{
		my @done = ZkWire::wait_any($PostgreSQL::Test::Utils::timeout_default, @busy)
		  or BAIL_OUT('nobody goes on');

		for my $client (@done)
		{
			push @errors, $client->result->{message} if $client->result->{message};
			$begin->($client) if --$left[ $number{$client} ] > 0;
		}
	}
	is_deeply(\@errors, [], "$mode: no error, so no deadlock");
	is(value($_, 'SELECT deadlocks FROM zk_stat'), 0, "... none is counted in " . $_->name) for ($a, $b);

	my $waits = join ',', map { split /\n/, value($_, 'SELECT ms FROM waits') } ($a, $b);
	my ($n, $median, $longest) = split /\|/, value($a,
		'SELECT count(*), percentile_disc(0.5) WITHIN GROUP (ORDER BY ms), max(ms)'
		  . " FROM unnest('{$waits}'::float8[]) ms");

	is($n, 30 * $rounds, '... each has had its turns');
	note sprintf '%s: median %.1f ms, longest %.1f ms', $mode, $median, $longest;
	cmp_ok($longest, '<', 20 * $median, '... and nobody waits for longer than 20 times the median');
	$_->quit for @clients;
	comes_to(
		sub { join ' ', map { value($_, 'SELECT count(*) FROM zk_locks') } ($a, $b) },
		'0 0', '... nothing is left');
}

done_testing();
