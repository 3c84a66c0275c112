
# The first of several locks that is free, over three instances: exactly one is
# kept, of several that are granted at once, too; whoever has waited longest gets
# a lock; and whatever becomes of a call, nothing of it is left in ZooKeeper.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZkWire;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};
my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my $proxy = ZkProxy->new;
my $servers = $zk->connstr_through($proxy, 'a');
$proxy->count('a-0');

my ($a, $b, $c) = zk_clusters(
	$zk, [qw(a b c)],
	install_path => $ENV{ZKLOCK_TEST_INSTALL},
	'zklock.look_again' => 'off',    # only its event wakes who waits
	'zklock.servers' => sub { $_[0] eq 'a' ? $servers : $zk->connstr },
	'zklock.session_timeout' => '60s',
	'deadlock_timeout' => '200ms',
	'max_connections' => 60);

# The locks of a call, as an array.
sub names { return q('{) . join(',', @_) . q(}'); }

sub waits_for_any
{
	my ($node, $locks, $more) = @_;

	return waiter($node, '', undef, "SELECT zk_lock_any($locks" . ($more // '') . ')');
}

# What a backend has in the instance's tables: "name granted", in order.
sub slots_of
{
	my ($s) = @_;

	return value($s->{node},
		"SELECT string_agg(name || CASE WHEN granted THEN '*' ELSE '' END, ' ' ORDER BY name)"
		  . ' FROM zk_locks WHERE pid = ' . $s->pid);
}

sub nothing_is_left
{
	my ($name, @nodes) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $node (@nodes ? @nodes : ($a, $b, $c))
	{
		is( value($node, q{SELECT slot_users, (SELECT count(*) FROM pg_locks WHERE locktype = 'userlock')}
				  . ' FROM zk_stat'),
			'0|0', "$name: nobody holds or wants anything in " . $node->name);
	}
	return if @nodes;
	ok(eval { poll_until(sub { !all_contenders($zk) }, 'all contenders to be gone') },
		"$name: nothing is left in ZooKeeper")
	  or diag($@, explain([ all_contenders($zk) ]));
	return;
}

# Who stands in the queue of a lock: the letters of instances, "-" for others.
sub queue
{
	my ($name) = @_;

	return join '', map {
		my $data = eval { $foreign->get(lock_dir($name) . "/$_")->{data} } // '';
		$data =~ /cluster=([abc])\b/ ? $1 : '-'
	} contenders($zk, $name);
}

sub wait_queue
{
	my ($name, $expected) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(eval { poll_until(sub { queue($name) eq $expected }, "the queue of $name") },
		"queue of $name: $expected") or diag(queue($name));
	return;
}

#
# A few requests for all tries, and for all that is given back
#

my @many = map { "many/$_" } (1 .. 500);
my $many = "(SELECT array_agg('many/' || i ORDER BY i) FROM generate_series(1, 500) i)";

{
	my $s = ZkSession->new($a);

	# directories that nobody collects, and that the worker has seen
	$foreign->create(lock_dir($_), makepath => 1) for @many;
	$s->run_ok("SELECT zk_lock_all($many)", '500 locks');
	nothing_is_left('500 locks', $a);
	poll_until(sub { !all_contenders($zk) }, 'all contenders to be gone');

	for my $call ("zk_try_lock_any($many)", "zk_lock_any($many)",
		"zk_lock_any($many, session => true)", "zk_try_lock_any($many, '1 min', shared => true)")
	{
		my $ahead = $foreign->lock(lock_dir('many/1'));
		my $before = $proxy->requests('a-0');

		$s->run_ok('BEGIN');
		my $got = $s->run_ok("SELECT $call");
		like($got, qr{^many/(?!1$)\d+$}, "500 names: $call");
		poll_until(sub { scalar(all_contenders($zk)) == 2 }, 'the others to go');
		is(queue('many/1') . queue($got), '-a', 'the others are left');
		my $after = $proxy->requests('a-0');
		my %asked = map { $_ => $after->{$_} - ($before->{$_} // 0) } keys %$after;
		# a multi has 256 creates or deletes at most
		is($asked{multi}, 4, 'two multis for the tries, two for what is given back')
		  or diag(explain(\%asked));
		is(($asked{create} // 0) + ($asked{delete} // 0) + ($asked{create_container} // 0),
			0, '... and no other create or delete');
		$s->run_ok('COMMIT; SELECT zk_unlock_all()');
		$foreign->unlock($ahead);
		nothing_is_left("500 names: $call");
	}

	# what the instance owns is taken without ZooKeeper
	$s->run_ok("BEGIN; SELECT zk_lock('own')");
	my $ahead = $foreign->lock(lock_dir('held'));
	my $next = waits_for_any($a, names('own', 'held'));
	my ($node) = contenders($zk, 'own');
	$s->run_ok('COMMIT');
	is($next->result->{out}, 'own', 'a lock is handed on within the instance');
	is((contenders($zk, 'own'))[0], $node, '... with its contender');
	$next->run_ok('COMMIT');
	$_->quit for ($s, $next);
	$foreign->unlock($ahead);
	nothing_is_left('handed on');
}

#
# Order among instances
#

{
	my $locks = names('s1', 's2');
	my $ahead = $foreign->lock(lock_dir('s1'));
	my $first = ZkSession->new($a);

	$first->run_ok('BEGIN');
	is($first->run("SELECT zk_lock_any($locks)")->{out}, 's2', 'a takes the lock that is free');
	is($first->run("SELECT zk_try_lock_any($locks)")->{out}, '', 'there is no other');
	is(value($b, "SELECT zk_try_lock_any($locks)"), '', 'b finds none');
	is(value($b, "SELECT zk_try_lock_any($locks, '20ms')"), '', '... nor in time');
	wait_queue('s1', '-');

	my @waiting;
	for ([ $b, 'b' ], [ $c, 'bc' ], [ $b, 'bc' ])
	{
		my ($node, $behind) = @$_;
		push @waiting, waits_for_any($node, $locks);
		wait_queue('s1', "-$behind");
		wait_queue('s2', "a$behind");
	}
	my @places = (contenders($zk, 's2'))[ 1, 2 ];

	$foreign->unlock($ahead);
	is($waiting[0]->result->{out}, 's1', 'who came first has the first that is free');
	wait_queue('s1', 'bc');
	is_deeply([ (contenders($zk, 's2'))[ 1, 2 ] ],
		\@places, 'the other of its instance keeps the place in the other queue');
	$first->run_ok('COMMIT');
	is($waiting[2]->result->{out}, 's2', '... and has that lock');
	wait_queue('s2', 'bc');
	ok(!$waiting[1]->done, 'the one of c waits on');
	$waiting[0]->run_ok('COMMIT');
	is($waiting[1]->result->{out}, 's1', '... and has the next');
	wait_queue('s2', 'b');
	$_->run_ok('COMMIT') for @waiting[ 1, 2 ];
	$_->quit for ($first, @waiting);
	nothing_is_left('order');
}

#
# Several are granted at once
#

{
	my @locks = map { "g$_" } (1 .. 6);

	for my $scope ('false', 'true')
	{
		my %ahead = map { $_ => $foreign->lock(lock_dir($_)) } @locks;
		my $s = waits_for_any($b, names(@locks), ", session => $scope");
		my $behind = waiter($c, 'g3', 2);
		my $local = waiter($b, 'g4', 1);
		wait_queue($_, $_ eq 'g3' ? '-bc' : '-b') for @locks;
		my $worker = worker_of($b);
		my ($place) = (contenders($zk, 'g4'))[1];

		stop_process($worker);
		$foreign->unlock($_) for values %ahead;
		kill 'CONT', $worker;
		my $got = $s->result->{out};
		is(slots_of($s), "$got*", 'of several that are granted at once, exactly one is kept');
		is($behind->result->{message}, undef, 'another instance has one of the others')
		  if $got ne 'g3';
		is($local->result->{message}, undef, 'another backend of the instance has one')
		  if $got ne 'g4';
		is((contenders($zk, 'g4'))[0], $place, '... with the same contender');
		wait_queue($_, $_ eq 'g3' ? ($got eq $_ ? 'bc' : 'c') : $_ eq $got || $_ eq 'g4' ? 'b' : '')
		  for @locks;
		$s->run_ok('COMMIT; SELECT zk_unlock_all()');
		is($_->result->{message}, undef, 'all have a lock in the end') for grep { $_->{busy} } ($behind, $local);
		$_->run_ok('COMMIT') for ($behind, $local);
		$_->quit for ($s, $behind, $local);
		nothing_is_left('several at once');
	}
}

#
# A call ends without a lock
#

{
	my @locks = qw(e1 e2 e3);
	my $locks = names(@locks);
	my %ahead = map { $_ => $foreign->lock(lock_dir($_)) } @locks;
	my $local = holder($a, 'e0');
	my $all = names('e0', @locks);
	my %before = map { $_ => value($a, "SELECT $_ FROM zk_stat") } qw(timed_out failed);

	for my $shared ('false', 'true')
	{
		my $s = waits_for_any($a, $all, ", shared => $shared");
		wait_queue($_, '-a') for @locks;
		value($a, 'SELECT pg_cancel_backend(' . $s->pid . ')');
		is($s->result->{sqlstate}, '57014', 'canceled');
		$s->run_ok('ROLLBACK');
		wait_queue($_, '-') for @locks;

		is($s->run("SELECT zk_lock_any($all, '50ms', shared => $shared)")->{sqlstate},
			'55P03', 'a timeout');
		wait_queue($_, '-') for @locks;
		$s->run_ok("SET lock_timeout = '50ms'");
		error_is(
			$s->run("SELECT zk_lock_any($all, shared => $shared)"),
			{ sqlstate => '55P03', message => 'could not obtain any of 4 locks in ZooKeeper' },
			'lock_timeout');
		is($s->run("SELECT zk_try_lock_any($all, '1 min', shared => $shared)")->{out},
			'', '... and a try');
		wait_queue($_, '-') for @locks;
		$s->run_ok('RESET lock_timeout');

		# in a savepoint, after which the transaction goes on
		$s->run_ok('BEGIN; SAVEPOINT s');
		$s->send("SELECT zk_lock_any($all, shared => $shared)");
		$s->wait_waiting;
		wait_queue($_, '-a') for @locks;
		value($a, 'SELECT pg_cancel_backend(' . $s->pid . ')');
		is($s->result->{sqlstate}, '57014', 'canceled in a savepoint');
		$s->run_ok('ROLLBACK TO s');
		wait_queue($_, '-') for @locks;
		$s->run_ok('COMMIT');

		$s->send("SELECT zk_lock_any($all, shared => $shared)");
		$s->wait_waiting;
		wait_queue($_, '-a') for @locks;
		value($a, 'SELECT pg_terminate_backend(' . $s->pid . ')');
		$s->result;
		wait_queue($_, '-') for @locks;
		$s->quit;
	}
	is(value($a, 'SELECT timed_out FROM zk_stat') - $before{timed_out}, 6, 'a call is counted once');
	is(value($a, 'SELECT failed FROM zk_stat') - $before{failed}, 6, '... also one that fails');

	$local->run_ok('COMMIT');
	$local->quit;
	$foreign->unlock($_) for values %ahead;
	nothing_is_left('ends without');
}

#
# ZooKeeper refuses one
#

{
	my $ahead = $foreign->lock(lock_dir('e1'));
	my $s = ZkSession->new($b);

	# as long as it has a permit, ZooKeeper keeps its directories
	my $permit = ZkSession->new($a);
	$permit->run_ok(q{BEGIN; SELECT zk_acquire('semaphore', 1)});
	for my $call (qw(zk_lock_any zk_try_lock_any))
	{
		my $result = $s->run("SELECT $call(" . names('e1', 'semaphore') . ')');
		is($result->{sqlstate}, '55000', "$call of a semaphore") or diag(explain($result));
		wait_queue('e1', '-');
	}
	is($s->run('SELECT zk_lock_any(' . names('e2', 'e1') . ')')->{out}, 'e2', 'others are free');
	$foreign->unlock($ahead);
	$_->quit for ($s, $permit);
	nothing_is_left('refused');
}

#
# The worker ends, the connection is lost, the session ends
#

{
	my @locks = qw(w1 w2 w3);
	my $locks = names(@locks);
	my %ahead = map { $_ => $foreign->lock(lock_dir($_)) } @locks;
	my $s = waits_for_any($a, $locks);
	wait_queue($_, '-a') for @locks;
	my %place = map { $_ => (contenders($zk, $_))[1] } @locks;
	my $session = session_of($a);

	next_worker($a);
	is_deeply({ map { $_ => (contenders($zk, $_))[1] } @locks },
		\%place, 'a new worker: the places are the same');
	$proxy->reset('a-0');
	$a->poll_query_until('postgres', "SELECT state = 'connected' FROM zk_session");
	is(session_of($a), $session, 'the session goes on');
	$foreign->unlock($ahead{w2});
	is($s->result->{out}, 'w2', 'and the call comes to its end');
	is(slots_of($s), 'w2*', '... with one lock');
	wait_queue('w1', '-');
	wait_queue('w3', '-');
	$s->run_ok('ROLLBACK');
	wait_contenders($zk, 'w2', 0);
	$ahead{w2} = $foreign->lock(lock_dir('w2'));

	$s->run_ok('BEGIN');
	$s->send("SELECT zk_lock_any($locks)");
	$s->wait_waiting;
	wait_queue($_, '-a') for @locks;
	%place = map { $_ => (contenders($zk, $_))[1] } @locks;
	ok(end_session($a, $foreign), 'the session ends');
	for my $lock (@locks)
	{
		poll_until(sub { my @q = contenders($zk, $lock); @q == 2 && $q[1] ne $place{$lock} },
			"a new place for $lock");
	}
	pass('the call queues again');
	$foreign->unlock($ahead{w3});
	is($s->result->{out}, 'w3', 'and has a lock in the end');
	wait_queue('w1', '-');
	wait_queue('w2', '-');

	ok(end_session($a, $foreign), 'the session ends again');
	poll_until(sub { value($a, q{SELECT count(*) FROM zk_locks WHERE lost}) }, 'the loss to be known');
	is($s->run('COMMIT')->{sqlstate}, '40001', 'no commit under a lost lock');
	$foreign->unlock($ahead{$_}) for qw(w1 w2);
	$s->quit;
	nothing_is_left('loss');
}

# The connection is lost while all is on its way.
for my $try (1 .. 5)
{
	my $s = ZkSession->new($a);

	$s->run_ok('BEGIN');
	$s->send("SELECT zk_lock_any($many)");
	$proxy->reset('a-0');
	like($s->result->{out}, qr{^many/\d+$}, "try $try: a connection that is lost");
	is(value($a, 'SELECT count(*) FROM zk_locks'), 1, '... and one lock');
	$s->run_ok('COMMIT');
	$proxy->reset('a-0');
	$s->quit;
	nothing_is_left("try $try");
}

#
# Retained locks, and the log
#

{
	my $s = ZkSession->new($c);

	value($c, q{ALTER SYSTEM SET zklock.retain_time = '10min'});
	$c->reload;
	poll_until(sub { $s->run(q{SELECT zk_lock('r0')}); queue('r0') eq 'c' },
		'locks to be retained');
	$s->run_ok('BEGIN');
	my $got = $s->run_ok(q{SELECT zk_lock_any('{r1,r2,r3}')});
	wait_queue($_, $_ eq $got ? 'c' : '') for qw(r1 r2 r3);
	$s->run_ok('COMMIT');
	is(queue($got), 'c', 'the lock that was held is retained');
	is($s->run_ok(q{SELECT zk_lock_any('{r3,r2,r1}')}), $got, '... and taken first');
	my $other = ZkSession->new($b);
	$other->run_ok('BEGIN');
	$other->run_ok(qq{SELECT zk_try_lock_any('{$got,r4}')});
	$other->run_ok(qq{SELECT zk_try_lock_any('{$got,r4}', '1 min')});
	is(slots_of($other), "$got* r4*", '... and is free for other instances');
	value($c, 'ALTER SYSTEM RESET zklock.retain_time');
	$c->reload;
	$other->run_ok('COMMIT');

	my $offset = -s $c->logfile;
	my %ahead = map { $_ => $foreign->lock(lock_dir($_)) } qw(l1 l2);
	$s->run_ok('SET log_lock_waits = on');
	$s->send(q{SELECT zk_lock_any('{l1,l2}')});
	$c->wait_for_log(qr/process \d+ still waiting for any of 2 locks in ZooKeeper after \d+ ms\n.*DETAIL:  The first is "l1"\./, $offset);
	$foreign->unlock($ahead{l2});
	is($s->result->{out}, 'l2', 'a wait that is logged');
	$c->wait_for_log(qr/process \d+ acquired exclusive lock "l2" in ZooKeeper after \d+ ms/, $offset);
	$foreign->unlock($ahead{l1});
	$_->quit for ($s, $other);
	nothing_is_left('retained, and logged');
}

#
# At the same time
#

# Those of one instance do not take each other for holders.
{
	my @s = map { ZkWire->new($b) } (1 .. 12);
	my $names = names(map { "t$_" } (1 .. 12));

	for my $round (1 .. 5)
	{
		$_->run('BEGIN') for @s;
		$_->send("SELECT zk_try_lock_any($names)") for @s;
		while (my @busy = grep { $_->busy } @s)
		{
			ZkWire::wait_any($PostgreSQL::Test::Utils::timeout_default, @busy)
			  or BAIL_OUT('calls do not end');
		}
		is_deeply([ sort map { $_->result->{out} } @s ],
			[ sort map { "t$_" } (1 .. 12) ], "round $round: each has one of its own");
		$_->run('COMMIT') for @s;
	}
	$_->vanish for @s;
}

# Workers that take the first shard that is free, of fewer shards than workers,
# beside such that want a certain one: never two at one shard.
{
	my @calls = (
		q{zk_lock_any('{h1,h2,h3,h4}')}, q{zk_lock_any('{h4,h3,h2}', '1 min')},
		q{zk_lock_any('{h2,h1,h3,h4}', session => true)},
		q{coalesce(zk_try_lock_any('{h1,h2,h3,h4}', '1 min'), 'none')},
		q{left('h2' || zk_lock('h2'), 2)}, q{left('h3' || zk_lock_all('{h3,h4}'), 2)});
	my (@s, %left);
	my $turns = 12;

	for my $node ($a, $b, $c)
	{
		value($node, 'CREATE TABLE work (shard text, began timestamptz, ended timestamptz)');
		push @s, map { my $wire = ZkWire->new($node); $wire->{call} = $_; $wire } @calls;
	}
	my $begin = sub {
		my ($s) = @_;
		$s->send("DO \$\$ DECLARE s text; t timestamptz; BEGIN"
			  . " s := $s->{call}; t := clock_timestamp(); PERFORM pg_sleep(0.003);"
			  . ' INSERT INTO work VALUES (s, t, clock_timestamp());'
			  . ' PERFORM zk_unlock_all(); END $$');
	};
	$left{$_} = $turns for @s;
	$begin->($_) for @s;
	while (my @busy = grep { $left{$_} } @s)
	{
		my @ended = ZkWire::wait_any($PostgreSQL::Test::Utils::timeout_default, @busy);

		if (!@ended)
		{
			fail('workers are stuck: ' . join(', ', map { $_->{call} } @busy));
			BAIL_OUT('workers are stuck');
		}
		for my $s (@ended)
		{
			is($s->result->{message}, undef, $s->{call}) if $s->result->{message};
			$begin->($s) if --$left{$s};
		}
	}
	my @work = map { [ split /\|/ ] } map { split /\n/,
		value($_, 'SELECT shard, extract(epoch FROM began), extract(epoch FROM ended) FROM work')
	} ($a, $b, $c);
	is(scalar(@work), $turns * @s, 'all work is done');
	my %ended;
	my $overlaps = 0;
	for (sort map { "$_->[1]|$_->[0]|$_->[2]" } grep { $_->[0] =~ /^h/ } @work)
	{
		my ($began, $shard, $ended) = split /\|/;
		$overlaps++ if $began < ($ended{$shard} // 0);
		$ended{$shard} = $ended;
	}
	is($overlaps, 0, 'one at a time at each shard');
	is(join(' ', sort keys %ended), 'h1 h2 h3 h4', 'at all shards');
	$_->vanish for @s;
	for my $node ($a, $b, $c)
	{
		$node->poll_query_until('postgres', 'SELECT slot_users = 0 FROM zk_stat');
	}
	nothing_is_left('many at a time');
}

#
# Deadlocks
#

# A wait for any of several is told to nobody: lock_timeout ends it.
{
	my $any = ZkSession->new($a);
	my $other = ZkSession->new($b);
	my $before = value($a, 'SELECT deadlocks FROM zk_stat') + value($b, 'SELECT deadlocks FROM zk_stat');

	$any->run_ok("BEGIN; SET LOCAL lock_timeout = '2s'; SELECT zk_lock('d1')");
	$other->run_ok("BEGIN; SELECT zk_lock_all('{d2,d3}')");
	$any->send("SELECT zk_lock_any('{d2,d3}')");
	$any->wait_waiting;
	$other->send("SELECT zk_lock('d1')");
	$other->wait_waiting(2);
	is($any->result->{sqlstate}, '55P03', 'a cycle by way of any of two: lock_timeout ends it');
	$any->run('ROLLBACK');
	is($other->result->{message}, undef, '... and the other goes on');
	$other->run_ok('COMMIT');
	is(value($a, 'SELECT deadlocks FROM zk_stat') + value($b, 'SELECT deadlocks FROM zk_stat'),
		$before, '... and there was no victim');
	$_->quit for ($any, $other);
	nothing_is_left('a cycle by way of any of two');
}

# One of the locks is free in the end.
{
	my $any = ZkSession->new($a);
	my $other = ZkSession->new($b);
	my $ahead = $foreign->lock(lock_dir('d3'));

	$any->run_ok("BEGIN; SELECT zk_lock('d1')");
	$other->run_ok("BEGIN; SELECT zk_lock('d2')");
	$any->send("SELECT zk_lock_any('{d2,d3}')");
	$any->wait_waiting;
	$other->send("SELECT zk_lock('d1')");
	$other->wait_waiting(2);
	my $before = value($a, 'SELECT deadlocks FROM zk_stat') + value($b, 'SELECT deadlocks FROM zk_stat');
	my $s = waits_for_any($c, names('d2', 'd3'));
	poll_until(sub { value($a, q{SELECT bool_and(clock_timestamp() > state_change + '2 s') FROM zk_locks WHERE NOT granted}) eq 't' },
		'the wait to be long');
	ok(!$any->done && !$other->done, 'both wait on');
	$foreign->unlock($ahead);
	is($any->result->{out}, 'd3', 'until the other alternative is free');
	$any->run_ok('COMMIT');
	is($other->result->{message}, undef, '... and the other goes on');
	$other->run_ok('COMMIT');
	like($s->result->{out}, qr/^d[23]$/, 'who waits behind both has one');
	$s->run_ok('COMMIT');
	is(value($a, 'SELECT deadlocks FROM zk_stat') + value($b, 'SELECT deadlocks FROM zk_stat'),
		$before, 'there was no deadlock');
	$_->quit for ($any, $other, $s);
	nothing_is_left('no deadlock');
}

for my $node ($a, $b, $c)
{
	$node->stop('fast');
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/,
		$node->name . ' has not crashed');
}

done_testing();
