
# Copyright (c) 2026, zklock developers

# The pages agree with the code: messages with their level or SQLSTATE; settings
# with type, default, range and context; functions, and who may call them; columns
# of views and functions; limits.  Each comparison is also made with a page that
# has been changed, and notices it.
#
# The English of the pages, of messages and descriptions, of what programs print,
# and of the names of tests is what test/lib/prose wants, and it reports each kind
# of offence.

use strict;
use warnings;

use File::Temp qw(tempdir);
use Test::More;

my $top = $ENV{TESTDIR} or die "needs TESTDIR\n";

sub slurp_path
{
	my ($name) = @_;
	open(my $handle, '<', $name) or die "$name: $!\n";
	local $/;
	return scalar <$handle>;
}

sub slurp { return slurp_path("$top/$_[0]"); }

my %page = map { $_ => slurp("doc/$_.md") } qw(functions views settings messages deadlocks);
$page{src} = slurp('src/README.md');
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

# The arguments of a call, from the parenthesis that opens it on.
sub arguments
{
	my ($text) = @_;
	my ($depth, @arguments) = (0, '');

	while ($text =~ /\G("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^"'])/gcs)
	{
		my $token = $1;

		if ($token =~ /^[(\[{]$/ && ++$depth == 1)
		{
			next;
		}
		last if $token =~ /^[)\]}]$/ && --$depth == 0;
		if ($token eq ',' && $depth == 1)
		{
			push @arguments, '';
			next;
		}
		$arguments[-1] .= $token;
	}
	return map { s/^\s+|\s+$//gr } @arguments;
}

# The string that adjacent literals make.
sub literal
{
	my ($text) = @_;

	return join('', $text =~ /"((?:[^"\\]|\\.)*)"/g) =~ s/\\"/"/gr;
}

#
# Messages: each with its level, and an error with its SQLSTATE
#

# Errors about files and memory, and what no user can cause.
my $elsewhere = qr/file "%s".*%m$|^could not read file "%s": read |^out of memory|^could not generate random|trigger manager$/;

chomp(my $include = `\${PG_CONFIG:-pg_config} --includedir-server`);
my %sqlstate = slurp_path("$include/utils/errcodes.h") =~ /^#define (ERRCODE_\w+) MAKE_SQLSTATE\(([^)]*)\)/mg;
s/[', ]//g for values %sqlstate;

my @messages;
for my $file (split /\n/, `cd '$top' && find src -name '*.c'`)
{
	my $text = slurp($file) =~ s{/\*.*?\*/}{}gsr;

	while ($text =~ /\bereport\b(?=\()/g)
	{
		my ($level, @parts) = arguments(substr $text, pos $text);
		my $report = join ',', @parts;
		my ($code) = $report =~ /\berrcode\((ERRCODE_\w+)\)/;
		my $kind = $level =~ /(?:^| : )([A-Z]+\d?)$/ ? $1 : undef;

		next if ($kind // '') =~ /^DEBUG/;
		# of the worker's errors the log has the level
		$kind = $code && $sqlstate{$code} if ($kind // '') eq 'ERROR' && $file !~ m{^src/worker/};
		while ($report =~ /\berrmsg(?:_plural)?\b(?=\()/g)
		{
			my $plural = $& =~ /plural/;
			my @forms = arguments(substr $report, pos $report);

			# what was printed into a variable ahead of that
			@forms = substr($text, 0, pos $text) =~ /.*\b$forms[1] = psprintf\(("[^;]*?"),/s if $forms[0] eq '"%s"';
			push @messages, map { { text => literal($_), kind => $kind } } @forms[0 .. $plural];
		}
	}
}
cmp_ok(scalar @messages, '>', 140, 'the code has messages');

# The rows of the page: level or SQLSTATE, and message.
sub rows_of_messages
{
	my ($text) = @_;
	my @rows;

	while ($text =~ /^\| (?:(SQLSTATE|level) \| )?message \|.*\n\|[-|]+\n((?:\|.*\n)+)/mg)
	{
		my ($first, $table) = ($1, $2);

		for my $row (split /\n/, $table)
		{
			my (undef, @cells) = split /\|/, $row;
			my $kind = $first ? shift @cells : 'WARNING';

			push @rows, [ $kind =~ /(\w+)/, $cells[0] =~ s/[`*]//gr =~ s/\]\([^)]*\)/]/gr =~ s/\s+/ /gr ];
		}
	}
	return @rows;
}

# All of a message but its parameters.
sub pattern
{
	my ($message) = @_;
	my $pattern = join '.{0,60}?', map { quotemeta } split /%(?:ll|l|z)?[a-zA-Z]/, $message =~ s{%s/%s}{%s}gr, -1;

	return qr/$pattern/;
}

# What the page has of PostgreSQL's own errors, as they concern locks.
my $postgres = qr/^(?:permission denied for function|cannot execute .* in a read-only transaction|out of shared memory$|canceling statement due to|you don't own a lock|must be a superuser to terminate|or permission denied to terminate)/;

sub wrong_messages
{
	my ($text) = @_;
	my @rows = rows_of_messages($text);
	my @wrong;

	for my $message (grep { $_->{text} !~ $elsewhere } @messages)
	{
		my $pattern = pattern($message->{text});
		my $kind = $message->{kind};

		# where the level or the SQLSTATE varies, any row will do
		push @wrong, 'not on the page: ' . ($kind // '') . " $message->{text}"
		  unless grep { $_->[1] =~ $pattern && (!defined $kind || $_->[0] eq $kind) } @rows;
	}
	for my $row (@rows)
	{
		for my $piece (map { split /; (?:of [\w ]+: )?/ } $row->[1] =~ s/^\s+|\s+$//gr)
		{
			push @wrong, "not in the code: $piece"
			  unless $piece =~ $postgres || grep { $piece =~ pattern($_->{text}) } @messages;
		}
	}
	return @wrong;
}

#
# Settings: type, default, range or values, and when they can be changed
#

my %contexts = (
	PGC_POSTMASTER => qr/^restart$/,
	PGC_SIGHUP => qr/^reload$/,
	PGC_SUSET => qr/^superuser; also per database and role$/,
	PGC_USERSET => qr/^any time\b/);

# The words of an array of enum values, those that are hidden left out.
sub words_of_enum
{
	my ($array) = @_;
	my ($values) = $settings_source =~ /\b$array\[\] = \{\n(.*?)\n\};/s;

	return $values =~ /\{"(\w+)", \w+, false\}/g;
}

sub number_of_code
{
	my ($text) = @_;

	return { INT_MAX => 2147483647, ZK_RETAIN_BY_HABIT => -1 }->{$text} // $text if $text !~ m{/};
	my ($dividend, $divisor) = map { number_of_code($_) } split m{ / }, $text;
	return int($dividend / $divisor);
}

sub settings_of_code
{
	my %settings;

	while ($settings_source =~ /\bDefineCustom(String|Int|Bool|Enum)Variable\b(?=\()/g)
	{
		my ($type, $name, undef, undef, undef, $default, @rest) = ($1, arguments(substr $settings_source, pos $settings_source));
		my @names = literal($name);
		my %setting;

		if ($type eq 'Int')
		{
			my ($from, $to) = map { number_of_code($_) } splice @rest, 0, 2;

			%setting = (type => 'integer', values => "$from to $to", default => number_of_code($default));
		}
		elsif ($type eq 'Enum')
		{
			my $array = shift @rest;
			my ($word) = $settings_source =~ /\b$array\[\] = \{\n.*?\{"(\w+)", $default, false\}/s;

			%setting = (type => 'enum', values => join(' ', words_of_enum($array)), default => $word);
		}
		else
		{
			%setting = (type => $type eq 'Bool' ? 'boolean' : 'string', values => '',
				default => $type eq 'Bool' ? { true => 'on', false => 'off' }->{$default} : literal($default) || 'empty');
		}
		$setting{context} = shift @rest;
		$setting{type} .= ', ms' if $rest[0] =~ /GUC_UNIT_MS/;
		$settings{$_} = \%setting for @names;
	}
	return %settings;
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
	my %sections = sections($text);
	my @titles = grep { /^zklock\./ } map { split /, / } keys %sections;
	my (%table, @wrong);

	while ($text =~ /^\| \[(zklock\.[^\]]+)\]\(#\w[\w-]*\) \| ([^|]+) \| ([^|]+) \| ([^|]*) \| ([^|]+) \|$/mg)
	{
		my ($names, @cells) = ($1, $2, $3, $4, $5);

		$table{$_} = \@cells for map { /^zklock/ ? $_ : "zklock.$_" } split /, /, $names;
	}
	push @wrong, differences([ keys %code ], \@titles), differences([ keys %code ], [ keys %table ]);
	for my $name (grep { $table{$_} } sort keys %code)
	{
		my $setting = $code{$name};
		my ($type, $default, $values, $context) = @{ $table{$name} };

		$values = $values =~ / to / ? join(' to ', map { number($_) } $values =~ /(`[^`]+`)/g)
		  : join(' ', $values =~ /`(\w+)`/g);
		push @wrong, "$name: type $type, not $setting->{type}" if $type ne $setting->{type};
		push @wrong, "$name: values $values, not $setting->{values}" if $values ne $setting->{values};
		push @wrong, "$name: default $default, not $setting->{default}"
		  if number($default =~ s/^empty\b.*/empty/sr) ne $setting->{default};
		push @wrong, "$name: $context" if $context !~ $contexts{ $setting->{context} };
	}
	return @wrong;
}

#
# Functions: their arguments and results, and who may call them
#

# A declaration, in one form.
sub signature
{
	my ($name, $arguments, $result) = @_;

	$_ = join ' ', split ' ' for grep { defined } $arguments, $result;
	$arguments =~ s/^\( | \)$//g;
	return "$name($arguments)" . ($result ? " returns $result" : '');
}

sub functions_of_code
{
	my @functions;

	while ($sql =~ /^CREATE (FUNCTION|PROCEDURE) (zk_\w+)\((.*?)\)\n(?:RETURNS ([^\n]+)\n)?/msg)
	{
		my ($kind, $name, $arguments, $result) = ($1, $2, $3, $4);

		next if $name =~ /_status$|^zk_fences_keep$|^zk_warn_not_preloaded$/;
		my @out = $arguments =~ /\bOUT "?(\w+)"? ([^,]+?)(?:,|$)/g;
		if (@out)
		{
			my @columns;

			$arguments =~ s/,?\s*\bOUT .*//s;
			push @columns, join ' ', splice @out, 0, 2 while @out;
			$result = 'setof (' . join(', ', @columns) . ')';
		}
		push @functions, signature($name, $arguments, $result);
	}
	return @functions;
}

sub functions_of_page
{
	my ($text) = @_;
	my @functions;

	while ($text =~ /^((?: {4}.*\n)+)/mg)
	{
		my $block = join ' ', split ' ', $1;

		while ($block =~ /\b(zk_\w+)\(((?:[^()]|\([^()]*\))*)\)(?: returns (setof \([^)]*\)|\w+))?/g)
		{
			my ($name, $arguments, $result) = ($1, $2, $3);

			push @functions, signature($name, $arguments, $result) if defined $result || $block =~ /^CALL\b/;
		}
	}
	return @functions;
}

# What everybody may call, by what the script revokes.
sub public_functions
{
	my %revoked = map { $_ => 1 } $sql =~ /^REVOKE ALL ON FUNCTION (\w+)/mg;

	return grep { !$revoked{$_} } map { /^(\w+)/ } functions_of_code();
}

# Those of them that take no lock, but end or look at what the caller has.
my $takes_none = qr/^zk_(?:unlock|unlock_all|renew_claim|use_claim|end_claim|fencing_token)$/;

sub wrong_functions
{
	my ($text) = @_;
	my %sections = sections($text);
	my $privileges = $sections{Privileges};
	my %usable_by = reverse $privileges =~ /^\| (.*) \| (.*) \|$/mg;
	my ($revoke) = $privileges =~ /^REVOKE EXECUTE ON ROUTINE (.*?) FROM PUBLIC;/ms;
	my ($grant) = $privileges =~ /^GRANT  EXECUTE ON ROUTINE (.*?) TO shop;/ms;
	my @takers = grep { !/$takes_none/ } public_functions();
	my %granted = ('everyone, as with advisory locks' => [ public_functions() ]);

	while ($sql =~ /^GRANT (?:EXECUTE|SELECT) ON (?:FUNCTION )?(zk_\w+)[^;]* TO (\w+(?:, \w+)*);/mg)
	{
		my ($name, @roles) = ($1, split /, /, $2);

		push @{ $granted{"members of $_"} }, $name for grep { $name !~ /_status$/ } @roles;
	}
	return (differences([ functions_of_code() ], [ functions_of_page($text) ]),
		(map { differences($granted{$_}, [ ($usable_by{$_} // '') =~ /`(zk_\w+)`/g ]) } sort keys %granted),
		differences(\@takers, [ ($revoke // '') =~ /\w+/g ]),
		differences(\@takers, [ ($grant // '') =~ /\w+/g ]));
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
# Limits: a constant of the code, its value, and how a page has it
#

my @limits = (
	[ ZNODE_MAX_NAME => 255, functions => 'length of a name | 255 bytes as encoded' ],
	[ ZNODE_MAX_ROOT => 119, functions => 'of a chroot | 119 bytes each' ],
	[ ZNODE_MAX_ROOT => 119, settings => 'Up to 119 bytes of' ],
	[ ZK_MAX_PATH_BYTES => '(1024 * 1024)', functions => 'paths of the znodes of an instance | 1 MB:' ],
	[ ZK_MAX_PATH_BYTES => '(1024 * 1024)', views => 'limit of `path_bytes`, 1 MB' ],
	[ ZK_MAX_ROOTS => 256, messages => '256 different values of `zklock.root`' ],
	[ ZK_MAX_NAMES => 500, functions => '`zk_lock_any` | 500 |' ],
	[ ZK_MAX_NAMES => 500, messages => 'more than 500 locks' ],
	[ CLAIM_MAX_TTL_US => '(INT64_C(86400) * 1000000)', messages => 'between 1 second and 1 day' ],
	[ ZK_READ_MAX_BYTES => '(8 * 1024 * 1024)', functions => '`zk_fleet_locks` read | 8 MB' ],
	[ ZK_READ_MAX_BYTES => '(8 * 1024 * 1024)', messages => 'has more than 8 MB' ],
	[ ZK_READ_MAX_DATA => 1024, functions => '1,024 bytes of `owner`' ],
	[ MAX_MEMBERS => 1000, functions => 'zk_fleet` shows | 1,000 |' ],
	[ MAX_MEMBERS => 1000, messages => 'more than 1000 instances' ],
	[ MAX_REVOCABLE => 1000, functions => 'reach | 1,000 at a time' ],
	[ ENTRY_BYTES => 4096, functions => 'zk_deadlocks` | 4,096' ],
	[ ZK_DEADLOCKS => 32, views => 'the latest 32 [deadlocks' ],
	[ HISTOGRAM_BUCKETS => 32, views => 'in 32 buckets' ],
	[ DEADLOCK_CYCLE => 64, functions => 'deadlock between instances | 64;' ],
	[ DEADLOCK_CYCLE => 64, deadlocks => 'more than 64 members' ],
	[ DEADLOCK_TEXTS => 8, deadlocks => 'at most eight texts' ],
	[ DEADLOCK_TEXT_BYTES => 65536, deadlocks => "texts of 64\nkB" ],
	[ MAX_CHILDREN => 2000, messages => 'more than 2,000 znodes in `%waits`' ],
	[ MAX_PASSWORD_BYTES => 1000, settings => 'up to 1000 bytes' ]);

my %constants = map { /^#define\s+(\w+)\s+(.*?)\s*(?:\/\*.*)?$/ ? ($1 => $2) : () }
  split /\n/, `cd '$top' && grep -rhE '^#define' src`;

sub wrong_limits
{
	my (%texts) = @_;

	return map {
		my ($name, $value, $page, $words) = @$_;

		($constants{$name} // '') eq $value && index($texts{$page}, $words) >= 0 ? () : "$page: $words"
	} @limits;
}

#
# The pages as they are, and with a change in each
#

for my $comparison (
	[ 'messages has all messages of the code', wrong_messages($page{messages}) ],
	[ 'settings has all settings, with their defaults', wrong_settings($page{settings}) ],
	[ 'functions and views have all columns', wrong_columns(@page{qw(functions views)}) ],
	[ 'functions has all functions, and who may call them', wrong_functions($page{functions}) ],
	[ 'the pages have the limits', wrong_limits(%page) ])
{
	my ($name, @offences) = @$comparison;

	is(join("\n", @offences), '', $name);
}

for my $change (
	[ 'a message that the page lacks', sub { wrong_messages($page{messages} =~ s/^.*cannot PREPARE a transaction.*\n//mgr) } ],
	[ 'a message that the code lacks', sub { wrong_messages($page{messages} =~ s/^(\| 54000.* \|) cannot take/$1 it is full; cannot take/mr) } ],
	[ 'an SQLSTATE', sub { wrong_messages($page{messages} =~ s/^\| 54000/| 53200/mr) } ],
	[ 'the level of a log message', sub { wrong_messages($page{messages} =~ s/^\| LOG (?=.*lost the lock)/| WARNING /mr) } ],
	[ 'a setting that the page lacks', sub { wrong_settings($page{settings} =~ s/^## zklock\.max_claims$/## Claims/mr) } ],
	[ 'a setting that the code lacks', sub { wrong_settings("$page{settings}\n## zklock.new\n\ntext\n") } ],
	[ 'a default', sub { wrong_settings($page{settings} =~ s/`8192`/`4096`/r) } ],
	[ 'a type', sub { wrong_settings($page{settings} =~ s/integer, ms/integer, s/r) } ],
	[ 'a range', sub { wrong_settings($page{settings} =~ s/`2s` to/`1s` to/r) } ],
	[ 'a value of an enum', sub { wrong_settings($page{settings} =~ s/, `quorum` or `off`/ or `off`/r) } ],
	[ 'when a setting can be changed', sub { wrong_settings($page{settings} =~ s/ \| restart \|$/ | reload |/mr) } ],
	[ 'a function that the page lacks', sub { wrong_functions($page{functions} =~ s/^ {4}zk_end_claim.*//mr) } ],
	[ 'an argument', sub { wrong_functions($page{functions} =~ s/ttl interval DEFAULT NULL/ttl interval/r) } ],
	[ 'who may call a function', sub { wrong_functions($page{functions} =~ s/`zk_use_claim`, (?=.*everyone)//r) } ],
	[ 'a function in the list to revoke', sub { wrong_functions($page{functions} =~ s/zk_claim, zk_try_claim FROM/zk_claim FROM/r) } ],
	[ 'a column of a view', sub { wrong_columns($page{functions}, $page{views} =~ s/^\| `granted` /| `held` /mr) } ],
	[ 'a column of a function', sub { wrong_columns($page{functions} =~ s/^\| `queued_at` /| `since` /mr, $page{views}) } ],
	[ 'a limit', sub { wrong_limits(%page, functions => $page{functions} =~ s/4,096/8,192/gr) } ])
{
	my ($name, $found) = @$change;

	my @offences = $found->();

	note(@offences);
	cmp_ok(scalar @offences, '>', 0, "$name is noticed");
}

#
# English
#

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
is_deeply([ offences('--texts', map { glob "$top/test/$_" } qw(t/*.pl lib/*.pm chaos/*.p[lm])) ],
	[], 'and the names of tests');

# This file is read, too: what is planted is in no string of its own.
foreach my $text (split /\n\n/, <<'EOF' =~ s/\n$//r)
The lock is taken anew.

The session waits in vain.

The defect is mended.

Deadlocks and their kin.

The worker deletes it himself.

Whoever asks gets it.

It is kept for ever.

No lock can be had.

Readers do likewise.

At most so many locks.

It is that which counts.

It waits till then.

It is released.
Who waits for it gets it.

What is listed: locks.

It is given to who asks.

The view tells which lock it is.

The log tells that it is lost.

Nobody is told.

The worker has heard of it.

The color and the colour.
EOF
{
	is(scalar planted('page.md', "$text\n"), 1, $text);
}

my $word = 'anew';
is_deeply(
	[ planted('page.md', "# What is kept\n\nWho has it?\n\n`$word`\n\n```\n$word\n```\n\n    $word\n\n[a]($word.md)\n") ],
	[], 'headings, questions, code and links are left alone');
like((planted('page.md', "One.\n\n- Two\n  lines\n- in\n  " . 'vain' . "\n"))[0],
	qr/^page\.md:5: "in vain": without effect$/, 'a phrase over the end of a line');
is_deeply(
	[ map { /^(\S+):/ } planted('a.c', "/*\n * taken $word\n */\nint $word;\nchar *s = \"$word\";\n") ],
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
