
# The end of a session that holds as much as one may: ZooKeeper writes it as one
# transaction that lists all its ephemeral nodes, and must be able to read that
# again.  Whatever ends it, the servers go on, and can be started again.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

# of a session's nodes: the length of the path and 4 for each
my $bound = 1024 * 1024;

my $zk = ZooKeeper->new(servers => 3);
$zk->start;
my $a = zk_cluster(
	'a', $zk,
	'max_locks_per_transaction' => 512,
	'zklock.max_locks' => 16384);
my $foreign = $zk->client;

sub path_bytes { return value($a, 'SELECT path_bytes FROM zk_session'); }

# How many ephemeral nodes there are, as the leader knows, but for that by which
# the instance tells of itself.
sub ephemerals
{
	my $leader = $zk->leader;

	return defined $leader ? lock_ephemerals($zk, $leader) // -1 : -1;
}

# How many sessions of the instance, which last for 20 s, the servers have seen
# expire.
sub expired
{
	my $n = 0;

	$n += () = slurp_file($zk->logfile($_)) =~ /Expiring session \w+, timeout of 20000ms/g for 0 .. 2;
	return $n;
}

sub wait_ephemerals
{
	my ($n) = @_;

	poll_until(sub { ephemerals() == $n }, "$n ephemeral nodes");
	return;
}

# Does each of the servers serve?
sub all_serve
{
	my ($when) = @_;

	$zk->wait_ready;
	for my $server (split /,/, $zk->connstr)
	{
		my $client = $zk->client(servers => $server);
		my $node = $client->lock(lock_dir('served'));

		$client->unlock($node);
		$client->disconnect;
	}
	pass("all servers serve $when");
	return;
}

# Locks with long names are taken, one by one, until there is no room for more.
value($a, q{
	CREATE TABLE refused (held int, sqlstate text, message text, detail text, hint text);
	CREATE FUNCTION long_name(i int) RETURNS text LANGUAGE SQL
		AS $$ SELECT repeat('z', 243) || lpad(i::text, 5, '0') $$;
	CREATE FUNCTION fill(first int) RETURNS int LANGUAGE plpgsql AS $$
	DECLARE
		r refused;
	BEGIN
		FOR i IN first .. 7500 LOOP
			BEGIN
				PERFORM zk_lock(long_name(i), session => true);
			EXCEPTION WHEN out_of_memory THEN
				GET STACKED DIAGNOSTICS r.sqlstate = RETURNED_SQLSTATE,
					r.message = MESSAGE_TEXT, r.detail = PG_EXCEPTION_DETAIL,
					r.hint = PG_EXCEPTION_HINT;
				r.held := i - 1;
				INSERT INTO refused SELECT r.*;
				RETURN i - 1;
			END;
		END LOOP;
		RETURN 7500;
	END $$});

# A session of its own that holds as many locks as may be.
sub filler
{
	my ($first) = @_;
	my $holder = ZkSession->new($a);
	my $held = ($holder->run_ok("SELECT fill($first)", 'locks are taken') =~ /(\d+)\s*$/)[0];

	cmp_ok(path_bytes(), '<=', $bound, "the bound is kept by $held locks");
	cmp_ok(path_bytes(), '>', $bound - 400, 'and is reached');
	return ($holder, $held);
}

# The same, but most of them are held by others, who take them side by side.
sub fillers
{
	my @others = map { ZkSession->new($a) } (1 .. 20);

	$others[$_]->send("SELECT zk_lock(long_name(i), session => true) FROM generate_series(" . ($_ + 1) . ", 3000, 20) i")
	  for (0 .. $#others);
	is($_->result->{sqlstate}, undef, 'others take their share') for @others;
	return (filler(3001), @others);
}

#
# What does not fit is refused, and what was there before is not harmed
#

my $node = $foreign->lock(lock_dir('before'));
my $waiter = waiter($a, 'before', 2);
wait_contenders($zk, 'before', 2);

my ($holder, $held) = filler(1);
my $refused = value($a, 'SELECT sqlstate, message, detail, hint FROM refused');
like($refused,
	qr/^53200\|no room for lock "z{243}0\d+" in the ZooKeeper session\|.* for \d+ locks, take \d+ of $bound bytes.*\|.*shorter names/,
	'what does not fit is refused');
wait_ephemerals($held + 2);

my $error = sql($a, q{SELECT zk_lock_all(ARRAY(SELECT 'all' || i FROM generate_series(1, 20) i))});
is($error->{sqlstate}, '53200', 'several locks are refused whole');
is(sql($a, 'SELECT zk_acquire(long_name(1) || 1, 1)')->{sqlstate}, '53200', 'so is a permit');
is(ephemerals(), $held + 2, 'and nothing of them is left');

$foreign->unlock($node);
is($waiter->result->{sqlstate}, undef, 'who queued before gets the lock');
$waiter->quit;
wait_no_contenders($zk, 'before');

# a worker that takes over knows what there is
my $bytes = path_bytes();
next_worker($a);
is(path_bytes(), $bytes, 'another worker keeps the account');
is(sql($a, 'SELECT zk_lock(long_name(0))')->{sqlstate}, '53200', 'and refuses what does not fit');

# room that comes is used
$holder->run_ok("SELECT zk_unlock(long_name(i)) FROM generate_series(1, 10) i");
is(sql($a, q{SELECT zk_lock_all(ARRAY(SELECT 'all' || i FROM generate_series(1, 20) i))})->{sqlstate},
	undef, 'there is room again');
is($holder->run_ok('SELECT fill(1)', 'and it is used'), $held);

#
# The instance crashes
#

kill 'KILL', $holder->pid;
$holder->quit;
wait_accepting($a);
wait_connected($a);
wait_ephemerals(0);
all_serve('after a crash');
is(path_bytes(), 0, 'the new session has no nodes');

#
# The session expires: the worker stands still for longer
#

($holder, $held, my @others) = fillers();
my $worker = worker_of($a);
stop_process($worker);
wait_ephemerals(0);
kill 'CONT', $worker;
all_serve('after a session has expired');
$_->quit for ($holder, @others);
poll_until(sub { wait_connected($a) && path_bytes() == 0 }, 'a session without nodes');

#
# What is only retained makes room
#

$a->append_conf('postgresql.conf', "zklock.retain_time = '1h'");
$a->reload;
$a->poll_query_until('postgres', "SELECT setting <> '0' FROM pg_settings WHERE name = 'zklock.retain_time'");
value($a, q{SELECT zk_lock_all(array_agg('retained' || i)) FROM generate_series(1, 1000) i GROUP BY i % 20});
wait_ephemerals(1000);
my $before = $held;
($holder, $held, @others) = fillers();
is($held, $before, 'until others need the room');

#
# Fast shutdown
#

# it is expired() that tells whether the worker has closed the session
my $expired = expired();
cmp_ok($expired, '>', 0, 'servers log what expires');
$a->stop('fast');
$_->quit for ($holder, @others);
wait_ephemerals(0);
is(expired(), $expired, 'after a fast shutdown nothing is left, and nothing had to expire');
all_serve('after a fast shutdown');

#
# All that the servers have written can be read
#

for my $i (0 .. 2)
{
	$zk->restart($i);
	all_serve("after server $i was started again");
}
for my $i (0 .. 2)
{
	my @ends = $zk->session_ends($i);

	is(scalar(grep { $_ > $bound + 1024 } @ends), 0, 'no end of a session is longer than the bound');
	is(scalar(grep { $_ > $bound - 1024 } @ends), 2,
		'two are near it; the last session had little left');
}
$a->start;
wait_connected($a);
is(sql($a, "SELECT zk_lock('after')")->{sqlstate}, undef, 'and locks are available');

#
# More new names than ZooKeeper removes of idle ones: a WARNING
#

sub directories { return value($a, 'SELECT directories FROM zk_session'); }

my $made = directories();
sql($a, "SELECT zk_lock('after ' || i) FROM generate_series(1, 3) i");
is(directories(), $made + 3, 'lock directories are counted');

my $warning = qr/WARNING:  more than 10000 lock directories have been created in ZooKeeper within a minute/;
my $log = -s $a->logfile;
my $names = ZkSession->new($a);
my $round = 0;
while ((() = slurp_file($a->logfile, $log) =~ /$warning/g) == 0 && $round++ < 20)
{
	$names->run(qq{
		DO \$\$
		BEGIN
			FOR i IN 1 .. 30 LOOP
				PERFORM zk_lock_any(array_agg('$round/' || i || '/' || j))
				   FROM generate_series(1, 100) j;
				COMMIT;
			END LOOP;
		END \$\$});
}
cmp_ok($round, '>', 3, 'no warning of less than 10,000');
$names->run(qq{SELECT zk_lock_any(array_agg('last/' || j)) FROM generate_series(1, 100) j});
is(scalar(() = slurp_file($a->logfile, $log) =~ /$warning/g), 1, 'and of more, one');
$names->quit;

done_testing();
