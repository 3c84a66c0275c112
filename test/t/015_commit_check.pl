
# No commit under a lost lock: the lease, zklock.commit_check, and what happens
# to a holder whose lock is lost.  Also where another module's callback is ahead of
# ours.

use strict;
use warnings;

use File::Basename qw(dirname);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};
my $zk = ZooKeeper->new;
$zk->start;
my $a = zk_cluster(
	'a', $zk,
	install_path => $ENV{ZKLOCK_TEST_INSTALL},
	'zklock.session_timeout' => '12s',
	'wal_level' => 'replica',
	'max_wal_senders' => 2,
	'synchronous_standby_names' => 'nobody',
	'synchronous_commit' => 'local');
my $remote = PostgreSQL::Test::Cluster->new('remote');
$remote->init;
$remote->start;
$remote->safe_psql('postgres', 'CREATE TABLE sales (n int)');

$a->safe_psql('postgres', 'CREATE TABLE sales (n int)');
$a->safe_psql('postgres', sprintf(<<'SQL', $remote->host, $remote->port));
CREATE EXTENSION postgres_fdw;
CREATE SERVER remote FOREIGN DATA WRAPPER postgres_fdw
    OPTIONS (host '%s', port '%s', dbname 'postgres');
CREATE USER MAPPING FOR CURRENT_USER SERVER remote;
CREATE FOREIGN TABLE far_sales (n int)
    SERVER remote OPTIONS (table_name 'sales');
SQL

my $client = $zk->client;

sub lease { return value($a, 'SELECT extract(epoch FROM lease) FROM zk_session'); }

sub wait_lease
{
	my ($condition, $what) = @_;

	poll_until(sub { my $left = lease(); $left ne '' && $condition->($left) }, $what);
	return;
}

# A lease of four answers, not only of the latest.
sub wait_long_lease { wait_lease(sub { $_[0] > 2 }, 'a long lease'); return; }

sub wait_no_lease { wait_lease(sub { $_[0] == 0 }, 'the lease to run out'); return; }

# ZooKeeper stands still, and the lease is over, long before the session is.
sub stand_still
{
	$zk->pause(0);
	alter_system($a, 'zklock.no_lease' => 'on');
	wait_no_lease();
	return;
}

sub go_on
{
	$zk->resume(0);
	alter_system($a, 'zklock.no_lease' => 'off');
	return;
}

sub rows { return value($a, 'SELECT count(*) FROM sales'); }

my %lost_at_commit = (
	sqlstate => '40001',
	message => 'could not commit because lock "x" has been lost',
	detail => 'The ZooKeeper session of this server has ended.',
	hint => 'Retry the transaction.');

my %lost = (%lost_at_commit, message => 'lock "x" has been lost');

# a retry alone does not help whoever holds it for the session
my %lost_of_session = (
	%lost_at_commit,
	hint => 'Retry the transaction when you have unlocked the lock: until then every transaction of this session fails.');

my $s = ZkSession->new($a);

#
# The lease
#

wait_no_lease();
pass('no lease lasts before anything was taken');
$s->run_ok("BEGIN; SELECT zk_lock('x')");
$s->run_ok('COMMIT', 'a commit right after the lock');
poll_until(
	sub {
		$s->run("BEGIN; SELECT zk_lock('x')");
		my $left = $s->run('SELECT extract(epoch FROM lease) FROM zk_session')->{out};
		$s->run('COMMIT');
		return $left > 0;
	},
	'a lease');
pass('the answers make a lease');
wait_no_lease();
pass('nobody prolongs it when nothing is held');

$s->run("BEGIN; SELECT zk_lock('x'); INSERT INTO sales VALUES (1)");
wait_long_lease();
$zk->pause(0);
$s->run_ok('COMMIT', 'while the lease runs, a commit asks nobody');
is(rows(), 1, 'and has committed');
$zk->resume(0);

# ZooKeeper remembers the timeout that the session has begun with, and goes by it
# after a restart.
value($a, "ALTER SYSTEM SET zklock.session_timeout = '30s'");
$a->reload;
poll_until(sub { value($a, "SELECT timeout = '30s' AND state = 'connected' FROM zk_session") eq 't' },
	'the new timeout');
$s->run("BEGIN; SELECT zk_lock('x')");
my ($renewed, $last, $longest) = (0, 0, 0);
poll_until(
	sub {
		my $left = lease();
		$renewed++ if $left > $last && $left > 2;
		$longest = $left if $left > $longest;
		$last = $left;
		return $renewed == 3;
	},
	'the lease to be renewed');
cmp_ok($longest, '<', 12, 'a timeout that was raised does not make the lease longer');
$s->run('COMMIT');
value($a, 'ALTER SYSTEM RESET zklock.session_timeout');
$a->reload;
poll_until(sub { value($a, "SELECT timeout = '12s' AND state = 'connected' FROM zk_session") eq 't' },
	'the old timeout');

#
# Past the lease
#

$s->run("BEGIN; SELECT zk_lock('x'); INSERT INTO sales VALUES (1)");
wait_long_lease();
stand_still();
my $log = -s $a->logfile;
$s->run("SET log_lock_waits = on; SET deadlock_timeout = '50ms'");
$s->send('COMMIT');
$s->wait_waiting(2);
is(rows(), 1, 'past the lease a commit waits');
my $waits = qr/process @{[$s->pid]} still waiting for ZooKeeper to confirm lock "x" ahead of its commit after \d+ ms\n.*DETAIL:  ZooKeeper has not /;
$a->wait_for_log($waits, $log);
pass('log_lock_waits logs that, and why');
go_on();
is($s->result->{sqlstate}, undef, 'until ZooKeeper answers');
$a->wait_for_log(qr/ZooKeeper confirmed lock "x" for process @{[$s->pid]} after \d+ ms/, $log);
is(scalar(() = slurp_file($a->logfile, $log) =~ /$waits/g), 1, 'once, and of the end');
$s->run('RESET log_lock_waits; RESET deadlock_timeout');
is(rows(), 2, 'and has committed');
is(value($a, 'SELECT count(*) FROM zk_locks'), 0, 'and released the lock');

$s->run("BEGIN; SELECT zk_lock('x'); INSERT INTO sales VALUES (1)");
wait_long_lease();
stand_still();
$s->run('SET exit_on_error = on; NOTIFY channel');
$s->send('COMMIT');
$s->wait_waiting(2);
poll_until(
	sub {
		value($a, q{SELECT count(*) FROM pg_locks
			WHERE classid = 'pg_database'::regclass AND objid = 0 AND database = 0}) == 0;
	},
	'NOTIFY to be free');
is(sql($a, 'NOTIFY channel')->{sqlstate}, undef, 'meanwhile others can use NOTIFY');
value($a, 'SELECT pg_cancel_backend(' . $s->pid . ')');
my $canceled = $s->result;
is($canceled->{sqlstate}, '57014', 'the wait can be canceled');
is($canceled->{context}, 'while waiting for ZooKeeper to confirm lock "x" ahead of the commit', 'and the error says what it was');
go_on();
$s->quit;
$s = ZkSession->new($a);
is(rows(), 2, 'and then nothing is committed');
wait_no_contenders($zk, 'x');

# zklock.commit_timeout bounds the wait, of a command with lasting effects, too.
my $unsure = {
	sqlstate => '40001',
	message => 'could not commit because lock "x" may have been lost',
	detail => qr/^ZooKeeper has not confirmed the session of this server within 300 ms\.$/,
	hint => 'Retry the transaction.'
};

$s->run("SET zklock.commit_timeout = '300ms'");
$s->run("BEGIN; SELECT zk_lock('x', session => true); INSERT INTO sales VALUES (1)");
wait_long_lease();
stand_still();
$s->run('NOTIFY channel');
error_is($s->run('COMMIT'), $unsure, 'a bounded wait ends with an error');
error_is($s->run('VACUUM sales'), $unsure, 'and so does one ahead of VACUUM');
is(sql($a, 'NOTIFY channel')->{sqlstate}, undef, 'others can use NOTIFY');
is(rows(), 2, 'nothing is committed');
$s->send("BEGIN; SET LOCAL zklock.commit_timeout = '1h'; INSERT INTO sales VALUES (1); COMMIT");
$s->wait_waiting(2);
go_on();
is($s->result->{sqlstate}, undef, 'a wait that is not over yet goes on');
is(rows(), 3, 'and commits');
$s->run_ok('DELETE FROM sales WHERE ctid = (SELECT max(ctid) FROM sales)', 'without a wait nothing is over');
$s->run_ok("SELECT zk_unlock('x')");
$s->run_ok('RESET zklock.commit_timeout');
wait_no_contenders($zk, 'x');

#
# The other ways
#

$s->run("SET zklock.commit_check = quorum; BEGIN; SELECT zk_lock('x')");
$s->run_ok('COMMIT', 'quorum: a commit');
$s->run("BEGIN; SELECT zk_lock('x'); NOTIFY channel");
$s->run_ok('COMMIT', 'quorum: with NOTIFY');
$s->run("BEGIN; SELECT zk_lock('x')");
wait_long_lease();
$zk->pause(0);
$s->send('COMMIT');
$s->wait_waiting(2);
cmp_ok(lease(), '>', 0, 'quorum: a commit waits while the lease runs');
$zk->resume(0);
is($s->result->{sqlstate}, undef, 'quorum: until ZooKeeper answers');

$s->run("SET zklock.commit_check = off; BEGIN; SELECT zk_lock('x')");
wait_long_lease();
stand_still();
$s->run_ok('COMMIT', 'off: a commit past the lease asks nobody');
go_on();
wait_no_contenders($zk, 'x');
$s->run("BEGIN; SELECT zk_lock('x')");
lose_session($a, $client);
error_is($s->run('COMMIT'), \%lost_at_commit, 'off: what is known to be lost is lost');
$s->run('RESET zklock.commit_check');

# many at once wait for the same answer
my @many = map { ZkSession->new($a) } 1 .. 8;
$_->run("SET zklock.commit_check = quorum; BEGIN; SELECT zk_lock('x' || pg_backend_pid())") for @many;
$_->send('COMMIT') for @many;
is($_->result->{sqlstate}, undef, 'quorum: one of many commits') for @many;
$_->quit for @many;

#
# Lost
#

value($a, <<'SQL');
CREATE TABLE slow (n int);
CREATE FUNCTION sleep() RETURNS trigger LANGUAGE plpgsql AS
    $$ DECLARE x text; BEGIN x := pg_sleep(600); RETURN NULL; END $$;
CREATE TRIGGER sleep AFTER INSERT ON slow EXECUTE FUNCTION sleep();
SQL

for my $statement ('SELECT pg_sleep(600)', 'DO $$ BEGIN PERFORM pg_sleep(600); END $$',
	'SELECT * FROM generate_series(1, 600) n, pg_sleep(n)', 'LOCK TABLE sales',
	'INSERT INTO slow VALUES (1)')
{
	my $blocker = ZkSession->new($a);

	$blocker->run('BEGIN; LOCK TABLE sales');
	$s->run("BEGIN; SELECT zk_lock('x')");
	$s->send($statement);
	poll_until(
		sub { value($a, 'SELECT wait_event IS NOT NULL FROM pg_stat_activity WHERE pid = ' . $s->pid) eq 't' },
		'the statement to run');
	lose_session($a, $client);
	error_is($s->result, \%lost, "lost: $statement is canceled");
	$s->run('ROLLBACK');
	$blocker->run('ROLLBACK');
	$blocker->quit;
}

$s->run("BEGIN; SELECT zk_lock('x'); INSERT INTO sales VALUES (1)");
lose_session($a, $client);
error_is($s->run('COMMIT'), \%lost_at_commit, 'lost: idle in transaction, then COMMIT');
is(rows(), 2, 'lost: nothing is committed');

$s->run("SELECT zk_lock('x', session => true)");
lose_session($a, $client);
error_is($s->run('INSERT INTO sales VALUES (1)'), \%lost_of_session, "lost: no commit of the session, $_")
  for (1, 2);
is(rows(), 2, 'lost: nothing is committed');
is($s->run("SELECT zk_unlock('x')")->{out}, 't', 'lost: until it is acknowledged');
$s->run_ok('INSERT INTO sales VALUES (1)', 'lost: and then it goes on');
is(rows(), 3, 'lost: and commits');

# PostgreSQL has transactions of its own while a session is idle, for what NOTIFY
# has sent and for changes of catalogs: an error there would end the session.
$s->run("LISTEN channel; SELECT zk_lock('x', session => true)");
lose_session($a, $client);
value($a, 'NOTIFY channel');
value($a, 'DO $$ BEGIN FOR i IN 1 .. 1500 LOOP CREATE TABLE many (n int PRIMARY KEY); DROP TABLE many; END LOOP; END $$');
error_is($s->run('SELECT 1'), \%lost_of_session, 'lost: the idle session lives');
$s->run_ok("SELECT zk_unlock('x')", 'lost: and acknowledges it');

# It has such also behind a command, ahead of telling the client that it is idle.
my $heard = qr/Asynchronous notification "channel"/;

sub ends_in_notice
{
	my ($name) = @_;

	value($a, 'NOTIFY channel');
	$s->send('ROLLBACK');
	my $result = $s->result;
	is($result->{sqlstate}, undef, "$name: ROLLBACK");
	like($result->{out}, $heard, "$name: what NOTIFY has sent arrives with it");
	return;
}

$s->run("SELECT zk_lock('x', session => true)");
wait_long_lease();
stand_still();
$s->run('BEGIN');
ends_in_notice('past the lease');
go_on();
$s->run("BEGIN; SELECT pg_backend_pid(), zk_lock('x')");
lose_session($a, $client);
ends_in_notice('lost');
$s->run('BEGIN');
is($s->run('SELECT 1 / 0')->{sqlstate}, '22012', 'lost: a transaction fails');
ends_in_notice('lost, of what has failed');
$s->run('BEGIN');
value($a, 'NOTIFY channel');
my $commit = $s->run('COMMIT');
error_is($commit, \%lost_of_session, 'lost: no COMMIT');
like($commit->{out}, $heard, 'lost: what NOTIFY has sent arrives with its error');
is(scalar(() = $commit->{stderr} =~ /ERROR:/g), 1, 'lost: which is one error');
$s->run_ok("SELECT zk_unlock_all(); UNLISTEN channel", 'lost: and acknowledged');

# The transactions of a procedure are the client's, though PL/pgSQL may run no
# statement in them.
for my $end ('', 'COMMIT;')
{
	$s->run("SELECT zk_lock('x', session => true)");
	$s->send('DO $$ DECLARE x text; BEGIN COMMIT;'
		  . ' BEGIN x := pg_sleep(600); EXCEPTION WHEN query_canceled THEN END;'
		  . " x := lo_create(42); $end END \$\$");
	$s->wait_event('PgSleep');
	lose_session($a, $client);
	error_is($s->result, \%lost_of_session, "lost: the second transaction of a procedure does not commit $end");
	is(value($a, 'SELECT count(*) FROM pg_largeobject_metadata'), 0, "lost: nothing is committed $end");
	$s->run_ok("SELECT zk_unlock('x')");
}

# A savepoint does not help.
$s->run("BEGIN; SELECT zk_lock('x'); SAVEPOINT p");
$s->send('SELECT pg_sleep(600)');
$s->wait_event('PgSleep');
lose_session($a, $client);
error_is($s->result, \%lost, 'lost: within a savepoint');
$s->run_ok('ROLLBACK TO p', 'lost: which is rolled back');
error_is($s->run('COMMIT'), \%lost_at_commit, 'lost: and yet there is no commit');

#
# Two servers
#

$s->run("BEGIN; SELECT zk_lock('x'); INSERT INTO sales VALUES (1); INSERT INTO far_sales VALUES (1)");
my ($worker, $session) =
  split /\|/, value($a, 'SELECT worker_pid, session_id FROM zk_session');
kill 'STOP', $worker;
ok($client->kill_session($session), 'the session is ended behind the back of the worker');
wait_no_lease();
$s->send('COMMIT');
$s->wait_waiting(2);
kill 'CONT', $worker;
error_is($s->result, \%lost_at_commit, 'postgres_fdw: lost while the commit waits');
is(rows(), 3, 'postgres_fdw: nothing is committed here');
is($remote->safe_psql('postgres', 'SELECT count(*) FROM sales'), 0, 'postgres_fdw: nor there');

# A command that brings postgres_fdw into the session, behind a lock that its
# trigger takes.
value($a, <<'SQL');
CREATE TABLE near (n int);
CREATE FUNCTION take() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM zk_lock('x'); RETURN NULL; END $$;
CREATE TRIGGER take BEFORE TRUNCATE ON near EXECUTE FUNCTION take();
SQL
$remote->safe_psql('postgres', 'INSERT INTO sales VALUES (1)');
my $first_use = ZkSession->new($a);
$first_use->run_ok($_) for ('BEGIN', 'TRUNCATE near, far_sales');
lose_session($a, $client);
error_is($first_use->run('COMMIT'), \%lost_at_commit, 'postgres_fdw: lost after a TRUNCATE');
is($remote->safe_psql('postgres', 'SELECT count(*) FROM sales'), 1, 'postgres_fdw: there is none');
$first_use->quit;

#
# What PostgreSQL waits for behind our check, it waits for ahead of it
#

my $notifier = ZkSession->new($a);
for my $notify ('NOTIFY channel', "SELECT pg_notify('channel', 'x')")
{
	$notifier->run('SET synchronous_commit = on; BEGIN; INSERT INTO sales VALUES (1); NOTIFY channel');
	$notifier->send('COMMIT');
	$notifier->wait_event('SyncRep');
	my $rows = rows();
	$s->run("BEGIN; SELECT zk_lock('x'); INSERT INTO sales VALUES (1); $notify");
	$s->send('COMMIT');
	$s->wait_event('object');
	lose_session($a, $client);
	value($a, 'SELECT pg_cancel_backend(' . $notifier->pid . ')');
	$notifier->result;
	error_is($s->result, \%lost_at_commit, "$notify: who waits for another commit does not commit after a loss");
	is(rows(), $rows + 1, "$notify: nothing is committed but what it waited for");
}

# A foreign server that is this one, and uses NOTIFY itself: no deadlock.
value($a, 'CREATE DATABASE other');
$a->safe_psql('other', <<'SQL');
CREATE TABLE sales (n int);
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN NOTIFY sold; RETURN NULL; END $$;
CREATE TRIGGER tell AFTER INSERT ON sales EXECUTE FUNCTION tell();
SQL
value($a, sprintf(<<'SQL', $a->host, $a->port));
CREATE SERVER here FOREIGN DATA WRAPPER postgres_fdw
    OPTIONS (host '%s', port '%s', dbname 'other');
CREATE USER MAPPING FOR CURRENT_USER SERVER here;
CREATE FOREIGN TABLE near_sales (n int) SERVER here OPTIONS (table_name 'sales');
SQL
$s->run("BEGIN; SELECT zk_lock('x'); NOTIFY channel; INSERT INTO near_sales VALUES (1)");
$s->run_ok('COMMIT', 'NOTIFY here and in another database');

# The same by way of a partition, which no plan shows.
value($a, <<'SQL');
CREATE TABLE all_sales (n int) PARTITION BY LIST (n);
CREATE TABLE own_sales PARTITION OF all_sales FOR VALUES IN (1);
CREATE FOREIGN TABLE their_sales PARTITION OF all_sales FOR VALUES IN (2)
    SERVER here OPTIONS (table_name 'sales');
INSERT INTO all_sales VALUES (1);
SQL
for my $statement ('INSERT INTO all_sales VALUES (2)', 'UPDATE all_sales SET n = 2 WHERE n = 1')
{
	$s->run("BEGIN; SELECT zk_lock('x'); NOTIFY channel");
	$s->run_ok($statement);
	$s->run_ok('COMMIT', "NOTIFY here and in another database: $statement");
}

#
# Past the check
#

# A commit that has been written is not hurried when its lock is lost.
my $writer = ZkSession->new($a);
my $rows = rows();
$writer->run("SET synchronous_commit = on; BEGIN; SELECT zk_lock('x'); INSERT INTO sales VALUES (1)");
$writer->send('COMMIT');
$writer->wait_event('SyncRep');
lose_session($a, $client);
$writer->wait_event('SyncRep');
$a->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = ''");
$a->reload;
my $result = $writer->result;
is($result->{sqlstate}, undef, 'a lock lost in the wait for a standby: the commit is a commit');
is_deeply($result->{warnings}, [], 'and has waited to the end');
is(rows(), $rows + 1, 'and is there');

$_->quit for ($s, $writer, $notifier);

#
# Another module's callback is ahead of ours, and runs statements while PostgreSQL
# goes through the list of callbacks
#

my $module = PostgreSQL::Test::Utils::tempdir() . '/late_callback';

system_or_bail('cc', '-shared', '-fPIC', '-I' . $remote->config_data('--includedir-server'),
	'-o', "$module.so", dirname(__FILE__) . '/../lib/late_callback.c');
value($a, $_) for ('CREATE TABLE t (i int)', 'CREATE TABLE u (i int)');

# A statement of each kind: one after which ours is to be the first, and another.
for my $statement ('TRUNCATE u', 'SELECT 1')
{
	my $s = ZkSession->new($a);
	my $pid = $s->pid;

	$s->run_ok($_) for (
		"LOAD '$module'",
		"SET late_callback.statement = '$statement'",
		"SELECT zk_lock('x', session => true)");
	$s->run_ok('INSERT INTO t VALUES (0)', "$statement: commits while the lock is held");
	ok(end_session($a, $client), 'the session is ended');
	$a->poll_query_until('postgres', "SELECT lost FROM zk_locks WHERE pid = $pid");
	is($s->run('INSERT INTO t VALUES (1)')->{sqlstate}, '40001', 'does not commit when it is lost');
	$s->run_ok('BEGIN');
	$s->run_ok('INSERT INTO t VALUES (2)');
	is($s->run('COMMIT')->{sqlstate}, '40001', 'nor in a block');
	is($s->run('SELECT zk_unlock_all()')->{message}, undef, 'the loss is acknowledged');
	$s->run_ok('INSERT INTO t VALUES (0)', 'then it commits');
	$s->quit;
	wait_connected($a);
}
is(value($a, 'SELECT count(*), sum(i) FROM t'), '4|0', 'no more has been committed');

done_testing();
