
# Nothing when idle: while nothing is held or wanted, an instance asks ZooKeeper
# for nothing but the pings that the client library sends; and while something
# is, without any change, for heartbeats.
#
# Who waits looks again, seldom (zklock.look_again of test builds, which is off
# above).  So who waits for a watch that never fires, since its event was lost on
# the way, gets the lock all the same, and reads no more often than it must, nor
# more than it must; and an owner that retains its lock hands it on.
#
# A proxy between the worker and ZooKeeper counts the requests by their kinds,
# and makes events of another kind, unknown to the client library.  How long
# nothing else may come is not a matter of time here, but of pings: the library
# sends one in each third of the session timeout in which it has sent nothing
# else.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZkWire;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};
my $pings = 3;

# In seconds.  No connection is to be lost, not even where all processes stand
# still now and then.
my $timeout = $ENV{ZKLOCK_TEST_PAUSES} ? 4 * $ENV{ZKLOCK_TEST_PAUSES} : 3;

my $proxy = ZkProxy->new;
my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my $servers = $zk->connstr_through($proxy, 'a');
$proxy->count('a-0');
my $a = zk_cluster('a', $zk,
	install_path => $ENV{ZKLOCK_TEST_INSTALL},
	'zklock.look_again' => 'off',
	'zklock.servers' => $servers,
	'zklock.session_timeout' => "${timeout}s",
	'log_statement' => 'none');

# What is asked, by kind, while so many requests of that kind are, or if it is
# not only that, until it is enough to see.
sub asked_during
{
	my ($n, $kind) = @_;
	my %before = %{ $proxy->requests('a-0') };
	my %asked;

	poll_until(
		sub {
			my $now = $proxy->requests('a-0');
			my $all = 0;

			%asked = map { $_ => $now->{$_} - ($before{$_} // 0) } keys %$now;
			$all += $_ for values %asked;
			delete @asked{ grep { !$asked{$_} } keys %asked };
			return ($asked{$kind} // 0) >= $n || $all >= 20 * $n;
		},
		"$n requests of kind $kind");
	return \%asked;
}

sub is_only
{
	my ($asked, $kinds, $name) = @_;
	my %other = %$asked;

	delete @other{@$kinds};
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is_deeply(\%other, {}, $name) or diag(explain($asked));
	return;
}

# Wait until nothing is held and wanted, and the last heartbeat has been
# answered: with heartbeats, which come more often, there are no pings.
sub become_idle
{
	poll_until(sub { !all_contenders($zk) }, 'no contender to be left');
	$a->poll_query_until('postgres', 'SELECT slots = 0 FROM zk_stat');
	asked_during(1, 'ping');
	return;
}

# Who owns a lock for a second begins to watch its contender, once.  Then only
# heartbeats are left.  They come ten times in a session timeout.
sub is_only_heartbeats
{
	my ($name) = @_;

	for my $round (1 .. 5)
	{
		last unless grep { $_ ne 'check' && $_ ne 'get' } keys %{ asked_during(8, 'check') };
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is_only(asked_during($pings + 1, 'check'), [qw(check ping)], $name);
}

sub is_idle { return is_only(asked_during($pings, 'ping'), ['ping'], $_[0]); }

#
# An instance that has just connected
#

wait_connected($a);
cmp_ok($proxy->requests('a-0')->{connect}, '>', 0, 'the proxy counts');
asked_during(1, 'ping');
is_idle('an instance that has taken no lock yet');

#
# Every kind of lock, held, waited for and released
#

{
	my $first = ZkSession->new($a);
	my $second = ZkSession->new($a);
	my $node = $foreign->lock(lock_dir('theirs'));

	$first->run_ok($_) for (
		'BEGIN',
		"SELECT zk_lock('one')",
		"SELECT zk_lock('read', shared => true)",
		"SELECT zk_lock_all('{some/1,some/2,some/3}')",
		"SELECT zk_acquire('permit', 2)",
		"SELECT zk_lock('session', session => true)",
		"SELECT zk_fencing_token('one') > 0");
	is($first->run_ok("SELECT zk_try_lock('theirs')"), 'f', 'a try that fails');
	$second->run_ok($_) for (
		'BEGIN',
		"SELECT zk_lock('read', shared => true)",
		"SELECT zk_try_lock('two')",
		"SELECT count(*) FROM zk_queue('theirs')");

	# behind the first, then behind a foreign client
	$second->send("SELECT zk_lock('one')");
	$second->wait_waiting(1);
	$first->run_ok('COMMIT');
	is($second->result->{message}, undef, 'a local wait');
	$second->send("SELECT zk_lock('theirs')");
	$second->wait_waiting(2);
	wait_contenders($zk, 'theirs', 2);
	is_only_heartbeats('heartbeats are all there is while locks are held and waited for');
	$foreign->unlock($node);
	is($second->result->{message}, undef, 'a wait for somebody else');

	$second->run_ok('ROLLBACK');
	$first->run_ok('SELECT zk_unlock_all()');
	become_idle();
	is_idle('nothing is held any more');

	#
	# Transactions without locks
	#

	$a->safe_psql('postgres', 'CREATE TABLE t (i int PRIMARY KEY)');
	$a->command_ok([ 'pgbench', '-i', '-s', 1, '-q', 'postgres' ], 'pgbench -i');
	my $asked_before = $proxy->requests('a-0');
	for my $i (1 .. 20)
	{
		$first->run('BEGIN');
		$first->run("INSERT INTO t VALUES ($i)");
		$first->run('SAVEPOINT s');
		$first->run('SELECT count(*) FROM t');
		$first->run($i % 4 ? 'COMMIT' : 'ROLLBACK');
	}
	$first->run_ok('SELECT * FROM zk_locks');
	$first->run_ok('SELECT * FROM zk_session');
	$first->run_ok('SELECT * FROM zk_stat');
	$first->run_ok('SELECT pg_advisory_xact_lock(1)');
	$a->command_ok([ 'pgbench', '-n', '-S', '-c', 4, '-t', 200, 'postgres' ], 'pgbench -S');
	$_->quit for ($first, $second);
	my $now = $proxy->requests('a-0');
	delete @$_{ping} for ($asked_before, $now);
	is_deeply($now, $asked_before, 'transactions without locks ask for nothing');
	is_idle('nor do they later');
}

is($a->safe_psql('postgres', 'SELECT sessions, reconnects FROM zk_session'),
	'1|0', 'all of it in one connection');

#
# Events that are lost
#

# Change a setting; the worker may read it a moment later.
sub set_to
{
	my ($name, $value) = @_;

	$a->append_conf('postgresql.conf', "$name = $value");
	$a->reload;
	$a->poll_query_until('postgres', "SELECT current_setting('$name') = '$value'");
	return;
}

set_to('zklock.look_again', 'on');

my $session = ZkSession->new($a);

# An event is an answer to no request, which is -1; behind zxid and error come its
# type, which is 2 if the node was deleted and 4 if its children have changed, and
# the state.
sub lose_events
{
	my ($lost) = @_;

	$proxy->forge('a-0',
		$lost
		? ('(?s)(\xff{4}.{8}\x00{7})[\x02\x04](?=\x00\x00\x00\x03)', '\g<1>c')
		: ('(?!)', ''));
	return;
}

# How often the worker has read since, and how long that is at the least.
sub reads
{
	my ($since) = @_;
	my $n = 0;
	my $count = $proxy->requests('a-0');
	my $now = time;

	$n += $count->{$_} // 0 for qw(get exists children);
	return { n => $n, at => $now } unless $since;
	return { n => $n - $since->{n}, seconds => $now - $since->{at} };
}

# What happens until it has read so often.
sub reads_until
{
	my ($n) = @_;
	my $since = reads();
	my $asked;

	poll_until(sub { ($asked = reads($since))->{n} >= $n }, "$n reads");
	return $asked;
}

{
	my $theirs = $foreign->lock(lock_dir('x'));

	$session->send("BEGIN; SELECT zk_lock('x')");
	wait_contenders($zk, 'x', 2);
	$session->wait_waiting(2);
	lose_events(1);
	$foreign->unlock($theirs);
	is($session->result->{sqlstate}, undef, 'who waits for a lock has it though the event was lost');
	lose_events(0);
	$session->run_ok('COMMIT');
	wait_no_contenders($zk, 'x');
}

{
	my $theirs = $foreign->lock(lock_dir('y'));
	my $asked;

	$session->send("BEGIN; SELECT zk_lock('y')");
	wait_contenders($zk, 'y', 2);
	$session->wait_waiting(2);
	$zk->wait_watched($theirs);
	my $gets = $proxy->requests('a-0')->{get};
	$asked = reads_until(4);
	cmp_ok($asked->{n}, '<=', $asked->{seconds} / $timeout + 2,
		'who waits reads once in a session timeout, or less');
	is($proxy->requests('a-0')->{get}, $gets, '... and no data');
	$foreign->unlock($theirs);
	is($session->result->{sqlstate}, undef, '... and has the lock in the end');
	$session->run_ok('COMMIT');
}

# An owner to which backends come again and again, which retains the lock while it
# is alone
{
	set_to('zklock.retain_time', '10min');
	poll_until(
		sub {
			my ($before) = contenders($zk, 'owned');

			$session->run_ok("SELECT zk_lock('owned')");
			my ($after) = contenders($zk, 'owned');
			return defined $before && defined $after && $before eq $after;
		},
		'the lock to be retained, and the queue to be watched');
	lose_events(1);
	my $theirs = $foreign->enqueue(lock_dir('owned'));
	poll_until(
		sub {
			$session->run_ok("SELECT zk_try_lock('owned')");
			return $foreign->position($theirs) == 0;
		},
		'the lock to be handed on');
	pass('an owner hands its lock on though the event was lost');
	lose_events(0);
	$foreign->unlock($theirs);
	$session->run_ok("SELECT zk_lock('owned')", '... and gets it again');
	set_to('zklock.retain_time', '0');
	wait_no_contenders($zk, 'owned');
}

# a permit
{
	my $other = ZkSession->new($a);

	$other->run_ok("BEGIN; SELECT zk_acquire('s', 1)");
	$session->send("BEGIN; SELECT zk_acquire('s', 1)");
	$session->wait_waiting(2);
	lose_events(1);
	$other->run_ok('COMMIT');
	is($session->result->{sqlstate}, undef, 'who waits for a permit has it though the event was lost');
	lose_events(0);
	$session->run_ok('COMMIT');
	$other->quit;
}

# many locks: no more than so many reads a second, and each has its turn
{
	my @names = map { "many/$_" } 1 .. 150 * $timeout;
	my %theirs = map { ($_ => $foreign->lock(lock_dir($_))) } @names;
	my @waiters = map { ZkWire->new($a) } 1 .. 30;
	my (@share, $asked);

	push @{ $share[ $_ % @waiters ] }, $names[$_] for 0 .. $#names;
	$waiters[$_]->send('SELECT zk_lock_any(ARRAY[' . join(',', map { "'$_'" } @{ $share[$_] }) . '])')
	  for 0 .. $#waiters;
	wait_contenders($zk, $_, 2) for @names;
	reads_until(1);
	$asked = reads_until(scalar @names);
	cmp_ok($asked->{n}, '<=', 100 * ($asked->{seconds} + 0.1) + 10,
		'however many wait, 100 of them read in a second, or fewer');
	lose_events(1);
	my @chosen = map { $_->[-1] } @share;
	$foreign->unlock($theirs{$_}) for @chosen;
	while (my @busy = grep { $_->busy } @waiters)
	{
		ZkWire::wait_any($PostgreSQL::Test::Utils::timeout_default, @busy) or last;
	}
	is_deeply([ map { $_->result->{out} } @waiters ], \@chosen, '... and each looks again');
	lose_events(0);
	$_->quit for @waiters;
}

$session->quit;
$a->stop;

done_testing();
