# Copyright (c) 2026, zklock developers

# Deadlocks between instances, one scene for each kind of wait: one of the
# members fails with 40P01, whose text tells of all of them, and all others go
# on.  Who is no member never fails.
#
# How long it takes from the closing of a cycle to the error is reported, and
# no test.  With ZKLOCK_TEST_DEADLOCK_CHECK=off the scenes themselves are tested:
# each must stay as it is until a timeout.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkScene;
use ZkWire;
use ZooKeeper;

my $timeout = 0.3;
my %caught;

my $zk = ZooKeeper->new;
$zk->start;
my @nodes = zk_clusters(
	$zk, [ map { "shop_$_" } qw(a b c d e f g h) ],
	'zklock.session_timeout' => '60s',
	'deadlock_timeout' => 1000 * $timeout . 'ms',
	'autovacuum' => 'off',
	'max_connections' => 30,
	'max_worker_processes' => 4);
my ($a, $b, $c, $d) = @nodes;

for my $node (@nodes)
{
	if (!ZkScene::checks())
	{
		my $known = $node->safe_psql('postgres',
			"SELECT count(*) FROM pg_settings WHERE name = 'zklock.deadlock_check'");
		$node->append_conf('postgresql.conf', 'zklock.deadlock_check = off') if $known;
		$node->reload;
	}
}
$a->safe_psql('postgres', q{
	CREATE TABLE stock (item int PRIMARY KEY, quantity int);
	INSERT INTO stock SELECT i, 10 FROM generate_series(1, 20) i;
	CREATE TABLE other (i int);
});

sub lock { my ($name, $more) = @_; return "SELECT zk_lock('$name'" . ($more // '') . ')'; }
sub shared { return lock($_[0], ', shared => true'); }
sub permit { my ($name, $n) = @_; return "SELECT zk_acquire('$name', $n)"; }

# Wait until the instance that owns a lock tells that its holder waits.
sub wait_published
{
	my ($lock) = @_;

	poll_until(sub { told($zk, 'keep', $lock) }, "the owner of $lock to tell of its wait");
	return;
}

# No search finds this cycle, which has closed: of these waits nothing is told, while a
# cycle that closes later is found.
sub lasts
{
	my ($s, @locks) = @_;

	if (ZkScene::checks())
	{
		my $found = scene('one that closes later', one => $a, two => $b);

		$found->does(one => lock('found 1'));
		$found->does(two => lock('found 2'));
		$found->waits(one => lock('found 2'), queue => { 'found 2' => 2 });
		$found->closes(two => lock('found 1'));
		$found->ends(first => 'two');
		is(told($zk, 'wait', $_), 0, "$s->{title}: no wait for $_ is published") for @locks;
	}
	$s->ends(lasts => 1);
	return;
}

# Wait until the instance knows that a writer of another one stands behind its
# readers, so that new ones have to wait.
sub wait_refused
{
	my ($node, $lock) = @_;

	poll_until(
		sub { $node->safe_psql('postgres', "SELECT zk_try_lock('$lock', shared => true)") eq 'f' },
		"a reader of $lock to be refused");
	return;
}

sub scene { return ZkScene->new($zk, @_); }

#
# Exclusive locks of two instances; who closes the cycle is not always who fails
#

{
	my $s = scene('the youngest closes it', one => $a, two => $b);
	$s->does(one => lock('a1'));
	$s->does(two => lock('a2'));
	$s->waits(one => lock('a2'), queue => { a2 => 2 });
	$s->closes(two => lock('a1'));
	$s->ends(first => 'two');
}
{
	my $s = scene('the eldest closes it', one => $b, two => $a);
	$s->does(one => lock('b1'));
	$s->does(two => lock('b2'));
	$s->waits(two => lock('b1'), queue => { b1 => 2 });
	$s->closes(one => lock('b2'));
	$s->ends(first => 'two');
}
{
	my $s = scene('both with a timeout that is long', one => $a, two => $b);
	my $wait = q{SELECT zk_try_lock('%s', timeout => '1 hour')};
	$s->does(one => lock('c1'));
	$s->does(two => lock('c2'));
	$s->waits(one => sprintf($wait, 'c2'), queue => { c2 => 2 });
	$s->closes(two => sprintf($wait, 'c1'));
	$s->ends(first => 'two');
}

# The lock that was taken ahead of the savepoint is kept, the wait is over.
{
	my $s = scene('in a savepoint', one => $a, two => $b);
	$s->does(one => lock('d1'));
	$s->does(two => lock('d2'));
	$s->does(two => 'SAVEPOINT s');
	$s->waits(one => lock('d2'), queue => { d2 => 2 });
	$s->closes(two => lock('d1'));
	$s->ends(first => 'two', after => { two => "ROLLBACK TO s; SELECT 1 / zk_unlock('d2')::int; COMMIT" });
}
{
	my $s = scene('caught by the victim', one => $a, two => $b);
	$s->does(one => lock('e1'));
	$s->does(two => lock('e2'));
	$s->waits(one => lock('e2'), queue => { e2 => 2 });
	$s->closes(two => q{DO $$ BEGIN PERFORM zk_lock('e1');
		EXCEPTION WHEN deadlock_detected THEN PERFORM pg_advisory_xact_lock(1); END $$});
	# it goes on, and nobody has seen the error
	$s->ends(victims => 0);
	$caught{ $b->name }++;
}

#
# Shared locks
#

{
	my $s = scene('shared locks', one => $a, two => $b);
	$s->does(one => shared('f1'));
	$s->does(two => shared('f2'));
	$s->waits(one => lock('f2'), queue => { f2 => 2 });
	$s->closes(two => lock('f1'));
	$s->ends(first => 'two');
}
{
	my $s = scene('a writer behind two readers, one of them idle', one => $a, two => $b, three => $c);
	$s->does(one => shared('g1'));
	$s->does(three => shared('g1'));
	$s->does(two => lock('g2'));
	$s->waits(two => lock('g1'), queue => { g1 => 3 });
	$s->closes(one => lock('g2'));
	$s->ends(first => 'two', members => [ 'one', 'two' ], idle => ['three']);
}
{
	my $s = scene('two readers of one instance', one => $a, two => $b, three => $a);
	$s->does(one => shared('h1'));
	$s->does(three => shared('h1'));
	$s->does(two => lock('h2'));
	$s->waits(two => lock('h1'), queue => { h1 => 2 });
	$s->closes(one => lock('h2'));
	$s->ends(first => 'two', members => [ 'one', 'two' ], idle => ['three']);
}

# Both are blocked, each by another instance, and only one of them in a cycle.
for my $who ('one', 'three')
{
	my $other = $who eq 'one' ? 'three' : 'one';
	my $s = scene("two readers of one instance, and $who is a member",
		one => $a, two => $b, three => $a, four => $c);
	$s->does(one => shared("i1$who"));
	$s->does(three => shared("i1$who"));
	$s->does(two => lock("i2$who"));
	$s->does(four => lock("i3$who"));
	$s->waits($other => lock("i3$who"), queue => { "i3$who" => 2 });
	$s->waits(two => lock("i1$who"), queue => { "i1$who" => 2 });
	$s->closes($who => lock("i2$who"));
	$s->ends(among => [ $who, 'two' ], members => [ $who, 'two' ], idle => ['four']);
}

# A reader that waits behind a writer waits for the readers ahead of that.
{
	my $s = scene('a reader behind a writer behind a reader', one => $a, two => $b, three => $c);
	$s->does(one => shared('j1'));
	$s->does(two => lock('j2'));
	$s->waits(three => lock('j1'), queue => { j1 => 2 });
	$s->waits(two => shared('j1'), queue => { j1 => 3 });
	$s->closes(one => lock('j2'));
	$s->ends(among => [ 'one', 'two' ], members => [ 'one', 'two' ]);
}

# The same inside of an instance: it waits for the readers and for the writer, though
# the instance has one contender for all its readers.
{
	my $s = scene('a reader behind a writer behind a reader of its own instance',
		one => $a, two => $b, three => $a);
	$s->does(one => shared('jj1'));
	$s->does(three => 'SELECT pg_advisory_xact_lock(9)');
	$s->waits(two => lock('jj1'), queue => { jj1 => 2 });
	wait_refused($a, 'jj1');
	$s->waits(three => shared('jj1'));
	$s->closes(one => 'SELECT pg_advisory_xact_lock(9)');
	$s->ends(among => ['three'], members => [ 'one', 'three' ], loose => 1);
}
{
	my $s = scene('the same over three instances', one => $a, two => $b, three => $a, four => $c);
	$s->does(one => shared('kk1'));
	$s->does(three => lock('kk2'));
	$s->does(four => lock('kk3'));
	$s->waits(two => lock('kk1'), queue => { kk1 => 2 });
	wait_refused($a, 'kk1');
	$s->waits(three => shared('kk1'));
	$s->waits(four => lock('kk2'), queue => { kk2 => 2 });
	$s->closes(one => lock('kk3'));
	$s->ends(among => [ 'one', 'three', 'four' ], members => [ 'one', 'three', 'four' ], loose => 1);
}

# Each below another root: all is told below that of the workers.
{
	my $s = scene('locks below three roots', one => $a, two => $b, three => $c);
	my $root = sub { return "SET LOCAL zklock.root = '/zklock-root$_[0]'"; };

	$s->does(one => $root->(1));
	$s->does(two => $root->(2));
	$s->does(three => $root->(3));
	$s->does($_ => lock('r')) for ('one', 'two', 'three');
	$s->does(one => $root->(2));
	$s->does(two => $root->(3));
	$s->does(three => $root->(1));
	$s->waits(one => lock('r'));
	$s->waits(two => lock('r'));
	$s->closes(three => lock('r'));
	$s->ends(first => 'three');
}

#
# zk_lock_all
#

{
	my $s = scene('zk_lock_all', one => $a, two => $b);
	$s->does(one => lock('k1'));
	$s->does(two => lock('k2'));
	$s->waits(one => "SELECT zk_lock_all('{k0,k2,k3}')", queue => { k2 => 2 });
	$s->closes(two => lock('k1'));
	$s->ends(first => 'two');
}

# One that waits for the next of several keeps those before.
for my $youngest ('one', 'two')
{
	my $s = scene("zk_lock_all keeps what it has taken, $youngest is younger",
		$youngest eq 'two' ? (one => $a, two => $b) : (two => $b, one => $a));
	$s->does(one => lock("l2$youngest"));
	$s->waits(two => "SELECT zk_lock_all('{l1$youngest,l2$youngest}')",
		queue => { "l1$youngest" => 1, "l2$youngest" => 2 });
	$s->closes(one => lock("l1$youngest"));
	$s->ends(first => $youngest);
}
{
	my $s = scene('zk_lock_all on both sides', one => $a, two => $b);
	$s->does(one => lock('m1'));
	$s->does(two => lock('m2'));
	$s->waits(one => "SELECT zk_lock_all('{m2,m3}')", queue => { m2 => 2 });
	$s->closes(two => "SELECT zk_lock_all('{m1,m3}')");
	$s->ends(first => 'two');
}

#
# Waits inside an instance
#

{
	my $s = scene('tier 1', one => $a, two => $b, three => $a);
	$s->does(one => lock('n1'));
	$s->does(two => lock('n2'));
	$s->does(three => lock('n3'));
	$s->waits(one => lock('n3'), tier => 1);
	$s->waits(three => lock('n2'), queue => { n2 => 2 });
	$s->closes(two => lock('n1'));
	$s->ends(first => 'three');
}
{
	my $s = scene('one in tier 1 behind a member', one => $a, two => $b, three => $a);
	$s->does(one => lock('o1'));
	$s->does(two => lock('o2'));
	$s->waits(three => lock('o1'), tier => 1);
	$s->waits(one => lock('o2'), queue => { o2 => 2 });
	$s->closes(two => lock('o1'));
	$s->ends(first => 'two', members => [ 'one', 'two' ]);
}

# If the one ahead in the local queue failed, the other would wait in its place.
{
	my $s = scene('a member waits in tier 1 behind one that is none',
		one => $a, two => $b, three => $a);
	$s->does(one => lock('p1'));
	$s->does(two => lock('p2'));
	$s->waits(three => lock('p2'), queue => { p2 => 2 });
	$s->waits(one => lock('p2'), tier => 1);
	$s->closes(two => lock('p1'));
	$s->ends(first => 'two', members => [ 'one', 'two', 'three' ], loose => 1);
}

# The same in both instances: whoever is ahead goes behind the member, and waits on.
for my $kind ('zk_lock', 'zk_try_lock', 'zk_lock_all', 'zk_lock, shared')
{
	my ($x, $y) = map { "$_ $kind" } qw(x y);
	my %wait = (
		'zk_lock' => lock('%s', ', session => true'),
		'zk_try_lock' => q{SELECT 1 / zk_try_lock('%s', timeout => '1 hour')::int},
		'zk_lock_all' => q{SELECT zk_lock_all('{%1$s 0,%1$s,%1$s 1}')},
		'zk_lock, shared' => shared('%s'));
	my $s = scene("members wait in tier 1 behind others in both instances: $kind",
		one => $a, two => $b, three => $a, four => $b);
	$s->does(one => lock($x));
	$s->does(two => lock($y));
	$s->waits(three => sprintf($wait{$kind}, $y), queue => { $y => 2 });
	$s->waits(one => lock($y), tier => 1);
	$s->waits(four => sprintf($wait{$kind}, $x), queue => { $x => 2 });
	$s->closes(two => lock($x));
	$s->ends(
		among => [ 'one', 'two' ],
		either => [ [ 'one', 'two', 'three' ], [ 'one', 'two', 'four' ], [ 'one', 'two' ] ],
		loose => 1,
		commits => { map { ($_ => 'COMMIT; SELECT zk_unlock_all()') } ('three', 'four') });
}

# Waits for any of several locks are told to nobody.
for my $behind ('x', 'y')
{
	my %name = map { ($_ => "$_ any $behind") } ('w', 'x', 'y');
	my $s = scene("one that wants any of two is ahead of a member: $behind",
		one => $a, two => $b, three => $a);
	# once it goes, the members wait for each other alone
	$s->limits('one', 'two');
	$s->does(one => lock($name{w}));
	$s->does(two => "SELECT zk_lock_all('{$name{x},$name{y}}')");
	$s->waits(
		three => "SELECT zk_lock_any('{$name{x},$name{y}}')",
		queue => { $name{x} => 2, $name{y} => 2 });
	$s->waits(one => lock($name{$behind}), tier => 1);
	$s->closes(two => lock($name{w}));
	lasts($s, $name{x}, $name{y});
}
{
	my @x = map { "$_ both any" } ('x', 'xx');
	my @y = map { "$_ both any" } ('y', 'yy');
	my $s = scene('those who want any of two are ahead of both members',
		one => $a, two => $b, three => $a, four => $b);
	$s->limits('one', 'two');
	$s->does(one => "SELECT zk_lock_all('{$x[0],$x[1]}')");
	$s->does(two => "SELECT zk_lock_all('{$y[0],$y[1]}')");
	$s->waits(
		three => "SELECT zk_lock_any('{$y[0],$y[1]}')",
		queue => { $y[0] => 2, $y[1] => 2 });
	$s->waits(one => lock($y[0]), tier => 1);
	$s->waits(
		four => "SELECT zk_lock_any('{$x[0],$x[1]}')",
		queue => { $x[0] => 2, $x[1] => 2 });
	$s->closes(two => lock($x[0]));
	lasts($s, @x, @y);
}
{
	my $s = scene('members wait in tier 1 behind two others each',
		one => $a, two => $b, three => $a, four => $b, five => $a, six => $b);
	$s->does(one => lock('pp1'));
	$s->does(two => lock('pp2'));
	$s->waits(three => lock('pp2'), queue => { pp2 => 2 });
	$s->waits(five => lock('pp2'), tier => 1);
	$s->waits(one => lock('pp2'), tier => 1);
	$s->waits(four => lock('pp1'), queue => { pp1 => 2 });
	$s->waits(six => lock('pp1'), tier => 1);
	$s->closes(two => lock('pp1'));
	$s->ends(
		among => [ 'one', 'two' ],
		either => [ map { [ 'one', 'two', $_ ] } qw(three four five six) ],
		loose => 1);
}
{
	my $s = scene('a row', one => $a, two => $b, three => $a);
	$s->does(three => 'UPDATE stock SET quantity = 9 WHERE item = 1');
	$s->does(one => lock('q1'));
	$s->does(two => lock('q2'));
	$s->waits(one => 'UPDATE stock SET quantity = 8 WHERE item = 1', tier => 1);
	$s->waits(three => lock('q2'), queue => { q2 => 2 });
	$s->closes(two => lock('q1'));
	$s->ends(first => 'three');
}

# The second one that waits for a row waits for the first one's tuple lock.
{
	my $s = scene('a row, with another one ahead', one => $a, two => $b, three => $a, four => $a);
	$s->does(three => 'UPDATE stock SET quantity = 9 WHERE item = 2');
	$s->does(one => lock('r1'));
	$s->does(two => lock('r2'));
	$s->waits(four => 'UPDATE stock SET quantity = 8 WHERE item = 2', tier => 1);
	$s->waits(one => 'UPDATE stock SET quantity = 7 WHERE item = 2', tier => 1);
	$s->waits(three => lock('r2'), queue => { r2 => 2 });
	$s->closes(two => lock('r1'));
	$s->ends(among => [ 'two', 'three' ], members => [ 'one', 'two', 'three' ]);
}
{
	my $s = scene('a table', one => $a, two => $b, three => $a);
	$s->does(three => 'LOCK TABLE other IN EXCLUSIVE MODE');
	$s->does(one => lock('s1'));
	$s->does(two => lock('s2'));
	$s->waits(one => 'INSERT INTO other VALUES (1)', tier => 1);
	$s->waits(three => lock('s2'), queue => { s2 => 2 });
	$s->closes(two => lock('s1'));
	$s->ends(first => 'three');
}
{
	my $s = scene('a table, behind one that waits', one => $a, two => $b, three => $a, four => $a);
	$s->does(three => 'SELECT count(*) FROM other');
	$s->does(one => lock('t1'));
	$s->does(two => lock('t2'));
	$s->waits(four => 'LOCK TABLE other', tier => 1);
	$s->waits(one => 'SELECT count(*) FROM other', tier => 1);
	$s->waits(three => lock('t2'), queue => { t2 => 2 });
	$s->closes(two => lock('t1'));
	$s->ends(among => [ 'two', 'three' ], members => [ 'one', 'two', 'three' ]);
}
{
	my $s = scene('an advisory lock', one => $a, two => $b, three => $a);
	$s->does(three => 'SELECT pg_advisory_lock(7)');
	$s->does(one => lock('u1'));
	$s->does(two => lock('u2'));
	$s->waits(one => 'SELECT pg_advisory_xact_lock(7)', tier => 1);
	$s->waits(three => lock('u2'), queue => { u2 => 2 });
	$s->closes(two => lock('u1'));
	# that of the session stays when the transaction fails, so that one waits on
	$s->ends(first => 'three', after => { three => 'ROLLBACK; SELECT pg_advisory_unlock(7)' });
}
{
	my $s = scene('waits inside of both instances',
		one => $a, two => $b, three => $a, four => $b, five => $a);
	$s->does(three => 'SELECT pg_advisory_xact_lock(8)');
	$s->does(four => 'SELECT pg_advisory_xact_lock(8)');
	$s->does(five => 'UPDATE stock SET quantity = 9 WHERE item = 3');
	$s->does(one => lock('v1'));
	$s->does(two => lock('v2'));
	$s->waits(one => 'UPDATE stock SET quantity = 8 WHERE item = 3', tier => 1);
	$s->waits(five => 'SELECT pg_advisory_xact_lock(8)', tier => 1);
	$s->waits(two => 'SELECT pg_advisory_xact_lock(8)', tier => 1);
	$s->waits(three => lock('v2'), queue => { v2 => 2 });
	$s->closes(four => lock('v1'));
	$s->ends(first => 'four', members => [ 'one', 'two', 'three', 'four' ]);
}

#
# Session-scoped holds
#

{
	my $s = scene('session scope, no transaction', two => $b, one => $a);
	my $scope = ', session => true';
	$s->does(one => 'COMMIT');
	$s->does(one => lock('w1', $scope));
	$s->does(two => lock('w2'));
	$s->waits(two => lock('w1'), queue => { w1 => 2 });
	$s->closes(one => lock('w2', $scope));
	# the statement has failed, not what was taken before
	$s->ends(first => 'one', after => { one => "SELECT 1 / zk_unlock('w1')::int" });
}
{
	my $s = scene('session scope, and the other one fails', one => $a, two => $b);
	$s->does(one => lock('x1', ', session => true'));
	$s->does(two => lock('x2'));
	$s->waits(one => lock('x2'), queue => { x2 => 2 });
	$s->closes(two => lock('x1'));
	$s->ends(first => 'two', commits => { one => "COMMIT; SELECT zk_unlock_all()" });
}

#
# Semaphores: a wait for a permit is told to nobody
#

{
	my $s = scene('a semaphore', one => $a, two => $b, three => $c);
	$s->limits;
	$s->does($_ => permit('p', 2)) for ('one', 'two');
	$s->does(three => lock('px'));
	$s->waits(three => permit('p', 2), queue => { 'p/locks' => 1, 'p/leases' => 3 });
	$s->waits(one => lock('px'), queue => { px => 2 });
	$s->closes(two => lock('px'));
	lasts($s, 'p');
}
{
	my $s = scene('a semaphore, all permits in one instance', one => $a, two => $a, three => $b);
	$s->limits;
	$s->does($_ => permit('y1', 2)) for ('one', 'two');
	$s->does(three => lock('y2'));
	$s->waits(one => lock('y2'), queue => { y2 => 2 });
	$s->waits(two => lock('y2'), tier => 1);
	$s->closes(three => permit('y1', 2));
	lasts($s, 'y1');
}
{
	my $s = scene('two that wait for a semaphore', one => $a, two => $b, three => $c);
	$s->limits;
	$s->does(one => permit('z1', 1));
	$s->does(two => lock('z2'));
	$s->does(three => lock('z3'));
	$s->waits(three => permit('z1', 1), queue => { 'z1/locks' => 1 });
	$s->waits(two => permit('z1', 1), queue => { 'z1/locks' => 2 });
	$s->closes(one => lock('z2'));
	lasts($s, 'z1');
}

#
# Locks that were handed on, or kept
#

alter_system($a, 'zklock.handoff_quantum', '10s');

{
	my $s = scene('a lock that was handed on', one => $a, two => $b, three => $a);
	$s->does(one => lock('A1'));
	$s->does(two => lock('A2'));
	$s->waits(two => lock('A1'), queue => { A1 => 2 });
	$s->waits(three => lock('A1'), tier => 1);
	my @before = contenders($zk, 'A1');
	$s->does(one => 'COMMIT');
	$s->goes_on('three');
	is_deeply([ contenders($zk, 'A1') ], \@before, 'handed on: the contender is the same');
	$s->closes(three => lock('A2'));
	$s->ends(first => 'three', members => [ 'two', 'three' ]);
}

# The first holder had waited for long, and so has published.
{
	my $s = scene('handed on by one that had waited', one => $a, two => $b, three => $a, four => $c);
	$s->does(one => lock('B1'));
	$s->does(two => lock('B2'));
	$s->does(four => lock('B3'));
	$s->waits(two => lock('B1'), queue => { B1 => 2 });
	$s->waits(three => lock('B1'), tier => 1);
	$s->waits(one => lock('B3'), queue => { B3 => 2 });
	wait_published('B1') if ZkScene::checks();
	$s->does(four => 'COMMIT');
	$s->goes_on('one');
	$s->does(one => 'COMMIT');
	$s->goes_on('three');
	$s->closes(three => lock('B2'));
	$s->ends(first => 'three', members => [ 'two', 'three' ]);
}

{
	alter_system($a, 'zklock.retain_time', '1h');
	$a->safe_psql('postgres', lock('C1'));
	my @before = contenders($zk, 'C1');
	my $s = scene('a lock that was kept', one => $a, two => $b);
	$s->does(one => lock('C1'));
	is_deeply([ contenders($zk, 'C1') ], \@before, 'kept: the contender is the same');
	$s->does(two => lock('C2'));
	$s->waits(two => lock('C1'), queue => { C1 => 2 });
	$s->closes(one => lock('C2'));
	$s->ends(first => 'two');
	alter_system($a, 'zklock.retain_time', '0');
}

#
# Three instances and more
#

for my $n (3, 5, 8)
{
	my @names = map { "s$_" } (1 .. $n);
	my $s = scene("$n instances", map { $names[$_] => $nodes[$_] } (0 .. $#names));

	$s->does($names[$_] => lock("ring$n$_")) for (0 .. $#names);
	$s->waits($names[$_] => lock("ring$n" . ($_ + 1)), queue => { "ring$n" . ($_ + 1) => 2 })
	  for (0 .. $#names - 1);
	$s->closes($names[-1] => lock("ring${n}0"));
	$s->ends(first => $names[-1]);
}
{
	my @names = map { "s$_" } (1 .. 8);
	my $s = scene('four cycles at once', map { $names[$_] => $nodes[$_] } (0 .. 7));

	$s->does($names[$_] => lock("at once $_")) for (0 .. 7);
	for my $i (0, 2, 4, 6)
	{
		$s->waits($names[$i] => lock('at once ' . ($i + 1)), queue => { 'at once ' . ($i + 1) => 2 });
	}
	$s->closes($names[ $_ + 1 ] => lock("at once $_")) for (0, 2, 4, 6);
	$s->ends(groups => [ map { [ @names[ $_, $_ + 1 ] ] } (0, 2, 4, 6) ]);
}
{
	my $s = scene('four cycles of the same two instances',
		map { ("a$_" => $a, "b$_" => $b) } (1 .. 4));
	for my $i (1 .. 4)
	{
		$s->does("a$i" => lock("pair a$i"));
		$s->does("b$i" => lock("pair b$i"));
		$s->waits("a$i" => lock("pair b$i"), queue => { "pair b$i" => 2 });
	}
	$s->closes("b$_" => lock("pair a$_")) for (1 .. 4);
	$s->ends(groups => [ map { [ "a$_", "b$_" ] } (1 .. 4) ]);
}

#
# Cycles that share an edge, and those in a queue who are no members
#

# two waits for one and three, who waits for one: the shorter cycle counts
{
	my $s = scene('two cycles that share an edge', one => $a, two => $b, three => $c);
	$s->does($_ => shared('D1')) for ('one', 'three');
	$s->does(one => lock('D2'));
	$s->does(two => lock('D3'));
	$s->waits(one => lock('D3'), queue => { D3 => 2 });
	$s->waits(three => lock('D2'), queue => { D2 => 2 });
	$s->closes(two => lock('D1'));
	$s->ends(first => 'two', members => [ 'one', 'two' ]);
}

# two waits for three and four, and both of them for one
{
	my $s = scene('two cycles that share two members',
		two => $b, three => $c, four => $d, one => $a);
	$s->does($_ => shared('E1')) for ('three', 'four');
	$s->does(one => lock('E2'));
	$s->does(two => lock('E3'));
	$s->waits(three => shared('E2'), queue => { E2 => 2 });
	$s->waits(four => shared('E2'), queue => { E2 => 3 });
	$s->waits(two => lock('E1'), queue => { E1 => 3 });
	$s->closes(one => lock('E3'));

	# the others that the error tells of are two, and three or four
	$s->ends(first => 'one', either => [ [ 'one', 'two', 'three' ], [ 'one', 'two', 'four' ] ]);
}
{
	my $s = scene('a bystander in the queue', one => $a, two => $b, three => $c);
	$s->does(one => lock('F1'));
	$s->does(two => lock('F2'));
	$s->waits(three => lock('F1'), queue => { F1 => 2 });
	$s->waits(two => lock('F1'), queue => { F1 => 3 });
	$s->closes(one => lock('F2'));
	$s->ends(among => [ 'one', 'two' ], members => [ 'one', 'two' ]);
}

#
# What is no deadlock, though each is closed ahead of one that is
#

{
	my $foreign = $zk->client(timeout => 60);
	my $node = $foreign->lock(lock_dir('H1'));
	my $permits = scene('a permit is held by one that does not wait',
		one => $a, two => $b, three => $c);
	$permits->does($_ => permit('G1', 2)) for ('one', 'two');
	$permits->does(three => lock('G2'));
	$permits->waits(three => permit('G1', 2), queue => { 'G1/locks' => 1 });
	$permits->waits(one => lock('G2'), queue => { G2 => 2 });

	my $alien = scene('another client holds and waits', one => $a, two => $b);
	$alien->does(one => lock('H2'));
	$alien->waits(one => lock('H1'), queue => { H1 => 2 });
	my $waits = $foreign->enqueue(lock_dir('H2'));

	my $readers = scene('readers do not wait for each other', one => $a, two => $b);
	$readers->does(one => shared('I1'));
	$readers->does(one => lock('I2'));
	$readers->does(two => shared('I1'));
	$readers->waits(two => lock('I2'), queue => { I2 => 2 });

	# later than all these, and so found when they have been looked at
	my $control = scene('beside what is no deadlock', one => $a, two => $b, three => $c);
	$control->does(one => lock('J1'));
	$control->does(two => lock('J2'));
	$control->does(three => lock('J3'));
	$control->waits(one => lock('J2'), queue => { J2 => 2 });
	$control->waits(two => lock('J3'), queue => { J3 => 2 });
	$control->closes(three => lock('J1'));
	$control->ends(first => 'three');

	$permits->does(two => 'COMMIT');
	$permits->ends(victims => 0);
	$foreign->unlock($_) for ($node, $waits);
	$alien->ends(victims => 0);
	$readers->does(one => 'COMMIT');
	$readers->ends(victims => 0);
}

#
# What is left of it
#

if (!ZkScene::checks())
{
	done_testing();
	exit 0;
}
my %victims = %{ ZkScene::victims() };
for my $node ($a, $b, $c)
{
	my $name = $node->name;
	my $logged = $victims{$name} // 0;
	my $n = $logged + ($caught{$name} // 0);
	my $log = slurp_file($node->logfile);

	ok( $node->poll_query_until('postgres',
			"SELECT deadlocks = $n FROM pg_stat_database WHERE datname = 'postgres'"),
		"$name: pg_stat_database counts $n deadlocks");
	is($node->safe_psql('postgres', 'SELECT deadlocks >= ' . $n . ' FROM zk_stat'),
		't', "$name: so does zk_stat");
	is(scalar(() = $log =~ /DETAIL:  Process.*\n(?:\tProcess \d+ of instance.*\n)+\tProcess \d+: /g),
		$logged, "$name: the log has the statements");
}

# each instance of the last ring of eight was told of it
ok( $_->poll_query_until('postgres',
		q{SELECT count(*) = 8 AND count(*) FILTER (WHERE victim) = 1
			FROM (SELECT *, count(*) OVER (PARTITION BY id) FROM zk_deadlocks) d
			WHERE count = 8 AND name LIKE 'ring8%'}),
	$_->name . ': zk_deadlocks shows the ring') for @nodes;
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|was terminated by signal/,
	$_->name . ' has not crashed') for @nodes;
ZkScene::report($timeout);
done_testing();
