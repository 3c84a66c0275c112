
# ALTER EXTENSION UPDATE makes of each version before this one what CREATE
# EXTENSION makes, in public and in another schema, whatever the search_path; it
# keeps what users have made of the objects, or says what is in its way; and the
# library works with the schema of each.
#
# Those versions are all that have an upgrade script in sql/, and one that is
# made here: its script shows how such scripts are written.

use strict;
use warnings;

use File::Basename qw(dirname);
use File::Copy qw(copy);
use File::Path qw(make_path);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

#
# An installation with a version more: "before" lacks the last column of
# zk_queue() and of zk_session, and zk_fleet(); and has zk_gone().
#

my $top = $ENV{TESTDIR} // '.';
my %dir = map { $_ => `pg_config --$_` =~ s/\n//r } qw(bindir pkglibdir sharedir);
my $root = PostgreSQL::Test::Utils::tempdir;
my $install = $root . dirname($dir{bindir});
my $scripts = "$root$dir{sharedir}/extension";

# The server finds its files from where its executable really is.
make_path($install, "$root$dir{pkglibdir}", $scripts);
system_or_bail('cp', '-r', $dir{bindir}, "$root$dir{bindir}");
symlink($_, "$root$_") for grep { !m{/zklock[^/]*$} || m{\.so$} }
  glob("$dir{pkglibdir}/* $dir{sharedir}/* $dir{sharedir}/extension/*");
copy($_, $scripts) or die "could not copy $_: $!" for glob("$top/zklock.control $top/sql/*.sql");

my ($latest) = slurp_file("$scripts/zklock.control") =~ /^default_version = '(.*)'/m;
my $new = slurp_file("$scripts/zklock--$latest.sql");

# The statements that begin with one that creates a function, up to the next one
# that creates something.
sub part
{
	my ($function) = @_;

	return $new =~ /^(CREATE FUNCTION \Q$function\E\(.*?)(?=^--|^CREATE|\z)/ms ? $1 : die "no $function";
}

# The statement that creates a function, and its last column.
sub create { return part($_[0]) =~ /^(.*?;\n)/s ? $1 : die; }
sub last_column { return create($_[0]) =~ /,\s+OUT "?(\w+)"? [^,)]+\)\nRETURNS/ ? $1 : die "no column"; }

my $column = last_column('zk_session_status');
my ($comment) = $new =~ /^(COMMENT ON COLUMN zk_session\.$column IS\n.*?;\n)/ms;
my $before = $new;

for my $function ('zk_queue', 'zk_session_status')
{
	my $create = create($function);

	$before =~ s/\Q$create/$create =~ s{,[^,]*(?=\)\nRETURNS)}{}r/e;
}
$before =~ s/\Q$_// for ($comment, part('zk_fleet'));
$before .= "CREATE FUNCTION zk_gone() RETURNS integer LANGUAGE sql AS 'SELECT 1';\n";
append_to_file("$scripts/zklock--before.sql", $before);

# CREATE OR REPLACE FUNCTION refuses other columns, and DROP FUNCTION would take
# privileges, and fail because of views of users.
sub add_columns
{
	my ($function, $arguments) = @_;

	return create($function) =~ s/^CREATE FUNCTION \w+/CREATE FUNCTION ${function}_new/r . qq{
UPDATE pg_catalog.pg_proc p
   SET proallargtypes = n.proallargtypes, proargmodes = n.proargmodes, proargnames = n.proargnames
  FROM pg_catalog.pg_proc n
 WHERE p.oid = '$function($arguments)'::pg_catalog.regprocedure AND
       n.oid = '${function}_new($arguments)'::pg_catalog.regprocedure;
DROP FUNCTION ${function}_new($arguments);
};
}

append_to_file("$scripts/zklock--before--$latest.sql", join("\n",
	"/* sql/zklock--before--$latest.sql */",
	'',
	'-- complain if script is sourced in psql, rather than via ALTER EXTENSION',
	qq{\\echo Use "ALTER EXTENSION zklock UPDATE TO '$latest'" to load this file. \\quit},
	'',
	create('zk_warn_not_preloaded'),
	'SELECT zk_warn_not_preloaded();',
	'DROP FUNCTION zk_warn_not_preloaded();',
	'',
	'-- zk_queue has one more column.',
	add_columns('zk_queue', 'text'),
	'-- zk_session has one more column.',
	add_columns('zk_session_status', ''),
	'CREATE OR REPLACE VIEW zk_session AS',
	'    SELECT * FROM zk_session_status();',
	$comment,
	'-- The servers that share the ensemble and the root',
	part('zk_fleet'),
	'-- Gone is what nobody should use any more.',
	'DROP FUNCTION zk_gone();',
	''));

my $zk = ZooKeeper->new;
$zk->start;
my $a = zk_cluster('a', $zk, install_path => $install);

sub in_db { return $_[0]->safe_psql($_[1], $_[2]); }

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
	SELECT m.object, pg_get_functiondef(objid) || ' ' ||
	       (SELECT string_agg(a::text, ' ' ORDER BY a::text)
	          FROM unnest(coalesce(proacl, acldefault('f', proowner))) a)
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
	is($other->run_ok("SELECT zk_cancel_holders('$db none')", 'nobody is canceled'), 0, 'who is not there');
	$s->run_ok('COMMIT', 'commit');
	$s->run_ok("SELECT zk_lock_all(ARRAY['$db 1', '$db 2'], session => true)", 'several locks');
	$s->run_ok("SELECT zk_acquire('$db s', 2), zk_try_acquire('$db s', 2)", 'permits');
	is($s->run_ok("SELECT zk_unlock('$db 1')", 'an unlock'), 't', 'of what is held');
	$s->run_ok('SELECT zk_unlock_all()', 'and of all');
	is($s->run_ok("SELECT state FROM zk_session", 'the session'), 'connected', 'is connected');
	is($s->run_ok('SELECT taken > 0 FROM zk_stat', 'counters'), 't', 'count');
	is($s->run_ok("SELECT token > 0 FROM zk_fences WHERE name = '$db'", 'the fence'), 't', 'stands');
	$s->run_ok('SELECT zk_stat_reset()', 'a reset');

	# all there is to read, whatever it is
	my @read = split /\n/, in_db($a, $db, qq{
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

my @old = split /\n/, in_db($a, 'postgres',
	"SELECT version FROM pg_available_extension_versions
	  WHERE name = 'zklock' AND version <> '$latest' ORDER BY 1");

sub schema_of { return in_db($a, $_[0], "SET search_path = public; $schema"); }

my %fresh = (public => schema_of('postgres'));

in_db($a, 'postgres', 'CREATE DATABASE fresh');
in_db($a, 'fresh', 'CREATE SCHEMA "of locks"; CREATE EXTENSION zklock SCHEMA "of locks"');
$fresh{'of locks'} = schema_of('fresh');
is_deeply(
	[ grep { $_ ne 'before' } @old ],
	[ map { m/--([^-]+)--[^-]+\.sql$/ && $1 ne 'before' ? $1 : () } sort glob("$scripts/zklock--*--*.sql") ],
	'the versions with an upgrade script');
like($fresh{public}, qr/view zk_session/, 'the schema is seen');
like($fresh{'of locks'}, qr/view "of locks"\.zk_session/, 'the other one, too');
in_db($a, 'postgres', 'CREATE ROLE reader');

for my $case (map { my $old = $_; map { [ $old, $_ ] } sort keys %fresh } @old)
{
	my ($old, $in) = @$case;
	my $db = "old_$old in $in";

	in_db($a, 'postgres', qq{CREATE DATABASE "$db"});
	in_db($a, 'postgres', qq{ALTER DATABASE "$db" SET search_path = "$in"});
	in_db($a, $db, qq{CREATE SCHEMA IF NOT EXISTS "$in"});
	in_db($a, $db, qq{SET search_path = ''; CREATE EXTENSION zklock VERSION '$old' SCHEMA "$in"});
	isnt(schema_of($db), $fresh{$in}, "$old is another one than $latest");
	works($db, "$old in $in");

	# what users have made of it
	in_db($a, $db, q{
		CREATE VIEW connected AS SELECT state, server FROM zk_session;
		CREATE VIEW busy AS SELECT name, pid FROM zk_locks;
		CREATE VIEW taken AS SELECT taken FROM zk_stat;
		CREATE VIEW queue AS SELECT * FROM zk_queue('q');
		GRANT SELECT ON zk_session, zk_locks, zk_stat TO reader;
		GRANT EXECUTE ON FUNCTION zk_queue, zk_session_status TO reader;
		REVOKE EXECUTE ON FUNCTION zk_lock FROM PUBLIC});
	my $columns = columns($db, 'queue');
	my $holder = ZkSession->new($a, $db);
	$holder->run_ok("SELECT zk_lock('$db', session => true)");

	is_stopped($db) if $old eq 'before';
	is_deeply(sql($a, "SET search_path = ''; ALTER EXTENSION zklock UPDATE", $db)->{warnings}, [],
		'an update without warnings');
	is($holder->run_ok("SELECT zk_unlock('$db')"), 't', 'a lock of before is held');
	is(in_db($a, $db, 'SELECT state FROM connected'), 'connected', 'views of users work');
	$holder->run_ok(q{SELECT zk_lock('q', session => true)});
	is(in_db($a, $db, 'SELECT position, mode FROM queue'), '1|exclusive', 'over functions, too');
	is(columns($db, 'queue'), $columns, 'with the columns that they had');
	in_db($a, $db, 'CREATE OR REPLACE VIEW queue AS ' . in_db($a, $db, q{SELECT pg_get_viewdef('queue')}));
	is(columns($db, 'queue'), $columns, 'which a dump would restore');
	$holder->quit;
	is(in_db($a, $db, q{
		SELECT bool_and(has_table_privilege('reader', v, 'SELECT'))
		  FROM unnest('{zk_session, zk_locks, zk_stat}'::regclass[]) v}),
		't', 'privileges on views are kept');
	is(in_db($a, $db, q{
		SELECT p::text, has_function_privilege('reader', p, 'EXECUTE')
		  FROM unnest('{zk_queue, zk_session_status, zk_lock}'::regproc[]) p}),
		"zk_queue|t\nzk_session_status|t\nzk_lock|f", 'and on functions');
	works($db, "$old in $in updated to $latest");

	in_db($a, $db, q{
		DROP VIEW connected, busy, taken, queue;
		REVOKE SELECT ON zk_session, zk_locks, zk_stat FROM reader;
		REVOKE EXECUTE ON FUNCTION zk_queue, zk_session_status FROM reader;
		GRANT EXECUTE ON FUNCTION zk_lock TO PUBLIC});
	is(schema_of($db), $fresh{$in}, "$old in $in updated is as $latest");
	in_db($a, $db, 'DROP EXTENSION zklock');
}

sub columns
{
	my ($db, $view) = @_;

	return in_db($a, $db, "SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = '$view'::regclass AND attnum > 0");
}

# A user's view needs what the update takes away.
sub is_stopped
{
	my ($db) = @_;
	my $schema = schema_of($db);

	in_db($a, $db, 'CREATE VIEW mine AS SELECT zk_gone()');
	my $result = sql($a, 'ALTER EXTENSION zklock UPDATE', $db);
	is($result->{sqlstate}, '2BP01', 'a view of a user stops an update');
	like($result->{detail}, qr/^view mine depends on function zk_gone\(\)$/, 'which says so');
	is(schema_of($db), $schema, 'and changes nothing');
	in_db($a, $db, 'DROP VIEW mine');
	return;
}

# A schema that is newer than the library
{
	in_db($a, 'postgres', q{
		UPDATE pg_proc SET proallargtypes = proallargtypes || 25::oid, proargmodes = proargmodes || 'o'::"char",
		                   proargnames = proargnames || 'later'::text
		 WHERE proname IN ('zk_lock_status', 'zk_queue')});
	for my $call (q{zk_lock_status()}, q{zk_queue('x')})
	{
		my $result = sql($a, "SELECT * FROM $call");
		is($result->{sqlstate}, '55000', "$call: an older library");
		is($result->{hint}, 'Restart the server.', 'says what is missing');
	}
}

# A server that has not loaded it
{
	my $plain = PostgreSQL::Test::Cluster->new('plain', install_path => $install);

	$plain->init;
	$plain->start;
	$plain->safe_psql('postgres', q{CREATE EXTENSION zklock VERSION 'before'});
	is_deeply(
		[ map { $_->{message} } @{ sql($plain, 'ALTER EXTENSION zklock UPDATE')->{warnings} } ],
		['zklock must be loaded via "shared_preload_libraries"'],
		'not preloaded: ALTER EXTENSION UPDATE warns');
	$plain->stop;
}

done_testing();
