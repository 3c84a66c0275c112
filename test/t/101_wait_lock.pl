
# CALL zk_wait_lock and its siblings: while they wait, in either tier and however
# they are called, the session has no snapshot.

use strict;
use warnings;

use DocPage;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use ZkCluster;
use ZkSession;
use ZkWire;
use ZooKeeper;

# Nothing in here waits for a session to expire.
my %settings = (
	'zklock.session_timeout' => '60s',
	'autovacuum' => 'off',
	'deadlock_timeout' => '100ms',
	'log_lock_waits' => 'on');

my $zk = ZooKeeper->new;
$zk->start;
my $a = zk_cluster(
	'a', $zk, %settings,
	'wal_level' => 'replica',
	'max_wal_senders' => 5);
my $b = zk_cluster('b', $zk, %settings);
$_->safe_psql('postgres', 'CREATE TABLE stock (n int)') for ($a, $b);
$_->safe_psql('postgres', <<'SQL') for ($a, $b);
CREATE PROCEDURE work(INOUT seen bigint DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO stock VALUES (0);
    COMMIT;
    seen := (SELECT count(*) FROM stock);
    CALL zk_wait_lock('x');
    seen := (SELECT count(*) FROM stock);
    COMMIT;
END $$;
SQL

sub xmin
{
	my ($node, $pid) = @_;

	return value($node, "SELECT backend_xmin IS NULL FROM pg_stat_activity WHERE pid = $pid") eq 't'
	  ? 'none' : 'a snapshot';
}

# Does VACUUM remove what dies now?  Then a new row takes its place.
sub vacuum_removes
{
	my ($node) = @_;

	value($node, 'DELETE FROM stock');
	value($node, 'VACUUM stock');
	my $place = value($node, 'INSERT INTO stock VALUES (1) RETURNING ctid');
	return $place eq '(0,1)';
}

# A session waits in this tier, by this statement, for lock x.  It has a snapshot
# or not; CREATE INDEX CONCURRENTLY waits for one.  Then it gets the lock.
sub waits_without
{
	my ($tier, $statement, %expected) = @_;
	my $holder = holder($tier == 1 ? $b : $a, 'x');
	my $s = ZkSession->new($b);
	my $name = "tier $tier: $statement";

	value($b, 'TRUNCATE stock; INSERT INTO stock SELECT generate_series(1, 5)');
	my $log = -s $b->logfile;
	$s->run_ok("BEGIN; SELECT count(*) FROM stock") if $expected{block};
	$s->send($statement);
	$s->wait_waiting($tier);
	is(xmin($b, $s->pid), $expected{xmin} // 'none', "$name: its snapshot");

	# to log who is first in the queue reads catalogs
	$b->wait_for_log(qr/process @{[$s->pid]} still waiting for /, $log);
	$s->wait_waiting($tier);
	is(xmin($b, $s->pid), $expected{xmin} // 'none', "$name: its snapshot, later on");
	is(vacuum_removes($b), !$expected{xmin}, "$name: VACUUM");
	value($b, 'CREATE INDEX CONCURRENTLY stock_n ON stock (n)') if !$expected{xmin};
	$holder->run_ok('COMMIT');
	$holder->quit;

	my $result = $s->result;
	is($result->{message}, undef, "$name: gets the lock");
	is_deeply($result->{warnings}, [], "$name: without a warning");
	is($result->{out}, $expected{out} // '', "$name: returns");
	is($s->run_ok('SELECT count(*) FROM stock'), 1, "$name: and sees what was committed meanwhile");
	$s->run_ok('COMMIT') if $expected{block};
	value($b, 'DROP INDEX IF EXISTS stock_n');
	$s->run_ok('SELECT zk_unlock_all()');
	$s->quit;
	return;
}

# the first tier is that of wait_lock.spec
waits_without(1, "CALL zk_wait_lock('x')", block => 1);
waits_without(1, 'CALL work()', out => 1);
waits_without(2, "SELECT zk_lock('x')", xmin => 'a snapshot');
waits_without(2, "CALL zk_wait_lock('x')", block => 1);
waits_without(2, "CALL zk_wait_lock('x', session => true)");
waits_without(2, "CALL zk_wait_lock_all('{x,y}')", block => 1);
waits_without(2, "CALL zk_wait_lock_any('{x}')", block => 1, out => 'x');
waits_without(2, 'CALL work()', out => 1);
waits_without(2, "DO \$\$ BEGIN CALL zk_wait_lock('x'); PERFORM count(*) FROM stock; COMMIT; CALL zk_wait_lock('x'); END \$\$");
waits_without(2, "SAVEPOINT s; CALL zk_wait_lock('x', '1min'); RELEASE s", block => 1);

# any of several, of which others have all: some here, some there
{
	my @holders = (holder($a, 'x'), holder($b, 'y'));
	my $s = ZkSession->new($b);

	value($b, 'TRUNCATE stock; INSERT INTO stock VALUES (1)');
	$s->send("CALL zk_wait_lock_any('{x,y}', session => true)");
	$s->wait_waiting(2);
	is(xmin($b, $s->pid), 'none', 'any of two: no snapshot');
	ok(vacuum_removes($b), 'any of two: VACUUM');
	$holders[1]->run_ok('COMMIT');
	is($s->result->{out}, 'y', 'any of two: the one that is free');
	$_->quit for ($s, @holders);
}

# Who is first in the queue is logged in the encoding of the database, and to find
# the conversion reads catalogs.
{
	value($b, "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
	$b->safe_psql('latin', 'CREATE EXTENSION zklock');
	my $holder = holder($a, 'x');
	my $log = -s $b->logfile;
	my $s = ZkSession->new($b, 'latin');

	$s->send("CALL zk_wait_lock('x', session => true)");
	$b->wait_for_log(qr/process @{[$s->pid]} still waiting for /, $log);
	$b->poll_query_until('postgres',
		"SELECT wait_event_type = 'Extension' AND backend_xmin IS NULL FROM pg_stat_activity WHERE pid = " . $s->pid);
	pass('another encoding: no snapshot after a message to the log');
	$holder->run_ok('COMMIT');
	is($s->result->{message}, undef, 'another encoding: the lock');
	$_->quit for ($s, $holder);
}

#
# How waits end without the lock
#

for my $tier (1, 2)
{
	my $holder = holder($tier == 1 ? $b : $a, 'x');
	my $s = ZkSession->new($b);

	$s->run('BEGIN; SELECT count(*) FROM stock');
	is($s->run("CALL zk_wait_lock('x', '50ms')")->{sqlstate}, '55P03', "tier $tier: the timeout");
	$s->run("ROLLBACK; BEGIN; SET LOCAL lock_timeout = '50ms'");
	is($s->run("CALL zk_wait_lock('x')")->{sqlstate}, '55P03', "tier $tier: lock_timeout");
	$s->run('ROLLBACK; BEGIN');
	$s->send("CALL zk_wait_lock('x')");
	$s->wait_waiting($tier);
	is(value($b, "SELECT granted FROM zk_locks WHERE pid = " . $s->pid), 'f', "tier $tier: zk_locks shows the wait");
	value($b, 'SELECT pg_cancel_backend(' . $s->pid . ')');
	is($s->result->{sqlstate}, '57014', "tier $tier: cancel");
	is($s->run_ok('ROLLBACK; SELECT 1'), 1, "tier $tier: and the session goes on");

	# within a savepoint, which is rolled back
	$s->run('BEGIN; SAVEPOINT s');
	is($s->run("CALL zk_wait_lock('x', '50ms')")->{sqlstate}, '55P03', "tier $tier: after a savepoint");
	is($s->run_ok('ROLLBACK TO s; SELECT 1'), 1, "tier $tier: which is rolled back");
	$s->run('COMMIT');

	$s->send("CALL zk_wait_lock('x', session => true)");
	$s->wait_waiting($tier);
	value($b, 'SELECT pg_terminate_backend(' . $s->pid . ')');
	is($s->result->{sqlstate}, '57P01', "tier $tier: terminated");
	$holder->run_ok('COMMIT');
	$_->quit for ($s, $holder);
	wait_no_contenders($zk, 'x');
}

# A deadlock between instances
{
	my ($first, $second) = (holder($a, 'x'), holder($b, 'y'));

	$first->send("CALL zk_wait_lock('y')");
	$first->wait_waiting(2);
	$second->send("CALL zk_wait_lock('x')");
	my %result = (first => $first->result, second => $second->result);
	my ($victim, $other) =
	  $result{first}{sqlstate} ? qw(first second) : qw(second first);
	is($result{$victim}{sqlstate}, '40P01', 'a deadlock between instances');
	is($result{$other}{message}, undef, 'and its other member goes on');
	$_->run_ok('ROLLBACK; SELECT 1') for ($first, $second);
	$_->quit for ($first, $second);
}

#
# Drivers
#

my $dir = PostgreSQL::Test::Utils::tempdir('programs');

append_to_file("$dir/wait.py", <<'END');
import sys
import psycopg2

connection = psycopg2.connect(sys.argv[1])
connection.autocommit = sys.argv[2] == 'on'
cursor = connection.cursor()
cursor.execute('SELECT pg_backend_pid()')
print(cursor.fetchone()[0], flush=True)
connection.commit()
cursor.execute('CALL zk_wait_lock(%s, session => %s)', ('x', connection.autocommit))
cursor.execute("CALL zk_wait_lock_any(%s, session => %s)", (['x', 'y'], connection.autocommit))
print(cursor.fetchone()[0], flush=True)
cursor.execute('SELECT count(*) FROM zk_locks WHERE pid = pg_backend_pid() AND granted')
print(cursor.fetchone()[0], flush=True)
connection.commit()
END

for my $autocommit (qw(on off))
{
	my $holder = holder($a, 'x');
	my ($in, $out) = ('', '');
	my $log = -s $b->logfile;
	my $program = IPC::Run::start([ '/usr/bin/python3', "$dir/wait.py", $b->connstr('postgres'), $autocommit ],
		'<', \$in, '>', \$out);

	poll_until(sub { $program->pump_nb; $out =~ /^\d+\n/ }, 'the program to connect');
	my ($pid) = $out =~ /(\d+)/;
	$b->wait_for_log(qr/process $pid still waiting for exclusive lock "x" in ZooKeeper/, $log);
	is(xmin($b, $pid), 'none', "psycopg2, autocommit $autocommit: no snapshot");
	$holder->run_ok('COMMIT');
	$program->finish;
	is($out, "$pid\ny\n2\n", "psycopg2, autocommit $autocommit: both locks");
	$holder->quit;
}

# psql, which begins the transaction by itself
{
	my $holder = holder($a, 'x');
	my $s = ZkSession->new($b);

	$s->run("\\set AUTOCOMMIT off\n");
	$s->send("CALL zk_wait_lock('x')");
	$s->wait_waiting(2);
	is(xmin($b, $s->pid), 'none', 'psql, AUTOCOMMIT off: no snapshot');
	$holder->run_ok('COMMIT');
	is($s->result->{message}, undef, 'psql, AUTOCOMMIT off: the lock');
	is($s->run_ok("SELECT count(*) FROM zk_locks WHERE granted AND name = 'x'"), 1,
		'psql, AUTOCOMMIT off: until the end of the transaction');
	$s->run_ok('COMMIT');
	$_->quit for ($holder, $s);
}

# Messages of the extended protocol, with parameters: one statement after the
# other, and several together
for my $case (
	[ '', [ 'CALL zk_wait_lock($1, session => true)', 'x' ] ],
	[ 'BEGIN', [ 'CALL zk_wait_lock($1)', 'x' ] ],
	[ 'BEGIN', [ 'CALL zk_wait_lock_all($1)', '{w,x}' ] ],
	[ 'BEGIN', [ 'CALL zk_wait_lock_any($1)', '{x}' ] ],
	[ '', ['BEGIN'], [ 'CALL zk_wait_lock($1, $2::interval)', 'x', '1 h' ], ['COMMIT'] ],
	[ '', ['BEGIN'], ['SELECT count(*) FROM stock'], [ 'CALL zk_wait_lock_any($1)', '{x}' ], ['COMMIT'] ])
{
	my ($begin, @statements) = @$case;
	my $name = join('; ', grep { $_ ne '' } $begin, map { $_->[0] } @statements);
	my $holder = holder($a, 'x');
	my $s = ZkWire->new($b);

	$s->run($begin) if $begin;
	my $log = -s $b->logfile;
	$s->send_with(@statements);
	$b->wait_for_log(qr/process @{[$s->pid]} still waiting for /, $log);
	is(xmin($b, $s->pid), 'none', "$name: no snapshot");
	ok(vacuum_removes($b), "$name: VACUUM");
	$holder->run_ok('COMMIT');
	ZkWire::wait_any($PostgreSQL::Test::Utils::timeout_default, $s) or die "$name: no answer";
	is($s->result->{message}, undef, "$name: gets the lock");
	is($s->run("$_; SELECT zk_unlock_all()")->{message}, undef, "$name: $_")
	  for ($s->result->{status} eq 'T' ? 'COMMIT' : 'SELECT 1');
	$s->vanish;
	$holder->quit;
}

# The extended protocol, and statements that were prepared: sections of both
# instances exclude each other.
for my $mode (qw(simple extended prepared))
{
	my @runs;

	value($a, 'TRUNCATE stock; INSERT INTO stock VALUES (0)');
	append_to_file("$dir/$mode.sql", <<'END');
BEGIN;
SELECT count(*) FROM stock;
CALL zk_wait_lock('x', NULL, :client_id < 0);
CALL zk_wait_lock_any(ARRAY['y', 'z' || :client_id]);
UPDATE stock SET n = n + 1;
COMMIT;
CALL zk_wait_lock_all(ARRAY['x', 'z'], session => true);
CALL work();
SELECT zk_unlock_all();
END
	for my $node ($a, $b)
	{
		my $output = '';

		push @runs, [ $node, \$output, IPC::Run::start([ $node->installed_command('pgbench'), '-n', '-M', $mode,
					qw(-c 3 -j 1 -t 10), '-f', "$dir/$mode.sql", $node->connstr('postgres') ],
				'<', \undef, '>&', \$output) ];
	}
	for (@runs)
	{
		my ($node, $output, $run) = @$_;

		ok($run->finish, "pgbench -M $mode in " . $node->name) or diag $$output;
	}
}

#
# A migration with CREATE INDEX CONCURRENTLY, as doc/patterns.md has it, by two
# instances of the application, on one server and on two
#

my $page = DocPage->new(($ENV{TESTDIR} // '.') . '/doc/patterns.md', {}, run => 'a');
my $migration = $page->named('migration');

value($_, <<'SQL') for ($a, $b);
CREATE TABLE prices (item text PRIMARY KEY, price numeric NOT NULL);
CREATE TABLE migrations (id text PRIMARY KEY, applied timestamptz DEFAULT clock_timestamp());
SQL

# Two sessions run it.  A writer of the first one's table keeps CREATE INDEX
# there until one of them has waited for the lock for deadlock_timeout; or until
# the second is done, which came first on another server.  Returns their results.
sub migrate
{
	my ($first_node, $second_node, $sql, $apart) = @_;
	my ($first, $second) = map { ZkSession->new($_) } ($first_node, $second_node);
	my $writer = ZkSession->new($first_node);

	for my $node ($a, $b)
	{
		value($node, 'DROP INDEX IF EXISTS prices_price');
		value($node, 'TRUNCATE migrations');
	}
	$writer->run("BEGIN; INSERT INTO prices VALUES ('teapot', 12.50)");
	my @logs = map { [ $_->logfile, -s $_->logfile ] } ($first_node, $second_node);
	$first->send($sql);
	if ($apart)
	{
		$first->wait_event('virtualxid');
		usleep(1000 * value($a, "SELECT setting FROM pg_settings WHERE name = 'deadlock_timeout'"));
	}
	$second->send($sql);
	poll_until(
		sub {
			$second->done || grep { slurp_file(@$_) =~ /still waiting for .*(lock "schema"|user lock)/ } @logs;
		},
		'one of them to have waited for the lock, or to be done');
	$writer->run('ROLLBACK');
	my @results = map { $_->result } ($first, $second);
	$_->quit for ($first, $second, $writer);
	return @results;
}

for my $servers ([ $a, $a ], [ $a, $b ])
{
	for my $apart (0, 1)
	{
		my $name = 'migration on ' . join(' and ', map { $_->name } @$servers)
		  . ($apart ? ', one after the other' : ', at once');
		my @results = migrate(@$servers, $migration, $apart);

		is($_->{message}, undef, "$name: no error") for (@results);
		for my $node (@$servers)
		{
			is(value($node, "SELECT count(*), (SELECT indisvalid FROM pg_index WHERE indexrelid = 'prices_price'::regclass) FROM migrations"),
				'1|t', "$name: done once");
		}
	}
}

# with a snapshot, it is a deadlock
my @with_snapshot = migrate($a, $a,
	$migration =~ s/CALL zk_wait_lock/SELECT zk_lock/r, 1);
is(join(' ', map { $_->{sqlstate} // () } @with_snapshot), '40P01', 'a migration with zk_lock is a deadlock');

#
# A standby: the primary's VACUUM does not cancel the wait
#

{
	my $standby = PostgreSQL::Test::Cluster->new('s');

	$a->backup('base');
	$standby->init_from_backup($a, 'base', has_streaming => 1);
	$standby->append_conf('postgresql.conf', <<'EOC');
cluster_name = 's'
hot_standby_feedback = off
max_standby_streaming_delay = 0
EOC
	$standby->start;
	wait_connected($standby);

	my $holder = holder($a, 'leader');
	my $function = ZkSession->new($standby);
	my $procedure = ZkSession->new($standby);
	my $log = -s $standby->logfile;

	$function->send("SELECT zk_lock('leader', session => true)");
	$function->wait_waiting(2);
	$procedure->send("CALL zk_wait_lock('leader', session => true)");
	$procedure->wait_waiting(1);
	value($a, 'TRUNCATE stock; INSERT INTO stock SELECT generate_series(1, 100)');
	ok(vacuum_removes($a), 'the primary removes rows');
	$a->wait_for_catchup($standby, 'replay', $a->lsn('insert'));
	is($function->result->{sqlstate}, '40001', 'a wait in a function is in conflict with recovery');
	$procedure->wait_waiting(2);
	ok(vacuum_removes($a), 'the primary removes rows again');
	$a->wait_for_catchup($standby, 'replay', $a->lsn('insert'));
	$holder->run_ok('COMMIT');
	is($procedure->result->{message}, undef, 'a wait in a procedure is not, in either tier');
	is($procedure->run_ok("SELECT count(*) FROM zk_locks WHERE granted AND name = 'leader'"), 1, 'and gets the lock');
	$_->quit for ($holder, $function, $procedure);
	$standby->stop;
}

for my $node ($a, $b)
{
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|WARNING:.*(snapshot|leak)|XX000|portal snapshots/,
		$node->name . ': no snapshot was lost');
	$node->stop;
}
done_testing();
