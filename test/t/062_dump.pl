
# Dump and restore of databases with the extension, in another schema, and with
# objects of users that take locks: the copy, on another server, has what the
# original has, and restoring it takes no lock.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;
my ($a, $b) = zk_clusters($zk, [qw(a b)], 'zklock.session_timeout' => '60s');
my $directory = PostgreSQL::Test::Utils::tempdir('dump');

sub in_db { return $_[0]->safe_psql($_[1], $_[2]); }

# A dump as text, without what differs each time.
sub dumped
{
	my ($node, $db) = @_;
	my ($out, $err) = run_command([ 'pg_dump', '-d', $node->connstr($db) ]);

	is($err, '', "a dump of $db on " . $node->name);
	$out =~ s/^\\(?:un)?restrict .*\n//mg;
	return $out;
}

# Run SQL as a role; the result as sql has it.
sub as_role { return sql($_[0], "SET SESSION AUTHORIZATION $_[2]; $_[3]", $_[1]); }

#
# A shop: no search_path finds the extension.
#

in_db($a, 'postgres', $_) for split /;\n/, <<'SQL';
CREATE ROLE clerk;
CREATE ROLE auditor;
CREATE DATABASE shop;
ALTER DATABASE shop SET search_path = '';
ALTER DATABASE shop SET zklock.root = '/shops/one'
SQL

in_db($a, 'shop', <<'SQL');
CREATE SCHEMA locks;
CREATE EXTENSION zklock SCHEMA locks;
REVOKE EXECUTE ON FUNCTION locks.zk_lock, locks.zk_try_lock, locks.zk_lock_all FROM PUBLIC;
GRANT USAGE ON SCHEMA locks TO clerk, auditor;
GRANT EXECUTE ON FUNCTION locks.zk_lock, locks.zk_fence TO clerk;
GRANT SELECT ON locks.zk_locks TO auditor;
GRANT EXECUTE ON FUNCTION locks.zk_lock_status TO auditor;

CREATE SCHEMA app;
GRANT USAGE ON SCHEMA app TO clerk, auditor;
ALTER DEFAULT PRIVILEGES IN SCHEMA app GRANT SELECT, INSERT, UPDATE ON TABLES TO clerk;
ALTER DEFAULT PRIVILEGES IN SCHEMA app GRANT SELECT ON TABLES TO auditor;
CREATE TABLE app.stock (item text PRIMARY KEY, quantity int);
CREATE TABLE app.sales (item text, quantity int, token bigint DEFAULT locks.zk_fencing_token('sales'));
INSERT INTO app.stock VALUES ('teapot', 10);
INSERT INTO app.sales VALUES ('teapot', 1, 0), ('teapot', 2, 0);

CREATE FUNCTION app.sell(item text, n int) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM locks.zk_lock('stock:' || item);
	PERFORM locks.zk_lock('sales');
	UPDATE app.stock SET quantity = quantity - n WHERE stock.item = sell.item;
	INSERT INTO app.sales VALUES (item, n, DEFAULT);
	RETURN locks.zk_fence('stock:' || item);
END $$;
CREATE FUNCTION app.reserve(item text) RETURNS int LANGUAGE sql
BEGIN ATOMIC
	SELECT locks.zk_lock('stock:' || item);
	SELECT quantity FROM app.stock s WHERE s.item = reserve.item;
END;
CREATE PROCEDURE app.count_all() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM locks.zk_lock_all('{sales, stock:teapot}');
	COMMIT;
END $$;
CREATE FUNCTION app.locked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM locks.zk_lock('row ' || NEW.item);
	RETURN NEW;
END $$;
CREATE TRIGGER locked BEFORE INSERT OR UPDATE ON app.sales FOR EACH ROW EXECUTE FUNCTION app.locked();
CREATE VIEW app.busy AS SELECT name, pid FROM locks.zk_locks WHERE granted;
CREATE MATERIALIZED VIEW app.session AS SELECT state FROM locks.zk_session;
SQL

sub works
{
	my ($node, $other) = @_;
	my $name = $node->name;
	my $s = ZkSession->new($node, 'shop');

	is($s->run_ok('SHOW search_path'), '""', "$name: no search_path");
	$s->run_ok("SET SESSION AUTHORIZATION clerk; BEGIN");
	cmp_ok($s->run_ok("SELECT app.sell('teapot', 1)", "$name: a role sells"), '>', 0, '... with a token');
	is($s->run_ok("SELECT app.reserve('teapot')"), in_db($node, 'shop', 'SELECT quantity - 1 FROM app.stock'),
		'... and the SQL function works');
	is(join(' ', sort map { s{/_c_.*}{}r } all_contenders($zk, '/shops/one')),
		'/shops/one/row%20teapot /shops/one/sales /shops/one/stock:teapot',
		'... under the root of the database');
	is(sql($other, "SET zklock.root = '/shops/one'; SELECT zk_try_lock('stock:teapot')")->{out},
		'f', '... and excludes another server');
	is(as_role($node, 'shop', 'auditor', 'SELECT name FROM app.busy ORDER BY name')->{out},
		"row teapot\nsales\nstock:teapot", '... what the view of users shows');
	is(as_role($node, 'shop', 'auditor', 'SELECT count(*) FROM locks.zk_locks')->{out}, 3,
		'... and the one of the extension');
	$s->run_ok('COMMIT; RESET SESSION AUTHORIZATION');

	# privileges: what was granted, what was revoked, and what is by default
	for my $case (
		[ clerk => "SELECT locks.zk_try_lock('x')", '42501' ],
		[ clerk => "SELECT locks.zk_lock('x')", undef ],
		[ auditor => "SELECT locks.zk_lock('x')", '42501' ],
		[ auditor => "SELECT locks.zk_unlock('x')", undef ],
		[ clerk => 'SELECT * FROM locks.zk_locks', '42501' ],
		[ clerk => 'SELECT * FROM locks.zk_fences', '42501' ],
		[ clerk => "SELECT * FROM locks.zk_queue('x')", '42501' ],
		[ auditor => 'SELECT * FROM locks.zk_session', '42501' ])
	{
		my ($role, $statement, $sqlstate) = @$case;

		is(as_role($node, 'shop', $role, $statement)->{sqlstate}, $sqlstate, "$name, $role: $statement");
	}

	# all the rest, by full names
	$s->run_ok('CALL app.count_all()');
	$s->run_ok("SELECT locks.zk_lock('1', shared => true, session => true), locks.zk_try_lock('2', '1 s', session => true), "
		  . "locks.zk_lock_all('{3, 4}', session => true), locks.zk_acquire('5', 2, session => true), locks.zk_try_acquire('6', 2, session => true)");
	is($s->run_ok("SELECT count(*) FROM locks.zk_locks"), 6, "$name: holds");
	is($s->run_ok("SELECT count(*) FROM locks.zk_queue('1')"), 1, '... a queue');
	is($s->run_ok("SELECT locks.zk_cancel_holders('nobody''s')"), 0, '... no holder');
	cmp_ok($s->run_ok("SELECT locks.zk_fencing_token('2')"), '>', 0, '... a token');
	is($s->run_ok("SELECT locks.zk_unlock('1')"), 't', '... given back');
	$s->run_ok('SELECT locks.zk_unlock_all()');
	$s->run_ok("SELECT * FROM locks.$_") for qw(zk_locks zk_session zk_stat zk_deadlocks zk_fences);
	$s->run_ok('REFRESH MATERIALIZED VIEW app.session; SELECT locks.zk_stat_reset()');
	is($s->run_ok("SELECT root FROM locks.zk_fences WHERE name = 'stock:teapot'"), '/shops/one', '... the fence');
	$s->run_ok("SET session_replication_role = replica; DELETE FROM locks.zk_fences; TRUNCATE locks.zk_fences");
	is($s->run_ok('SELECT count(*) FROM locks.zk_fences'), 1, '... which replication leaves alone');
	$s->quit;
	wait_no_contenders($zk, $_, '/shops/one') for ('stock:teapot', 'sales', 'row teapot');
	return;
}

works($a, $b);

#
# The dump, while a lock is held, and the copies
#

my $holder = ZkSession->new($a, 'shop');
$holder->run_ok("BEGIN; SELECT app.sell('teapot', 1)");
my $original = dumped($a, 'shop');

unlike($original, qr/^CREATE \w+ locks\.|^COPY locks\./m, 'what is the extension\'s is not dumped');
like($original, qr/^CREATE EXTENSION IF NOT EXISTS zklock WITH SCHEMA locks;$/m, '... but the extension is');
in_db($b, 'postgres', 'SELECT zk_stat_reset(); CREATE ROLE clerk; CREATE ROLE auditor');

system_or_bail('pg_dump', '-Fd', '-j2', '-f', "$directory/shop", '-d', $a->connstr('shop'));
system_or_bail('pg_restore', '--create', '-e', '-j2', '-d', $b->connstr('postgres'), "$directory/shop");
$holder->run_ok('ROLLBACK');
$holder->quit;
is(dumped($b, 'shop'), $original, 'restored: a dump of the copy is the same');
is(in_db($b, 'shop', 'SELECT count(*) FROM locks.zk_fences'), 0, '... without the tokens');
is(in_db($b, 'shop', 'SELECT state FROM app.session'), 'connected', '... the materialized view is filled');
is(in_db($b, 'shop', 'SELECT taken FROM locks.zk_stat'), 0, '... and no lock was taken');
works($b, $a);

# Rows alone, into tables that are there: then triggers take locks.
{
	my @restore = (
		qw(pg_restore -e --data-only --schema=app --table=sales),
		'-d', $b->connstr('shop'), "$directory/shop");
	my $held = ZkSession->new($a, 'shop');

	in_db($b, 'shop', 'TRUNCATE app.sales');
	$held->run_ok("SELECT locks.zk_lock('row teapot', session => true)");
	system_or_bail(@restore, '--disable-triggers');
	my $n = in_db($b, 'shop', 'SELECT count(*) FROM app.sales');
	cmp_ok($n, '>', 1, 'rows alone, without triggers');

	my $run = IPC::Run::start(\@restore);
	$b->poll_query_until('shop', "SELECT count(*) = 1 FROM locks.zk_locks WHERE name = 'row teapot' AND NOT granted");
	is($held->run_ok("SELECT locks.zk_unlock('row teapot')"), 't', 'with triggers, it waits for their locks');
	$run->finish;
	is($run->result(0), 0, '... and goes on');
	is(in_db($b, 'shop', 'SELECT count(*) FROM app.sales'), 2 * $n, '... to its end');
	$held->quit;
}

# All of a server, by pg_dumpall, with a database that has the extension in a
# schema of its own
in_db($a, 'postgres', 'CREATE DATABASE other');
in_db($a, 'other', "CREATE SCHEMA locks; CREATE EXTENSION zklock SCHEMA locks; CREATE VIEW state AS SELECT state, sessions FROM locks.zk_session");
in_db($b, 'postgres', 'DROP DATABASE shop');
{
	my $dump = "$directory/all.sql";

	system_or_bail('pg_dumpall', '-f', $dump, '-d', $a->connstr('postgres'));
	my ($out, $err) = run_command([ 'psql', '-XAtq', '-d', $b->connstr('postgres'), '-f', $dump ]);
	is(join("\n", grep { /ERROR/ && !/role "[^"]*" already exists/ } split /\n/, $err), '', 'pg_dumpall, restored');
	is(in_db($b, 'other', "SELECT extnamespace::regnamespace FROM pg_extension WHERE extname = 'zklock'"),
		'locks', 'the extension is restored in its schema');
	is(in_db($b, 'other', 'SELECT state FROM state'), 'connected', '... with the view of a user');
	like(in_db($b, 'shop', 'SHOW zklock.root'), qr{^/shops/one$}, '... and settings of databases are');
	is(dumped($b, 'shop'), dumped($a, 'shop'), 'the same again');
}

# What ALTER DEFAULT PRIVILEGES has done to the extension, a dump has.
in_db($a, 'postgres', 'CREATE DATABASE strict');
in_db($a, 'strict', 'ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC; CREATE EXTENSION zklock');
system_or_bail('pg_dump', '-Fc', '-f', "$directory/strict", '-d', $a->connstr('strict'));
system_or_bail('pg_restore', '--create', '-e', '-d', $b->connstr('postgres'), "$directory/strict");
is(as_role($_, 'strict', 'clerk', "SELECT zk_lock('x')")->{sqlstate}, '42501', $_->name . ': a default privilege')
  for ($a, $b);

#
# The schema
#

sql_error($a, 'ALTER EXTENSION zklock SET SCHEMA app',
	{ sqlstate => '0A000', message => 'extension "zklock" does not support SET SCHEMA' },
	'the extension stays in its schema', 'shop');
in_db($a, 'shop', 'ALTER SCHEMA locks RENAME TO "Our Locks"');
is(in_db($a, 'shop', q{
	BEGIN;
	DO 'BEGIN PERFORM "Our Locks".zk_lock(''renamed''); END';
	SELECT "Our Locks".zk_fence('renamed') > 0;
	SELECT count(*) FROM app.busy;
	SELECT app.reserve('teapot') IS NULL;
	COMMIT}), "t\n1\nf", 'which may be renamed');
is(in_db($a, 'shop', q{SELECT count(*) FROM "Our Locks".zk_fences WHERE name = 'renamed'}), 1, '... with its table');

is(in_db($_, 'postgres', 'SELECT count(*) FROM zk_locks'), 0, $_->name . ' has no lock') for ($a, $b);
poll_until(sub { !all_contenders($zk, '/shops/one') }, 'all contenders to be gone');
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|was terminated by signal/, $_->name . ' has not crashed') for ($a, $b);
done_testing();
