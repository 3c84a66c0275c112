
# Many of everything: locks that one backend holds, backends that wait for one
# lock, znodes that are watched when the connection is lost, contenders in one
# queue.
#
# ZKLOCK_TEST_WATCHES is how many znodes are watched (default 3500, whose paths
# are 1.2 MB; ZooKeeper closes a connection on which a request of 1 MB comes).
# Those are another client's: instances have no more than 1 MB of paths.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZkWire;
use ZooKeeper;

my $held = 8000;
my $waiters = 1000;
my $watches = $ENV{ZKLOCK_TEST_WATCHES} || 3500;
my $ahead = 300;

# so many go into one zk_lock_any
my $together = 500;

# sessions that take locks side by side, which is faster than one that takes all
my $takers = 20;

# Instance a holds, instance b waits, and what b asks is counted.
my $proxy = ZkProxy->new;
my $zk = ZooKeeper->new;
$zk->start;
my $servers_of_b = $zk->connstr_through($proxy, 'b');
$proxy->count('b-0');
my %settings = (
	'zklock.session_timeout' => '30s',
	'zklock.max_locks' => 16384 + $watches,
	# a check for deadlocks looks at all pairs in a queue, and stops everybody
	'deadlock_timeout' => '1h',
	'log_statement' => 'none');
my $a = zk_cluster('a', $zk, %settings, 'max_connections' => $waiters + 100);
my $b = zk_cluster('b', $zk, %settings,
	'zklock.servers' => $servers_of_b,
	'max_locks_per_transaction' => 512);

my $clock;

# Note how long it took since the last time.
sub took
{
	my ($what) = @_;
	my $last = $clock;

	$clock = time;
	note(sprintf('%s: %.1f s', $what, $clock - $last)) if $last;
	return;
}

sub rss
{
	my ($node) = @_;
	my $worker = worker_of($node);

	return (slurp_file("/proc/$worker/status") =~ /^VmRSS:\s+(\d+)/m)[0];
}

# How many are in zk_locks, by granted.
sub locks
{
	my ($node) = @_;
	my $counts = $node->safe_psql('postgres',
		'SELECT granted, count(*) FROM zk_locks GROUP BY 1 ORDER BY 1 DESC');

	return join(' ', split /\n/, $counts);
}

# How many contenders there are in ZooKeeper; nobody makes other ephemeral nodes
# here, but each instance one that tells of it.
sub all_of_them { return lock_ephemerals($zk); }

# Nothing is left, not even for a moment longer than it takes.
sub is_clean
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	poll_until(sub { all_of_them() == 0 }, 'no contender to be left');
	for my $node ($a, $b)
	{
		ok( $node->poll_query_until('postgres', q{
				SELECT slots = 0 AND slot_users = 0
				   AND NOT EXISTS (SELECT FROM zk_locks)
				   AND NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'userlock')
				  FROM zk_stat}),
			"$name: nothing is left in instance " . $node->name);
	}
	return;
}

# Run a transaction's next statement in all of some sessions, and return the
# errors.
sub run_all
{
	my ($sql, @sessions) = @_;

	$_->send($sql) for @sessions;
	return end_all(@sessions);
}

sub end_all
{
	my @busy = @_;

	while (@busy = grep { $_->busy } @busy)
	{
		ZkWire::wait_any($PostgreSQL::Test::Utils::timeout_default, @busy)
		  or die scalar(@busy) . ' sessions do not end';
	}
	return grep { defined } map { $_->result->{message} } @_;
}

# Have some sessions take so many locks, each its share.
sub take
{
	my ($n, @sessions) = @_;

	$sessions[$_]->send('SELECT zk_lock(\'held/\' || i) FROM generate_series('
		  . ($_ + 1) . ", $n, " . @sessions . ') i')
	  for (0 .. $#sessions);
	return end_all(@sessions);
}

#
# A backend holds many locks, and so do many
#

wait_connected($_) for ($a, $b);
{
	my @sessions = map { ZkWire->new($a) } (1 .. $takers);
	my (@rss, @while_held);

	took('start');
	for my $round (1 .. 3)
	{
		my @takers = $round == 1 ? $sessions[0] : @sessions;

		run_all('BEGIN', @takers);
		is_deeply([ take($held, @takers) ], [], "round $round: $held locks");
		took("$held locks");
		push @while_held, rss($a);
		is(locks($a), "t|$held", "round $round: zk_locks has them");
		is(all_of_them(), $held, "round $round: so has ZooKeeper");
		took('counted');
		run_all('COMMIT', @takers);
		is_clean("round $round");
		took('released');
		push @rss, rss($a);
	}
	note("RSS of the worker in kB, while the locks are held: @while_held; after each round: @rss");
	cmp_ok($rss[2], '<=', 1.5 * $rss[0], 'the worker does not grow with each round');
	$_->vanish for @sessions;
}

#
# Many backends wait for one lock
#

{
	my $holder = holder($b, 'one');

	$a->safe_psql('postgres', 'CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)');
	my $script = PostgreSQL::Test::Utils::tempdir() . '/script';
	my ($out, $err) = ('', '');
	append_to_file($script, <<'END');
BEGIN;
SELECT zk_lock('one');
UPDATE counter SET n = n + 1;
COMMIT;
END
	my $bench = IPC::Run::start(
		[
			$a->installed_command('pgbench'), '-n', '-c', $waiters, '-t', 1,
			'-f', $script, $a->connstr('postgres')
		],
		'<', \undef, '>', \$out, '2>', \$err);
	# it takes a slow machine minutes to start so many backends
	for my $some (map { $_ * $waiters / 10 } 1 .. 10)
	{
		$a->poll_query_until('postgres',
			"SELECT count(*) >= $some FROM zk_locks WHERE name = 'one' AND NOT granted");
	}
	took("$waiters backends wait");
	wait_contenders($zk, 'one', 2);
	is(locks($a), "f|$waiters", "$waiters backends wait for one lock");
	is(all_of_them(), 2, 'with one contender, behind that of the holder');
	$holder->run_ok('COMMIT');
	ok($bench->finish, 'each gets it') or diag($out, $err);
	took("$waiters locks after each other");
	is($a->safe_psql('postgres', 'SELECT n FROM counter'), $waiters, 'and each alone');
	is_clean('after many waiters');
	is($a->safe_psql('postgres', 'SELECT sessions, reconnects FROM zk_session'),
		'1|0', 'the session of all that time');
	$holder->quit;
}

#
# Many znodes are watched when the connection is lost
#

# How many znodes the session of an instance watches.
sub watched_by
{
	my ($node) = @_;
	my $session = session_of($node);
	my ($paths) = $zk->fourlw('wchc') =~ /^\Q$session\E\n((?:\t.*\n)*)/m;

	return ($paths // '') =~ tr/\n//;
}

sub reconnects { return $b->safe_psql('postgres', 'SELECT reconnects FROM zk_session'); }

{
	my $foreign = $zk->client(timeout => 60);
	my @names = map { "watched-$_" } (1 .. $watches);
	my @waiting = map { ZkWire->new($b) } (0 .. $#names / $together);
	my ($session, $before) = (session_of($b), reconnects());

	$foreign->enqueue(lock_dir($_), '-' . 'x' x 280 . '-lock-') for @names;
	took("$watches contenders with long names");
	run_all('BEGIN', @waiting);
	$_->send("SELECT zk_lock_any('{" . join(',', splice(@names, 0, $together)) . "}')")
	  for @waiting;
	poll_until(sub { watched_by($b) >= $watches }, 'all to be waited for');
	is(all_of_them(), 2 * $watches, "$watches contenders wait, and watch as many");
	took('waiting');

	# One more that waits shows that watches fire again.  The worker has the
	# library forget what is too much to watch again in one request.  Where the
	# library is at the server first, the server drops the connection, until it has.
	my @how = (
		[ 'the connection is refused' => sub { $proxy->refuse('b-0'); wait_state($b, 'suspended'); $proxy->thaw('b-0') } ],
		[ 'the connection is reset' => sub { $proxy->reset('b-0') }, 1 ],
		[ 'ZooKeeper is restarted' => sub { $zk->stop; wait_state($b, 'suspended'); $zk->start } ]);
	my $expected = $before;
	for my $round (1 .. @how)
	{
		my ($how, $cut, $race) = @{ $how[ $round - 1 ] };
		my $owner = holder($a, "probe $round");
		my $waiter = waiter($b, "probe $round", 2);
		my $requests = $proxy->requests('b-0');

		wait_contenders($zk, "probe $round", 2);
		$cut->();
		poll_until(sub { reconnects() > $expected }, 'instance b to connect again');
		wait_connected($a);
		$owner->run_ok('COMMIT');
		is($waiter->result->{message}, undef, "$how: who waits goes on waiting, and gets the lock");
		my $times = reconnects() - $expected;
		ok($times == 1 || $race, "$how: connected again at the first attempt, or the library was faster")
		  or diag("$times reconnects");
		$expected += $times;
		is(session_of($b), $session, "$how: in the same session");
		$waiter->run_ok('COMMIT');
		$_->quit for ($owner, $waiter);
		took($how);

		my $now = $proxy->requests('b-0');
		note("asked meanwhile: ",
			join(', ', map { "$_ " . ($now->{$_} - ($requests->{$_} // 0)) } sort keys %$now));
	}

	$foreign->disconnect;
	is_deeply([ end_all(@waiting) ], [], 'all who wait get one of theirs');
	took('released');
	is(locks($b), 't|' . @waiting, 'all of them');
	is(reconnects(), $expected, 'the connection has not been lost again');
	is_deeply([ run_all('COMMIT', @waiting) ], [], 'and can commit');
	is_clean('after many watches');
	took('released again');
	$_->vanish for @waiting;
}

#
# A long queue is read when our place in it changes, not by each who waits
#

{
	my $foreign = $zk->client;
	my @foreign = map { $foreign->enqueue(lock_dir('long')) } (1 .. $ahead);
	my @waiting = map { ZkWire->new($b) } (1 .. 50);
	my $before = $proxy->requests('b-0')->{children};
	my $read = sub { return $proxy->requests('b-0')->{children} - $before };

	run_all('BEGIN', @waiting);
	$_->send("SELECT zk_lock('long')") for @waiting;
	$b->poll_query_until('postgres', 'SELECT count(*) = ' . @waiting . ' FROM zk_locks WHERE NOT granted');
	$zk->wait_watched($foreign[-1]);
	is($read->(), 1, @waiting . " backends wait behind $ahead contenders: the queue is read once");
	$foreign->unlock(pop @foreign);
	$zk->wait_watched($foreign[-1]);
	is($read->(), 2, 'the one ahead leaves: it is read again');
	$foreign->unlock($_) for splice(@foreign, 0, $ahead / 2);
	$foreign->unlock(pop @foreign);
	$zk->wait_watched($foreign[-1]);
	is($read->(), 3, 'others leave: it is not');

	$foreign->disconnect;
	while (my @busy = grep { $_->busy } @waiting)
	{
		for my $session (ZkWire::wait_any($PostgreSQL::Test::Utils::timeout_default, @busy))
		{
			$session->result->{message} and die $session->result->{message};
			$session->run('COMMIT');
		}
	}
	is_clean('after a long queue');
	$_->vanish for @waiting;
	took('a long queue');
}

$_->stop for ($a, $b);

done_testing();
