
# The library works with the schema of each version of the extension that was
# ever released, and ALTER EXTENSION UPDATE makes of each of them what CREATE
# EXTENSION makes; in public, and in another schema, whatever the search_path.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;
my $a = zk_cluster('a', $zk);

sub value { return $a->safe_psql($_[0], $_[1]); }

# All that belongs to the extension, with all that can be said of it.
my $members = q{
	SELECT pg_describe_object(classid, objid, 0) AS object, classid, objid
	  FROM pg_depend
	 WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
	   AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')};
my $schema = qq{
	WITH member AS ($members)
	SELECT m.object, obj_description(objid, classid::regclass::name) FROM member m
	UNION ALL
	SELECT m.object, pg_get_functiondef(objid) || ' ' || coalesce(proacl::text, '')
	  FROM member m JOIN pg_proc p ON p.oid = objid AND classid = 'pg_proc'::regclass
	UNION ALL
	SELECT m.object, c.relkind::text || ' ' || coalesce(c.relacl::text, '') || ' ' ||
	       coalesce(c.reloptions::text, '') || ' ' ||
	       coalesce(pg_get_viewdef(nullif(c.oid, CASE WHEN relkind <> 'v' THEN c.oid END)), '')
	  FROM member m JOIN pg_class c ON c.oid = objid AND classid = 'pg_class'::regclass
	UNION ALL
	SELECT m.object || ' ' || attnum, attname || ' ' ||
	       format_type(atttypid, atttypmod) || ' ' || attnotnull || ' ' ||
	       coalesce(pg_get_expr(adbin, adrelid), '') || ' ' || coalesce(attacl::text, '') || ' ' ||
	       coalesce(col_description(objid, attnum), '')
	  FROM member m JOIN pg_attribute ON attrelid = objid AND classid = 'pg_class'::regclass
	       LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
	 WHERE attnum > 0 AND NOT attisdropped
	UNION ALL
	SELECT m.object || ' ' || conname, pg_get_constraintdef(k.oid)
	  FROM member m JOIN pg_constraint k ON conrelid = objid AND classid = 'pg_class'::regclass
	UNION ALL
	SELECT m.object || ' ' || indexrelid::regclass, pg_get_indexdef(indexrelid)
	  FROM member m JOIN pg_index ON indrelid = objid AND classid = 'pg_class'::regclass
	UNION ALL
	SELECT m.object || ' ' || tgname, pg_get_triggerdef(t.oid)
	  FROM member m JOIN pg_trigger t ON tgrelid = objid AND classid = 'pg_class'::regclass
	UNION ALL
	SELECT m.object || ' as created', initprivs::text
	  FROM member m JOIN pg_init_privs i ON i.classoid = classid AND i.objoid = objid
	UNION ALL
	SELECT extname, extversion || ' ' || extnamespace::regnamespace || ' ' ||
	       coalesce((SELECT string_agg(c::regclass::text, ' ')
	                   FROM unnest(extconfig) c), '') || coalesce(array_to_string(extcondition, ' '), '')
	  FROM pg_extension WHERE extname = 'zklock'
	ORDER BY 1, 2};

# What every version has.
sub works
{
	my ($db, $when) = @_;
	my $s = ZkSession->new($a, $db);
	my $other = ZkSession->new($a, $db);

	$s->run_ok('BEGIN', "$when: begin");
	$s->run_ok("SELECT zk_lock('$db'), zk_lock('$db shared', shared => true)", 'locks');
	is($other->run_ok("SELECT zk_try_lock('$db')", 'a try'), 'f', 'which fails');
	is($s->run_ok("SELECT zk_fence('$db') = zk_fencing_token('$db')", 'a fence'), 't',
		'has the token of its lock');
	is($s->run_ok("SELECT count(*) FROM zk_locks WHERE granted AND name LIKE '$db%'", 'zk_locks'),
		2, 'shows both');
	is($s->run_ok("SELECT count(*) FROM zk_queue('$db')", 'the queue'), 1, 'has one');
	is($other->run_ok("SELECT zk_cancel_holder('$db none')", 'nobody is canceled'), 0, 'who is not there');
	$s->run_ok('COMMIT', 'commit');
	$s->run_ok("SELECT zk_lock_all(ARRAY['$db 1', '$db 2'], session => true)", 'several locks');
	$s->run_ok("SELECT zk_acquire('$db s', 2), zk_try_acquire('$db s', 2)", 'permits');
	is($s->run_ok("SELECT zk_unlock('$db 1')", 'an unlock'), 't', 'of what is held');
	$s->run_ok('SELECT zk_unlock_all()', 'and of all');
	is($s->run_ok("SELECT state FROM zk_session", 'the session'), 'connected', 'is connected');
	is($s->run_ok('SELECT taken > 0 FROM zk_stats', 'counters'), 't', 'count');
	is($s->run_ok("SELECT token > 0 FROM zk_fences WHERE name = '$db'", 'the fence'), 't', 'stands');
	$s->run_ok('SELECT zk_stats_reset()', 'a reset');

	# all there is to read, whatever it is
	my @read = split /\n/, value($db, qq{
		SELECT CASE classid WHEN 'pg_class'::regclass THEN objid::regclass::text
		                    ELSE objid::regprocedure::text END
		  FROM ($members) m LEFT JOIN pg_class c ON c.oid = objid AND classid = 'pg_class'::regclass
		                    LEFT JOIN pg_proc p ON p.oid = objid AND classid = 'pg_proc'::regclass
		 WHERE relkind IN ('r', 'v') OR proname LIKE '%\\_status'});
	cmp_ok(scalar @read, '>=', 7, 'things to read');
	$s->run_ok("SELECT * FROM $_") for @read;
	$_->quit for ($s, $other);
	return;
}

my $latest = value('postgres',
	"SELECT default_version FROM pg_available_extensions WHERE name = 'zklock'");
my @old = split /\n/, value('postgres',
	"SELECT version FROM pg_available_extension_versions
	  WHERE name = 'zklock' AND version <> '$latest' ORDER BY 1");

sub schema_of { return value($_[0], "SET search_path = public; $schema"); }

my %fresh = (public => schema_of('postgres'));

value('postgres', 'CREATE DATABASE fresh');
value('fresh', 'CREATE SCHEMA "of locks"; CREATE EXTENSION zklock SCHEMA "of locks"');
$fresh{'of locks'} = schema_of('fresh');
cmp_ok(scalar @old, '>=', 1, "versions before $latest");
like($fresh{public}, qr/view zk_session/, 'the schema is seen');
like($fresh{'of locks'}, qr/view "of locks"\.zk_session/, 'the other one, too');
value('postgres', 'CREATE ROLE reader');

for my $case (map { my $old = $_; map { [ $old, $_ ] } sort keys %fresh } @old)
{
	my ($old, $in) = @$case;
	my $db = "old_$old in $in";

	value('postgres', qq{CREATE DATABASE "$db"});
	value('postgres', qq{ALTER DATABASE "$db" SET search_path = "$in"});
	value($db, qq{CREATE SCHEMA IF NOT EXISTS "$in"});
	value($db, qq{SET search_path = ''; CREATE EXTENSION zklock VERSION '$old' SCHEMA "$in"});
	isnt(schema_of($db), $fresh{$in}, "$old is another one than $latest");
	works($db, "$old in $in");

	# what users have made of it
	value($db, q{
		CREATE VIEW connected AS SELECT state, server FROM zk_session;
		CREATE VIEW busy AS SELECT name, pid FROM zk_locks;
		CREATE VIEW taken AS SELECT taken FROM zk_stats;
		GRANT SELECT ON zk_session, zk_locks, zk_stats TO reader});
	my $holder = ZkSession->new($a, $db);
	$holder->run_ok("SELECT zk_lock('$db', session => true)");

	value($db, "SET search_path = ''; ALTER EXTENSION zklock UPDATE");
	is($holder->run_ok("SELECT zk_unlock('$db')"), 't', 'a lock of before is held');
	$holder->quit;
	is(value($db, 'SELECT state FROM connected'), 'connected', 'views of users work');
	is(value($db, q{
		SELECT bool_and(has_table_privilege('reader', v, 'SELECT'))
		  FROM unnest('{zk_session, zk_locks, zk_stats}'::regclass[]) v}),
		't', 'and privileges are kept');
	works($db, "$old in $in updated to $latest");

	value($db, q{
		DROP VIEW connected, busy, taken;
		REVOKE SELECT ON zk_session, zk_locks, zk_stats FROM reader});
	is(schema_of($db), $fresh{$in}, "$old in $in updated is as $latest");
	value($db, 'DROP EXTENSION zklock');
}

done_testing();
