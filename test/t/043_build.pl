# Copyright (c) 2026, zklock developers

# What a packager does: make dist, a build apart from the sources that are in it,
# its installation, and make installcheck on a running server.
# All that names a version names the same one.
# Alternative expected outputs differ in PostgreSQL's own words only.
# The library exports what PostgreSQL loads by name, and what stands in for
# functions of the ZooKeeper client library, and nothing else.
# Objects that were compiled for another PostgreSQL are removed ahead of a build,
# also if its version is the same.

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
my $repository = tempdir(CLEANUP => 1);
my ($version) = slurp_file("$top/META.json") =~ /^  "version": "(.*)"/m;
my $sources = "$repository/build/zklock-$version";
my $pg_config = $ENV{PG_CONFIG} // 'pg_config';

sub run_make
{
	my @words = @_;
	my $output = `make -s -C $build -f $sources/Makefile VPATH=$sources \\
		PG_CONFIG=$pg_config with_llvm=no @words 2>&1`;
	is($?, 0, "make @words") or diag($output);
	return $output;
}

# The distribution is of what is committed, so commit all.
my $git = "git -C $repository -c user.name=a -c user.email=a\@example.org -c init.defaultBranch=main";
system("tar -C $top --exclude=./.git --exclude=./build --exclude=./tmp_check -cf - . | tar -C $repository -xf -"
	  . " && $git init -q && $git add . && $git commit -q -m all") == 0
  or die "could not commit the sources\n";
my $output = `make -C $repository PG_CONFIG=$pg_config dist 2>&1`;
is($?, 0, 'make dist') or die $output;
system('python3', '-m', 'zipfile', '-e', "$sources.zip", "$repository/build") == 0
  or die "could not unpack $sources.zip\n";
is_deeply(
	[ sort `cd $sources && find . -type f -printf '%P\n'` ],
	[ sort `$git ls-files` ],
	'the distribution has all that is committed');
ok(-s "$sources/$_", "it has $_")
  for (qw(META.json README.md LICENSE Makefile zklock.control sql/zklock--1.0.sql src/zklock.c));

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
my @expected = ('Pg_magic_func', '_PG_init', 'zklock_worker_main', @stand_ins,
	map { ($_, "pg_finfo_$_") } keys %functions);
my @exported = sort(map { (split)[2] } `nm -D --defined-only $build/zklock.so`);
is_deeply(\@exported, [ sort @expected ], 'the library exports what is called by name');

run_make('install', "DESTDIR=$build/root");
chomp(my @installed = `cd $build/root && find . -type f -printf '%f\\n'`);
is_deeply(
	[ sort @installed ],
	[ sort('zklock.so', 'zklock.control', map { s{.*/}{}r } @scripts) ],
	'what is installed');

# What PGXN wants of META.json; its specification has more that is optional.
# PGXN's own check of all of it is in no release of Debian:
#	cpan PGXN::Meta::Validator && validate_pgxn_meta META.json
my $meta = decode_json(slurp_file("$sources/META.json"));
my ($provides) = values %{ $meta->{provides} };
is_deeply(
	[ grep { !$meta->{$_} } qw(abstract maintainer license meta-spec name version provides) ],
	[], 'META.json has what it must have');
like($_, qr/^\d+\.\d+\.\d+$/, 'a version of three numbers')
  for ($meta->{version}, $provides->{version}, $meta->{prereqs}{runtime}{requires}{PostgreSQL});
ok(-e "$sources/$provides->{$_}", "there is its $_") for ('file', 'docfile');

my ($debian) = slurp_file("$top/debian/changelog") =~ /^zklock \((.*)-\d+\)/;
my ($spec) = slurp_file("$top/packaging/zklock.spec") =~ /^Version:\s+(\S+)$/m;
my ($control) = slurp_file("$top/zklock.control") =~ /^default_version = '(.*)'$/m;
is_deeply(
	[ $provides->{version}, $debian, $spec, $meta->{version} =~ s/\.\d+$//r ],
	[ ($meta->{version}) x 3, $control ],
	'versions in META.json, debian, the RPM spec and the control file');

my $zk = ZooKeeper->new;
$zk->start;
my $a = zk_cluster('a', $zk, 'max_prepared_transactions' => 10);

local $ENV{PGHOST} = $a->host;
local $ENV{PGPORT} = $a->port;
my @passed = run_make('installcheck') =~ /All (\d+) tests passed/g;
my @tests = map { scalar @{[ glob("$top/test/$_") ]} } qw(sql/*.sql isolation/specs/*.spec);
is("@passed", "@tests", 'all tests of both kinds pass, from the build directory');

#
# Objects of another PostgreSQL
#

# A pg_config that tells of more flags
append_to_file("$repository/pg_config", <<"EOC");
#!/bin/sh
$pg_config "\$@" | sed "s/^CFLAGS = /&\$MORE_FLAGS /"
EOC
chmod 0755, "$repository/pg_config";

sub clean_other
{
	my ($flags) = @_;

	system("MORE_FLAGS=$flags PG_CONFIG=$repository/pg_config bash -c"
		  . " 'set -eu; . $repository/test/lib/env.sh; zk_clean_other'") == 0
	  or die "could not clean\n";
	return;
}

my $object = "$repository/src/zklock.o";
clean_other('-Og');
append_to_file($object, 'compiled');
clean_other('-Og');
ok(-e $object, 'an object that was compiled with the same flags stays');
clean_other('-O2');
ok(!-e $object, 'one that was compiled with other flags goes');

done_testing();
