
# One queue with other clients: who respects whom, in both directions, with the
# real libraries.

use strict;
use warnings;

use Foreign;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

# Nothing in here waits for a session to expire.
my $zk = ZooKeeper->new;
$zk->start;
my $observer = $zk->client(timeout => 60);
my ($a, $b) = map { zk_cluster($_, $zk, 'zklock.session_timeout' => '60s') } qw(a b);
my %client = map { $_ => Foreign->$_($zk) } qw(curator kazoo go);

# Two sessions of ours in each instance
my ($a1, $a2, $b1, $b2) = map { ZkSession->new($_) } ($a, $a, $b, $b);

sub session_number
{
	no warnings 'portable';
	return hex session_of($_[0]);
}

sub in_dir
{
	my ($dir, @names) = @_;
	return map { "$dir/$_" } @names;
}

# Wait until our session waits for a lock, in either tier.
sub wait_ungranted
{
	my ($session) = @_;
	my $pid = $session->pid;

	$session->{node}->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM zk_locks WHERE pid = $pid AND NOT granted");
	return;
}

# A result without an error
sub is_granted
{
	my ($session, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($session->result->{message}, undef, $name);
	return;
}

#
# Who respects whom: one lock that we hold and they want, and the other way
# round.
#

# How we take a lock
my %ours = (
	'exclusive' => { format => 'mutex', args => '' },
	'exclusive, readwrite' => { format => 'readwrite', args => '' },
	'shared' => { format => 'mutex', args => ', shared => true' });
my @ours = ('exclusive', 'exclusive, readwrite', 'shared');

# Whether each client waits for each kind of ours:
#   waits      until we release
#   ignores    us, and takes the lock that we hold
#   together   both read
#   fails      with an error, and leaves its contender behind until its session
#              ends
# We always wait for theirs, unless both read.
my @peers = (
	[ 'curator', 'InterProcessMutex', {}, qw(waits ignores ignores) ],
	[ 'curator', 'WriteLock', {}, qw(ignores waits waits) ],
	[ 'curator', 'ReadLock', {}, qw(ignores waits together) ],
	[ 'curator', "ZooKeeper's WriteLock", {}, qw(waits ignores ignores) ],
	[ 'go', 'Lock', {}, qw(waits fails fails) ],
	[ 'kazoo', 'Lock', {}, qw(ignores ignores ignores) ],
	[ 'kazoo', 'WriteLock', {}, qw(ignores ignores ignores) ],
	[ 'kazoo', 'ReadLock', {}, qw(ignores ignores together) ],
	[
		'kazoo', 'Lock', { extra => [ '-lock-', '-__WRIT__', '-__READ__' ] },
		qw(waits waits waits)
	],
	[
		'kazoo', 'WriteLock', { extra => [ '-lock-', '-__WRIT__', '-__READ__' ] },
		qw(waits waits waits)
	],
	[
		'kazoo', 'ReadLock', { extra => [ '-lock-', '-__WRIT__' ] },
		qw(waits waits together)
	],
	[ 'kazoo', 'CommonLock', {}, qw(waits waits waits) ],
	[ 'kazoo', 'CommonWriteLock', {}, qw(waits waits waits) ],
	[ 'kazoo', 'CommonReadLock', {}, qw(waits waits together) ]);

# Some clients want the directory to be there, and to stay.
my $directories = 0;

sub new_directory
{
	my $lock = 'pair ' . $directories++;

	$observer->create(lock_dir($lock), makepath => 1);
	return $lock;
}

sub we_hold
{
	my ($name, $how, $client, $kind, $options, $expected) = @_;
	my $lock = new_directory();
	my $dir = lock_dir($lock);
	my $session = $client{$client}->session;
	my $theirs = $client{$client}->make($kind, $dir, %$options);

	$a1->run_ok("BEGIN; SELECT zk_lock('$lock'$how->{args})", "$name: we hold it");
	my ($node) = in_dir($dir, contenders($zk, $lock));

	if ($expected eq 'waits')
	{
		# these can only wait: go-zookeeper's has no other call, and ZooKeeper's
		# leaves its watch behind, which we look for below
		if ($client ne 'go' && $kind !~ /^ZooKeeper/)
		{
			ok(!$theirs->acquire(0), "$name: they do not get it");
			is(scalar(contenders($zk, $lock)), 1, "$name: and leave nothing behind");
		}
		$theirs->begin('acquire');
		wait_contenders($zk, $lock, 2);
		$zk->wait_watched($node, $session);
		ok(!$theirs->done, "$name: they wait for us");
		$a1->run_ok('COMMIT', "$name: we release it");
		ok($theirs->end, "$name: and they get it");
		is(scalar(contenders($zk, $lock)), 1, "$name: our contender is gone");
		$theirs->release;
	}
	elsif ($expected eq 'fails')
	{
		ok(!eval { $theirs->acquire; 1 }, "$name: they fail");
		is(scalar(contenders($zk, $lock)), 2, "$name: and leave a contender behind");
		$client{$client}->disconnect;
		wait_contenders($zk, $lock, 1);
		pass("$name: until their session ends");
		$client{$client} = Foreign->$client($zk);
		$a1->run_ok('COMMIT', "$name: we release it");
	}
	else
	{
		ok($theirs->acquire(0), "$name: they "
			  . ($expected eq 'together' ? 'get it, too' : 'take it over us'));
		$a1->run_ok('COMMIT', "$name: we release it");
		$theirs->release;
	}
	wait_no_contenders($zk, $lock);
	return;
}

sub they_hold
{
	my ($name, $how, $client, $kind, $options, $expected) = @_;
	my $lock = new_directory();
	my $dir = lock_dir($lock);
	my $theirs = $client{$client}->make($kind, $dir, %$options);

	$theirs->acquire;
	my ($node) = in_dir($dir, contenders($zk, $lock));

	my $try = sub { $_[0]->run("SELECT zk_try_lock('$lock'$how->{args})")->{out} };
	if ($expected eq 'together')
	{
		is($try->($a1), 't', "$name: we get it, too");
		$theirs->release;
	}
	else
	{
		is($try->($a1), 'f', "$name: they hold it, and we do not get it");
		wait_contenders($zk, $lock, 1);
		$a1->run('BEGIN');
		$a1->send("SELECT zk_lock('$lock'$how->{args})");
		$a1->wait_waiting(2);
		$zk->wait_watched($node, session_number($a));
		is(scalar(contenders($zk, $lock)), 2, "$name: we queue");
		ok(!$a1->done, "$name: we wait for them");
		$theirs->release;
		is_granted($a1, "$name: they release it, and we get it");
		$a1->run_ok('COMMIT', "$name: we release it");
	}
	wait_no_contenders($zk, $lock);
	return;
}

for my $ours (@ours)
{
	subtest "$ours, and other clients" => sub {
		my $how = $ours{$ours};
		my $turn = (grep { $ours[$_] eq $ours } 0 .. $#ours)[0];

		$a1->run_ok("SET zklock.node_format = '$how->{format}'")
		  if $how->{format} ne 'mutex';
		for my $peer (@peers)
		{
			my ($client, $kind, $options, @expected) = @$peer;
			my $name = "$client $kind" . (%$options ? ' with patterns' : '');

			we_hold($name, $how, $client, $kind, $options, $expected[$turn]);
			they_hold($name, $how, $client, $kind, $options, $expected[$turn]);
		}
		$a1->run_ok('RESET zklock.node_format') if $how->{format} ne 'mutex';
	};
}

# A lock that several of them share with us they must share among themselves.
subtest 'other clients among themselves' => sub {
	my %kinds = (
		'InterProcessMutex' => ['curator'],
		"ZooKeeper's WriteLock" => ['curator'],
		'CommonLock' => ['kazoo'],
		'Lock with patterns' => [ 'kazoo', extra => ['-lock-'] ],
		'Lock' => ['go']);
	my %ignores = (
		'InterProcessMutex' => [ "ZooKeeper's WriteLock", 'Lock with patterns' ],
		"ZooKeeper's WriteLock" => ['Lock with patterns'],
		'CommonLock' => ["ZooKeeper's WriteLock"],
		'Lock with patterns' => ["ZooKeeper's WriteLock"],
		'Lock' => []);
	my $make = sub {
		my ($kind, $dir) = @_;
		my ($client, @options) = @{ $kinds{$kind} };
		return $client{$client}->make($kind =~ s/ with.*//r, $dir, @options);
	};

	for my $holder (sort keys %kinds)
	{
		for my $other (grep { $_ ne $holder } sort keys %kinds)
		{
			my $lock = new_directory();
			my ($held, $wanted) = map { $make->($_, lock_dir($lock)) } ($holder, $other);
			my $name = $wanted->kind . ' and ' . $held->kind;

			ok($held->acquire, "$name: the second holds it");
			my ($node) = in_dir(lock_dir($lock), contenders($zk, $lock));
			$wanted->begin('acquire');
			if (grep { $_ eq $holder } @{ $ignores{$other} })
			{
				ok($wanted->end, "$name: the first takes it over the second");
				$held->release;
			}
			elsif ($other eq 'Lock' && $holder eq 'Lock with patterns')
			{
				ok(!eval { $wanted->end; 1 }, "$name: the first fails");
				$client{go}->disconnect;
				$client{go} = Foreign->go($zk);
				$held->release;
			}
			else
			{
				wait_contenders($zk, $lock, 2);
				$zk->wait_watched($node, $wanted->session);
				ok(!$wanted->done, "$name: the first waits for the second");
				$held->release;
				ok($wanted->end, "$name: and gets it");
			}
			$wanted->release unless $other eq 'Lock' && $holder eq 'Lock with patterns';
			wait_no_contenders($zk, $lock);
		}
	}
};

#
# One queue of all
#

subtest 'first come, first served' => sub {
	my $dir = lock_dir('queue');
	my @queue = (
		$client{curator}->make('InterProcessMutex', $dir),
		$client{kazoo}->make('CommonLock', $dir),
		$a1,
		$client{go}->make('Lock', $dir),
		$b1,
		$client{curator}->make('InterProcessMutex', $dir));
	my @nodes;

	for my $turn (0 .. $#queue)
	{
		my $one = $queue[$turn];

		if ($one->isa('ZkSession'))
		{
			$one->run('BEGIN');
			$one->send("SELECT zk_lock('queue')");
		}
		else
		{
			$one->begin('acquire');
		}
		@nodes = wait_contenders($zk, 'queue', $turn + 1);
	}
	for my $turn (0 .. $#queue)
	{
		my $one = $queue[$turn];

		if ($one->isa('ZkSession'))
		{
			is_granted($one, "turn $turn: we have it");
		}
		else
		{
			ok($one->end, "turn $turn: they have it");
		}
		is(scalar(grep { $_->done } @queue[ $turn + 1 .. $#queue ]),
			0, "turn $turn: all others wait");
		is_deeply([ contenders($zk, 'queue') ],
			[ @nodes[ $turn .. $#nodes ] ], "turn $turn: in order");
		$one->isa('ZkSession') ? $one->run_ok('COMMIT') : $one->release;
	}
	wait_no_contenders($zk, 'queue');
};

subtest 'a lock directory that is collected when idle' => sub {
	for my $peer ([ 'curator', 'InterProcessMutex' ], [ 'kazoo', 'CommonLock' ], [ 'go', 'Lock' ])
	{
		my ($client, $kind) = @$peer;
		my $lock = "idle $client";
		my $theirs = $client{$client}->make($kind, lock_dir($lock));
		my $name = $theirs->kind;

		$a1->run_ok("BEGIN; SELECT zk_lock('$lock')", "$name: we hold it");
		$theirs->begin('acquire');
		wait_contenders($zk, $lock, 2);
		$a1->run_ok('COMMIT');
		ok($theirs->end, "$name: they get it");
		$theirs->release;
		poll_until(sub { !$observer->exists(lock_dir($lock)) },
			'the idle directory to be collected');
		ok($theirs->acquire, "$name: they get it in a new directory");
		is($a1->run("SELECT zk_try_lock('$lock')")->{out}, 'f', "$name: where we see them");
		$theirs->release;
		$a1->run_ok("SELECT zk_lock('$lock')", "$name: we get it there");
		wait_no_contenders($zk, $lock);
	}

	# kazoo's own looks for its directory only once
	my $dir = lock_dir('idle once');
	my $theirs = $client{kazoo}->make('Lock', $dir, extra => ['-lock-']);
	$a1->run_ok("SELECT zk_lock('idle once')");
	ok($theirs->acquire, 'kazoo Lock gets it once');
	$theirs->release;
	poll_until(sub { !$observer->exists($dir) }, 'the idle directory to be collected');
	ok(!eval { $theirs->acquire; 1 }, 'but not in a new directory');
	like($@, qr/^NoNodeError/, 'where it fails');
	ok(!$observer->exists($dir), 'and leaves nothing behind');
};

subtest 'what they say of us, and we of them' => sub {
	my $dir = lock_dir('notified');
	my $mutex = $client{curator}->make('InterProcessMutex', $dir);
	my $leader = $client{curator}->make('LeaderSelector', $dir);
	my $kazoo = $client{kazoo}->make('CommonLock', $dir);
	my $reader = $client{kazoo}->make('CommonReadLock', $dir);

	$a1->run_ok("BEGIN; SELECT zk_lock('notified')");
	my ($ours) = in_dir($dir, contenders($zk, 'notified'));
	my $told = $observer->get($ours)->{data};
	is_deeply([ $mutex->participants ], [$ours], 'Curator lists our contender');
	is_deeply([ $leader->participants ], [$told], 'and its data');
	is_deeply([ $kazoo->participants ], [$told], 'so does kazoo');
	$leader->start;
	wait_contenders($zk, 'notified', 2);
	$reader->begin('acquire');
	my @queue = in_dir($dir, wait_contenders($zk, 'notified', 3));
	is( $b1->run('SELECT position, path, mode, owner, session_id'
			  . " FROM zk_queue('notified')")->{out},
		join("\n",
			map({ sprintf('%d|%s|%s|%s|0x%x', @$_) }
				[ 1, $queue[0], 'exclusive', $told, session_number($a) ],
				[ 2, $queue[1], 'exclusive', 'curator leader', $mutex->session ],
				[ 3, $queue[2], 'shared', 'kazoo', $kazoo->session ])),
		'zk_queue lists all');
	$a1->run_ok('COMMIT');
	ok($leader->wait, 'they lead');
	$leader->step_down;
	ok($reader->end, 'and read');
	$reader->release;
	$leader->close;
	wait_no_contenders($zk, 'notified');

	# a semaphore: first who has a permit, then who waits
	my @permits = map {
		$client{curator}->make('InterProcessSemaphoreV2', lock_dir('permits'), permits => 1)
	} (1, 2);
	$permits[0]->acquire;
	$permits[1]->begin('acquire');
	poll_until(sub { $observer->ls(lock_dir('permits') . '/leases') == 2 }, 'them to wait');
	$a1->run('BEGIN');
	$a1->send("SELECT zk_acquire('permits', 1)");
	wait_ungranted($a1);
	poll_until(sub { $observer->ls(lock_dir('permits') . '/locks') == 2 }, 'us to wait');
	is( $b1->run("SELECT mode, session_id FROM zk_queue('permits')"
			  . " WHERE path LIKE '%/leases/%'")->{out},
		join("\n", (sprintf('permit|0x%x', $mutex->session)) x 2),
		'zk_queue lists leases');
	is( $b1->run("SELECT mode, session_id FROM zk_queue('permits')"
			  . " WHERE path LIKE '%/locks/%'")->{out},
		join("\n", map { sprintf('permit|0x%x', $_) } ($mutex->session, session_number($a))),
		'and who waits for one');
	$permits[0]->release;
	ok($permits[1]->end, 'they have it in turn');
	$permits[1]->release;
	is_granted($a1, 'and we');
	$a1->run_ok('COMMIT');
};

#
# Leadership
#

subtest "Curator's LeaderSelector" => sub {
	my $dir = lock_dir('leader');
	my @leader = map {
		$client{curator}->make('LeaderSelector', $dir, requeue => $_)
	} (0, 1);

	# once, without a second term
	$leader[0]->start;
	ok($leader[0]->wait, 'they lead');
	is($b1->run("SELECT zk_try_lock('leader')")->{out}, 'f', 'we do not');
	$a1->run('BEGIN');
	$a1->send("SELECT zk_lock('leader')");
	$a1->wait_waiting(2);
	wait_contenders($zk, 'leader', 2);
	ok($leader[0]->leads, 'they still lead while we wait');
	$leader[0]->step_down;
	is_granted($a1, 'they step down, and we lead');
	ok(!$leader[0]->leads, 'and they do not');
	$a1->run_ok('COMMIT');
	wait_no_contenders($zk, 'leader');

	# again and again
	$leader[1]->start;
	for my $term (1 .. 2)
	{
		ok($leader[1]->wait, "term $term: they lead");
		$a1->run('BEGIN');
		$a1->send("SELECT zk_lock('leader')");
		$a1->wait_waiting(2);
		$leader[1]->step_down;
		is_granted($a1, "term $term: we lead");
		my @queue = wait_contenders($zk, 'leader', 2);
		$zk->wait_watched((in_dir($dir, @queue))[0], $client{curator}->session);
		ok(!$leader[1]->leads, "term $term: they stand in the queue again");
		$a1->run_ok('COMMIT');
	}
	ok($leader[1]->wait, 'they lead once more');
	$leader[1]->close;
	$leader[0]->close;
	wait_no_contenders($zk, 'leader');
};

#
# Readers and writers
#

# One way to handle our sessions and their locks
sub rw_begin
{
	my ($one, $args) = @_;

	return $one->begin('acquire') unless $one->isa('ZkSession');
	$one->run('BEGIN');
	$one->send("SELECT zk_lock('rw'$args)");
	return;
}

sub rw_has
{
	my ($one, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($one->end, $name) unless $one->isa('ZkSession');
	return is_granted($one, $name);
}

sub rw_end
{
	my ($one) = @_;

	return $one->release unless $one->isa('ZkSession');
	return $one->run_ok('COMMIT');
}

subtest 'readers and writers' => sub {
	my $dir = lock_dir('rw');
	my ($curator, $kazoo) = @client{qw(curator kazoo)};
	my $shared = ', shared => true';

	$_->run_ok("SET zklock.node_format = 'readwrite'") for ($a1, $a2, $b1, $b2);

	my @writers = (
		$b1,
		$curator->make('WriteLock', $dir),
		$kazoo->make('CommonWriteLock', $dir));
	my @first = (
		$curator->make('ReadLock', $dir),
		$a1,
		$kazoo->make('CommonReadLock', $dir));
	my @later = (
		$a2,
		$kazoo->make('CommonReadLock', $dir),
		$curator->make('ReadLock', $dir));

	for my $writer (@writers)
	{
		my $name = 'a writer of '
		  . ($writer == $b1 ? 'ours' : $writer->kind);
		my $session = $writer == $b1 ? session_number($b) : $writer->session;
		my @queue;

		# each kind of reader is the last to leave once
		push @first, shift @first;
		for my $reader (@first)
		{
			rw_begin($reader, $shared);
			rw_has($reader, "$name: a reader holds it");
		}
		@queue = in_dir($dir, wait_contenders($zk, 'rw', 3));
		is($b2->run("SELECT zk_try_lock('rw')")->{out}, 'f', "$name: we cannot write");
		ok(!$_->acquire(0), "$name: nor can they") for @writers[ 1, 2 ];

		rw_begin($writer, '');
		push @queue, in_dir($dir, (wait_contenders($zk, 'rw', 4))[3]);
		for my $reader (@later)
		{
			rw_begin($reader, $shared);
			wait_ungranted($reader) if $reader == $a2;
		}
		$zk->wait_watched($queue[3], $_->session) for @later[ 1, 2 ];
		is($b2->run("SELECT zk_try_lock('rw'$shared)")->{out},
			'f', "$name: no reader overtakes it");

		for my $reader (@first)
		{
			$zk->wait_watched($queue[2], $session);
			is(scalar(grep { $_->done } ($writer, @later)), 0, "$name: they wait");
			rw_end($reader);
		}
		rw_has($writer, "$name: all readers have left");
		is(scalar(grep { $_->done } @later), 0, "$name: later readers wait for it");
		is($b2->run("SELECT zk_try_lock('rw'$shared)")->{out}, 'f', "$name: no reader enters")
		  if $writer != $b1;
		rw_end($writer);
		rw_has($_, "$name: then they hold it together") for @later;
		is($b2->run("SELECT zk_try_lock('rw'$shared)")->{out}, 't', "$name: and one more");
		rw_end($_) for @later;
		wait_no_contenders($zk, 'rw');
	}

	# what we hold exclusively, we may hold shared too: it stays exclusive
	$a1->run_ok("BEGIN; SELECT zk_lock('rw'), zk_lock('rw'$shared)");
	ok(!$_->acquire(0), 'exclusive and shared: ' . $_->kind . ' waits')
	  for (@first[ grep { $first[$_] != $a1 } 0 .. 2 ], @writers[ 1, 2 ]);
	$a1->run_ok('COMMIT');
	wait_no_contenders($zk, 'rw');
	$_->run_ok('RESET zklock.node_format') for ($a1, $a2, $b1, $b2);
};

subtest 'a reader of kazoo between two writers' => sub {
	my $dir = lock_dir('between');
	my $patterns = [ '-lock-', '-__WRIT__' ];
	my $version = `/usr/bin/python3 -c 'import kazoo; print(kazoo.__version__)'`;
	my $waits_for_later = $version =~ /^2\.[0-8]\./;

	for my $kind ('CommonReadLock', 'ReadLock')
	{
		my $reader = $client{kazoo}->make($kind, $dir,
			$kind eq 'ReadLock' ? (extra => $patterns) : ());
		my $session = $reader->session;

		$a1->run_ok("BEGIN; SELECT zk_lock('between')", "$kind: a writer of ours");
		$reader->begin('acquire');
		wait_contenders($zk, 'between', 2);
		$zk->wait_watched((in_dir($dir, contenders($zk, 'between')))[0], $session);
		$b1->run('BEGIN');
		$b1->send("SELECT zk_lock('between')");
		my $later = (in_dir($dir, wait_contenders($zk, 'between', 3)))[2];
		$a1->run_ok('COMMIT');
		if ($kind eq 'ReadLock' and $waits_for_later)
		{
			# that of kazoo 2.8 waits for a writer that came later, which waits for it
			$zk->wait_watched($later, $session);
			ok(!$_->done, "$kind: both wait") for ($reader, $b1);
			$b->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $b1->pid . ')');
			is($b1->result->{sqlstate}, '57014', "$kind: the later writer is canceled");
			ok($reader->end, "$kind: and it has the lock");
			$reader->release;
			$b1->run_ok('ROLLBACK');
		}
		else
		{
			ok($reader->end, "$kind: it is next");
			ok(!$b1->done, "$kind: and the later writer waits");
			$reader->release;
			is_granted($b1, "$kind: for it only");
			$b1->run_ok('COMMIT');
		}
		wait_no_contenders($zk, 'between');
	}
};

#
# Semaphores
#

subtest "Curator's InterProcessSemaphoreV2" => sub {
	my $dir = lock_dir('sem');
	my ($first, $second, $third) = map {
		$client{curator}->make('InterProcessSemaphoreV2', $dir, permits => 2)
	} (1 .. 3);
	my $try = "SELECT zk_try_acquire('sem', 2)";
	my $leases = sub { return scalar $observer->ls("$dir/leases"); };
	my $wait_leases = sub {
		my ($n) = @_;
		poll_until(sub { $leases->() == $n }, "$n leases");
	};

	# one each
	$a1->run_ok("BEGIN; SELECT zk_acquire('sem', 2)", 'a permit of ours');
	ok($first->acquire(60), 'and one of theirs');
	is(scalar($first->participants), 2, 'Curator counts both');
	ok(!$second->acquire(0), 'they have no third');
	is($b1->run($try)->{out}, 'f', 'nor have we');
	is($a2->run($try)->{out}, 'f', 'not in the same instance either');
	$wait_leases->(2);

	# both wait, and get what the other kind gives back
	$second->begin('acquire');
	$wait_leases->(3);      # a waiting Curator has a lease already
	$b1->run('BEGIN');
	$b1->send("SELECT zk_acquire('sem', 2)");
	wait_ungranted($b1);
	is($a2->run($try)->{out}, 'f', 'we do not overtake those who wait');
	ok(!$third->acquire(1), 'nor do they');
	ok(!$second->done, 'they wait');
	$a1->run_ok('COMMIT', 'ours is given back');
	ok($second->end, 'and they have it');
	ok(!$b1->done, 'we wait');
	$first->release;
	is_granted($b1, 'theirs is given back, and we have it');
	is($a1->run($try)->{out}, 'f', 'all are in use');
	ok(!$third->acquire(0), '... they say too');

	# two of ours
	$second->release;
	$a1->run_ok("BEGIN; SELECT zk_acquire('sem', 2)", 'the other instance has one too');
	ok(!$third->acquire(0), 'so they have none');
	$third->begin('acquire');
	$wait_leases->(3);
	ok(!$third->done, 'they wait');
	$b1->run_ok('ROLLBACK', 'ours is given back');
	ok($third->end, 'they have it');

	# two of theirs
	$a1->run_ok("SELECT zk_unlock('sem')");
	$a1->run_ok('COMMIT');
	ok($first->acquire(60), 'they have both');
	is($_->run($try)->{out}, 'f', 'we have none') for ($a1, $b1);
	$a1->run('BEGIN');
	$a1->send("SELECT zk_acquire('sem', 2)");
	wait_ungranted($a1);
	$first->release;
	is_granted($a1, 'theirs is given back, and we have it');
	$third->release;
	$a1->run_ok('COMMIT');
	for my $part (qw(locks leases))
	{
		poll_until(
			sub {
				my @left = eval { $observer->ls("$dir/$part") };
				die $@ if $@ && $@ !~ /^NoNodeError/;
				return !@left;
			},
			"nothing to be left in $part");
	}
	is($b1->run("SELECT zk_try_acquire('sem', 2, '1 min')")->{out}, 't', 'all are free');
};

subtest 'other semaphores' => sub {
	# a semaphore of one
	my $one = $client{curator}->make('InterProcessSemaphoreMutex', lock_dir('one'));
	my $try = "SELECT zk_try_acquire('one', 1)";

	$a1->run_ok("BEGIN; SELECT zk_acquire('one', 1)", 'we hold it');
	ok(!$one->acquire(0), "Curator's InterProcessSemaphoreMutex does not get it");
	$one->begin('acquire');
	poll_until(sub { $observer->ls(lock_dir('one') . '/leases') == 2 }, 'them to wait');
	$a1->run_ok('COMMIT', 'we give it back');
	ok($one->end, 'and they have it');
	is($_->run($try)->{out}, 'f', 'we do not get it') for ($a1, $b1);
	$one->release;
	is($b1->run("SELECT zk_try_acquire('one', 1, '1 min')")->{out},
		't', 'they give it back, and we have it');

	# another format: kazoo's and ours do not see each other, and kazoo takes
	# our directories for two permits
	my @kazoo = map {
		$client{kazoo}->make('Semaphore', lock_dir('kazoo'), permits => 3)
	} (1 .. 3);

	ok($_->acquire(0), 'kazoo Semaphore takes a permit') for @kazoo;
	$a1->run_ok("BEGIN; SELECT zk_acquire('kazoo', 3)", 'all are taken, and we take one more');
	$_->release for @kazoo;
	# not empty, so not collected, unless it has been
	$observer->create(lock_dir('kazoo') . '/locks/keep', ephemeral => 1, makepath => 1);
	ok($kazoo[0]->acquire(0), 'kazoo Semaphore takes one of two that are free');
	ok(!$kazoo[1]->acquire(0), 'but not both');
	$kazoo[0]->release;
	$a1->run_ok('COMMIT');
};

#
# Asking the holder to release
#

subtest 'revocation' => sub {
	my $dir = lock_dir('revoke');
	my $mutex = $client{curator}->make('InterProcessMutex', $dir);

	# not of superusers, whose statements others cannot cancel
	$_->safe_psql('postgres', 'CREATE ROLE app LOGIN') for ($a, $b);
	my $admin = $a1;
	my ($a1, $b1) = map { ZkSession->new($_, 'postgres', 'app') } ($a, $b);

	# Curator's Revoker cancels what our holder runs
	$a1->run_ok("BEGIN; SELECT zk_lock('revoke')", 'we hold it');
	$a1->send('SELECT pg_sleep(3600)');
	$mutex->begin('acquire');
	my ($ours) = in_dir($dir, wait_contenders($zk, 'revoke', 2));
	$zk->wait_watched($ours, $mutex->session);
	$client{curator}->revoke($ours);
	is($a1->result->{sqlstate}, '57014', 'our holder is canceled');
	ok($mutex->end, 'and they have the lock');
	is($a1->run('SELECT 1')->{sqlstate}, '25P02', 'our transaction is aborted');
	$a1->run_ok('ROLLBACK');
	$mutex->release;
	wait_no_contenders($zk, 'revoke');

	# zk_cancel_holders asks Curator's
	my $revocable =
	  $client{curator}->make('revocable InterProcessMutex', $dir);
	ok($revocable->acquire, 'they hold it');
	my ($theirs) = in_dir($dir, contenders($zk, 'revoke'));
	$b1->run('BEGIN');
	$b1->send("SELECT zk_lock('revoke')");
	$b1->wait_waiting(2);
	is($admin->run("SELECT zk_cancel_holders('revoke')")->{out}, 1, 'one holder is asked');
	is_granted($b1, 'they release it, and we have it');
	ok($revocable->revoked, 'because they were asked');

	# and our own in another instance
	$b1->send('SELECT pg_sleep(3600)');
	is($admin->run("SELECT zk_cancel_holders('revoke')")->{out}, 1, 'our holder is asked');
	is($b1->result->{sqlstate}, '57014', 'and canceled');
	$b1->run_ok('ROLLBACK');
	wait_no_contenders($zk, 'revoke');
	is($admin->run("SELECT zk_cancel_holders('revoke')")->{out}, 0, 'nobody is asked');

	# who has not agreed to be revoked holds on
	ok($mutex->acquire, 'they hold it, and are not revocable');
	($theirs) = in_dir($dir, contenders($zk, 'revoke'));
	is($admin->run("SELECT zk_cancel_holders('revoke')")->{out}, 1, 'they are asked');
	poll_until(sub { $observer->get($theirs)->{data} eq '__REVOKE__' }, 'the request');
	is($a1->run("SELECT zk_try_lock('revoke')")->{out}, 'f', 'and hold on');
	$mutex->release;
	wait_no_contenders($zk, 'revoke');
	$_->quit for ($a1, $b1);
};

is_deeply([ all_contenders($zk) ], [], 'no contender is left');
$_->quit for ($a1, $a2, $b1, $b2);

done_testing();
