# Copyright (c) 2026, zklock developers

# What a packager does: a build apart from the sources, its installation, and
# make installcheck on a running server.
# All that names a version names the same one.
# Alternative expected outputs differ in PostgreSQL's own words only.
# The library exports what PostgreSQL loads by name, and what stands in for
# functions of the ZooKeeper client library, and nothing else.

use strict;
use warnings;

use File::Temp qw(tempdir);
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZooKeeper;

my $top = $ENV{TESTDIR} or die "needs TESTDIR\n";
my $build = tempdir(CLEANUP => 1);
my $sources = tempdir(CLEANUP => 1);
my $pg_config = $ENV{PG_CONFIG} // 'pg_config';

sub run_make
{
	my @words = @_;
	my $output = `make -s -C $build -f $sources/Makefile VPATH=$sources \\
		PG_CONFIG=$pg_config with_llvm=no @words 2>&1`;
	is($?, 0, "make @words") or diag($output);
	return $output;
}

# make would find what was built among the sources
system("cp -r $top/Makefile $top/zklock.control $top/sql $top/src $top/expected $top/test $sources") == 0
  or die "could not copy the sources\n";
system("find $sources -name '*.o' -delete -o -name '*.bc' -delete") == 0
  or die "could not clean the sources\n";

run_make('-j2', 'all');

my %functions;
my @scripts = glob("$sources/sql/zklock--*.sql");
foreach my $script (@scripts)
{
	$functions{$_} = 1 foreach slurp_file($script) =~ /'MODULE_PATHNAME', '(\w+)'/g;
}
cmp_ok(scalar keys %functions, '>=', 15, 'functions in the scripts');

# of functions of libzookeeper, which it finds by name
my @stand_ins = ('is_unrecoverable',
	map { "deallocate_$_" } qw(Create2Response GetDataResponse WatcherEvent));
my @expected = ('Pg_magic_func', '_PG_init', 'zklock_worker_main', 'zklock_notice_main', @stand_ins,
	map { ($_, "pg_finfo_$_") } keys %functions);
my @exported = sort(map { (split)[2] } `nm -D --defined-only $build/zklock.so`);
is_deeply(\@exported, [ sort @expected ], 'the library exports what is called by name');

run_make('install', "DESTDIR=$build/root");
chomp(my @installed = `cd $build/root && find . -type f -printf '%f\\n'`);
is_deeply(
	[ sort @installed ],
	[ sort('zklock.so', 'zklock.control', map { s{.*/}{}r } @scripts) ],
	'what is installed');

# What PGXN wants of META.json: its specification has more that is optional.
my $meta = decode_json(slurp_file("$top/META.json"));
my ($provides) = values %{ $meta->{provides} };
is_deeply(
	[ grep { !$meta->{$_} } qw(abstract maintainer license meta-spec name version provides) ],
	[], 'META.json has what it must have');
like($_, qr/^\d+\.\d+\.\d+$/, 'a version of three numbers')
  for ($meta->{version}, $provides->{version}, $meta->{prereqs}{runtime}{requires}{PostgreSQL});
ok(-e "$top/$provides->{$_}", "there is its $_") for ('file', 'docfile');

my ($debian) = slurp_file("$top/debian/changelog") =~ /^zklock \((.*)-\d+\)/;
my ($spec) = slurp_file("$top/packaging/zklock.spec") =~ /^Version:\s+(\S+)$/m;
my ($control) = slurp_file("$top/zklock.control") =~ /^default_version = '(.*)'$/m;
is_deeply(
	[ $provides->{version}, $debian, $spec, $meta->{version} =~ s/\.\d+$//r ],
	[ ($meta->{version}) x 3, $control ],
	'versions in META.json, debian, the RPM spec and the control file');

# PostgreSQL 19 says in a line more which lock it waits for.
foreach my $file (grep { !m{/unicode_1} } glob("$top/expected/*_1.out"))
{
	my $other = slurp_file($file) =~
	  s/^CONTEXT:  waiting for \w+ on user lock \[[\d,]+\]\n/CONTEXT:  /mgr;
	ok($other eq slurp_file($file =~ s/_1\.out$/.out/r), "$file differs in context only");
}

my $zk = ZooKeeper->new;
$zk->start;
my $a = zk_cluster('a', $zk, 'max_prepared_transactions' => 10);

local $ENV{PGHOST} = $a->host;
local $ENV{PGPORT} = $a->port;
my @passed = run_make('installcheck') =~ /All (\d+) tests passed/g;
my @tests = map { scalar @{[ glob("$top/test/$_") ]} } qw(sql/*.sql isolation/specs/*.spec);
is("@passed", "@tests", 'all tests of both kinds pass, from the build directory');

done_testing();
