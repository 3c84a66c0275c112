
# One name is one lock, whatever the encoding of the database that says it:
# names go to ZooKeeper in UTF-8, percent-encoded into one path component.
#
# And whichever database of a namespace says it (zklock.advisory_namespace): four
# shards, databases of four names on two instances, whose applications use
# PostgreSQL's advisory locks.  The settings are those of doc/from-advisory-locks.md.

use strict;
use warnings;
use utf8;

use File::Basename qw(dirname);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

# Nothing in here waits for a session to expire.
my %settings = ('zklock.session_timeout' => '60s');

my $zk = ZooKeeper->new;
$zk->start;
my ($a, $b) = map { zk_cluster($_, $zk, %settings) } qw(a b);

my @encodings = qw(UTF8 LATIN1 WIN1252 SQL_ASCII);
for my $node ($a, $b)
{
	for my $encoding (@encodings)
	{
		$node->safe_psql('postgres',
			"CREATE DATABASE $encoding ENCODING '$encoding'"
			  . " LOCALE 'C' TEMPLATE template0");
		$node->safe_psql(lc $encoding, 'CREATE EXTENSION zklock');
	}
}

# SQL for a name, given in characters.  In SQL_ASCII, where PostgreSQL knows no
# characters, it comes out as the bytes of UTF-8.
sub literal
{
	my ($name) = @_;

	utf8::encode($name);
	return sprintf("convert_from('\\x%s', 'UTF8')", unpack('H*', $name));
}

# The names that zk_locks shows, as bytes of UTF-8, in characters.
sub shown_names
{
	my ($node, $dbname) = @_;
	my $result = sql($node,
		"SELECT encode(convert_to(name, 'UTF8'), 'hex') FROM zk_locks", $dbname);
	is($result->{message}, undef, "zk_locks can be read in $dbname");
	my @names = map { pack('H*', $_) } split /\n/, $result->{out};
	utf8::decode($_) for @names;
	return sort @names;
}

sub try_lock
{
	my ($node, $dbname, $name, $timeout) = @_;
	my $result = sql($node,
		sprintf("SELECT zk_try_lock(%s, '%s')", literal($name), $timeout // 0),
		$dbname);
	return $result->{out} || $result->{message};
}

#
# The same name from everywhere
#

my %directory = ('é' => '%C3%A9', 'ÿ' => '%C3%BF', '£/ß %' => '%C2%A3%2F%C3%9F%20%25');
my %only_in = ('€' => 'UTF8 WIN1252 SQL_ASCII', '🔒' => 'UTF8 SQL_ASCII');
$directory{'€'} = '%E2%82%AC';
$directory{'🔒'} = '%F0%9F%94%92';

for my $name (sort keys %directory)
{
	my @who = grep { ($only_in{$name} // "@encodings") =~ /\b$_\b/ } @encodings;

	for my $holder (map { my $e = $_; map { [ $_, $e ] } $name eq 'é' ? ($a, $b) : $a } @who)
	{
		my ($node, $encoding) = @$holder;
		my $who = $node->name . ".$encoding";
		my $session = ZkSession->new($node, lc $encoding);

		$session->run_ok('BEGIN; SELECT zk_lock(' . literal($name) . ')',
			"$who locks $directory{$name}");
		is_deeply([ map { dirname($_) } all_contenders($zk) ],
			["/zklock/$directory{$name}"], '... in the right directory');
		is( $session->run(
				"SELECT path FROM zk_locks WHERE name = " . literal($name))->{out},
			"/zklock/$directory{$name}",
			'... where zk_locks says it is');

		my %answers = map {
			my $e = $_;
			map { ($_->name . ".$e" => try_lock($_, lc $e, $name)) } ($a, $b)
		} @who;
		is_deeply([ grep { $answers{$_} ne 'f' } sort keys %answers ],
			[], '... and excludes ' . join(' ', sort keys %answers));

		$session->run_ok('COMMIT', 'COMMIT');
		$session->quit;
		wait_no_contenders($zk, $name);
	}
}
is(try_lock($_->[0], $_->[1], 'é', '1 min'), 't', "é is free in $_->[1]")
  for ([ $a, 'latin1' ], [ $b, 'utf8' ], [ $a, 'sql_ascii' ]);

#
# Names that are longer in UTF-8
#

for my $encoding (qw(UTF8 LATIN1 SQL_ASCII))
{
	# six bytes each: 42 and three plain ones are 255
	is(try_lock($a, lc $encoding, 'é' x 42 . 'xyz', '1 min'),
		't', "255 encoded bytes in $encoding");
	is( sql($a, 'SELECT zk_lock(' . literal('é' x 42 . 'wxyz') . ')',
			lc $encoding)->{sqlstate},
		'22023',
		"256 encoded bytes in $encoding");
}

#
# Bytes that are no characters
#

sql_error(
	$a,
	q{SELECT zk_lock(E'\351')},
	{
		sqlstate => '22021',
		message => qr/invalid byte sequence for encoding "UTF8": 0xe9/
	},
	'SQL_ASCII: a name that is not UTF-8 is refused',
	'sql_ascii');

#
# Nasty names: none collides with another, from any database
#

my @names = (
	'é', 'e', "e\x{301}", 'É', '%C3%A9', '%c3%a9', 'Ã©', "\x{e9}\x{e9}",
	'ÿ', 'þ', "\x{80}", "\x{9f}", "\x{a0}", ' ', "\x{2003}", "\x{200b}",
	"\x{feff}", "\x{fffd}", "\x{ffff}", "\x{10ffff}", '€', '%E2%82%AC', '🔒',
	'🔐', '日本', '日/本', '/', '//', '%', '%%', '%2F', '%252F', '%2',
	'.', '..', '...', '%2E', '.é', '..é', "\t", "\n", "\r\n", "\x{7f}", "\x01",
	'\\', '"', "'", '$1', '{}', 'zookeeper', '_c_é-lock-0000000001',
	'x' x 255, '/' x 85, 'é' x 42);
my $session = ZkSession->new($a, 'utf8');
# what was taken often stays for a moment
poll_until(sub { !all_contenders($zk) }, 'all contenders to leave');
$session->run_ok('BEGIN', 'BEGIN');
$session->run_ok("SELECT zk_lock(${\ literal($_)})", lock_dir($_)) for @names;

is_deeply(
	[ sort map { dirname($_) } all_contenders($zk) ],
	[ sort map { lock_dir($_) } @names ],
	scalar(@names) . ' names have a directory each, with one contender');
is_deeply([ shown_names($a, 'utf8') ],
	[ sort @names ], 'zk_locks shows them in UTF8');
is_deeply([ shown_names($a, 'sql_ascii') ],
	[ sort @names ], '... and in SQL_ASCII');

# What cannot be converted is shown as it stands in the path.
my %top = (LATIN1 => qr/^[\x{00}-\x{ff}]*$/, WIN1252 =>
	  qr/^[\x{00}-\x{7f}\x{81}\x{8d}\x{8f}\x{90}\x{9d}\x{a0}-\x{ff}€]*$/);
for my $encoding (sort keys %top)
{
	my @expected = map {
		$_ =~ $top{$encoding} ? $_ : substr(lock_dir($_), length '/zklock/')
	} @names;
	is_deeply([ shown_names($a, lc $encoding) ],
		[ sort @expected ], "... and in $encoding as far as it can");
}

for my $encoding (@encodings)
{
	my $try = join(' UNION ALL ',
		map { "SELECT zk_try_lock(${\ literal($_)})" }
		  grep { !$top{$encoding} || $_ =~ $top{$encoding} } @names);
	my $result = sql($b, "SELECT string_agg(DISTINCT r::text, ' ') FROM ($try) AS t (r)",
		lc $encoding);
	is($result->{out} || $result->{message},
		'false', "none of them is free in b.$encoding");
}

# A waiter whose name the reader cannot say
my $waiter = ZkSession->new($a, 'utf8');
$waiter->send('SELECT zk_lock(' . literal('🔒') . ')');
$waiter->wait_waiting(1);
is( sql($a, "SELECT granted FROM zk_locks WHERE name = '%F0%9F%94%92' ORDER BY 1",
		'latin1')->{out},
	"f\nt",
	'zk_locks shows in LATIN1 who waits for an emoji');

$session->run_ok('COMMIT', 'COMMIT');
is($waiter->result->{message}, undef, 'who waited gets the lock');
wait_no_contenders($zk, $_) for @names;
is_deeply([ shown_names($a, 'latin1') ], [], 'nothing is held');

$_->quit for $session, $waiter;

#
# Shards
#

my $page = slurp_file(($ENV{TESTDIR} // '.') . '/doc/from-advisory-locks.md');
my @shards = ([ $a, 'shop_0' ], [ $a, 'shop_1' ], [ $b, 'shop_2' ], [ $b, 'shop_3' ]);

my ($settings) = $page =~ /^<!-- run: no, 002_one_name.pl [^\n]*-->\n```sql\n(.*?)^```$/ms
  or die 'doc/from-advisory-locks.md has no block for 002_one_name.pl';

for my $shard (@shards)
{
	my ($node, $dbname) = @$shard;

	$node->safe_psql('postgres', "CREATE DATABASE $dbname");
	$node->safe_psql($dbname, $settings =~ s/\bshop_0\b/$dbname/gr);
}

# A session in each shard, as the router has them.
my @sessions = map { ZkSession->new($_->[0], $_->[1]) } @shards;

is($_->run_ok('SHOW zklock.advisory_namespace'), 'shop', 'the namespace, by the database')
  for @sessions;

# A lock of a transaction is one of all shards, and so of sessions of one instance in
# two databases.

for my $i (0 .. $#sessions)
{
	my $holder = $sessions[$i];

	$holder->run_ok('BEGIN; SELECT pg_advisory_xact_lock(42), pg_advisory_xact_lock_shared(1, 2)');
	is(scalar contenders($zk, 'advisory/shop/42'), 1, 'the name in ZooKeeper');
	for my $j (grep { $_ != $i } 0 .. $#sessions)
	{
		my $other = $sessions[$j];

		is( $other->run_ok(
				'SELECT pg_try_advisory_xact_lock(42), pg_try_advisory_xact_lock(1, 2), pg_try_advisory_xact_lock_shared(1, 2), pg_try_advisory_xact_lock(43)'),
			'f|f|t|t', "$shards[$i][1] excludes $shards[$j][1]");
	}
	$holder->run_ok('COMMIT');
}

# those that wait get it one after the other
$sessions[0]->run_ok('BEGIN; SELECT pg_advisory_xact_lock(7)');
$_->send('SELECT pg_advisory_xact_lock(7)') for @sessions[ 1 .. 3 ];
$sessions[1]->wait_waiting(1);
$sessions[0]->run_ok('COMMIT');
is($_->result->{message}, undef, 'a waiter has had the lock') for @sessions[ 1 .. 3 ];

# Only a database's own advisory lock is taken beside the one in ZooKeeper.

{
	my $off = ZkSession->new(@{ $shards[0] });
	my $neighbor = ZkSession->new(@{ $shards[1] });

	$_->run_ok('SET zklock.advisory_locks = off') for ($off, $neighbor);
	$sessions[0]->run_ok('BEGIN; SELECT pg_advisory_xact_lock(42)');
	is($off->run_ok('SELECT pg_try_advisory_xact_lock(42)'), 'f',
		'a session of the database with the setting off is excluded');
	is($neighbor->run_ok('SELECT pg_try_advisory_xact_lock(42)'), 't', 'one of another database is not');

	# by the name of the lock, from a database that has another namespace
	my $stranger = ZkSession->new($a, 'postgres');
	is($stranger->run_ok(q{SELECT zk_try_lock('advisory/shop/42')}), 'f', 'the name is that of the lock');
	$sessions[0]->run_ok('COMMIT');
	$stranger->run_ok(q{BEGIN; SELECT zk_lock('advisory/shop/42')});
	is($off->run_ok('SELECT pg_try_advisory_xact_lock(42)'), 't',
		"and taken there takes no database's advisory lock");
	is($sessions[1]->run_ok('SELECT pg_try_advisory_xact_lock(42)'), 'f', 'but the one in ZooKeeper');
	$stranger->run_ok('COMMIT');
	$_->quit for ($off, $neighbor, $stranger);
}

# A lock of the session belongs to the session of that shard: the router's client
# cannot unlock it, nor take it again, by way of another one.

{
	my ($first, $second) = @sessions[ 0, 2 ];

	$first->run_ok('SELECT pg_advisory_lock(9)');
	my $result = $second->run('SELECT pg_advisory_unlock(9)');
	is($result->{out}, 'f', 'another shard does not unlock it');
	like($result->{warnings}[0]{message}, qr/^you don't own a lock of type ExclusiveLock/, '... with a WARNING');
	is($second->run("SET lock_timeout = '10ms'; SELECT pg_advisory_lock(9)")->{sqlstate}, '55P03',
		'... nor take it again');
	is($first->run_ok('SELECT pg_advisory_unlock(9)'), 't', 'the same shard does');
	$second->run_ok('RESET lock_timeout');
}

# A deadlock of shards is found, within an instance and between them.
for my $pair ([ 0, 1 ], [ 1, 2 ])
{
	my ($first, $second) = @sessions[@$pair];

	$first->run_ok(q{BEGIN; SET LOCAL deadlock_timeout = '1h'; SELECT pg_advisory_xact_lock(1)})
	  if $pair->[1] == 1;
	$first->run_ok('BEGIN; SELECT pg_advisory_xact_lock(1)') if $pair->[1] == 2;
	$second->run_ok('BEGIN; SELECT pg_advisory_xact_lock(2)');
	$first->send('SELECT pg_advisory_xact_lock(2)');
	$first->wait_waiting($pair->[1] == 1 ? 1 : 2);
	is($second->run('SELECT pg_advisory_xact_lock(1)')->{sqlstate}, '40P01', 'a deadlock');
	$second->run_ok('ROLLBACK');
	is($first->result->{message}, undef, 'the other one goes on');
	$first->run_ok('COMMIT');
}

# A wrong value that was stored while zklock was not loaded is not replaced by
# the default.
$sessions[0]->run_ok('SELECT 1');
is($a->psql('postgres', q{ALTER DATABASE shop_1 SET zklock.advisory_namespace = '} . 'x' x 219 . q{'}),
	3, 'a value that is too long is refused');
$_->quit for @sessions;
$a->append_conf('postgresql.conf', q{zklock.advisory_namespace = '} . 'x' x 219 . q{'});
$a->restart;
my $error = sql($a, q{SELECT zk_lock('x')});
is($error->{sqlstate}, 'F0000', 'in the configuration it is no default: no locks');
like($error->{detail}, qr/With it, the names of locks are too long\./, '... with the reason');
is($a->safe_psql('shop_0', q{SELECT zk_try_lock('x')}), 't', 'a database that has a value of its own has locks');

done_testing();
