
# The room in the session of an instance: 8,000 locks of ordinary names, held by one
# backend and by a hundred; what does not fit is refused, and what is being deleted
# does not count, unless that is in doubt.  Needs a test build, in which ten locks can
# be made to fill the session.  And the room in its table of slots: a call that finds
# all in use waits for those that are being released.

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

my $room = 10;
my $held = 8000;
my $backends = 100;

# the path of a contender for a lock with a name of three characters, and 4
my $bytes = contender_bytes('s01');

my $proxy = ZkProxy->new;
my $zk = ZooKeeper->new;
$zk->start;
my $client = $zk->client;
my $a = zk_cluster(
	'a', $zk,
	'install_path' => $ENV{ZKLOCK_TEST_INSTALL},
	'zklock.servers' => $zk->connstr_through($proxy, 'a'),
	'zklock.session_timeout' => '20s',
	'zklock.retain_time' => 0,
	'zklock.path_bytes' => $room * $bytes);
my $b = zk_cluster('b', $zk,
	'zklock.session_timeout' => '60s',
	'zklock.max_locks' => 64);
wait_connected($_) for ($a, $b);

# Wait until so many locks are left, and the worker knows that.
sub wait_locks
{
	my ($n) = @_;

	$a->poll_query_until('postgres', "SELECT path_bytes = $n * $bytes FROM zk_session");
	return;
}

sub names { return 'ARRAY[' . join(', ', map { sprintf "'s%02d'", $_ } $_[0] .. $_[1]) . ']'; }

sub take_all { return 'SELECT zk_lock_all(' . names(@_) . ', session => true)'; }

# Is a lock that does not fit refused, as it should be?
sub is_refused
{
	my ($name, $sql) = @_;
	my $refused = sql($a, $sql);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($refused->{sqlstate}, '53200', $name);
	return $refused;
}

#
# What does not fit is refused, and nobody else has anything of that
#

my $keeper = ZkSession->new($a);
my $foreign = $client->lock(lock_dir('s10'));
$keeper->run_ok(take_all(1, 9), 'nine locks are taken');
my $waiter = waiter($a, 's10', 2);
wait_contenders($zk, 's10', 2);
wait_locks($room);
my $refused = is_refused('one more is refused', q{SELECT zk_lock('s11')});
my $bound = $room * $bytes;
is($refused->{message}, 'no room for lock "s11" in the ZooKeeper session', '... which says so');
is($refused->{detail}, "The paths of this server's znodes, for $room locks, take $bound of $bound bytes.",
	'... with how many bytes and locks');
like($refused->{hint}, qr/shorter names.*zklock\.root.*zklock\.retain_time/, '... and what to do');
is_refused('so is a try', q{SELECT zk_try_lock('s11')});
is_refused('so is one that could wait', q{SELECT zk_lock('s11', '1 min')});
is_refused('so are several', 'SELECT zk_lock_all(' . names(11, 13) . ')');
is_refused('so is a permit', q{SELECT zk_acquire('s12', 1)});
is_refused('so is a claim', q{SELECT zk_claim('s11', '1 min')});
is(value($a, q{SELECT count(*) FROM zk_locks WHERE name > 's10'}), 0, 'nothing of them is left');
is(contenders($zk, $_), 0, "... in ZooKeeper, of $_") for qw(s11 s12 s13);
is(value($a, q{SELECT slots FROM zk_stat}), $room, '... in a slot');
is(value($a, q{SELECT count(*) FROM zk_queue('s10')}), 2, 'questions are answered');
$keeper->run_ok('CREATE TABLE t (i int)', 'holders commit');
$client->unlock($foreign);
is($waiter->result->{sqlstate}, undef, 'who waited gets the lock');
$waiter->run_ok('COMMIT');
$waiter->quit;
wait_locks(9);
is(sql($a, q{SELECT zk_lock('s11')})->{sqlstate}, undef, 'there is room again');
wait_locks(9);
$keeper->run_ok(q{SELECT zk_lock('s10', session => true)}, 'and it is used');

#
# What is being deleted does not count
#

for my $round (1 .. 20)
{
	my ($from, $to) = $round % 2 ? (1, 11) : (11, 1);

	$keeper->run('SELECT zk_unlock_all(); ' . take_all($to, $to + 9))->{sqlstate}
	  and BAIL_OUT('no room for what follows');
}
pass('ten locks are given up, and ten others taken at once, many times');
wait_locks($room);

#
# If the answer to the delete is lost, it counts until the node is known to be gone
#

$proxy->mute('a-0');
$keeper->run_ok(q{SELECT zk_unlock('s01')}, 'a lock is given up, and no answer comes');
poll_until(sub { !contenders($zk, 's01') }, 'the delete to arrive');
$proxy->refuse('a-0');
wait_state($a, 'suspended');
is_refused('the connection is lost: the lock counts again', q{SELECT zk_lock('s21')});
$proxy->thaw;
wait_connected($a);
wait_locks($room - 1);
is(sql($a, q{SELECT zk_lock('s21')})->{sqlstate}, undef, 'it is known to be gone: there is room');

#
# Retained locks make room
#

$keeper->run_ok('SELECT zk_unlock_all()');
wait_locks(0);
$a->safe_psql('postgres', q{ALTER SYSTEM SET zklock.retain_time = '1h'});
$a->reload;
$a->poll_query_until('postgres', 'SHOW zklock.retain_time', '1h');
sql($a, 'SELECT zk_lock_all(' . names(1, $room) . ')');
wait_locks($room);
is(value($a, q{SELECT count(*) FROM zk_locks}), 0, 'ten locks are retained');
$keeper->run_ok(take_all(11, 20), 'ten others take their room');
wait_locks($room);
is_refused('and then there is none', q{SELECT zk_lock('s01')});
$keeper->quit;
$a->stop('fast');

#
# Slots
#

my $full = {
	sqlstate => '53200',
	message => 'out of lock slots',
	detail => 'All 64 slots for locks in ZooKeeper are in use.',
	hint => qr/zklock\.max_locks/
};

# names of so many locks that nobody has had
my $names = 0;
sub new_names
{
	my ($n) = @_;

	return 'ARRAY[' . join(',', map { "'n" . $names++ . "'" } 1 .. $n) . ']';
}

sub wait_for_room
{
	my ($session) = @_;

	$b->poll_query_until('postgres',
		q{SELECT wait_event IN ('ZkLockRoom', 'Extension') AND clock_timestamp() - query_start > '2 s' FROM pg_stat_activity WHERE pid = }
		  . $session->pid);
	ok(!$session->done, "a call waits for what is being released");
	return;
}

# half of the slots and a half again, with nothing between
is(sql($b, join ';', map { 'SELECT zk_lock_all(' . new_names(33) . ')' } 1 .. 30)->{message},
	undef, 'new names, again and again');

# ZooKeeper does not answer the deletes
for my $call (
	[ 'SELECT zk_lock_all(' . new_names(40) . ')', '' ],
	[ "SELECT zk_try_lock('try', '1 h')", 't' ],
	[ 'SELECT zk_lock_any(' . new_names(2) . ') IS NOT NULL', 't' ],
	[ "SELECT zk_acquire('semaphore', 2)", '' ])
{
	my $holder = ZkSession->new($b);
	my $waiter = ZkSession->new($b);

	$holder->run_ok('BEGIN; SELECT zk_lock_all(' . new_names(64) . ');');
	error_is($waiter->run($call->[0]), $full, 'no room: locks are held');
	$zk->pause;
	$holder->run_ok('COMMIT');
	$holder->quit;
	$waiter->send($call->[0]);
	wait_for_room($waiter);
	$zk->resume;
	is($waiter->result->{out}, $call->[1], 'there is room when they are gone');
	$waiter->quit;
	$b->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zk_locks');
}

# the wait ends with the call
{
	my $holder = ZkSession->new($b);
	my $waiter = ZkSession->new($b);

	$holder->run_ok('BEGIN; SELECT zk_lock_all(' . new_names(64) . ');');
	$zk->pause;
	$holder->run_ok('COMMIT');
	is($waiter->run("SELECT zk_try_lock('x', '100 ms')")->{out}, 'f', 'not in time: false');
	is($waiter->run("SELECT zk_lock('x', '100 ms')")->{sqlstate}, '55P03', 'not in time: an error');
	is($waiter->run("SET lock_timeout = '100 ms'; SELECT zk_lock_any(ARRAY['x', 'y']);")->{sqlstate},
		'55P03', 'lock_timeout');
	$waiter->run_ok('RESET lock_timeout');
	$waiter->send("SELECT zk_lock('x')");
	wait_for_room($waiter);
	value($b, 'SELECT pg_cancel_backend(' . $waiter->pid . ')');
	is($waiter->result->{sqlstate}, '57014', 'it is canceled');
	$zk->resume;
	$waiter->run_ok("SELECT zk_lock('x')");
	$_->quit for ($holder, $waiter);
}

#
# Eight thousand
#

my $c = zk_cluster(
	'c', $zk,
	'max_connections' => $backends + 20,
	'max_locks_per_transaction' => 512);
wait_connected($c);

my $began;

sub is_held
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(value($c, 'SELECT count(*) FROM zk_locks WHERE granted'), $held, $name);
	is(value($c, 'SELECT path_bytes <= max_path_bytes FROM zk_session'), 't', '... within the bound');
	note sprintf('in %.1f s', time - $began);
	return;
}

# A backend of b that waits for a lock of c.
sub remote_waiter
{
	my ($lock) = @_;
	my $remote = ZkWire->new($b);

	$remote->run('BEGIN');
	$remote->send("SELECT zk_lock('$lock')");
	wait_contenders($zk, $lock, 2);
	return $remote;
}

# PostgreSQL crashes: the locks are free soon, and no session is left behind.
sub crash
{
	my ($pid, @locks) = @_;
	my @waiting = map { remote_waiter($_) } @locks;
	my $id = session_of($c);
	my $offset = -s $c->logfile;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	kill 'KILL', $pid;
	$c->wait_for_log(qr/all server processes terminated; reinitializing/, $offset);
	for my $remote (@waiting)
	{
		poll_until(sub { ZkWire::wait_any(0, $remote) }, 'a wait to end');
		is($remote->result->{message}, undef, 'after a crash another instance has a lock');
		$remote->run('COMMIT');
		$remote->vanish;
	}
	wait_accepting($c);
	wait_connected($c);
	ok(!$zk->has_session($id), 'the session is gone');
	is(value($c, 'SELECT path_bytes FROM zk_session'), 0, 'and nothing is left of it');
	return;
}

my $lock_them = q{SELECT zk_lock_all(array_agg('order/' || i), session => true)
	FROM generate_series(%d, %d) i GROUP BY i / 500};
my $one = ZkSession->new($c);
$began = time;
$one->run_ok(sprintf($lock_them, 1, $held), "one backend takes $held locks");
is_held('it holds them');
$one->run_ok('CREATE TABLE t (i int)', 'and commits');
$one->run_ok('SELECT zk_unlock_all()', 'all are released');
$c->poll_query_until('postgres', 'SELECT path_bytes = 0 FROM zk_session');
$one->run_ok(sprintf($lock_them, 1, $held), 'and taken again');
crash($one->pid, 'order/1', "order/$held");
$one->kill_client;

my @many = map { ZkWire->new($c) } (1 .. $backends);
my $each = $held / $backends;
$began = time;
$many[$_]->send(sprintf($lock_them, $_ * $each + 1, ($_ + 1) * $each)) for (0 .. $#many);
for my $wire (@many)
{
	poll_until(sub { ZkWire::wait_any(0, $wire) }, 'locks to be taken') if $wire->busy;
	$wire->result->{message} and BAIL_OUT('a lock is not available');
}
is_held("$backends backends hold $held locks");
crash($c->safe_psql('postgres', q{SELECT pid FROM zk_locks LIMIT 1}), 'order/1', "order/$held");
$_->vanish for @many;

$c->stop('fast');
$b->stop('fast');

done_testing();
