
# Shared locks, session-scoped locks, zk_lock_all and semaphores between two
# instances: who waits for whom, that a foreign client is respected, that
# restarts and lost sessions change nothing or are told, and that nothing goes
# wrong under load.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZkWire;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};
my $transactions = soak(40, 200);    # of each of 16 clients

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my %cluster = map {
	$_ => zk_cluster($_, $zk,
		install_path => $ENV{ZKLOCK_TEST_INSTALL},
		'zklock.look_again' => 'off',    # only its event wakes who waits
		'zklock.session_timeout' => '60s',
		'zklock.max_locks' => 400,
		'deadlock_timeout' => '100ms')
} qw(a b);
my ($a, $b) = @cluster{qw(a b)};

sub try
{
	my ($node, $lock, $more) = @_;
	return sql($node, "SELECT zk_try_lock('$lock'" . ($more // '') . ')')->{out};
}

sub try_shared { return try(@_, ', shared => true'); }

sub try_permit
{
	my ($node, $name, $permits, $timeout) = @_;
	$timeout //= '0';
	return sql($node, "SELECT zk_try_acquire('$name', $permits, '$timeout')")->{out};
}

# A session in a transaction that has run a statement.
sub having
{
	my ($node, $statement) = @_;
	my $session = ZkSession->new($node);
	my $result = $session->run("BEGIN; $statement");

	die "$statement: $result->{message}" if $result->{message};
	return $session;
}

sub reader { return having($_[0], "SELECT zk_lock('$_[1]', shared => true)"); }

# A session that waits with a statement: in the first tier, which pg_locks
# shows, or in the second, which zk_locks shows with the mode.
sub waiting
{
	my ($node, $statement, $mode) = @_;
	my $session = ZkSession->new($node);

	$session->run('BEGIN');
	$session->send($statement);
	$node->poll_query_until('postgres',
		"SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $session->{pid}"
		  . " AND locktype = 'userlock' AND NOT granted)"
		  . " OR EXISTS (SELECT FROM zk_locks WHERE pid = $session->{pid}"
		  . " AND NOT granted AND mode = '$mode')");
	return $session;
}

sub late_reader
{
	my ($node, $lock) = @_;
	return waiting($node, "SELECT zk_lock('$lock', shared => true)", 'shared');
}

sub got
{
	my ($session, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($session->result->{message}, undef, $name);
	return;
}

sub is_over
{
	my ($session) = @_;

	$session->run_ok('COMMIT');
	$session->quit;
	return;
}

#
# 16 readers in both instances, a writer, and readers that come after it
#

for my $who ('a', 'b')
{
	my ($writers, $others) = $who eq 'a' ? ($a, $b) : ($b, $a);
	my @readers = map { (reader($a, 'rw'), reader($b, 'rw')) } (1 .. 8);

	is(value($_, q{SELECT mode, granted, count(*) FROM zk_locks GROUP BY 1, 2}),
		'shared|t|8', $_->name . ': 8 readers') for ($a, $b);
	is(scalar(grep { /^_c_[0-9a-f-]{36}-__READ__\d{10}$/ } contenders($zk, 'rw')),
		2, '16 readers are two contenders');
	is(scalar(contenders($zk, 'rw')), 2, 'and there is no other');
	is(try($_, 'rw'), 'f', $_->name . ': nobody may write') for ($a, $b);

	my $writer = waiting($writers, "SELECT zk_lock('rw')", 'exclusive');
	my @queue = wait_contenders($zk, 'rw', 3);
	like($queue[2], qr/-lock-\d{10}$/, "a writer in $who queues behind them");
	for my $node ($a, $b)
	{
		is(value($node, q{SELECT string_agg(mode, ' ' ORDER BY position) FROM zk_queue('rw')}),
			'shared shared exclusive', $node->name . ': zk_queue shows it');
		is( value($node, q{SELECT string_agg(substring(owner FROM ' cluster=(\w+)'), '' ORDER BY position)
				FROM zk_queue('rw')}) =~ /^(?:ab|ba)$who$/,
			1, $node->name . ': and whose they are');
	}

	# who reads already may go on to
	$readers[$_]->run_ok("SELECT zk_lock('rw', shared => true), zk_unlock('rw')",
		'a reader may read once more') for (0, 1);

	# who comes later waits for the writer, once that is known
	for my $node ($writers, $others)
	{
		ok(poll_until(sub { try_shared($node, 'rw') eq 'f' }, 'a new reader to be refused'),
			$node->name . ': a new reader may not read');
	}
	my @late = map { late_reader($_, 'rw') } ($writers, $others);

	for my $i (0 .. $#readers)
	{
		ok(!$writer->done, 'the writer waits for reader ' . ($i + 1)) if $i % 5 == 0;
		is_over($readers[$i]);
	}
	got($writer, 'the writer has the lock after all of them');
	ok(!$_->done, $_->{node}->name . ': who came later waits for it') for @late;
	is(try_shared($_, 'rw'), 'f', $_->name . ': nobody may read') for ($a, $b);
	is(scalar(grep { !/__READ__/ } contenders($zk, 'rw')), 1, 'one contender of a writer');
	$writer->run_ok('SELECT pg_sleep(0.05)', 'for a while');
	ok(!$_->done, $_->{node}->name . ': still') for @late;
	is_over($writer);
	got($_, $_->{node}->name . ': then it may read') for @late;
	is(value($_, q{SELECT mode, granted, count(*) FROM zk_locks GROUP BY 1, 2}),
		'shared|t|1', $_->name . ': together with the other') for ($a, $b);
	is_over($_) for @late;
	wait_no_contenders($zk, 'rw');
}

# A reader of another instance between two writers of one
{
	my $first = having($a, "SELECT zk_lock('fifo')");
	my $reader = late_reader($b, 'fifo');
	wait_contenders($zk, 'fifo', 2);
	my $writer = waiting($a, "SELECT zk_lock('fifo')", 'exclusive');

	value($a, "ALTER SYSTEM SET zklock.handoff_quantum = 0");
	$a->reload;
	$a->poll_query_until('postgres', 'SHOW zklock.handoff_quantum', '0');
	is_over($first);
	got($reader, 'the reader of the other instance');
	ok(!$writer->done, 'ahead of the next writer of the first');
	is_over($reader);
	got($writer, 'which follows');
	is_over($writer);
	wait_no_contenders($zk, 'fifo');
	value($a, 'ALTER SYSTEM RESET zklock.handoff_quantum');
	$a->reload;
}

# A writer that gives up lets the readers in
for my $how ('pg_cancel_backend', 'pg_terminate_backend')
{
	my @readers = map { reader($_, 'rw') } ($a, $b);
	my $writer = waiting($a, "SELECT zk_lock('rw')", 'exclusive');
	wait_contenders($zk, 'rw', 3);
	poll_until(sub { try_shared($b, 'rw') eq 'f' }, 'a new reader to be refused');
	my @late = map { late_reader($_, 'rw') } ($a, $b);

	value($a, "SELECT $how($writer->{pid})");
	is($writer->result->{sqlstate}, $how =~ /cancel/ ? '57014' : '57P01', "$how: the writer");
	got($_, "$how: a late reader of " . $_->{node}->name) for @late;
	is_over($_) for (@readers, @late);
	$writer->quit;
	wait_no_contenders($zk, 'rw');
}

#
# Foreign readers and writers
#

for my $kind ('-lock-', '-__WRIT__')
{
	my $dir = lock_dir('foreign');
	my @readers = map { reader($_, 'foreign') } ($a, $b);
	my $theirs = $kind eq '-lock-' ? undef : $foreign->enqueue($dir, '-__READ__');
	my $writer = $foreign->enqueue($dir, $kind);

	for my $node ($a, $b)
	{
		ok(poll_until(sub { try_shared($node, 'foreign') eq 'f' }, 'a new reader to be refused'),
			$node->name . ": a foreign writer ($kind) waits: nobody else may read");
	}
	my @late = map { late_reader($_, 'foreign') } ($a, $b);
	is_over($_) for @readers;
	if ($theirs)
	{
		poll_until(sub { $foreign->position($writer) == 1 }, 'the foreign reader to be left');
		$foreign->unlock($theirs);
	}
	poll_until(sub { $foreign->position($writer) == 0 }, 'the foreign writer to have the lock');
	ok(!$_->done, $_->{node}->name . ': who came later waits') for @late;
	is(try_shared($_, 'foreign') . try($_, 'foreign'), 'ff', 'nobody may have it') for ($a, $b);
	$foreign->unlock($writer);
	got($_, $_->{node}->name . ': then it may read') for @late;

	# our readers and theirs; our writer waits for theirs
	my $beside = $theirs ? $foreign->enqueue($dir, '-__READ__') : undef;
	is_over($_) for @late;
	if ($beside)
	{
		is(try($a, 'foreign') . try_shared($a, 'foreign'), 'ft', 'a foreign reader lets us read');
		my $ours = waiting($b, "SELECT zk_lock('foreign')", 'exclusive');
		wait_contenders($zk, 'foreign', 2);
		$foreign->unlock($beside);
		got($ours, 'and write when it is gone');
		is_over($ours);
	}
	wait_no_contenders($zk, 'foreign');
}

# zklock.node_format
{
	my $session = having($a, q{
		SET LOCAL zklock.node_format = 'readwrite';
		SELECT zk_lock('format/x'), zk_lock('format/s', shared => true)});
	my $default = having($a, "SELECT zk_lock('format/m')");

	like((contenders($zk, 'format/x'))[0], qr/^_c_[0-9a-f-]{36}-__WRIT__\d{10}$/,
		'an exclusive contender in format readwrite');
	like((contenders($zk, 'format/s'))[0], qr/^_c_[0-9a-f-]{36}-__READ__\d{10}$/,
		'and a shared one');
	like((contenders($zk, 'format/m'))[0], qr/^_c_[0-9a-f-]{36}-lock-\d{10}$/,
		'format mutex is the default');
	is(try($b, 'format/x') . try_shared($b, 'format/x'), 'ff', 'formats exclude each other');
	is(try($b, 'format/s') . try_shared($b, 'format/s'), 'ft', 'and share');
	is_over($_) for ($session, $default);
}

#
# Session-scoped locks
#

{
	my $session = ZkSession->new($a);
	$session->run_ok(q{BEGIN; SELECT zk_lock('s', session => true); SAVEPOINT s;
		SELECT zk_lock('s2', shared => true, session => true); ROLLBACK TO s; COMMIT});
	is(try($b, 's') . try_shared($b, 's'), 'ff', 'a session excludes the other instance');
	is(try($b, 's2') . try_shared($b, 's2'), 'ft', 'or shares with it');
	my $waiter = waiting($b, "SELECT zk_lock('s')", 'exclusive');
	$session->run_ok('BEGIN; CREATE TABLE s (i int); SELECT zk_unlock($$s$$)');
	ok(!$waiter->done, 'undone where something was written: still held');
	$session->run_ok('ROLLBACK');
	got($waiter, 'and given back at the end');
	is_over($waiter);

	my %end = (
		'DISCARD ALL' => sub { $session->run_ok('DISCARD ALL') },
		'pg_terminate_backend' => sub { value($a, "SELECT pg_terminate_backend($session->{pid})") },
		'zk_unlock_all' => sub { $session->run_ok('SELECT zk_unlock_all()') },
		'the end of the client' => sub { $session->kill_client });
	for my $how (reverse sort keys %end)
	{
		$session->run_ok("SELECT zk_lock('s', session => true)");
		$waiter = waiting($b, "SELECT zk_lock('s')", 'exclusive');
		wait_contenders($zk, 's', 2);
		$end{$how}->();
		got($waiter, "$how: the other instance has the lock");
		is_over($waiter);
		if ($how =~ /client|terminate/)
		{
			$session->quit;
			$session = ZkSession->new($a);
		}
	}
	wait_no_contenders($zk, $_) for ('s', 's2');
	$session->quit;
}

# 40 sessions try at once, again and again: one of them gets the lock
{
	my @sessions = map { (ZkWire->new($a), ZkWire->new($b)) } (1 .. 20);

	for my $round (1 .. 5)
	{
		$_->send("SELECT zk_try_lock('once', session => true)") for @sessions;
		while (my @busy = grep { $_->busy } @sessions)
		{
			ZkWire::wait_any(180, @busy) or die 'no answer';
		}
		my @winners = grep { $_->result->{out} eq 't' } @sessions;
		is(scalar(@winners), 1, "round $round: one of 40 sessions has the lock");
		$_->run('SELECT zk_unlock_all()') for @winners;
		wait_no_contenders($zk, 'once');
	}
	$_->vanish for @sessions;
}

#
# zk_lock_all
#

{
	my $holder = having($b, "SELECT zk_lock('all/y')");

	# in time, or none
	error_is(
		sql($a, "SELECT zk_lock_all('{all/x,all/y,all/z}', '200ms')"),
		{ sqlstate => '55P03', message => qr/^could not obtain lock/ },
		'zk_lock_all: one of them is held');
	wait_no_contenders($zk, "all/$_") for ('x', 'z');
	is(scalar(contenders($zk, 'all/y')), 1, 'nothing is left behind');

	# it has what is ahead of the one that it waits for
	my $all = waiting($a, "SELECT zk_lock_all('{all/x,all/y,all/z}')", 'exclusive');
	wait_contenders($zk, 'all/x', 1);
	wait_contenders($zk, 'all/y', 2);
	is(try($b, 'all/x') . try($b, 'all/z'), 'ft', 'while it waits for one, it has those before it');
	value($a, "SELECT pg_cancel_backend($all->{pid})");
	is($all->result->{sqlstate}, '57014', 'canceled');
	wait_no_contenders($zk, "all/$_") for ('x', 'z');
	$all->quit;

	$all = waiting($a, "SELECT zk_lock_all('{all/z,all/y,all/x}', session => true)", 'exclusive');
	my $second = waiting($b, "SELECT zk_lock_all('{all/x,all/z,all/y}')", 'exclusive');
	is_over($holder);
	poll_until(sub { $all->done || $second->done }, 'one of them to have all locks');
	my ($first, $other) = $all->done ? ($all, $second) : ($second, $all);
	got($first, 'one of them has all locks: ' . $first->{node}->name);
	ok(!$other->done, 'and not the other');
	$first->run_ok('COMMIT');
	$first->run_ok('SELECT zk_unlock_all()');
	got($other, 'which follows');
	$other->run_ok('COMMIT');
	$other->run_ok('SELECT zk_unlock_all()');
	$_->quit for ($all, $second);
	wait_no_contenders($zk, "all/$_") for ('x', 'y', 'z');

	# ZooKeeper refuses one
	$foreign->create(lock_dir('all/mine'), acl => 'read');
	is(sql($a, "SELECT zk_lock_all('{all/x,all/mine,all/z}')")->{sqlstate},
		'42501', 'ZooKeeper refuses one of them');
	wait_no_contenders($zk, "all/$_") for ('x', 'z');
	$a->poll_query_until('postgres', 'SELECT slots = 0 FROM zk_stat');

	# 400 slots are not enough for 450 locks
	$holder = having($a, "SELECT zk_lock('all/held')");
	is( $holder->run("SAVEPOINT s; SELECT zk_lock_all(array_agg('all/' || i))"
			  . ' FROM generate_series(1, 450) i')->{sqlstate},
		'53200', 'out of slots');
	$holder->run_ok('ROLLBACK TO s');
	is(value($a, 'SELECT string_agg(name, $$ $$) FROM zk_locks'), 'all/held', 'nothing is lost, nothing is left');
	$holder->run_ok("SELECT zk_lock_all(array_agg('all/' || i)) FROM generate_series(1, 390) i",
		'390 locks at once');
	is(try($b, 'all/1') . try($b, 'all/390'), 'ff', 'which excludes the other instance');
	is_over($holder);
	is(sql($b, "SELECT zk_lock_all(array_agg('all/' || i), '1 min') FROM generate_series(1, 390) i")->{message},
		undef, 'and then it has them');
	wait_no_contenders($zk, "all/$_") for ('held', 1 .. 390);

	# locks that come one by one
	for my $order ('101 .. 490', 'REVERSE 490 .. 101')
	{
		$holder = ZkSession->new($b);
		$holder->run_ok("SELECT zk_lock_all(array_agg('all/' || i), session => true) FROM generate_series(101, 490) i");
		$all = waiting($a, "SELECT zk_lock_all(array_agg('all/' || i)) FROM generate_series(101, 490) i", 'exclusive');
		$holder->run_ok(qq{DO \$\$
			BEGIN
				FOR i IN $order LOOP
					PERFORM zk_unlock('all/' || i), pg_sleep(0.002);
				END LOOP;
			END \$\$});
		got($all, "all 390 locks, released one by one, $order");
		is_over($all);
		$holder->quit;
		wait_no_contenders($zk, "all/$_") for (101 .. 490);
	}
}

#
# Semaphores
#

my $leases = lock_dir('sem') . '/leases';

# Wait until so many leases are there.
sub wait_leases
{
	my ($n, $dir) = @_;
	poll_until(sub { my @l = eval { $foreign->ls($dir // $leases) }; @l == $n }, "$n leases");
	return;
}

{
	my @holders = map { having($_, "SELECT zk_acquire('sem', 3)") } ($a, $b, $a);

	is(scalar($foreign->ls($leases)), 3, 'three permits are three leases');
	is(scalar(grep { /^_c_[0-9a-f-]{36}-lease-\d{10}$/ } $foreign->ls($leases)),
		3, "named as Curator's");
	is(value($a, 'SELECT mode, granted, count(*) FROM zk_locks GROUP BY 1, 2'),
		'permit|t|2', 'zk_locks shows permits');
	is(try_permit($_, 'sem', 3), 'f', $_->name . ': a fourth is not available') for ($a, $b);
	is(try_permit($a, 'sem', 3, '100ms'), 'f', 'neither in time');
	wait_leases(3);
	my @waiting = map { waiting($_, "SELECT zk_acquire('sem', 3)", 'permit') } ($a, $b);
	ok(!$_->done, $_->{node}->name . ': a fourth waits') for @waiting;

	# the holder's backend is killed
	value($b, 'SELECT pg_terminate_backend(' . $holders[1]->pid . ')');
	poll_until(sub { grep { $_->done } @waiting }, 'a permit to be available');
	is(scalar(grep { $_->done } @waiting), 1, 'a killed holder: its permit goes to one of them');
	$holders[0]->kill_client;
	got($_, 'another one: to ' . $_->{node}->name) for @waiting;
	wait_leases(3);
	$_->quit for @holders[ 0, 1 ];

	# re-entrant, and one permit only
	$holders[2]->run_ok("SELECT zk_acquire('sem', 3, session => true)");
	is_over($_) for @waiting;
	wait_leases(1);
	$holders[2]->run_ok('COMMIT');
	is(scalar($foreign->ls($leases)), 1, 'held for the session');

	# all agree on the number
	for my $node ($a, $b)
	{
		my $result = sql($node, "SELECT zk_acquire('sem', 4)");
		is($result->{sqlstate}, '55000', $node->name . ': another number of permits is refused');
		my $text = join(' ', map { $result->{$_} // '' } qw(message detail hint));
		ok($text =~ /\b3\b/ && $text =~ /\b4\b/, $node->name . ': which names both')
		  or diag($text);
		is(sql($node, "SELECT zk_try_acquire('sem', 2)")->{sqlstate}, '55000', 'a try too');

		# a name is a lock or a semaphore
		is(sql($node, "SELECT $_")->{sqlstate}, '55000', $node->name . ": $_")
		  for ("zk_lock('sem')", "zk_try_lock('sem')", "zk_lock('sem', shared => true)",
			"zk_lock_all('{sem1,sem}')");
	}
	wait_leases(1);
	my $lock = having($b, "SELECT zk_lock('mutex'), zk_lock('readers', shared => true)");
	for my $node ($a, $b)
	{
		is(sql($node, "SELECT $_")->{sqlstate}, '55000', $node->name . ": $_")
		  for ("zk_acquire('mutex', 2)", "zk_try_acquire('mutex', 2)", "zk_acquire('readers', 2)");
	}
	is(scalar($foreign->ls(lock_dir($_))), 1, "nothing is left in \"$_\"") for ('mutex', 'readers');
	is_over($lock);
	$holders[2]->run_ok("SELECT zk_unlock('sem')");
	$holders[2]->quit;
	wait_leases(0);

	# the next users may agree on another number
	ok(poll_until(sub { try_permit($_, 'sem', 2) eq 't' }, 'a permit'),
		$_->name . ': another number, now that it is free') for ($a, $b);
	wait_leases(0);

	# ten try at once: each gets a permit as long as there is one
	for my $n (10, 9)
	{
		my @sessions = map { ZkSession->new($_ % 2 ? $a : $b) } (1 .. 10);

		$_->run_ok('BEGIN') for @sessions;
		$_->send("SELECT zk_try_acquire('sem/at once $n', $n)") for @sessions;
		is(scalar(grep { ($_->result->{out} // '') eq 't' } @sessions),
			$n, "ten try to get one of $n permits at once: $n do");
		$_->quit for @sessions;
	}

	# leases of Curator's, which does not tell its number of permits
	my %theirs = map {
		$_ => $foreign->create(
			lock_dir("sem/$_") . "/leases/_c_00000000-0000-4000-8000-000000000000-lease-",
			ephemeral => 1, sequence => 1, makepath => 1)
	} (1, 2);
	is(try_permit($_, 'sem/1', 1), 'f', $_->name . ": Curator's lease counts") for ($a, $b);
	is(try_permit($_, 'sem/2', 2), 't', $_->name . ': as one') for ($a, $b);
	my $waiter = waiting($a, "SELECT zk_acquire('sem/1', 1)", 'permit');
	my $next = waiting($b, "SELECT zk_acquire('sem/1', 1)", 'permit');
	value($a, "SELECT pg_cancel_backend($waiter->{pid})");
	is($waiter->result->{sqlstate}, '57014', 'canceled while it waits for a permit');
	$waiter->run('ROLLBACK');
	ok(!$next->done, 'the next waits on');
	$foreign->delete($_) for values %theirs;
	got($next, 'and has the permit in the end');
	is_over($next);
	$waiter->run_ok("SELECT zk_acquire('sem/1', 1)", 'so has who was canceled');
	$waiter->quit;

	# data of somebody else's does not matter
	$foreign->set(lock_dir('sem') . '/leases', 'a$') if $foreign->exists(lock_dir('sem') . '/leases');
	is(try_permit($_, 'sem', 2, '1 min'), 't', $_->name . ': strange data') for ($a, $b);
	for my $name ('sem', 'sem/1', 'sem/2')
	{
		wait_leases(0, lock_dir($name) . '/leases');
		poll_until(sub { !eval { $foreign->ls(lock_dir($name) . '/locks') } },
			'no contender in locks');
	}
}

#
# Somebody deletes our nodes: who waits for a permit queues again, nobody commits
# under a lock that has gone
#

{
	no warnings 'portable';		# 64 bits
	my ($dir, $sem) = (lock_dir('deleted/rw'), lock_dir('deleted/sem'));
	my @held = (
		having($b, "SELECT zk_lock('deleted/rw')"),
		having($b, "SELECT zk_acquire('deleted/sem', 1)"));
	my ($lease) = $foreign->ls("$sem/leases");
	my @waiting = (
		waiting($a, "SELECT zk_lock('deleted/rw', shared => true)", 'shared'),
		waiting($a, "SELECT zk_acquire('deleted/sem', 1)", 'permit'),
		waiting($b, "SELECT zk_acquire('deleted/sem', 1)", 'permit'));
	my ($owner, $contender) = wait_contenders($zk, 'deleted/rw', 2);

	# it would queue again if it had not found its place yet
	$zk->wait_watched("$dir/$owner", hex session_of($a));
	$foreign->delete("$dir/$contender");
	for my $place ('locks', 'leases')
	{
		$foreign->delete("$sem/$place/$_")
		  for grep { $_ ne $lease } $foreign->ls("$sem/$place");
	}
	ok(!$_->done, 'they still wait') for @waiting;
	is_over($_) for @held;
	poll_until(sub { $waiting[1]->done || $waiting[2]->done }, 'a permit to be available');
	my ($first, $second) = $waiting[1]->done ? @waiting[ 1, 2 ] : @waiting[ 2, 1 ];
	got($first, 'one has the permit');
	ok(!$second->done, 'and not the other');
	is_over($first);
	got($second, 'which follows');

	# holders
	my $result = $waiting[0]->result;
	my $told = $result->{sqlstate} // 'granted';
	like($told, qr/^(?:granted|40001)$/, 'a lock is reported as ours, though our place in the queue has gone, or lost at once')
	  or diag($result->{message});

	# if its worker had heard of that ahead of its backend, it has another place
	$foreign->delete("$dir/$_") for contenders($zk, 'deleted/rw');
	$foreign->delete("$sem/leases/$_") for $foreign->ls("$sem/leases");
	$waiting[0]->quit if $told ne 'granted';
	for my $session ($told eq 'granted' ? $waiting[0] : (), $second)
	{
		$session->{node}->poll_query_until('postgres',
			"SELECT lost FROM zk_locks WHERE pid = $session->{pid}");
		is($session->run('COMMIT')->{sqlstate}, '40001', 'then it is lost');
		$session->quit;
	}
	wait_no_contenders($zk, 'deleted/rw');
	wait_leases(0, "$sem/leases");
}

#
# Restarts of ZooKeeper and of the workers: holders hold, waiters wait
#

sub restart_all
{
	for my $node ($a, $b)
	{
		my $worker = worker_of($node);
		value($node, "SELECT pg_terminate_backend($worker)");
	}
	$zk->kill9;
	$zk->start;
	wait_connected($_) for ($a, $b);
	return;
}

{
	my @readers = map { reader($_, 'again/rw') } ($a, $b);
	my $session = having($a, "SELECT zk_lock('again/s', session => true)");
	my @permits = map { having($_, "SELECT zk_acquire('again/sem', 2)") } ($a, $b);
	my @waiting = (
		waiting($a, "SELECT zk_lock('again/rw')", 'exclusive'),
		waiting($b, "SELECT zk_lock('again/s', shared => true)", 'shared'),
		waiting($b, "SELECT zk_acquire('again/sem', 2)", 'permit'),
		waiting($b, "SELECT zk_lock_all('{again/1,again/s,again/2}')", 'exclusive'));

	wait_contenders($zk, 'again/rw', 3);
	restart_all();
	ok(!$_->done, 'who waits waits on') for @waiting;
	is(try_shared($b, 'again/s'), 'f', 'who holds holds on');
	is(try_permit($a, 'again/sem', 2), 'f', 'permits too');
	$_->run_ok('COMMIT') for (@readers, @permits, $session);
	got($waiting[0], 'then a writer');
	got($waiting[2], 'a permit');
	$session->run_ok("SELECT zk_unlock('again/s')");
	got($waiting[1], 'a reader');
	is_over($waiting[1]);
	got($waiting[3], 'and zk_lock_all have what they waited for');
	is_over($_) for @waiting[ 0, 2, 3 ];
	$_->quit for (@readers, @permits, $session);
	wait_no_contenders($zk, "again/$_") for ('rw', 's', '1', '2');
	wait_leases(0, lock_dir('again/sem') . '/leases');
}

#
# Load
#

my $referee = PostgreSQL::Test::Cluster->new('referee');
$referee->init;
$referee->append_conf('postgresql.conf', "log_statement = none\n");
$referee->start;
$referee->safe_psql('postgres', q{
	CREATE TABLE counter (name text, n bigint DEFAULT 0, twin bigint DEFAULT 0);
	INSERT INTO counter SELECT 'r' || i FROM generate_series(1, 4) i;
	CREATE TABLE note (id bigserial PRIMARY KEY, enters int);
});
my $connstr = $referee->connstr('postgres') =~ s/'/''/gr;
for my $node ($a, $b)
{
	$node->safe_psql('postgres', qq{
		CREATE EXTENSION dblink;
		CREATE TABLE bumped (name text);
		CREATE FUNCTION referee(statement text) RETURNS bigint LANGUAGE plpgsql AS \$\$
		DECLARE
			answer bigint;
		BEGIN
			IF dblink_get_connections() IS NULL THEN
				PERFORM dblink_connect('referee', '$connstr');
			END IF;
			SELECT n FROM dblink('referee', statement) AS r (n bigint) INTO answer;
			RETURN answer;
		END \$\$;
		-- two writers at a time would lose something, a reader would see it torn
		CREATE FUNCTION bump(names text[]) RETURNS void LANGUAGE plpgsql AS \$\$
		DECLARE
			what text;
			old bigint;
		BEGIN
			FOREACH what IN ARRAY names LOOP
				INSERT INTO bumped VALUES (what);
				old := referee(format('SELECT n FROM counter WHERE name = %L', what));
				PERFORM referee(format('UPDATE counter SET n = %s WHERE name = %L RETURNING n', old + 1, what));
				PERFORM referee(format('UPDATE counter SET twin = %s WHERE name = %L RETURNING n', old + 1, what));
			END LOOP;
		END \$\$;
		CREATE FUNCTION look(names text[]) RETURNS void LANGUAGE plpgsql AS \$\$
		DECLARE
			what text;
		BEGIN
			FOREACH what IN ARRAY names LOOP
				IF referee(format('SELECT n FROM counter WHERE name = %L', what))
				   <> referee(format('SELECT twin FROM counter WHERE name = %L', what)) THEN
					RAISE EXCEPTION 'torn: %', what;
				END IF;
			END LOOP;
		END \$\$;
	});
}

my $dir = PostgreSQL::Test::Utils::tempdir;
my %script = (
	# in this order and in the opposite one
	write_a => q{\set i random(1, 3)
\set j random(:i + 1, 4)
BEGIN;
SELECT zk_lock_all(ARRAY['r' || :i, 'r' || :j]);
SELECT bump(ARRAY['r' || :i, 'r' || :j]);
COMMIT;
},
	write_b => q{\set i random(1, 3)
\set j random(:i + 1, 4)
BEGIN;
SELECT zk_lock_all(ARRAY['r' || :j, 'r' || :i]);
SELECT bump(ARRAY['r' || :i, 'r' || :j]);
COMMIT;
},
	write_one => q{\set i random(1, 4)
BEGIN;
SELECT zk_lock('r' || :i);
SELECT bump(ARRAY['r' || :i]);
COMMIT;
},
	read => q{\set i random(1, 4)
BEGIN;
SELECT zk_lock('r' || :i, shared => true);
SELECT look(ARRAY['r' || :i]);
COMMIT;
},
	read_all => q{BEGIN;
SELECT zk_lock_all('{r4,r1,r2,r3}', shared => true);
SELECT look('{r1,r2,r3,r4}');
COMMIT;
},
	permit => q{BEGIN;
SELECT zk_acquire('load', 3);
SELECT referee('INSERT INTO note (enters) VALUES (1) RETURNING id');
\sleep 2 ms
SELECT referee('INSERT INTO note (enters) VALUES (-1) RETURNING id');
COMMIT;
});
append_to_file("$dir/$_", $script{$_}) for keys %script;

# Run scripts (with weights) in both instances.
sub run_load
{
	my ($name, %scripts) = @_;
	my %bench;

	for my $who (sort keys %scripts)
	{
		my $node = $cluster{$who};
		my $bench = $bench{$who} = { out => '', err => '' };

		# a deadlock between the instances would be an error in the end
		local %ENV = ($node->_get_env(), PGOPTIONS => '-c lock_timeout=60s');
		$bench->{run} = IPC::Run::start(
			[
				$node->installed_command('pgbench'), '-n', '-c', 8, '-j', 1,
				'-t', $transactions, (map { ('-f', "$dir/$_") } @{ $scripts{$who} }),
				$node->connstr('postgres')
			],
			'<', \undef, '>', \$bench->{out}, '2>', \$bench->{err});
	}
	for my $who (sort keys %bench)
	{
		my $bench = $bench{$who};
		my $well = $bench->{run}->finish;

		is($bench->{err} =~ /(.*error.*)/i ? $1 : '', '', "$name, instance $who: no error");
		ok($well, "$name, instance $who: pgbench ends well");
		my ($n) = $bench->{out} =~ /^number of transactions actually processed: (\d+)/m;
		note "$name, instance $who: $n transactions";
		cmp_ok($n, '>', 0, "$name, instance $who: it has had its turn");
	}
	return;
}

run_load('readers and writers',
	a => [qw(write_a@2 write_one@1 read@2 read_all@1)],
	b => [qw(write_b@2 write_one@1 read@2 read_all@1)]);
for my $i (1 .. 4)
{
	my $commits = 0;
	$commits += value($_, "SELECT count(*) FROM bumped WHERE name = 'r$i'") for ($a, $b);
	cmp_ok($commits, '>', 0, "counter $i: $commits commits");
	is($referee->safe_psql('postgres', "SELECT n, twin FROM counter WHERE name = 'r$i'"),
		"$commits|$commits", "counter $i: none is lost");
	wait_no_contenders($zk, "r$i");
}

run_load('semaphore', a => ['permit'], b => ['permit']);
my $most = $referee->safe_psql('postgres',
	'SELECT max(n) FROM (SELECT sum(enters) OVER (ORDER BY id) AS n FROM note) s');
cmp_ok($most, '<=', 3, "semaphore: $most holders at a time, 3 at most");
is($referee->safe_psql('postgres', 'SELECT sum(enters) FROM note'), 0, 'semaphore: all have left');
wait_leases(0, lock_dir('load') . '/leases');

#
# A lost session
#

for my $node ($a, $b)
{
	is(value($node, 'SELECT count(*) FROM zk_locks'), 0, $node->name . ': no lock is left');
	is(value($node, 'SELECT sessions FROM zk_session'), 1, $node->name . ': one session so far');
}
{
	my @lost = (
		reader($a, 'lost/r'),
		having($a, "SELECT zk_acquire('lost/sem', 1)"),
		having($a, "SELECT zk_lock_all('{lost/1,lost/2}')"),
		having($a, "SELECT zk_lock('lost/s', session => true)"));
	my @waiting = (
		waiting($b, "SELECT zk_lock('lost/r')", 'exclusive'),
		waiting($b, "SELECT zk_acquire('lost/sem', 1)", 'permit'),
		waiting($b, "SELECT zk_lock_all('{lost/2,lost/1}')", 'exclusive'),
		waiting($b, "SELECT zk_lock('lost/s')", 'exclusive'));

	$_->run_ok('CREATE TABLE lost' . $_->pid . ' ()') for @lost;
	wait_contenders($zk, 'lost/r', 2);
	ok(end_session($a, $foreign), 'the session is ended');
	got($_, 'the lost lock goes to another instance') for @waiting;
	$a->poll_query_until('postgres', 'SELECT count(*) = 5 AND bool_and(lost) FROM zk_locks');
	is($_->run('COMMIT')->{sqlstate}, '40001', 'its holder cannot commit') for @lost;
	is(value($a, q{SELECT count(*) FROM pg_class WHERE relname ~ '^lost\d'}), 0, 'nothing is committed');
	is(value($a, 'SELECT name, scope, lost FROM zk_locks'), 'lost/s|session|t',
		'a lost lock of a session stays');
	is($lost[3]->run('CREATE TABLE lost ()')->{sqlstate}, '40001', 'and fails every commit');
	my $result = $lost[3]->run("SELECT zk_unlock('lost/s')");
	is($result->{out}, 't', 'until it is undone');
	like($result->{warnings}[0]{message} // '', qr/^lock "lost\/s" has been lost/, 'with a warning');
	$lost[3]->run_ok('CREATE TABLE lost ()');
	is_over($_) for @waiting;
	$_->quit for @lost;
	is(try($a, 'lost/s', ", '1 min'") . try($a, 'lost/r', ", '1 min'"), 'tt', 'it is available again');
}

# who waits in a session that ends queues again in the next
{
	my @held = (
		having($a, "SELECT zk_lock('next/rw')"),
		having($a, "SELECT zk_acquire('next/sem', 1)"),
		having($a, "SELECT zk_lock('next/2')"));
	my @waiting = (
		waiting($b, "SELECT zk_lock('next/rw', shared => true)", 'shared'),
		waiting($b, "SELECT zk_acquire('next/sem', 1)", 'permit'),
		waiting($b, "SELECT zk_lock_all('{next/1,next/2,next/3}', session => true)", 'exclusive'));

	wait_contenders($zk, 'next/rw', 2);
	ok(end_session($b, $foreign), 'the session of those who wait is ended');
	$b->poll_query_until('postgres', 'SELECT sessions = 2 FROM zk_session');
	wait_contenders($zk, 'next/rw', 2);
	ok(!$_->done, 'they wait on') for @waiting;
	is_over($_) for @held;
	got($_, 'and have it in the end') for @waiting;
	$_->run_ok('COMMIT') for @waiting;
	$waiting[2]->run_ok('SELECT zk_unlock_all()');
	$_->quit for @waiting;
}

# Nothing of all that is left
for my $node ($a, $b)
{
	my $name = $node->name;

	is(value($node, 'SELECT count(*) FROM zk_locks'), 0, "$name has no lock");
	ok($node->poll_query_until('postgres', 'SELECT slots = 0 AND slot_users = 0 FROM zk_stat'),
		"$name: no slot is in use");
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/,
		"$name has not crashed");
	$node->stop;
}
$referee->stop;

done_testing();
