
# Commands whose effects a rollback does not undo: with a lost lock they fail
# before they have done anything; and when it is lost while they run they go on
# to their end, and say so.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};
my $zk = ZooKeeper->new;
$zk->start;
my $client = $zk->client;
my $a = zk_cluster(
	'a', $zk,
	install_path => $ENV{ZKLOCK_TEST_INSTALL},
	'zklock.session_timeout' => '20s',
	'wal_level' => 'replica',
	'max_wal_senders' => 2,
	'synchronous_standby_names' => 'nobody',
	'synchronous_commit' => 'local');
my $publisher = PostgreSQL::Test::Cluster->new('publisher');
$publisher->init(allows_streaming => 'logical');
$publisher->start;
$publisher->safe_psql('postgres',
	"CREATE TABLE sales (n int); CREATE PUBLICATION p FOR TABLE sales; SELECT pg_create_logical_replication_slot('old', 'pgoutput')");

my $publisher_conninfo = $publisher->connstr . ' dbname=postgres';
$publisher_conninfo =~ s/'/''/g;

my $tablespace = $a->basedir . '/space';
mkdir "$tablespace$_" for (1 .. 3);

value($a, $_) for split /;\n/, <<"SQL";
CREATE TABLE sales (n int);
CREATE TABLE sold (n int);
INSERT INTO sales SELECT generate_series(1, 10);
CREATE INDEX sales_n ON sales (n);
CREATE TABLE parted (n int) PARTITION BY RANGE (n);
CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE TABLESPACE space1 LOCATION '${tablespace}1';
CREATE TABLESPACE space3 LOCATION '${tablespace}3';
CREATE DATABASE old;
CREATE SUBSCRIPTION old CONNECTION '$publisher_conninfo' PUBLICATION p WITH (connect = false, slot_name = 'old');
SQL

my %lost = (
	sqlstate => '40001',
	message => 'could not commit because lock "x" has been lost',
	detail => 'The ZooKeeper session of this server has ended.',
	hint => 'Retry the transaction when you have unlocked the lock: until then every transaction of this session fails.');

# A transaction that waits for its second phase.
sub prepared
{
	my ($gid, $n) = @_;

	value($a, "BEGIN; INSERT INTO sold VALUES ($n); PREPARE TRANSACTION '$gid'");
	return;
}

sub lose_locks
{
	lose_session($a, $client);
	$a->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zk_locks WHERE granted AND NOT lost');
	return;
}

# What is in a directory of the data directory, all the way down but for files.
sub directories
{
	my @found = sort grep { -d } glob($_[0] . '/*');

	return map { ($_, directories($_)) } @found;
}

# All that the commands below could leave behind.
sub state
{
	my @sql = (
		'SELECT gid FROM pg_prepared_xacts ORDER BY 1',
		'SELECT count(*) FROM sales', 'SELECT count(*) FROM sold',
		'SELECT datname, datconnlimit, dattablespace FROM pg_database ORDER BY 1',
		'SELECT spcname FROM pg_tablespace ORDER BY 1',
		"SELECT c.relname, i.indisvalid, i.indisready, i.indislive FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.oid >= 16384 AND c.relnamespace = 'public'::regnamespace ORDER BY 1",
		"SELECT relfilenode FROM pg_class WHERE relname IN ('sales_n', 'zk_fences_pkey') ORDER BY relname",
		'SELECT inhrelid::regclass, inhdetachpending FROM pg_inherits ORDER BY 1',
		'SELECT subname FROM pg_subscription ORDER BY 1',
		'SELECT srrelid::regclass FROM pg_subscription_rel ORDER BY 1');
	my @state = split /\n/, value($a, join('; ', @sql));

	push @state, map { directories($_) } ($a->data_dir . '/base', map { $tablespace . $_ } (1 .. 3));
	push @state, $publisher->safe_psql('postgres', 'SELECT slot_name FROM pg_replication_slots ORDER BY 1');
	push @state, slurp_file($a->data_dir . '/postgresql.auto.conf');
	return @state;
}

#
# Lost before the command
#

my @commands = (
	"COMMIT PREPARED 'p1'",
	"ROLLBACK PREPARED 'p1'",
	'CREATE DATABASE new',
	'CREATE DATABASE new STRATEGY file_copy',
	'DROP DATABASE old',
	'ALTER DATABASE old SET TABLESPACE space3',
	"CREATE TABLESPACE space2 LOCATION '${tablespace}2'",
	'DROP TABLESPACE space1',
	'ALTER SYSTEM SET work_mem = 12345',
	'CREATE INDEX CONCURRENTLY sales_m ON sales (n)',
	'DROP INDEX CONCURRENTLY sales_n',
	'REINDEX INDEX CONCURRENTLY sales_n',
	'REINDEX TABLE CONCURRENTLY sales',
	'REINDEX (CONCURRENTLY, VERBOSE) SCHEMA public',
	'REINDEX SCHEMA public',
	'REINDEX DATABASE postgres',
	'ALTER TABLE parted DETACH PARTITION part CONCURRENTLY',
	"CREATE SUBSCRIPTION new CONNECTION '$publisher_conninfo' PUBLICATION p",
	'ALTER SUBSCRIPTION old REFRESH PUBLICATION',
	'DROP SUBSCRIPTION old',
	'VACUUM FULL sales',
	'CLUSTER');

prepared('p1', 11);
value($a, 'ALTER SUBSCRIPTION old ENABLE');
value($a, 'ALTER SUBSCRIPTION old REFRESH PUBLICATION WITH (copy_data = false)');
$publisher->safe_psql('postgres', 'CREATE TABLE more (n int); ALTER PUBLICATION p ADD TABLE more');
value($a, 'CREATE TABLE more (n int)');
value($a, 'CLUSTER sales USING sales_n');
my @before = state();
my $s = ZkSession->new($a);
$s->run_ok("SELECT zk_lock('x', session => true)");
lose_locks();
for my $command (@commands)
{
	error_is($s->run($command), \%lost, "lost: $command");
	my @now = state();
	is_deeply(\@now, \@before, 'and nothing has happened');
	@before = @now;
}
error_is($s->run('BEGIN; DROP DATABASE old; COMMIT'),
	{ sqlstate => '25001', message => 'DROP DATABASE cannot run inside a transaction block' },
	'lost: what is refused in a transaction block is refused for that');
$s->run('ROLLBACK');
$s->run_ok('DISCARD ALL', 'lost: DISCARD ALL acknowledges it');
$s->run_ok("COMMIT PREPARED 'p1'", 'and then it goes on');
is(value($a, 'SELECT count(*) FROM sold'), 1, 'and is committed');

#
# Not known: they wait, and the wait can be canceled
#

prepared('p2', 12);
$s->run_ok("SELECT zk_lock('x', session => true)");
$zk->pause;
alter_system($a, 'zklock.no_lease' => 'on');
poll_until(sub { value($a, 'SELECT extract(epoch FROM lease) FROM zk_session') == 0 }, 'the lease to run out');
$s->send("COMMIT PREPARED 'p2'");
$s->wait_waiting(2);
value($a, 'SELECT pg_cancel_backend(' . $s->pid . ')');
is($s->result->{sqlstate}, '57014', 'not known: the wait is canceled');
is(value($a, 'SELECT gid FROM pg_prepared_xacts'), 'p2', 'and nothing has happened');
$s->send("COMMIT PREPARED 'p2'");
$s->wait_waiting(2);
$zk->resume;
alter_system($a, 'zklock.no_lease' => 'off');
is($s->result->{sqlstate}, undef, 'not known: it waits until ZooKeeper answers');
is(value($a, 'SELECT count(*) FROM sold'), 2, 'and has committed');

#
# Lost while the command runs
#

sub is_done_with_warning
{
	my ($command) = @_;
	my $result = $s->result;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{message}, undef, "lost while it runs: $command comes to its end");
	is_deeply([ map { $_->{message} } @{ $result->{warnings} } ],
		['lock "x" has been lost while the command was running'], 'and says so, once');
	error_is($s->run('INSERT INTO sales VALUES (1)'), \%lost, 'the lock stays lost');
	is($s->run("SELECT zk_unlock('x')")->{out}, 't', 'until that is acknowledged');
	$s->run_ok("SELECT zk_lock('x', session => true)");
	return;
}

# a prepared transaction whose commit waits for a standby
prepared('p3', 13);
$s->run('SET synchronous_commit = on');
$s->send("COMMIT PREPARED 'p3'");
$s->wait_event('SyncRep');
lose_locks();
$s->wait_event('SyncRep');
$a->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = ''");
$a->reload;
is_done_with_warning('COMMIT PREPARED');
is(value($a, 'SELECT count(*) FROM sold'), 3, 'it is committed');

# those that wait for other transactions
my $other = ZkSession->new($a);
my @waiting = (
	[ 'CREATE INDEX CONCURRENTLY sales_m ON sales (n)', 'INSERT INTO sales VALUES (0)',
		"SELECT count(*) FROM pg_index WHERE indexrelid = 'sales_m'::regclass AND indisvalid", 1 ],
	[ 'REINDEX INDEX CONCURRENTLY sales_m', 'INSERT INTO sales VALUES (0)',
		"SELECT count(*) FROM pg_class WHERE relname ~ '^sales_m'", 1 ],
	[ 'DROP INDEX CONCURRENTLY sales_m', 'INSERT INTO sales VALUES (0)',
		"SELECT count(*) FROM pg_class WHERE relname = 'sales_m'", 0 ],
	[ 'ALTER TABLE parted DETACH PARTITION part CONCURRENTLY', 'SELECT FROM parted',
		'SELECT count(*) FROM pg_inherits', 0 ],
	[ 'DROP DATABASE old', 'LOCK pg_database IN SHARE MODE',
		"SELECT count(*) FROM pg_database WHERE datname = 'old'", 0 ],
	[ 'CREATE DATABASE new', 'LOCK pg_database IN SHARE MODE',
		"SELECT count(*) FROM pg_database WHERE datname = 'new'", 1 ]);
for (@waiting)
{
	my ($command, $blocker, $check, $expected) = @$_;

	$other->run("BEGIN; $blocker");
	$s->send($command);
	poll_until(
		sub { value($a, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = " . $s->pid) eq 't' },
		"$command to wait");
	lose_locks();
	ok(!$s->done, "$command goes on");
	$other->run_ok('ROLLBACK');
	is_done_with_warning($command);
	is(value($a, $check), $expected, "$command is done");
}
$a->safe_psql('new', 'SELECT 1');

# What may fail in the middle without harm is canceled.
$other->run('BEGIN; LOCK sales IN ACCESS SHARE MODE');
$s->send('VACUUM FULL sales');
$s->wait_event('relation');
lose_locks();
is($s->result->{sqlstate}, '40001', 'lost while it runs: VACUUM is canceled');
$other->run('ROLLBACK');
$s->run("SELECT zk_unlock('x')");

# A procedure that commits is none of these.
value($a, 'CREATE PROCEDURE sell() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO sales VALUES (99); COMMIT; INSERT INTO sales VALUES (99); END $$');
$s->run_ok("SELECT zk_lock('x', session => true)");
$s->run_ok("CALL sell()");
lose_locks();
error_is({ %{ $s->run('CALL sell()') }, context => undef }, \%lost, 'lost: a procedure cannot commit');
is(value($a, 'SELECT count(*) FROM sales WHERE n = 99'), 2, 'and has not');

$_->quit for ($s, $other);
unlike(slurp_file($a->logfile), qr/PANIC|TRAP|was terminated by signal/, 'nothing has crashed');
done_testing();
