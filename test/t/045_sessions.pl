
# An instance with more locks than fit into one session has several: each with its
# own lease and its own end.  Needs a test build, in which ten locks can be made to
# fill a session.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use ZkCluster;
use ZkSession;
use ZkWire;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};

my $per_session = 10;

# the path of a contender for a lock with a name of three characters, and 4
my $bytes = contender_bytes('s01');

my $zk = ZooKeeper->new;
$zk->start;
my $client = $zk->client;
$client->create('/elsewhere');
my $a = zk_cluster(
	'a', $zk,
	'install_path' => $ENV{ZKLOCK_TEST_INSTALL},
	'zklock.session_timeout' => '15s',
	'zklock.path_bytes' => $per_session * $bytes,
	'zklock.sessions' => 4);
my $b = zk_cluster('b', $zk, 'zklock.session_timeout' => '15s');
wait_connected($_) for ($a, $b);
$a->safe_psql('postgres', 'CREATE TABLE t (what text)');

# The ids of a's sessions, in the order of their numbers.
sub sessions { return split /\n/, session_of($a); }

sub wait_rows
{
	my ($n) = @_;

	$a->poll_query_until('postgres',
		"SELECT count(*) = $n AND bool_and(state = 'connected') FROM zk_sessions");
	return;
}

# Wait until so many locks are left, and the worker knows that.
sub wait_locks
{
	my ($n) = @_;

	$a->poll_query_until('postgres',
		"SELECT sum(path_bytes) = $n * $bytes FROM zk_sessions");
	return;
}

sub names { return map { sprintf 's%02d', $_ } $_[0] .. $_[1]; }

sub array { return 'ARRAY[' . join(', ', map { "'$_'" } @_) . ']'; }

# The session that has the contender for a lock.
sub session_with
{
	my ($name) = @_;
	my ($node) = wait_contenders($zk, $name, 1);

	return sprintf '0x%x', $client->get(lock_dir($name) . "/$node")->{ephemeralOwner};
}

sub are_gone
{
	my ($name, @ids) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(poll_until(sub { !grep { $zk->has_session($_) } @ids }, "the end of sessions @ids"), $name);
	return;
}

# A backend that holds these locks until it unlocks them.
sub keeper
{
	my ($first, $last) = @_;
	my $keeper = ZkSession->new($a);

	$keeper->run_ok("SELECT zk_lock(name, session => true) FROM unnest("
		  . array(names($first, $last)) . ') name');
	return $keeper;
}

# Three of them, that fill three sessions.
sub keepers { return map { keeper($_ * 10 + 1, $_ * 10 + 10) } 0 .. 2; }

sub commits
{
	my ($keeper, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$keeper->run_ok("INSERT INTO t VALUES ('$name')", $name);
	return;
}

# A backend of b that waits for a lock, and whether it has it in time.
sub remote_waiter
{
	my ($lock) = @_;
	my $waiter = ZkWire->new($b);

	$waiter->run('BEGIN');
	$waiter->send("SELECT zk_lock('$lock')");
	wait_contenders($zk, $lock, 2);
	return $waiter;
}

sub has_lock
{
	my ($waiter, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	poll_until(sub { ZkWire::wait_any(0, $waiter) }, 'a wait to end') if $waiter->busy;
	is($waiter->result->{message}, undef, $name);
	$waiter->run('COMMIT');
	$waiter->vanish;
	return;
}

#
# Locks go where there is room
#

my ($first) = sessions();
my $record = -s session_file($a);
my @keepers = keepers();
my @ids = sessions();

is(scalar(@ids), 3, 'thirty locks have three sessions');
is($ids[0], $first, 'the first is the one that was there');
is(value($a, 'SELECT string_agg(DISTINCT path_bytes::text, \',\') FROM zk_sessions'),
	$per_session * $bytes, 'each is full');
for my $i (0 .. 2)
{
	my %owners = map { session_with($_) => 1 } names($i * 10 + 1, $i * 10 + 10);

	is_deeply([ keys %owners ], [ $ids[$i] ], "ten locks are in session $i");
}
ok($a->poll_query_until('postgres', q{SELECT bool_and(lease > '5 s') FROM zk_sessions}), 'each has a lease');
is(value($a, 'SELECT count(directories) FROM zk_sessions'), 1, 'the directories are counted once');
commits($_, 'all commit') for @keepers;
is(value($a, q{SELECT count(*) FROM zk_queue('s25')}), 1, 'a question is answered');
is(value($a, q{SELECT zk_cancel_holders('s25')}), 1, 'and knows its own');

#
# A transaction with locks in all of them
#

# Give one lock of each session back, so that the next three go there.
sub make_room
{
	$keepers[$_]->run_ok("SELECT zk_unlock('s${_}1')") for 0 .. 2;
	wait_locks(27);
	return;
}

sub fill_room
{
	$keepers[$_]->run_ok("SELECT zk_lock('s${_}1', session => true)") for 0 .. 2;
	return;
}

my $begin = "BEGIN; " . join('', map { "SELECT zk_lock('c0$_'); " } 0 .. 2);
my $all = ZkSession->new($a);

make_room();
for my $check ('lease', 'quorum')
{
	$all->run_ok($begin);
	is(session_with("c0$_"), $ids[$_], "a lock is in session $_") for 0 .. 2;
	$all->run_ok("SET LOCAL zklock.commit_check = '$check'");
	$all->run_ok("INSERT INTO t VALUES ('$check'); COMMIT", "$check: it commits");
	wait_locks(27);
}
fill_room();

#
# The bound of all sessions
#

$keepers[3] = keeper(31, 40);
my $refused = sql($a, q{SELECT zk_lock('s41')});
is($refused->{sqlstate}, '53200', 'more than four sessions have no room for');
my $bound = $per_session * $bytes;
like($refused->{detail}, qr/take @{[ 4 * $bound ]} bytes; each of its 4 sessions may have $bound bytes/,
	'that is logged');

#
# Those of one zk_lock_all go where there is room
#

$keepers[0]->run_ok(q{SELECT zk_unlock(name) FROM unnest(} . array(names(1, 3)) . ') name');
$keepers[1]->run_ok(q{SELECT zk_unlock(name) FROM unnest(} . array(names(11, 15)) . ') name');
wait_locks(32);
is(sql($a, q{SELECT zk_lock_all(} . array(map { "m0$_" } 1 .. 9) . ')')->{sqlstate},
	'53200', 'they do not fit into what is left of two');
wait_locks(32);
my $several = ZkSession->new($a);
$several->run_ok(q{SELECT zk_lock_all(} . array(map { "m0$_" } 1 .. 8) . ', session => true)');
is(session_with("m0$_"), $ids[ $_ > 3 ], "number $_ is where there is room") for 1 .. 8;
$several->quit;
wait_locks(32);
$keepers[0]->run_ok(q{SELECT zk_lock(name, session => true) FROM unnest(} . array(names(1, 3)) . ') name');
$keepers[1]->run_ok(q{SELECT zk_lock(name, session => true) FROM unnest(} . array(names(11, 15)) . ') name');

#
# An empty one is closed
#

my $fourth = (sessions())[3];
(pop @keepers)->quit;
are_gone('a session that is empty is closed', $fourth);
wait_rows(3);
is_deeply([ sessions() ], \@ids, 'the others are as they were');

#
# Another worker goes on with all
#

next_worker($a);
is_deeply([ sessions() ], \@ids, 'terminated: the sessions go on');
is(value($a, 'SELECT string_agg(DISTINCT path_bytes::text, \',\') FROM zk_sessions'),
	$per_session * $bytes, 'and their accounts');
commits($_, 'holders commit') for @keepers;

next_worker(
	$a,
	sub {
		$a->append_conf('postgresql.conf', "zklock.session_timeout = '12s'");
		$a->reload;
	});
is_deeply([ sessions() ], \@ids, 'another timeout: the sessions go on');
commits($_, 'holders commit') for @keepers;

#
# One of them expires
#

my $waiter = remote_waiter('s12');
make_room();
$all->run_ok($begin);
end_session($a, $client, $ids[1]);
has_lock($waiter, 'one expires: another instance gets a lock of it');

# closed from outside, as here, it has no lease that would make a commit wait
ok($a->poll_query_until('postgres', 'SELECT lost = 10 FROM zk_stat'), 'ten locks are lost');
error_is($keepers[1]->run(q{INSERT INTO t VALUES ('expired')}), $lock_lost, 'its holder cannot commit');
commits($keepers[$_], 'the others commit') for (0, 2);
error_is($all->run('COMMIT'), $lock_lost, 'nor does a transaction with a lock in each');
$all->quit;
wait_locks(18);
$keepers[$_]->run_ok("SELECT zk_lock('s${_}1', session => true)") for (0, 2);
is_deeply([ (sessions())[ 0, -1 ] ], [ @ids[ 0, 2 ] ], 'their sessions are there');
$keepers[1]->quit;
wait_locks(20);
$keepers[1] = keeper(11, 20);
@ids = sessions();
is(scalar(@ids), 3, 'and another one again');
commits($_, 'all commit') for @keepers;

# the first, which has the answers, too
end_session($a, $client, $ids[0]);
poll_until(sub { my ($id) = sessions(); $id && $id ne $ids[0] }, 'another first session');
wait_rows(3);
is(value($a, 'SELECT count(last_error) FROM zk_sessions'), 0, 'why it has ended is no error of the others');
error_is($keepers[0]->run(q{INSERT INTO t VALUES ('expired')}), $lock_lost, 'the first: its holder cannot commit');
commits($keepers[$_], 'the others commit') for (1, 2);
is(value($a, q{SELECT count(*) FROM zk_queue('s25')}), 1, 'questions are answered');
$keepers[0]->quit;
wait_locks(20);
$keepers[0] = keeper(1, 10);
is(scalar(@ids = sessions()), 3, 'there are three again');

#
# Another chroot ends them all, when nothing is held
#

$a->adjust_conf('postgresql.conf', 'zklock.servers', "'" . $zk->connstr . "/elsewhere'");
$a->reload;
commits($_, 'a chroot to come: holders commit') for @keepers;
is_deeply([ sessions() ], \@ids, 'in their sessions');
$_->quit for @keepers;
are_gone('all of them end', @ids);
wait_rows(1);
is(sql($a, q{SELECT zk_lock('e01')})->{sqlstate}, undef, 'locks are available there');
$a->adjust_conf('postgresql.conf', 'zklock.servers', "'" . $zk->connstr . "'");
$a->reload;
sql($a, q{SELECT zk_lock('back')});
poll_until(sub { $client->exists(lock_dir('back')) || !sql($a, q{SELECT zk_lock('back')}) }, 'the way back');
wait_rows(1);

#
# PostgreSQL crashes
#

@keepers = keepers();
@ids = sessions();
is(-s session_file($a), 3 * $record, 'the file has three sessions');
my @waiters = map { remote_waiter($_) } qw(s01 s11 s21);
my $offset = -s $a->logfile;
kill 'KILL', $keepers[0]->pid;
$a->wait_for_log(qr/all server processes terminated; reinitializing/, $offset);
$_->kill_client for @keepers;
wait_accepting($a);
has_lock($_, 'after a crash another instance has the lock') for @waiters;
are_gone('the old sessions are gone', @ids);
wait_rows(1);
is(-s session_file($a), $record, 'and the file has the new one');

#
# Fast shutdown
#

@keepers = keepers();
@ids = sessions();
$a->stop('fast');
are_gone('after a fast shutdown no session is left', @ids);
ok(!-e session_file($a), 'and no file');
$_->kill_client for @keepers;

#
# Thirty thousand
#

my $c = zk_cluster(
	'c', $zk,
	'zklock.max_locks' => 40000,
	'max_connections' => 20,
	'max_locks_per_transaction' => 2048);
wait_connected($c);
my $many = ZkSession->new($c);
my $began = time;
$many->run_ok(q{
	SELECT zk_lock_all(array_agg('many' || i), session => true)
	  FROM generate_series(1, 30000) i GROUP BY i / 500}, '30,000 locks are taken');
note sprintf('in %.1f s', time - $began);
is(value($c, 'SELECT count(*) FROM zk_locks WHERE granted'), 30000, 'and held');
cmp_ok(value($c, 'SELECT count(*) FROM zk_sessions'), '>', 1, 'in several sessions');
is(value($c, 'SELECT max(path_bytes) <= max(max_path_bytes) FROM zk_sessions'), 't', 'within the bound');
$many->run_ok('CREATE TABLE t (i int)', 'their holder commits');
$began = time;
$many->run_ok('SELECT zk_unlock_all()', 'all are released');
$c->poll_query_until('postgres', 'SELECT sum(path_bytes) = 0 FROM zk_sessions');
note sprintf('in %.1f s', time - $began);
$many->quit;
$c->stop('fast');
$b->stop('fast');

done_testing();
