
# Copyright (c) 2026, zklock developers

# The pages agree with the code: messages, settings with their defaults, columns
# of views and functions, and limits.  Each comparison is also made with a page
# that has been changed, and notices it.

use strict;
use warnings;

use Test::More;

my $top = $ENV{TESTDIR} or die "needs TESTDIR\n";

sub slurp
{
	my ($name) = @_;
	open(my $handle, '<', "$top/$name") or die "$name: $!\n";
	local $/;
	return scalar <$handle>;
}

my %page = map { $_ => slurp("doc/$_.md") } qw(functions views settings messages);
my $sql = slurp(glob("$top/sql/zklock--*.sql") =~ s/^\Q$top\E\///r);
my $settings_source = slurp('src/shared/settings.c');

# The sections of a page, by title.
sub sections
{
	my ($text) = @_;
	my (undef, @sections) = split /^##+ (.*)\n/m, $text;
	return @sections;
}

# What is in one of two lists only, each name with the list that lacks it.
sub differences
{
	my ($code, $pages) = @_;
	my %code = map { $_ => 1 } @$code;
	my %pages = map { $_ => 1 } @$pages;
	return sort((map { "not on the page: $_" } grep { !$pages{$_} } keys %code),
		(map { "not in the code: $_" } grep { !$code{$_} } keys %pages));
}

#
# Messages
#

# Errors of the operating system, and what no user can cause.
my $elsewhere = qr/%m|^out of memory|^could not generate random|^could not read file "%s": read |trigger manager$/;

my @messages;
for my $file (split /\n/, `cd '$top' && find src -name '*.c'`)
{
	my $text = slurp($file) =~ s{/\*.*?\*/}{}gsr;

	while ($text =~ /\berrmsg(?:_plural)?\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)/g)
	{
		my $message = join '', $1 =~ /"((?:[^"\\]|\\.)*)"/g;

		$message =~ s/\\"/"/g;
		push @messages, $message =~ s{%s/%s}{%s}gr unless $message =~ $elsewhere;
	}
}
cmp_ok(scalar @messages, '>', 100, 'the code has messages');

# Those that this page lacks: all of a message but its parameters.
sub missing_messages
{
	my ($text) = @_;

	$text =~ s/[`*]//g;
	$text =~ s/\]\([^)]*\)/]/g;
	$text =~ s/\s+/ /g;
	return grep {
		my $pattern = join '.{0,60}?', map { quotemeta } split /%(?:ll|l|z)?[a-zA-Z]/, $_, -1;
		$text !~ /$pattern/
	} @messages;
}

#
# Settings: names, and defaults that are numbers
#

sub settings_of_code
{
	my %default;

	while ($settings_source =~ /"(zklock\.\w+)",/g)
	{
		$default{$1} //= '';
	}
	while ($settings_source =~ /"(zklock\.\w+)",\s*(?:"(?:[^"\\]|\\.)*"\s*)+,\s*(?:"(?:[^"\\]|\\.)*"|NULL),\s*&\w+,\s*(-?\d+),/g)
	{
		$default{$1} = $2;
	}
	return %default;
}

sub settings_of_page
{
	my ($text) = @_;
	my (%default, %table);
	my @sections = sections($text);

	while ($text =~ /^\| \[(zklock\.[^\]]+)\]\(#\w[\w-]*\) \| [^|]+ \| ([^|]+) \|/mg)
	{
		my ($names, $value) = ($1, $2);

		$table{$_} = $value for map { /^zklock/ ? $_ : "zklock.$_" } split /, /, $names;
	}
	while (my ($title, $section) = splice(@sections, 0, 2))
	{
		my ($value) = $section =~ /\A\n\*Type [^;]+; default ([^.]+)\. [^*]+\*\n/;

		for my $name (split /, /, $title)
		{
			$default{$name} = $value // 'none';
			$default{$name} = "$default{$name}, and " . ($table{$name} // 'nothing') . " in the table"
			  if ($table{$name} // 'nothing') ne $default{$name};
		}
	}
	return %default;
}

sub number
{
	my ($value) = @_;

	$value =~ s/`//g;
	return $1 * { ms => 1, s => 1000, min => 60_000 }->{$2} if $value =~ /^(\d+) ?(ms|s|min)$/;
	return $value;
}

sub wrong_settings
{
	my ($text) = @_;
	my %code = settings_of_code();
	my %pages = settings_of_page($text);

	return (differences([ keys %code ], [ keys %pages ]),
		map { "$_: $code{$_}, not $pages{$_}" }
		  grep { $code{$_} ne '' && exists $pages{$_} && $code{$_} ne number($pages{$_}) } sort keys %code);
}

#
# Columns
#

sub columns_of_page
{
	my ($text) = @_;
	my @sections = sections($text);
	my @columns;

	while (my ($title, $section) = splice(@sections, 0, 2))
	{
		my ($table) = $section =~ /^\| column \|.*\n\|-.*\n((?:\|.*\n)+)/m or next;

		for my $row (split /\n/, $table)
		{
			push @columns, map { "$title.$_" } (split /\|/, $row)[1] =~ /`(\w+)`/g;
		}
	}
	return @columns;
}

sub wrong_columns
{
	my ($functions, $views) = @_;
	my @functions;

	while ($sql =~ /^CREATE FUNCTION (zk_(?:queue|fleet|fleet_locks))\((.*?)\)\nRETURNS/msg)
	{
		my ($name, $arguments) = ($1, $2);

		push @functions, map { "$name.$_" } $arguments =~ /\bOUT "?(\w+)/g;
	}
	return (differences([ $sql =~ /^COMMENT ON COLUMN (\w+\.\w+)/mg ], [ columns_of_page($views) ]),
		differences(\@functions, [ columns_of_page($functions) ]));
}

#
# Limits: a constant of the code, and how the page has it
#

my @limits = (
	[ 'src/shared/questions.h', 'ZK_ANSWER_MAX_ENTRIES', 10000, 'zk_queue` shows | 10,000' ],
	[ 'src/shared/questions.h', 'ZK_ANSWER_MAX_DATA', 1024, '1,024 bytes of `owner`' ],
	[ 'src/worker/fleet/reader.c', 'MAX_MEMBERS', 1000, 'zk_fleet` shows | 1,000 |' ],
	[ 'src/worker/lock/checks.c', 'MAX_REVOCABLE', 1000, 'reach | 1,000 at a time' ],
	[ 'src/shared/deadlocks.c', 'ENTRY_BYTES', 4096, 'zk_deadlocks` | 4,096' ],
	[ 'src/shared/session_info.h', 'ZK_MAX_PATH_BYTES', '(1024 * 1024)', '1 MB in each of 16 sessions' ]);

sub wrong_limits
{
	my ($text) = @_;

	return map {
		my ($file, $name, $value, $words) = @$_;

		slurp($file) =~ /#define\s+$name\s+\Q$value\E\s/ && index($text, $words) >= 0 ? () : $name
	} @limits;
}

#
# The pages as they are, and with a change in each
#

for my $comparison (
	[ 'messages has all messages of the code', missing_messages($page{messages}) ],
	[ 'settings has all settings, with their defaults', wrong_settings($page{settings}) ],
	[ 'functions and views have all columns', wrong_columns(@page{qw(functions views)}) ],
	[ 'functions has the limits', wrong_limits($page{functions}) ])
{
	my ($name, @offences) = @$comparison;

	is(join("\n", @offences), '', $name);
}

for my $change (
	[ 'a message', sub { missing_messages($page{messages} =~ s/cannot PREPARE a transaction/cannot prepare/gr) } ],
	[ 'a setting that the page lacks', sub { wrong_settings($page{settings} =~ s/^## zklock\.max_claims$/## Claims/mr) } ],
	[ 'a setting that the code lacks', sub { wrong_settings("$page{settings}\n## zklock.new\n\ntext\n") } ],
	[ 'a default', sub { wrong_settings($page{settings} =~ s/`8192`/`4096`/gr) } ],
	[ 'a default in one place', sub { wrong_settings($page{settings} =~ s/`8192`/`4096`/r) } ],
	[ 'a column of a view', sub { wrong_columns($page{functions}, $page{views} =~ s/^\| `granted` /| `held` /mr) } ],
	[ 'a column of a function', sub { wrong_columns($page{functions} =~ s/^\| `queued_at` /| `since` /mr, $page{views}) } ],
	[ 'a limit', sub { wrong_limits($page{functions} =~ s/4,096/8,192/gr) } ])
{
	my ($name, $found) = @$change;

	cmp_ok(scalar(my @offences = $found->()), '>', 0, "$name is noticed");
}

done_testing();
