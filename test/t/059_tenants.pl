# Copyright (c) 2026, zklock developers

# Tenants that must not touch each other's locks, as doc/security.md has them:
# instances with a chroot and credentials of their own, and roles of one instance
# with roots of their own.  What is tried is tried both ways.  What nobody can
# prevent is done, too: who reaches ZooKeeper can end a session.
#
# And what a role that may do no more than take locks can do to the roles of other
# databases and roots of its instance, and cannot: "What an attacker can do" names
# the scenes.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $page = slurp_file(($ENV{TESTDIR} // '.') . '/doc/security.md');

my $zk = ZooKeeper->new;
$zk->start;

#
# The administrator's part, by ZooKeeper's shell
#

sub block
{
	my ($kind) = @_;
	my ($block) = $page =~ /^\Q$kind\E\n(.*?)^```$/ms
	  or die "doc/security.md has no block $kind";
	return $block;
}

# Debian's zkCli.sh is in package zookeeper, which wants a desktop's Java.
sub zkcli
{
	my ($commands) = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run(
		[
			qw(java -Xmx64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData),
			'-cp', join(':', map { "/usr/share/java/$_.jar" } qw(zookeeper slf4j-simple commons-cli)),
			'org.apache.zookeeper.ZooKeeperMain', '-server', $zk->connstr
		],
		'<', \$commands, '>', \$out, '2>', \$err,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default))
	  or die "zkCli.sh: $out$err";
	unlike("$out$err", qr/permission|KeeperErrorCode|not found|exist|scheme:id/, 'zkCli.sh does what the page says')
	  or diag("$out$err");
	return;
}

{
	my $tenant1 = block("<!-- run: zkCli.sh for each tenant -->\n```text");

	zkcli(block("<!-- run: zkCli.sh -->\n```text"));
	zkcli($tenant1);
	zkcli($tenant1 =~ s/(tenant|secret)1/${1}2/gr);
}

#
# Tenants with instances of their own
#

# As on the page, but for the addresses.
sub settings
{
	my ($n) = @_;
	my ($section) = $page =~ /^## Two tenants\n(.*?)^### /ms;
	my %settings = $section =~ /^    (zklock\.\w+) = (\S.*?)\s*$/mg;
	my $servers = $zk->connstr;

	$settings{'zklock.servers'} =~ s{^'[^/]*/}{'$servers/};
	for (values %settings)
	{
		s/^'(.*)'$/$1/;
		s/(tenant|secret)1/$1$n/g;
	}
	return map { ($_ => $settings{$_}) } qw(zklock.servers zklock.auth zklock.acl);
}

sub servers { my %settings = settings(@_); return ('zklock.servers' => $settings{'zklock.servers'}); }

is_deeply(
	{ settings(2) },
	{
		'zklock.servers' => $zk->connstr . '/tenant2',
		'zklock.auth' => 'tenant2:secret2',
		'zklock.acl' => 'creator'
	},
	'the page has the settings of a tenant');

my %names = settings(1);
my %setting = map {
	my $name = $_;
	($name => sub { my %own = settings($_[0] eq 'a' ? 1 : 2); return $own{$name}; })
} keys %names;
my ($a, $b) = zk_clusters($zk, [ 'a', 'b' ], %setting);

sub apply
{
	my ($node, %settings) = @_;

	$node->append_conf('postgresql.conf', "$_ = '$settings{$_}'") for sort keys %settings;
	$node->restart;
	wait_connected($node);
	return;
}

# Both have a lock of the same name.
{
	my @holders = map { holder($_, 'x') } ($a, $b);

	is(sql($_, 'SELECT count(*) FROM zk_queue(\'x\')')->{out}, 1, $_->name . ' sees its own queue')
	  for ($a, $b);
	$_->run_ok('COMMIT') for @holders;
	$_->quit for @holders;
}

# Clients of ZooKeeper, with credentials of each tenant and with none.
my %client = map { ($_ => $zk->client) } qw(tenant1 tenant2 none admin);
$client{"tenant$_"}->add_auth('digest', "tenant$_:secret$_") for (1, 2);
$client{admin}->add_auth('digest', 'admin:secret0');

for my $case ([ 1, $a, 2, $b ], [ 2, $b, 1, $a ])
{
	my ($n, $victim, $m, $attacker) = @$case;
	my $what = "tenant $m on tenant $n";
	my $dir = "/tenant$n/zklock/x";
	my $holder = holder($victim, 'x');
	my ($node) = $client{"tenant$n"}->contenders($dir);
	my %denied = (
		sqlstate => '42501',
		message => 'ZooKeeper denied access to lock "x"',
		detail => qr/^The credentials of this server do not allow it /,
		hint => qr/zklock\.auth/);

	# a service of the tenant itself
	my $service = $client{"tenant$n"}->enqueue($dir);
	is($client{"tenant$n"}->position($service), 1, "a service of tenant $n queues with its instance");
	$client{"tenant$n"}->delete($service);

	# an instance that is pointed at it
	apply($attacker, servers($n));
	sql_error($attacker, "SET lock_timeout = '10s'; SELECT $_", \%denied, "$what: $_ is denied")
	  for ("zk_lock('x')", "zk_try_lock('x')", "zk_lock('x', shared => true)", "(zk_queue('x')).*", "zk_cancel_holders('x')");
	is(sql($attacker, "SELECT zk_try_lock('never_used')")->{sqlstate}, '42501',
		"$what: so is a lock that is not in use");

	# clients
	for my $who ("tenant$m", 'none', 'admin')
	{
		my $c = $client{$who};
		my %try = (
			'list' => sub { $c->ls($dir) },
			'list the locks' => sub { $c->ls("/tenant$n/zklock") },
			'read a contender' => sub { $c->get("$dir/$node") },
			'queue' => sub { $c->create("$dir/_c_x-lock-", ephemeral => 1, sequence => 1) },
			'make a lock directory' => sub { $c->create("/tenant$n/zklock/y") },
			'cancel' => sub { $c->set("$dir/$node", '__REVOKE__') },
			'delete a contender' => sub { $c->delete("$dir/$node") },
			'change the ACL of a contender' => sub { $c->set_acl("$dir/$node", 'open') },
			'change the ACL of the root' => sub { $c->set_acl("/tenant$n/zklock", 'open') });

		if ($who ne 'admin')
		{
			$try{'list the chroot'} = sub { $c->ls("/tenant$n") };
			$try{'make another root'} = sub { $c->create("/tenant$n/other") };
			$try{'change the ACL of the chroot'} = sub { $c->set_acl("/tenant$n", 'open') };

			# anywhere: names of ephemeral znodes can destroy the ensemble
			for my $parent ('', '/zookeeper', '/zookeeper/quota', "/tenant$n/zklock/%clusters")
			{
				$try{"make a znode in $parent/"} = sub { $c->create("$parent/x", ephemeral => 1) };
			}
		}
		for (sort keys %try)
		{
			ok(!eval { $try{$_}->(); 1 } && $@ =~ /^NoAuthError/, "$who on tenant $n: cannot $_")
			  or diag($@);
		}
	}
	$holder->run_ok('COMMIT', "tenant $n has not noticed");
	is(sql($victim, 'SELECT lost FROM zk_stat')->{out}, 0, '... and has lost nothing');

	# what the ACL does not prevent
	$holder->run_ok("BEGIN; SELECT zk_lock('x')");
	ok(end_session($victim, $client{none}), 'anybody can end a session');
	$victim->poll_query_until('postgres', "SELECT lost FROM zk_locks WHERE name = 'x'");
	error_is($holder->run('COMMIT'), $lock_lost, '... whose holders cannot commit');
	$holder->quit;
	wait_connected($victim);

	apply($attacker, servers($m));
	is(sql($attacker, "SELECT zk_try_lock('x', '1 min')")->{out}, 't', "tenant $m at home");
}

#
# Roles of one instance
#

$a->safe_psql('postgres', block('```sql'));
$a->safe_psql('postgres', 'GRANT pg_monitor TO tenant1, tenant2; GRANT CREATE ON SCHEMA public TO tenant1, tenant2');

# A session of a role.
sub session_as
{
	my ($role) = @_;
	local $ENV{PGUSER} = $role;
	my $session = ZkSession->new($a);

	is($session->run('SELECT current_user')->{out}, $role, "a session of $role");
	return $session;
}

{
	my %session = map { ($_ => session_as("tenant$_")) } (1, 2);

	$session{$_}->run_ok("BEGIN; SELECT zk_lock('x')") for (1, 2);
	is(sql($a, 'SELECT string_agg(path, \' \' ORDER BY path) FROM zk_locks')->{out},
		'/zklock-tenant1/x /zklock-tenant2/x', 'roles with roots of their own hold the same name');
	$session{$_}->run_ok('COMMIT') for (1, 2);

	for my $case ([ 1, 2 ], [ 2, 1 ])
	{
		my ($n, $m) = @$case;
		my $session = $session{$n};
		my $other = "'/zklock-tenant$m'";

		# where its locks are, now and after it has connected again
		my $at_home = sub {
			my ($name) = @_;
			my $again = session_as("tenant$n");

			for my $s ($session, $again)
			{
				$s->run("SELECT zk_lock('home', session => true)");
				is($s->run("SELECT path FROM zk_locks WHERE pid = $s->{pid}")->{out},
					"/zklock-tenant$n/home", "$name: tenant $n is at home");
				$s->run("SELECT zk_unlock('home')");
			}
			$again->quit;
		};

		for my $try (
			"SET zklock.root = $other",
			"SELECT set_config('zklock.root', $other, false)",
			"ALTER ROLE tenant$n SET zklock.root = $other",
			"ALTER ROLE tenant$n RESET zklock.root",
			"ALTER ROLE tenant$n IN DATABASE postgres SET zklock.root = $other",
			"CREATE FUNCTION f$n() RETURNS text LANGUAGE sql SET zklock.root = $other AS 'SELECT 1'",
			'SET zklock.node_format = \'readwrite\'')
		{
			is($session->run($try)->{sqlstate}, '42501', "tenant $n: $try: refused");
		}
		$session->run($_), $at_home->($_)
		  for ('RESET ALL', 'DISCARD ALL', "ALTER ROLE tenant$n RESET ALL");

		local $ENV{PGOPTIONS} = "-c zklock.root=/zklock-tenant$m";
		my $err;
		$a->psql('postgres', 'SELECT 1', stderr => \$err, extra_params => [ '-U', "tenant$n" ]);
		like($err, qr/permission denied to set parameter "zklock.root"/, "tenant $n: options of a connection");
	}

	# it is who connects that counts
	$a->safe_psql('postgres', 'GRANT tenant2 TO tenant1');
	$session{1}->run_ok("SET ROLE tenant2; BEGIN; SELECT zk_lock('x')");
	is(sql($a, 'SELECT path FROM zk_locks')->{out}, '/zklock-tenant1/x', 'SET ROLE changes no root');
	$session{1}->run_ok('COMMIT; RESET ROLE');
	$_->quit for values %session;
}

# What they share
apply($a, 'zklock.max_locks' => 4);
{
	my %session = map { ($_ => session_as("tenant$_")) } (1, 2);

	$session{1}->run_ok("BEGIN; SELECT zk_lock('kept')");
	$session{2}->run_ok("BEGIN; SELECT zk_lock_all('{1,2,3}')");
	is($session{1}->run("SELECT zk_try_lock('more')")->{sqlstate}, '53200', 'one role can use up the slots');
	$session{2}->run_ok('ROLLBACK');
	$session{1}->run_ok('ROLLBACK; BEGIN');
	is($session{1}->run("SELECT zk_try_lock('more', '1 min')")->{out}, 't', '... until it lets go');
	$_->quit for values %session;
}

#
# What is on disk
#

is(sprintf('%o', (stat session_file($a))[2] & 07777), '600', "the session's file is the owner's");
$a->stop;
chmod_recursive($a->data_dir, 0750, 0640);
$a->start;
wait_connected($a);
is(sql($a, 'SHOW data_directory_mode')->{out}, '0750', 'where a group may read the data directory');
is(sprintf('%o', (stat session_file($a))[2] & 07777), '600', '... it may not read that file');

$a->stop;

#
# What a role can do to those of other databases
#

apply($b, 'zklock.max_claims' => 20);

value($b, <<'SQL');
CREATE DATABASE one;
CREATE DATABASE two;
CREATE ROLE tenant1 LOGIN;
CREATE ROLE tenant2 LOGIN;
ALTER ROLE tenant1 SET zklock.root = '/zklock-tenant1';
ALTER ROLE tenant2 SET zklock.root = '/zklock-tenant2';
REVOKE CONNECT ON DATABASE one FROM PUBLIC;
GRANT CONNECT ON DATABASE one TO tenant1;
SQL
value($b, 'CREATE EXTENSION zklock', $_) for qw(one two);

my $tenant1 = ZkSession->new($b, 'one', 'tenant1');
my $tenant2 = ZkSession->new($b, 'two', 'tenant2');

#
# Names that are chosen for the tag of another tenant's lock
#

# Below tenant2's root these names have the same hash as /zklock-tenant1/pay%2Fout
# by PostgreSQL's own function, which has no key.
my @chosen = qw(name-aa-c67Npx7T1bxf name-aa-nWO5+JXgpeid name-aa-k@~WMf2DTz~3);

is( value(
		$b,
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
	is(value($b, 'SELECT objsubid, classid, objid FROM zk_locks WHERE pid = ' . $tenant1->pid),
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
$b->restart;
wait_connected($b);
$tenant1 = ZkSession->new($b, 'one', 'tenant1');
$tenant2 = ZkSession->new($b, 'two', 'tenant2');
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

value($b, "REVOKE EXECUTE ON FUNCTION $all FROM PUBLIC", 'two');
for my $root ('/zklock-tenant2', '/zklock')
{
	value($b, "ALTER ROLE tenant2 SET zklock.root = '$root'");
	$tenant2->quit;
	$tenant2 = ZkSession->new($b, 'two', 'tenant2');
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
			value($b, "GRANT $privilege TO tenant2", 'two');
			$tenant2->run_ok($statement, "... not with $privilege");
			$tenant2->run_ok('SELECT zk_unlock_all()');
			value($b, "REVOKE $privilege FROM tenant2", 'two');
		}
	}
}
is($tenant2->run("SELECT zk_try_lock('advisory/one/4711')")->{out}, 't',
	"advisory: the name of another database's lock is a name like any other");
is($tenant2->run("SELECT zk_try_lock('advisory/two/a')")->{out}, 't', 'advisory: so is one that has no key');
is(value($b, 'SELECT pg_try_advisory_lock(4711)', 'two'), 't', 'advisory: who may take the lock gets it');
value($b, 'ALTER ROLE tenant2 SET zklock.root = \'/zklock-tenant2\'');

#
# Claims
#

$tenant2->quit;
$tenant2 = ZkSession->new($b, 'two', 'tenant2');
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
is(value($b, 'SELECT claims FROM zk_stat'), 0, 'claims: ... nor, when that fails, some');
$tenant2->run_ok("SELECT zk_claim('c$_', '1 day')") for 1, 2;
$tenant2->run_ok('BEGIN');
error_is(
	$tenant2->run("SELECT zk_claim('c3', '1 day')"),
	{ map { $_ => $result->{$_} } qw(sqlstate message detail hint) },
	'claims: the same one by one');
$tenant2->run_ok('ROLLBACK');
like($tenant1->run("SELECT zk_claim('c1', '1 day')")->{out}, qr{/}, 'claims: another role gets one');
is(value($b, q{SELECT count(zk_claim('s' || i, '1 day')) FROM generate_series(1, 10) i}), 10, 'claims: a superuser gets more');
error_is(
	$tenant2->run("SET zklock.max_claims_per_role = 3"),
	{ sqlstate => '42501', message => 'permission denied to set parameter "zklock.max_claims_per_role"' },
	'claims: a role cannot have more for itself');
value($b, 'ALTER ROLE tenant2 SET zklock.max_claims_per_role = 3');
$tenant2->quit;
$tenant2 = ZkSession->new($b, 'two', 'tenant2');
like($tenant2->run("SELECT zk_claim('c3', '1 day')")->{out}, qr{/}, 'claims: ... but an administrator for it');

# who has no session any more
$tenant2->quit;
value($b, 'CREATE ROLE warden LOGIN; GRANT pg_signal_backend TO warden');
my $warden = ZkSession->new($b, 'postgres', 'warden');
my $counts = 'SELECT role, count(*) FROM zk_claims GROUP BY role ORDER BY role::text COLLATE "C"';
my ($super) = value($b, 'SELECT current_user');
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
$tenant2 = ZkSession->new($b, 'two', 'tenant2');
error_is(
	$tenant2->run("SELECT zk_terminate_claims('tenant1')"),
	{ sqlstate => '42501', message => 'permission denied for function zk_terminate_claims' },
	'claims: others cannot');
like($b->safe_psql('postgres', 'SELECT zk_terminate_claims(current_user::regrole)'), qr/^10$/, 'claims: a superuser ends its own');
like(slurp_file($b->logfile), qr/LOG:  role "warden" ends the claims of role "tenant2"\n.*DETAIL:  Claims: 3\./,
	'claims: the log has it');

$_->quit for ($tenant1, $tenant2, $warden);
$b->stop;
done_testing();
