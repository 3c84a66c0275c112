
# Logical replication: a trigger of the subscriber takes locks for the apply
# worker.  It waits as any session, and has the lock until its commit; when it
# loses the lock, or is stopped, it applies the transaction again, once.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

# Nothing in here waits for a session to expire.
my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client;
my ($a, $b) = zk_clusters($zk, [qw(a b)],
	'zklock.session_timeout' => '60s',
	'wal_level' => 'logical',
	'max_wal_senders' => 10,
	'max_replication_slots' => 10,
	'wal_retrieve_retry_interval' => '100ms',
	'log_line_prefix' => '%m [%p] %e ');
my $n = 0;

# b applies what a sells: under the lock, in a table of its own, and as long as a
# latch is closed it waits for that, in the trigger or at the commit.
value($_, 'CREATE TABLE sales (n int PRIMARY KEY)') for ($a, $b);
value($b, <<'SQL');
CREATE TABLE stock (sold int, times int);
INSERT INTO stock VALUES (0, 0);
CREATE FUNCTION sell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM public.zk_lock('stock');
	PERFORM pg_advisory_xact_lock(TG_ARGV[0]::int);
	UPDATE public.stock SET sold = sold + NEW.n, times = times + 1;
	RETURN NEW;
END $$;
CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(TG_ARGV[0]::int);
	RETURN NULL;
END $$;
CREATE TRIGGER sell BEFORE INSERT ON sales FOR EACH ROW EXECUTE FUNCTION sell(1);
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON sales DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION at_commit(2);
ALTER TABLE sales ENABLE REPLICA TRIGGER sell, ENABLE ALWAYS TRIGGER at_commit
SQL

my $latch = ZkSession->new($b);
my %closed = ('in the trigger' => 1, 'at the commit' => 2);

# The one that is connected with the publisher.
sub apply_pid
{
	return value($b, 'SELECT pid FROM pg_stat_subscription WHERE relid IS NULL AND pid IS NOT NULL'
		  . ($b->pg_version >= 16 ? ' AND leader_pid IS NULL' : ''));
}

# The worker, once there is one that this is true of.
sub worker_in
{
	my ($from, $what) = @_;
	my $pid;

	poll_until(
		sub { $pid = value($b, "SELECT pid FROM pg_stat_subscription JOIN $from"); },
		$what);
	return $pid;
}

# The worker, once it has the lock ("t") or waits for it ("f").
sub apply_worker
{
	return worker_in("zk_locks USING (pid) WHERE name = 'stock' AND granted = '$_[0]'",
		'the apply worker');
}

# The worker that waits at the latch
sub wait_at_latch
{
	return worker_in(
		"pg_locks USING (pid) WHERE locktype = 'advisory' AND objid = $_[0] AND NOT granted",
		'the apply worker to be at the latch');
}

# a sells one more.
sub sell
{
	$n++;
	value($a, "INSERT INTO sales VALUES ($n)");
	return;
}

sub is_applied
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($b->poll_query_until('postgres', "SELECT count(*) = $n FROM sales"), "$name: applied");
	is(value($b, 'SELECT sold, times FROM stock'), join('|', $n * ($n + 1) / 2, $n), '... once');
	$b->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zk_locks');
	wait_no_contenders($zk, 'stock');
	return;
}

#
# The first copy, and the wait for another instance
#

my $holder = holder($a, 'stock');
sell();
value($a, 'CREATE PUBLICATION p FOR TABLE sales');
value($b, sprintf("CREATE SUBSCRIPTION s CONNECTION '%s dbname=postgres' PUBLICATION p", $a->connstr));
apply_worker('f');
is(value($b, 'SELECT count(*) FROM sales'), 0, 'the copy waits for another instance');
$holder->run_ok('COMMIT');
is_applied('copy');

$b->poll_query_until('postgres', "SELECT srsubstate = 'r' FROM pg_subscription_rel");
$holder->run_ok("BEGIN; SELECT zk_lock('stock')");
sell();
my $worker = apply_worker('f');
is(value($b, "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $worker"), 'Extension',
	'the apply worker waits for another instance');
is(value($b, 'SELECT count(*) FROM sales'), 1, '... and has not applied the row');
$holder->run_ok('COMMIT');
is_applied('another instance');

my $local = holder($b, 'stock');
sell();
poll_until(sub { value($b, "SELECT pg_blocking_pids($worker)") eq '{' . $local->pid . '}' },
	'the worker to wait for a session of its server');
$local->run_ok('COMMIT');
is_applied('its own instance');
is(apply_pid(), $worker, 'it has waited, and not failed');

#
# Until its commit
#

sub keeps_lock
{
	my ($title) = @_;

	for my $when (sort keys %closed)
	{
		$latch->run_ok("SELECT pg_advisory_lock($closed{$when})", "$title, $when: the latch is closed");
		sell();
		wait_at_latch($closed{$when});
		is(sql($a, "SELECT zk_try_lock('stock')")->{out}, 'f', '... the worker holds the lock');
		$holder->run('BEGIN');
		$holder->send("SELECT zk_lock('stock')");
		$holder->wait_waiting(2);
		$latch->run_ok("SELECT pg_advisory_unlock($closed{$when})", '... the latch opens');
		is($holder->result->{message}, undef, '... the next holder has the lock');
		is(value($b, 'SELECT count(*) FROM sales'), $n, '... when the row is visible');
		$holder->run_ok('COMMIT');
		is_applied("$title, $when");
	}
	return;
}

keeps_lock('apply worker');

#
# The lock is lost, or the worker canceled or terminated
#

my $terminated = qr/57P01 FATAL:  terminating (?:logical replication|background) worker/;
my %end = (
	'lost' => [ sub { lose_session($b, $foreign); }, qr/40001 ERROR:  .*lock "stock" has been lost/ ],
	'canceled' => [
		sub { is(value($b, "SELECT zk_cancel_holders('stock')"), 1, 'the holder is canceled') },
		qr/57014 ERROR:  canceling statement due to user request/ ],
	'terminated' => [ sub { value($b, "SELECT pg_terminate_backend($_[0])") }, $terminated ]);

sub applies_again
{
	my ($title, %end) = @_;

	for my $when (sort keys %closed)
	{
		for my $how (sort keys %end)
		{
			my $offset = -s $b->logfile;
			my ($end, $log) = @{ $end{$how} };

			$latch->run_ok("SELECT pg_advisory_lock($closed{$when})", "$title, $how $when");
			sell();
			my $first = wait_at_latch($closed{$when});
			$end->($first);
			$b->wait_for_log($log, $offset);
			poll_until(sub { wait_at_latch($closed{$when}) != $first }, 'the next worker');
			is(sql($a, "SELECT zk_try_lock('stock')")->{out}, 'f', '... the next worker has the lock');
			$latch->run_ok("SELECT pg_advisory_unlock($closed{$when})", '... and goes on');
			is_applied("$title, $how $when");
		}
	}
	return;
}

applies_again('apply worker', %end);

# With disable_on_error it is not tried again until somebody says so.
sub is_disabled
{
	my ($title) = @_;

	value($b, 'ALTER SUBSCRIPTION s SET (disable_on_error = true)');
	for my $when (sort keys %closed)
	{
		$latch->run_ok("SELECT pg_advisory_lock($closed{$when})",
			"$title, disable_on_error, lost $when");
		sell();
		wait_at_latch($closed{$when});
		lose_session($b, $foreign);
		ok($b->poll_query_until('postgres', 'SELECT NOT subenabled FROM pg_subscription'),
			'... disabled');
		$latch->run_ok("SELECT pg_advisory_unlock($closed{$when})");
		is(value($b, 'SELECT count(*) FROM sales'), $n - 1, '... not applied');
		value($b, 'ALTER SUBSCRIPTION s ENABLE');
		is_applied("... enabled");
	}
	value($b, 'ALTER SUBSCRIPTION s SET (disable_on_error = false)');
	return;
}

is_disabled('apply worker');

#
# A wait that lasts longer than the publisher listens
#

{
	my $offset = -s $a->logfile;

	# the worker reads its subscription's options when a transaction begins
	$holder->run_ok("BEGIN; SELECT zk_lock('stock')");
	sell();
	apply_worker('f');
	value($a, "ALTER SYSTEM SET wal_sender_timeout = '500ms'");
	$a->reload;
	$a->wait_for_log(qr/terminating walsender process due to replication timeout/, $offset);
	value($a, 'ALTER SYSTEM RESET wal_sender_timeout');
	$a->reload;
	is(value($b, "SELECT count(*) FROM zk_locks WHERE NOT granted AND name = 'stock'"), 1,
		'the publisher has given up, the worker waits');
	$holder->run_ok('COMMIT');
	is_applied('wal_sender_timeout');
}

#
# Prepared transactions
#

$n++;
value($a, "BEGIN; INSERT INTO sales VALUES ($n); PREPARE TRANSACTION 'sale'");
value($a, "COMMIT PREPARED 'sale'");
is_applied('a prepared transaction arrives as one that is not');

{
	my $offset = -s $b->logfile;

	value($_, 'CREATE TABLE orders (n int PRIMARY KEY)') for ($a, $b);
	value($b, 'CREATE TRIGGER sell BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION sell(1)');
	value($b, 'ALTER TABLE orders ENABLE REPLICA TRIGGER sell');
	value($a, 'CREATE PUBLICATION p2 FOR TABLE orders');
	value($b, sprintf(
			"CREATE SUBSCRIPTION s2 CONNECTION '%s dbname=postgres' PUBLICATION p2 WITH (two_phase = true)",
			$a->connstr));
	$b->poll_query_until('postgres', "SELECT subtwophasestate = 'e' FROM pg_subscription WHERE subname = 's2'");
	value($a, "BEGIN; INSERT INTO orders VALUES (1); PREPARE TRANSACTION 'order'");
	$b->wait_for_log(qr/0A000 ERROR: .*lock/, $offset);
	is(value($b, 'SELECT count(*) FROM pg_prepared_xacts'), 0, 'two_phase: the worker cannot prepare with a lock');
	value($b, 'ALTER TABLE orders DISABLE TRIGGER sell');
	$b->poll_query_until('postgres', 'SELECT count(*) = 1 FROM pg_prepared_xacts');
	value($a, "COMMIT PREPARED 'order'");
	ok($b->poll_query_until('postgres', 'SELECT count(*) = 1 FROM orders'), '... without the trigger it can');
	value($b, 'DROP SUBSCRIPTION s2');
}

#
# From PostgreSQL 16 on a parallel apply worker may apply a large transaction
# while it is open in the publisher.  Here all are large.
#

sub set_streaming
{
	my ($how) = @_;
	my $pid = apply_pid();

	value($b, "ALTER SUBSCRIPTION s SET (streaming = $how)");
	poll_until(sub { (apply_pid() || $pid) ne $pid }, "an apply worker with streaming = $how");
	return;
}

sub is_parallel
{
	my ($pid, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(value($b, "SELECT leader_pid IS NOT NULL FROM pg_stat_subscription WHERE pid = $pid"), 't', $name);
	return;
}

# A commit, with which the WAL of open transactions is flushed, and sent.
sub flush_wal { return value($a, "SELECT pg_logical_emit_message(true, 'zklock', '')"); }

# In a transaction of a that stays open, sell one more.
sub sell_large
{
	my ($session) = @_;

	$n++;
	$session->run_ok("INSERT INTO sales VALUES ($n)");
	flush_wal();
	return;
}

if ($b->pg_version >= 16)
{
	my $large = ZkSession->new($a);

	value($a, "ALTER SYSTEM SET debug_logical_replication_streaming = 'immediate'");
	$a->reload;
	# a new connection, and so a sender that has the setting, whatever the default
	set_streaming('on');
	set_streaming('parallel');

	$holder->run_ok("BEGIN; SELECT zk_lock('stock')");
	$large->run_ok('BEGIN');
	sell_large($large);
	is_parallel(apply_worker('f'), 'a parallel apply worker waits for another instance');
	$holder->run_ok('COMMIT');
	is_parallel(apply_worker('t'), '... and takes the lock ahead of the commit in the publisher');
	$holder->run('BEGIN');
	$holder->send("SELECT zk_lock('stock')");
	$holder->wait_waiting(2);
	$large->run_ok('COMMIT');
	is($holder->result->{message}, undef, '... until that');
	is(value($b, 'SELECT count(*) FROM sales'), $n, '... when the row is visible');
	$holder->run_ok('COMMIT');
	is_applied('parallel');

	$large->run_ok('BEGIN; SAVEPOINT s');
	sell_large($large);
	is_parallel(apply_worker('t'), 'a subtransaction');
	$large->run_ok('ROLLBACK TO s');
	flush_wal();
	wait_no_contenders($zk, 'stock');
	pass('... is rolled back, and with it goes the lock');
	$n--;
	sell_large($large);
	is_parallel(apply_worker('t'), 'a transaction');
	$large->run_ok('ROLLBACK');
	$n--;
	is_applied('... is rolled back');

	keeps_lock('parallel');
	applies_again('parallel', %end,
		'leader terminated' => [
			sub { value($b, "SELECT pg_terminate_backend(leader_pid) FROM pg_stat_subscription WHERE pid = $_[0]") },
			$terminated ]);
	is_disabled('parallel');

	# The second worker waits for the lock, the one that receives for the second
	# worker, and the first for the one that receives.
	my $offset = -s $b->logfile;
	$large->run_ok('BEGIN');
	sell_large($large);
	is_parallel(apply_worker('t'), 'two transactions, the first has the lock');
	sell();
	ok($b->wait_for_log(qr/40P01 ERROR:  deadlock detected/, $offset),
		'... the second, which commits earlier, waits for it: a deadlock');
	$large->run_ok('COMMIT');
	is_applied('... both');

	$large->run_ok('BEGIN');
	sell_large($large);
	is_parallel(apply_worker('t'), 'the publisher wants the lock of its own transaction');
	$large->run("SET LOCAL lock_timeout = '1s'");
	is($large->run("SELECT zk_lock('stock')")->{sqlstate}, '55P03', '... and does not get it');
	$large->run_ok('ROLLBACK');
	$n--;
	is_applied('... is rolled back');

	set_streaming('on');
	my $streamed = q{SELECT coalesce(sum(stream_count), 0) FROM pg_stat_replication_slots};
	my $before = value($a, $streamed);
	$large->run_ok('BEGIN');
	sell_large($large);
	$a->poll_query_until('postgres', "SELECT ($streamed) > $before");
	$large->run_ok("SELECT zk_lock('stock')", '... with streaming = on it does');
	$large->run_ok('COMMIT');
	is_applied('... the same');

	$large->quit;
	value($a, 'ALTER SYSTEM RESET debug_logical_replication_streaming');
	$a->reload;
}

#
# DROP SUBSCRIPTION ends a wait
#

$holder->run_ok("BEGIN; SELECT zk_lock('stock')");
sell();
apply_worker('f');
value($b, 'DROP SUBSCRIPTION s');
wait_contenders($zk, 'stock', 1);
is(value($b, 'SELECT count(*) FROM zk_locks'), 0, 'dropped while the worker waits: nothing is left');
$holder->run_ok('COMMIT');

$_->quit for ($holder, $local, $latch);
poll_until(sub { !all_contenders($zk) }, 'all contenders to be gone');
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|was terminated by signal/, $_->name . ' has not crashed') for ($a, $b);
done_testing();
