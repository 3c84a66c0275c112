
# Copyright (c) 2026, zklock developers

# The blocks of README.md and of the pages in doc/ that have no test of their
# own.  Each page is run from its top, in an empty database of two instances, and
# the outcome of some is checked.  %others tells which test has what is not SQL,
# and the SQL of the other pages, and what is no command at all; no block is
# left out.
#
# Not run are commands that install something or restart a service, which are
# indented and not fenced, and what is marked "run: no", with the reason.
#
# And the links, and the pictures: each is there, can be read, and is in a page.

use strict;
use warnings;

use DocPage;
use File::Basename qw(basename dirname);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $top = $ENV{TESTDIR} // '.';
my $zk = ZooKeeper->new;
$zk->start;
my %cluster;
@cluster{qw(a b)} = zk_clusters($zk, [qw(a b)], 'zklock.session_timeout' => '10s');
my ($a, $b) = @cluster{qw(a b)};

for my $node ($a, $b)
{
	$node->safe_psql('postgres', "CREATE ROLE $_") for (qw(shop tenant1 monitoring));
}

# The servers of the pages.
sub replace
{
	my ($sql) = @_;

	$sql =~ s/zk1:2181,zk2:2181,zk3:2181/$zk->connstr/ge;
	return $sql;
}

# The pages, in the order in which they are run, and what is in the empty
# databases before.
my @pages = (
	[ 'doc/from-zookeeper-clients.md' => 'CREATE EXTENSION zklock' ],
	[ 'doc/from-redis.md' => '' ],
	[ 'doc/from-advisory-locks.md' => '' ],
	# its triggers are of tables that are not its subject; it creates the
	# extension in a schema of its own
	[ 'doc/patroni-pgbouncer-replication.md' => q{
		CREATE TABLE stock (item text, quantity integer);
		CREATE TABLE sales (item text, quantity integer)} ],
	# its examples are of one call each, on tables that are not its subject
	[ 'doc/functions.md' => q{
		CREATE EXTENSION zklock;
		CREATE TABLE stock (item integer, quantity integer);
		CREATE TABLE payouts (item integer, amount numeric)} ],
	[ 'doc/views.md' => 'CREATE EXTENSION zklock' ],
	[ 'doc/settings.md' => 'CREATE EXTENSION zklock' ],
	[ 'doc/upgrade.md' => 'CREATE EXTENSION zklock' ],
	# its first example is of a table that is not its subject
	[ 'README.md' => q{
		CREATE TABLE stock (item text PRIMARY KEY, quantity integer);
		INSERT INTO stock VALUES ('teapot', 3)} ]);

# Blocks that are not run as SQL here: by page and kind, the test that runs them,
# or why there is nothing to run.
my %others = (
	'README.md' => {},
	'doc/README.md' => {},
	'doc/glossary.md' => {},
	'doc/install.md' => {},
	'doc/performance.md' => {},
	'doc/applications.md' =>
	  { sql => '067_applications', python => '067_applications', ruby => '067_applications' },
	'doc/deadlocks.md' => { '' => 'messages' },
	'doc/from-zookeeper-clients.md' => { python => '068_pages', java => '068_pages' },
	'doc/operations.md' => { sql => '110_incidents', sh => '066_zookeeper_page' },
	'doc/patterns.md' => { sql => '012_patterns' },
	'doc/security.md' => { sql => '059_tenants', text => '059_tenants', sh => '058_tls' },
	'doc/zookeeper.md' =>
	  { sql => '066_zookeeper_page', sh => '066_zookeeper_page', ini => '066_zookeeper_page' });

# Which page makes which objects.
my %made;

my %outcome;

#
# What must have come out; $page as it is at its end, in database shop
#

$outcome{'README.md'} = sub {
	my ($page) = @_;

	is(sql($a, 'SELECT quantity FROM stock', 'shop')->{out}, 2, 'README: one is sold');
	is(sql($b, "SELECT zk_try_lock('stock:teapot')", 'shop')->{out}, 't', 'and the lock is free');
	$page->end_section;
};

# What ALTER SYSTEM has set would prevail over what later pages set.
$outcome{'doc/from-advisory-locks.md'} = sub {
	for my $node ($a, $b)
	{
		is( sql($node, 'SHOW zklock.advisory_locks', 'shop')->{out},
			'on', 'from-advisory-locks: both servers have the setting');
		$node->safe_psql('postgres', 'ALTER SYSTEM RESET zklock.servers');
		$node->reload;
	}
};

$outcome{'doc/from-redis.md'} = sub {
	is(sql($a, "SELECT id FROM tickets WHERE buyer = 'anna'", 'shop')->{out}, 1, 'a ticket is sold');
};

$outcome{'doc/from-zookeeper-clients.md'} = sub {
	my ($page) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir('kazoo');
	my $holder = holder($a, 'stock/17', 'postgres');
	my $out = '';

	# the page's lock, which waits for ours, and has it afterwards
	append_to_file("$dir/page.py",
		"import sys\nsys.dont_write_bytecode = True\nsys.path.append('$top/doc/kazoo')\n"
		  . "from kazoo.client import KazooClient\nclient = KazooClient(sys.argv[1])\nclient.start()\n"
		  . join('', map { $_->{text} } $page->blocks('python'))
		  . "print(lock.acquire(blocking=False), flush=True)\n"
		  . "sys.stdin.readline()\n"
		  . "print(lock.acquire(timeout=60), flush=True)\n"
		  . "print(lock_path('a b/ü'))\n"
		  . "client.stop()\n");
	my $in = '';
	my $run = IPC::Run::start([ '/usr/bin/python3', "$dir/page.py", $zk->connstr ],
		'<', \$in, '>', \$out, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	poll_until(sub { $run->pump_nb; $out =~ /\n/ }, 'an answer');
	is($out, "False\n", 'kazoo, by the page: the lock is held');
	$holder->run_ok('COMMIT');
	$in .= "\n";
	$run->finish;
	is($out, "False\nTrue\n" . lock_dir("a b/\x{fc}") . "\n",
		'and is free, and names are encoded alike');
	$holder->quit;

	# Java finds the same path; the recipes are only compiled
	my ($function, $recipes) = map { $_->{text} } $page->blocks('java');
	append_to_file("$dir/Page.java",
		join("\n",
			'import java.nio.charset.StandardCharsets;',
			'import org.apache.curator.framework.CuratorFramework;',
			'import org.apache.curator.framework.recipes.locks.*;',
			"public class Page {\n$function",
			"static void recipes(CuratorFramework client) {\n$recipes}",
			'public static void main(String[] arg) {',
			'    System.out.println(lockPath(arg[0], arg[1]));',
			"}\n}\n"));
	IPC::Run::run(
		[
			qw(java -XX:TieredStopAtLevel=1 -XX:-UsePerfData -cp),
			join(':', map { "/usr/share/java/$_.jar" }
				  qw(curator-client curator-framework curator-recipes zookeeper)),
			"$dir/Page.java", '/zklock', 'a b/:%' ],
		'>', \$out);
	is($out, lock_dir('a b/:%') . "\n", 'Java, by the page, finds the same path');
};

# DROP EXTENSION while locks are held, and a server without the library.
$outcome{'doc/upgrade.md'} = sub {
	sql($a, 'CREATE EXTENSION zklock', 'shop');
	my $holder = holder($a, 'transaction', 'shop');
	my $other = ZkSession->new($a, 'shop');
	my $fenced = holder($a, 'fenced', 'shop');

	$other->run_ok("SELECT zk_lock('session', session => true)");
	$fenced->run_ok("SELECT zk_fence('fenced')");
	is(sql($a, "SET lock_timeout = '100ms'; DROP EXTENSION zklock", 'shop')->{sqlstate},
		'55P03', 'DROP EXTENSION waits for a transaction that has called zk_fence');
	$fenced->run_ok('COMMIT');
	is(sql($a, 'DROP EXTENSION zklock', 'shop')->{message}, undef, 'not for one that holds a lock');

	for my $lock (qw(transaction session))
	{
		is(sql($b, "SELECT zk_try_lock('$lock')")->{out}, 'f', 'which stays held');
	}
	$holder->run_ok('COMMIT', 'until the transaction ends');
	is($other->run("SELECT zk_unlock('session')")->{sqlstate}, '42883', 'or, without zk_unlock,');
	$other->run_ok('DISCARD ALL', 'the session');
	is(sql($b, "SELECT zk_try_lock('$_', '10 s')")->{out}, 't', 'then it is free')
	  for (qw(transaction session));
	is(sql($a, "SELECT to_regclass('zk_fences') IS NULL", 'shop')->{out}, 't', 'tokens are gone');
	$_->quit for ($holder, $other, $fenced);

	# as if the file were gone
	$a->stop;
	$a->append_conf('postgresql.conf', "dynamic_library_path = '/nonexistent'");
	is($a->start(fail_ok => 1), 0, 'without the file the server does not start');
	like(slurp_file($a->logfile), qr/FATAL:  could not access file "zklock": No such file/,
		'and says why');
	$a->append_conf('postgresql.conf', "shared_preload_libraries = ''");
	$a->start;
	is(sql($a, 'SHOW zklock.servers')->{out}, $zk->connstr, 'without preload it does');
	$a->append_conf('postgresql.conf',
		"dynamic_library_path = '\$libdir'\nshared_preload_libraries = 'zklock'");
	$a->restart;
	wait_connected($a);
};

#
# All pages
#

my @names = ('README.md', sort map { 'doc/' . basename($_) } glob("$top/doc/*.md"));
my %here = map { $_->[0] => 1 } @pages;

for my $name (@names)
{
	my @blocks = DocPage->new("$top/$name", \%cluster, run => 'a')->blocks;
	my $others = $others{$name} // {};
	my %kinds = map { $_->{kind} => 1 } @blocks;

	delete $kinds{sql} if $here{$name};
	is_deeply([ sort keys %kinds ], [ sort keys %$others ], "$name: no block is left out");
	for my $test (sort grep { /^\d/ } values %$others)
	{
		like(slurp_file("$top/test/t/$test.pl"), qr/\Q${\basename($name)}\E/, "$test has $name");
	}
	is(scalar(grep { $_->{kind} eq 'sql' && $_->{run} =~ /^no\b/ } @blocks),
		$name =~ /from-advisory-locks/ ? 1 : 0, "$name: what is marked not to be run");
}

for ([ 'doc/patterns.md' ], [ 'doc/applications.md' ], @pages)
{
	my ($name, $begin) = @$_;
	my $page = DocPage->new("$top/$name", \%cluster,
		run => 'a', dbname => 'shop', replace => \&replace);

	# who pastes one page after the other finds no name taken
	for my $sql (map { $_->{text} } $name =~ /functions/ ? () : $page->blocks('sql'))
	{
		$made{"$1 $2"}{$name} = 1
		  while $sql =~ /^CREATE (TABLE|PROCEDURE|FUNCTION|SERVER) (\w+)/mg;
	}
	next unless defined $begin;

	for my $node ($a, $b)
	{
		$node->safe_psql('postgres', $_) for ('DROP DATABASE IF EXISTS shop', 'CREATE DATABASE shop');
		$node->safe_psql('shop', $begin);
	}
	for my $section ($page->sections)
	{
		$page->run_block($_, "$name, $section->{title}")
		  for grep { $_->{kind} eq 'sql' } @{ $section->{blocks} };
		$page->end_section;
	}
	$outcome{$name}->($page) if $outcome{$name};
}

#
# Links: each leads to a file, and to a heading that it has
#

# The page without its blocks, in which a "#" is a comment.
sub text { return slurp_file("$top/$_[0]") =~ s/^\s*```.*?^\s*```$//gmsr; }

# The anchors of a page's headings, as GitHub makes them.
sub anchors
{
	my ($name) = @_;

	return map { lc s/\[([^\]]*)\]\([^)]*\)/$1/gr =~ s/[^\w\- ]//gr =~ tr/ /-/r } text($name) =~ /^#+ (.*)$/mg;
}

for my $name (@names, (map { "$_/README.md" } qw(demo src test test/sim test/chaos test/images bench doc/bench)),
	(map { "test/$_.md" } qw(matrix counterparts)), (map { "src/$_.md" } qw(guarantees ownership proof)),
	"doc/bench/rivals.md")
{
	my @bad;

	for my $link (grep { !/^https?:/ } text($name) =~ /\]\(([^)\s]+)\)/g)
	{
		my ($file, $anchor) = $link =~ /^([^#]*)#?(.*)$/;
		my $to = $file eq '' ? $name : dirname($name) . "/$file";

		push @bad, $link
		  if !-e "$top/$to" || $anchor ne '' && !grep { $_ eq $anchor } anchors($to);
	}
	is_deeply(\@bad, [], "$name: each link leads somewhere");
}

#
# Pictures
#

my %pictures;

for my $name (@names)
{
	my $text = slurp_file("$top/$name");
	my $dir = $name =~ s/[^\/]*$//r;

	while ($text =~ /!\[([^\]]*)\]\(([^)]+)\)/g)
	{
		my ($alt, $file) = ($1, "$dir$2");

		ok(-f "$top/$file", "$name: $file is there");
		cmp_ok(length $alt, '>', 30, '... and is described for readers who cannot see it');
		$pictures{ basename($file) } = 1;
	}
}
is_deeply([ sort keys %pictures ], [ sort map { basename($_) } glob("$top/doc/pictures/*") ],
	'each picture is in a page');
for my $file (glob("$top/doc/pictures/*"))
{
	my ($out, $err) = ('', '');

	IPC::Run::run([ '/usr/bin/python3', '-c', 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])', $file ],
		'>', \$out, '2>', \$err);
	is($err, '', basename($file) . ' is well-formed');
	like(slurp_file($file), qr/prefers-color-scheme: dark/, '... and has colors for the dark');
}

# the example of test/README.md, as a test of its own
{
	my ($example) = map { $_->{text} } DocPage->new("$top/test/README.md", \%cluster)->blocks('perl');
	my $file = PostgreSQL::Test::Utils::tempdir('example') . '/example.pl';
	my $out = '';

	append_to_file($file, "use strict;\nuse warnings;\n$example");
	IPC::Run::run([ $^X, (map { "-I$_" } grep { !ref } @INC), $file ], '>&', \$out);
	is($?, 0, 'the example of test/README.md is a test') or diag($out);
}

cmp_ok(scalar(keys %made), '>', 20, 'the pages make something');
is_deeply([ grep { keys %{ $made{$_} } > 1 } sort keys %made ], [], 'each name is of one page');

done_testing();
