
# Copyright (c) 2026, zklock developers

# The English of the pages, of messages and descriptions, of what programs print,
# and of the names of tests is what test/lib/prose wants, and it reports each kind
# of offence.

use strict;
use warnings;

use File::Temp qw(tempdir);
use Test::More;

my $top = $ENV{TESTDIR} or die "needs TESTDIR\n";
my $dir = tempdir(CLEANUP => 1);

sub offences
{
	my (@files) = @_;
	chomp(my @offences = `$^X $top/test/lib/prose @files`);
	is($? >> 8, @offences ? 1 : 0, "the check's status");
	return @offences;
}

# The offences of a file of this text.
sub planted
{
	my ($name, $text) = @_;
	open(my $handle, '>', "$dir/$name") or die "$name: $!\n";
	print $handle $text;
	close($handle) or die "$name: $!\n";
	return map { s/^\Q$dir\E\///r } offences("$dir/$name");
}

my @pages = grep { -e } map { glob "$top/$_" } qw(*.md doc/*.md doc/*/*.md src/*.md
  test/*.md test/*/README.md demo/README.md bench/README.md rivals/README.md);
is_deeply([ offences(@pages) ], [], 'the pages are in order');

chomp(my @sources = `cd '$top' && find src -name '*.c'`);
is_deeply([ offences('--texts', map { "$top/$_" } @sources, 'sql/zklock--1.0.sql') ],
	[], 'and so are messages and descriptions');
is_deeply([ offences('--texts', map { "$top/$_" } qw(demo/run bench/run rivals/run test/run test/lib/env.sh)) ],
	[], 'what programs print');
is_deeply(
	[ offences('--texts', grep { !/057_prose/ } map { glob "$top/test/$_" } qw(t/*.pl lib/*.pm chaos/*.p[lm])) ],
	[], 'and the names of tests');

foreach my $text (
	'The lock is taken anew.', 'The session waits in vain.', 'The defect is mended.',
	'Deadlocks and their kin.', 'The worker deletes it himself.', 'Whoever asks gets it.',
	'It is kept for ever.', 'No lock can be had.', 'Readers do likewise.',
	'At most so many locks.', 'It is that which counts.', 'It waits till then.',
	"It is released.\nWho waits for it gets it.", 'What is listed: locks.',
	'It is given to who asks.', 'The view tells which lock it is.', 'The log tells that it is lost.',
	'Nobody is told.', 'The worker has heard of it.', 'The color and the colour.')
{
	is(scalar planted('page.md', "$text\n"), 1, $text);
}

is_deeply(
	[ planted('page.md', "# What is kept\n\nWho has it?\n\n`anew`\n\n```\nanew\n```\n\n    anew\n\n[a](anew.md)\n") ],
	[], 'headings, questions, code and links are left alone');
like((planted('page.md', "One.\n\n- Two\n  lines\n- in\n  vain\n"))[0],
	qr/^page\.md:5: "in vain": without effect$/, 'a phrase over the end of a line');
is_deeply(
	[ map { /^(\S+):/ } planted('a.c', "/*\n * taken anew\n */\nint anew;\nchar *s = \"anew\";\n") ],
	['a.c:1'], 'of C the comments');

# What others than the readers of a source see of it.
sub planted_texts
{
	my ($name, $text) = @_;
	planted($name, $text);
	return map { s/^\Q$dir\E\///r } offences('--texts', "$dir/$name");
}

is_deeply(
	[ map { /^(\S+):/ } planted_texts('a.c', qq(/* taken anew */\nf("key anew",\n"it is "\n"taken anew");\n)) ],
	['a.c:3'], 'of C the strings, but no keys');
is_deeply([ map { /^(\S+):/ } planted_texts('a.sql', "-- anew\nCOMMENT ON VIEW v IS\n'a lock''s colour';\nSELECT 'taken it anew';\n") ],
	['a.sql:3'], 'of SQL the descriptions');
is_deeply(
	[ map { /^(\S+):/ } planted_texts('a.pl', "# it is anew\nis(1, 1, 'it is taken anew');\nf('SELECT it anew, anew');\n") ],
	['a.pl:2'], 'of tests the names');

done_testing();
