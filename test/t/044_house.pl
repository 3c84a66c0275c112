# Copyright (c) 2026, zklock developers

# The structure of the sources is what test/lib/house wants, and it reports each
# kind of offence.

use strict;
use warnings;

use File::Basename qw(dirname);
use File::Path qw(make_path);
use File::Temp qw(tempdir);
use Test::More;

my $top = $ENV{TESTDIR} or die "needs TESTDIR\n";

sub offences
{
	my ($dir) = @_;
	chomp(my @offences = `$^X $top/test/lib/house $dir`);
	is($? >> 8, @offences ? 1 : 0, "the check's status");
	return @offences;
}

my @offences = offences($top);
is_deeply(\@offences, [], 'the sources are in order');

# The same sources with some more files, or lines: what is reported is what was
# there before, and one that is like each pattern.  New modules are drawn, unless
# the caller gives lines of the drawing.
sub plant
{
	my ($what, $files, @patterns) = @_;
	my $dir = tempdir(CLEANUP => 1);
	my %before = map { $_ => 1 } @offences;

	$files->{'files.dot'} //= join('',
		map { qq("$_" [label=""];\n) } grep { m{/} }
		map { s/(_private)?\.[ch]$//r } keys %$files);
	system("cp -r $top/src $dir") == 0 or die "could not copy the sources\n";
	foreach my $file (sort keys %$files)
	{
		make_path(dirname("$dir/src/$file"));
		open(my $handle, '>>', "$dir/src/$file") or die "$file: $!\n";
		print $handle $files->{$file};
		close($handle) or die "$file: $!\n";
	}

	my @planted = grep { !$before{$_} } offences($dir);
	my $same = @planted == @patterns
	  && !grep { $planted[$_] !~ /^$patterns[$_]/ } 0 .. $#planted;
	ok($same, $what) or diag("reported:\n", map { "$_\n" } @planted);
	return;
}

sub include { return join('', map { "#include $_\n" } @_); }

sub function
{
	my ($name, @body) = @_;
	return join("\n", 'void', "$name(void)", '{', (map { "\t$_;" } @body), "}\n");
}

plant('nothing is reported of a module in order',
	{   'worker/planted.h' => "extern void planted(void);\n",
		'worker/planted.c' => include('"postgres.h"', '"core/lock/znode.h"',
			'"shared/grant.h"', '"worker/planted.h"')
		  . function('planted', ('go()') x 60),
		'backend/planted.c' => include('"postgres.h"', '"shared/take.h"')
		  . "\n" x 698 });

# wings
plant('core/ includes shared/',
	{ 'core/planted.h' => include('"shared/planted.h"'), 'shared/planted.h' => '' },
	'core/planted.h: core/ includes shared/planted.h');
plant('core/ includes a header of PostgreSQL',
	{ 'core/planted.c' => include('"postgres.h"') },
	'core/planted.c: does not compile without PostgreSQL: postgres.h');
plant('core/ uses a type of PostgreSQL',
	{ 'core/planted.c' => "extern int64 planted;\n" },
	'core/planted.c: does not compile without PostgreSQL: unknown type');
plant('shared/ includes backend/',
	{ 'shared/planted.c' => include('"backend/planted.h"'), 'backend/planted.h' => '' },
	'shared/planted.c: shared/ includes backend/planted.h');
plant('shared/ includes worker/',
	{ 'shared/planted.c' => include('<worker/planted.h>'), 'worker/planted.h' => '' },
	'shared/planted.c: shared/ includes worker/planted.h');
plant('backend/ includes worker/',
	{ 'backend/planted.c' => include('"../worker/planted.h"'), 'worker/planted.h' => '' },
	'backend/planted.c: backend/ includes worker/planted.h');
plant('worker/ includes backend/',
	{ 'worker/planted.c' => include('"backend/planted.h"'), 'backend/planted.h' => '' },
	'worker/planted.c: worker/ includes backend/planted.h');
plant('another wing',
	{ 'attic/planted.c' => '' },
	'attic/planted.c: there is no wing attic/');

# headers that are not for everybody
plant('backend/ includes what is for the worker',
	{ 'backend/planted.c' => include('"shared/grant.h"') },
	'backend/planted.c includes shared/grant.h: not for backend/');
plant('backend/ includes it through another header',
	{   'backend/planted.c' => include('"shared/planted.h"'),
		'shared/planted.h' => include('"shared/grant.h"') },
	'backend/planted.c includes shared/grant.h through shared/planted.h: not for');
plant('worker/ includes what is for backends',
	{ 'worker/planted.c' => include('"shared/take.h"') },
	'worker/planted.c includes shared/take.h: not for worker/');
plant('a module of worker/ includes zookeeper.h',
	{ 'worker/planted.c' => include('<zookeeper/zookeeper.h>') },
	'worker/planted.c includes <zookeeper/zookeeper.h>: only');
plant('it includes it through another header',
	{   'worker/planted.c' => include('"worker/zookeeper/watches.h"'),
		'worker/zookeeper/watches.h' => include('<zookeeper/zookeeper.h>') },
	'worker/planted.c includes <zookeeper/zookeeper.h> through worker/zookeeper/watches.h: only');
plant('another wing includes zookeeper.h',
	{ 'shared/planted.h' => include('<zookeeper.h>') },
	'shared/planted.h includes <zookeeper.h>: only');
# private headers
plant('a folder includes its own private header',
	{   'worker/lock/planted.c' => include('"worker/lock/planted2_private.h"'),
		'worker/lock/planted2_private.h' => include('"worker/lock/planted2.h"'),
		'worker/lock/planted2.h' => '' });
plant('others include it, or get it through another header',
	{   'shared/planted_private.h' => '',
		'shared/planted2.h' => include('"shared/planted_private.h"'),
		'worker/planted.c' => include('"shared/planted_private.h"'),
		'backend/planted.c' => include('"shared/planted2.h"'),
		'worker/lock/planted_private.h' => '',
		'worker/deadlock/planted.c' => include('"worker/lock/planted_private.h"'),
		'core/deadlock/planted_private.h' => '',
		'core/planted.c' => include('"core/deadlock/planted_private.h"'),
		'core/planted2_private.h' => '',
		'core/lock/planted.c' => include('"core/planted2_private.h"') },
	'backend/planted.c includes shared/planted_private.h through shared/planted2.h: private to shared/',
	'core/lock/planted.c includes core/planted2_private.h: private to core/',
	'core/planted.c includes core/deadlock/planted_private.h: private to core/deadlock/',
	'worker/deadlock/planted.c includes worker/lock/planted_private.h: private to worker/lock/',
	'worker/planted.c includes shared/planted_private.h: private to shared/');

# folders
plant('folders include what they may',
	{   'core/deadlock/planted.h' => include('"core/lock/znode.h"', '"core/request.h"'),
		'worker/zookeeper/planted.h' => include('"core/lock/znode.h"', '"worker/wake.h"'),
		'worker/lock/planted.h' => include('"worker/zookeeper/planted.h"'),
		'worker/deadlock/planted.h' => include('"core/deadlock/planted.h"',
			'"worker/lock/planted.h"', '"worker/zookeeper/planted.h"'),
		'worker/planted.h' => include('"worker/deadlock/planted.h"',
			'"worker/lock/planted.h"') });
my %wrong = (
	'core/lock' => ['core/deadlock'],
	'worker/deadlock' => ['worker'],
	'worker/lock' => [qw(core/deadlock worker worker/deadlock)],
	'worker/zookeeper' => [qw(core/deadlock worker worker/deadlock worker/lock)]);
plant('folders include what they may not',
	{   (map { $_ => '' } map { map { "$_/target.h" } @$_ } values %wrong),
		map { $_ => include(map { qq("$_/target.h") } @{ $wrong{ $_ =~ s{/planted.c$}{}r } }) }
		  map { "$_/planted.c" } keys %wrong },
	map {
		my $from = $_;
		map { "$from/planted.c: $from/ includes $_/target.h" } @{ $wrong{$from} }
	  } sort keys %wrong);
plant('another folder',
	{ 'worker/attic/planted.c' => '' },
	'worker/attic/planted.c: there is no folder worker/attic/');

# circles
plant('two modules include each other',
	{   'worker/planted.c' => include('"worker/planted2.h"'),
		'worker/planted.h' => '',
		'worker/planted2.c' => include('"worker/planted.h"'),
		'worker/planted2.h' => '' },
	'circle: worker/planted -> worker/planted2 \(include\) -> worker/planted ');
plant('three headers include each other',
	{   'shared/planted.h' => include('"shared/planted2.h"'),
		'shared/planted2.h' => include('"shared/planted3.h"'),
		'shared/planted3.h' => include('"planted.h"') },
	'circle: shared/planted -> shared/planted2 .* -> shared/planted3 .* -> shared/planted ');
plant('two modules use each other by way of a common header',
	{   'backend/common.h' => "extern void planted(void);\nextern int\tplanted2(void);\n",
		'backend/planted.c' => include('"backend/common.h"')
		  . function('planted', 'run(&planted2)'),
		'backend/planted2.c' => include('"backend/common.h"')
		  . "static void (*table[]) (void) = {planted};\n\n"
		  . function('planted2', 'table[0]()') },
	'circle: backend/planted -> backend/planted2 \(planted2\(\)\) -> backend/planted \(planted\(\)\)');

# length
plant('a long function',
	{ 'shared/planted.c' => function('planted', ('go()') x 61) },
	'shared/planted.c: planted\(\) has 61 lines, more than 60');
plant('a long machine may be, a long function in it not',
	{ 'core/lock/permit.c' => function('planted', ('') x 61) },
	'core/lock/permit.c: planted\(\) has 61 lines, more than 60');

# macros
plant('a macro reads a clock twice',
	{ 'shared/planted.c' => function('planted', 'sleep_for(Max((first - zk_now_ms()), 0))') },
	'shared/planted.c: a macro evaluates a call twice: Max\(\(first - zk_now_ms\(\)\), 0\)');
plant('or what another process writes',
	{ 'shared/planted.c' => function('planted', 'least = Min(least, lease_read_ms(0))') },
	'shared/planted.c: a macro evaluates a call twice: Min\(least, lease_read_ms\(0\)\)');
plant('but not a clock that was read before, once',
	{ 'shared/planted.c' => function('planted', 'int64 now = zk_now_ms()', 'sleep_for(Max(first - now, 0))') });

# the drawing
plant('a module is not drawn',
	{ 'shared/planted.c' => '', 'files.dot' => '' },
	'files.dot: shared/planted is missing');
plant('a module is drawn that does not exist',
	{ 'files.dot' => qq("shared/planted" [label="planted"];\n) },
	'files.dot: there is no module shared/planted');
plant('an arrow is drawn that is no dependency',
	{ 'files.dot' => qq("core/lock/znode" -> "core/lock/recipe" [label="1"];\n) },
	'files.dot: core/lock/znode does not use core/lock/recipe');

done_testing();
