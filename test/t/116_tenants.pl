# Copyright (c) 2026, zklock developers

# What a role that may do no more than take locks can do to the roles of other
# databases and roots of its instance, and cannot: doc/security.md, "What an
# attacker can do", names the scenes.

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
my $a = zk_cluster(
	'a', $zk,
	'zklock.session_timeout' => '20s',
	'zklock.max_claims' => 20);

value($a, <<'SQL');
CREATE DATABASE one;
CREATE DATABASE two;
CREATE ROLE tenant1 LOGIN;
CREATE ROLE tenant2 LOGIN;
ALTER ROLE tenant1 SET zklock.root = '/zklock-tenant1';
ALTER ROLE tenant2 SET zklock.root = '/zklock-tenant2';
REVOKE CONNECT ON DATABASE one FROM PUBLIC;
GRANT CONNECT ON DATABASE one TO tenant1;
SQL
value($a, 'CREATE EXTENSION zklock', $_) for qw(one two);

my $tenant1 = ZkSession->new($a, 'one', 'tenant1');
my $tenant2 = ZkSession->new($a, 'two', 'tenant2');

#
# Names that are chosen for the tag of another tenant's lock
#

# Below tenant2's root these names have the same hash as /zklock-tenant1/pay%2Fout
# by PostgreSQL's own function, which has no key.
my @chosen = qw(name-aa-c67Npx7T1bxf name-aa-nWO5+JXgpeid name-aa-k@~WMf2DTz~3);

is( value(
		$a,
		"SELECT count(DISTINCT hashtextextended(path, 0)) FROM unnest('{/zklock-tenant1/pay%2Fout,"
		  . join(',', map { "/zklock-tenant2/$_" } @chosen)
		  . "}'::text[]) path"),
	1,
	'names can be chosen for a hash that has no key');
$tenant2->run_ok("SELECT zk_lock('$_', session => true)", "tenant2 takes $_") for @chosen;
is($tenant1->run("SELECT zk_try_lock('pay/out')")->{out}, 't', 'chosen names: tenant1 gets its lock');
$tenant2->run_ok('SELECT zk_unlock_all()');

#
# What pg_locks shows
#

# The tags of a session's locks, as any role sees them.
sub tags
{
	my ($of) = @_;

	return $tenant2->run_ok("SELECT objsubid, classid, objid FROM pg_locks"
		  . ' WHERE locktype = \'userlock\' AND pid = ' . $of->pid . ' ORDER BY 2, 3');
}

sub tag_of
{
	my ($name) = @_;

	$tenant1->run_ok("BEGIN; SELECT zk_lock('$name')");
	my $tags = tags($tenant1);
	is(value($a, 'SELECT objsubid, classid, objid FROM zk_locks WHERE pid = ' . $tenant1->pid),
		$tags, "pg_locks: zk_locks has the same key for $name");
	$tenant1->run_ok('COMMIT');
	return $tags;
}

my %tag = map { $_ => tag_of($_) } qw(pay/out stock/17);
isnt($tag{'pay/out'}, $tag{'stock/17'}, 'pg_locks: each name has a tag');
is(tag_of('pay/out'), $tag{'pay/out'}, 'pg_locks: ... which stays');
is( $tenant2->run_ok(
		'SELECT count(*) FROM unnest(\'{/zklock-tenant1/pay%2Fout,/zklock-tenant1/pay/out,pay%2Fout,pay/out}\'::text[]) path,'
		  . ' hashtextextended(path, 0) hash, format(\'23115|%s|%s\', (hash >> 32) & 4294967295, hash & 4294967295) tag'
		  . " WHERE tag = '$tag{'pay/out'}'"),
	0,
	'pg_locks: a guessed name is not found there');

$_->quit for ($tenant1, $tenant2);
$a->restart;
wait_connected($a);
$tenant1 = ZkSession->new($a, 'one', 'tenant1');
$tenant2 = ZkSession->new($a, 'two', 'tenant2');
isnt(tag_of('pay/out'), $tag{'pay/out'}, 'pg_locks: after a restart the tag is another one');

#
# Advisory locks by name, of a role that may not take them
#

my %function = (
	'zk_lock(NAME)' => 'pg_advisory_xact_lock(KEY)',
	'zk_lock(NAME, session => true)' => 'pg_advisory_lock(KEY)',
	'zk_lock(NAME, shared => true)' => 'pg_advisory_xact_lock_shared(KEY)',
	'zk_lock(NAME, shared => true, session => true)' => 'pg_advisory_lock_shared(KEY)',
	'zk_try_lock(NAME)' => 'pg_try_advisory_xact_lock(KEY)',
	'zk_try_lock(NAME, session => true)' => 'pg_try_advisory_lock(KEY)',
	'zk_try_lock(NAME, shared => true)' => 'pg_try_advisory_xact_lock_shared(KEY)',
	'zk_try_lock(NAME, shared => true, session => true)' => 'pg_try_advisory_lock_shared(KEY)',
	'zk_lock_all(ARRAY[\'x\', NAME])' => 'pg_advisory_xact_lock(KEY)',
	'zk_lock_any(ARRAY[\'x\', NAME])' => 'pg_advisory_xact_lock(KEY)',
	'zk_try_lock_any(ARRAY[\'x\', NAME])' => 'pg_try_advisory_xact_lock(KEY)',
	'zk_wait_lock(NAME, session => true)' => 'pg_advisory_lock(KEY)',
	'zk_wait_lock_all(ARRAY[\'x\', NAME], session => true)' => 'pg_advisory_lock(KEY)');

my @keys = ([ '4711', 'bigint' ], [ '47,11', 'integer, integer' ]);
my $all = join ', ',
  map { my $f = $_; map { $f =~ s/KEY/$_->[1]/r } @keys } sort keys %{ { map { $_ => 1 } values %function } };

value($a, "REVOKE EXECUTE ON FUNCTION $all FROM PUBLIC", 'two');
for my $root ('/zklock-tenant2', '/zklock')
{
	value($a, "ALTER ROLE tenant2 SET zklock.root = '$root'");
	$tenant2->quit;
	$tenant2 = ZkSession->new($a, 'two', 'tenant2');
	for my $key (@keys)
	{
		for my $call (sort keys %function)
		{
			my $verb = $call =~ /wait/ ? 'CALL' : 'SELECT';
			my $statement = "$verb " . ($call =~ s{NAME}{'advisory/two/$key->[0]'}r);
			my $function = $function{$call};
			my ($name) = $function =~ /^(\w+)/;

			error_is(
				$tenant2->run($statement),
				{ sqlstate => '42501', message => "permission denied for function $name" },
				"advisory: below $root, $statement is refused");

			# exactly that privilege is asked
			my $privilege = 'EXECUTE ON FUNCTION ' . ($function =~ s/KEY/$key->[1]/r);
			value($a, "GRANT $privilege TO tenant2", 'two');
			$tenant2->run_ok($statement, "... not with $privilege");
			$tenant2->run_ok('SELECT zk_unlock_all()');
			value($a, "REVOKE $privilege FROM tenant2", 'two');
		}
	}
}
is($tenant2->run("SELECT zk_try_lock('advisory/one/4711')")->{out}, 't',
	"advisory: the name of another database's lock is a name like any other");
is($tenant2->run("SELECT zk_try_lock('advisory/two/a')")->{out}, 't', 'advisory: so is one that has no key');
is(value($a, 'SELECT pg_try_advisory_lock(4711)', 'two'), 't', 'advisory: who may take the lock gets it');
value($a, 'ALTER ROLE tenant2 SET zklock.root = \'/zklock-tenant2\'');

#
# Claims
#

$tenant2->quit;
$tenant2 = ZkSession->new($a, 'two', 'tenant2');
my $result = $tenant2->run("SELECT count(zk_try_claim('c' || i, '1 day')) FROM generate_series(1, 20) i");
error_is(
	$result,
	{
		sqlstate => '53200',
		message => 'out of claims',
		detail => 'All 2 claims of role "tenant2" are in use.',
		hint => 'You might need to increase "zklock.max_claims_per_role".'
	},
	'claims: one role does not get all of them');
is(value($a, 'SELECT claims FROM zk_stat'), 0, 'claims: ... nor, when that fails, some');
$tenant2->run_ok("SELECT zk_claim('c$_', '1 day')") for 1, 2;
$tenant2->run_ok('BEGIN');
error_is(
	$tenant2->run("SELECT zk_claim('c3', '1 day')"),
	{ map { $_ => $result->{$_} } qw(sqlstate message detail hint) },
	'claims: the same one by one');
$tenant2->run_ok('ROLLBACK');
like($tenant1->run("SELECT zk_claim('c1', '1 day')")->{out}, qr{/}, 'claims: another role gets one');
is(value($a, q{SELECT count(zk_claim('s' || i, '1 day')) FROM generate_series(1, 10) i}), 10, 'claims: a superuser gets more');
error_is(
	$tenant2->run("SET zklock.max_claims_per_role = 3"),
	{ sqlstate => '42501', message => 'permission denied to set parameter "zklock.max_claims_per_role"' },
	'claims: a role cannot have more for itself');
value($a, 'ALTER ROLE tenant2 SET zklock.max_claims_per_role = 3');
$tenant2->quit;
$tenant2 = ZkSession->new($a, 'two', 'tenant2');
like($tenant2->run("SELECT zk_claim('c3', '1 day')")->{out}, qr{/}, 'claims: ... but an administrator for it');

# who has no session any more
$tenant2->quit;
value($a, 'CREATE ROLE warden LOGIN; GRANT pg_signal_backend TO warden');
my $warden = ZkSession->new($a, 'postgres', 'warden');
my $counts = 'SELECT role, count(*) FROM zk_claims GROUP BY role ORDER BY role::text COLLATE "C"';
my ($super) = value($a, 'SELECT current_user');
is($warden->run_ok($counts), join("\n", sort('tenant1|1', 'tenant2|3', "$super|10")),
	'claims: a member of pg_signal_backend sees whose they are');
is($warden->run_ok('SELECT zk_terminate_claims(\'tenant2\')'), 3, 'claims: ... and ends those of a role');
is($warden->run_ok($counts), join("\n", sort('tenant1|1', "$super|10")), 'claims: ... and no others');
error_is(
	$warden->run("SELECT zk_terminate_claims('$super')"),
	{
		sqlstate => '42501',
		message => 'must be a superuser to end claims of a superuser'
	},
	"claims: ... but none of a superuser's");
$tenant2 = ZkSession->new($a, 'two', 'tenant2');
error_is(
	$tenant2->run("SELECT zk_terminate_claims('tenant1')"),
	{ sqlstate => '42501', message => 'permission denied for function zk_terminate_claims' },
	'claims: others cannot');
like($a->safe_psql('postgres', 'SELECT zk_terminate_claims(current_user::regrole)'), qr/^10$/, 'claims: a superuser ends its own');
like(slurp_file($a->logfile), qr/LOG:  role "warden" ends the claims of role "tenant2"\n.*DETAIL:  Claims: 3\./,
	'claims: the log has it');

$_->quit for ($tenant1, $tenant2, $warden);
$a->stop;
done_testing();
