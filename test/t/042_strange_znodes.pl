# Copyright (c) 2026, zklock developers

# Znodes that no instance has made where instances look.
#
# - What is in those of others: how much data, how many znodes, and which bytes.  The
#   worker reads no more than an instance or a contender can have written, and tells
#   what it leaves out.
# - A node of our own session that no contender of ours knows of is in the way of
#   all, until the session ends: who has to wait for it deletes it.  And nothing
#   else that is of our session.
# - A child of a lock directory that is not ephemeral is no contender, even if its
#   name ends in ten digits: a tenant's locks below a root that is a lock directory
#   itself, or what an operator keeps there.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

# So many znodes of a megabyte each.  What the worker keeps of each is some bytes.
my $many = 24;
my $bound_kb = 8_000;

my $proxy = ZkProxy->new;
my $zk = ZooKeeper->new;
$zk->start;
my $servers = $zk->connstr_through($proxy, 'a');
$proxy->count('a-0');
my $a = zk_cluster(
	'a', $zk,
	'zklock.servers' => $servers,
	'zklock.session_timeout' => '30s',
	'autovacuum' => 'off',
	'deadlock_timeout' => '100ms');
my $stranger = $zk->client(timeout => 60);
my $members = '/zklock/%clusters';

wait_connected($a);


sub requests { return $proxy->requests('a-0')->{ $_[0] } // 0; }

# How much memory the worker has had, in kB.
sub peak
{
	my ($kb) = slurp_file('/proc/' . worker_of($a) . '/status') =~ /^VmHWM:\s+(\d+) kB/m;

	return $kb;
}

# Has the worker read no data of large znodes while this was done?
sub reads_none
{
	my ($what, $code) = @_;
	my $peak = peak();
	my $gets = requests('get');

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$code->();
	cmp_ok(requests('get') - $gets, '<', $many / 2, "$what: data of that size are not read");
	cmp_ok(peak() - $peak, '<', $bound_kb, '... and the worker does not grow');
	return;
}

#
# Large data
#

my $data = 'zklock cluster=' . 'x' x 1_000_000;
my $least = peak();
my @large = map { "$members/" . member_node($_) } (1 .. $many / 2);

push @large, map { "$members/stranger $_" } (1 .. $many / 2);
$stranger->create($_, data => $data, ephemeral => 1) for @large;
reads_none('zk_fleet', sub {
	is(value($a, q{SELECT string_agg(DISTINCT conflicts::text, ' '), count(*) FROM zk_fleet() WHERE cluster_name IS DISTINCT FROM 'a'}),
		'{"not written by zklock"}|' . $many / 2, 'who is named as an instance is shown');
});
{
	my $gets = requests('get');

	next_worker($a);
	is(value($a, "SELECT count(*) FROM zk_fleet() WHERE local"), 1, 'the next worker has joined');
	cmp_ok(requests('get') - $gets, '<', $many / 2, '... and reads none of that either');
	cmp_ok(peak() - $least, '<', $bound_kb, '... and is no larger');
}
$stranger->delete_all(\@large);

# contenders
@large = map { "/zklock/large/_c_x$_-lock-" . sprintf('%010d', $_) } (0 .. $many / 2 - 1);
push @large, map { sprintf '/zklock/large %02d/_c_x-lock-0000000000', $_ } (1 .. $many / 2);
$stranger->create($_) for '/zklock/large', map { sprintf '/zklock/large %02d', $_ } (1 .. $many / 2);
$stranger->create($_, data => $data, ephemeral => 1) for @large;
reads_none('zk_queue', sub {
	is(value($a, "SELECT count(*), count(owner), count(session_id) FROM zk_queue('large')"), $many / 2 . '|0|' . $many / 2,
		'large contenders are in their queue, without their data');
});
reads_none('zk_fleet_locks', sub {
	is(value($a, q{SELECT count(*), count(holder), sum(holders + waiters) FROM zk_fleet_locks()}), $many / 2 + 1 . '|0|' . $many,
		'... and hold and wait for locks');
});
$stranger->delete_all(\@large);

# what is like a text about waits
{
	my $session = ZkSession->new($a);
	my $foreign = $stranger->lock(lock_dir('y'));

	my @texts = map {
		$stranger->create('/zklock/%waits/z-', data => $data, ephemeral => 1, sequence => 1, makepath => 1)
	} (1 .. $many);

	$session->run_ok("BEGIN; SELECT zk_lock('x')");
	my $theirs = $stranger->enqueue(lock_dir('x'));
	my $peak = peak();
	my $before = requests('get') + requests('exists');
	$session->send("SELECT zk_lock('y')");
	poll_until(sub { requests('get') + requests('exists') >= $before + 2 * $many }, 'a to look at them, twice');
	value($a, 'SELECT count(*) FROM zk_fleet()');
	cmp_ok(peak() - $peak, '<', $bound_kb, 'looking for deadlocks, the worker does not grow');
	$stranger->delete_all(\@texts);
	$stranger->delete($foreign);
	$session->result;
	$session->run_ok('COMMIT', 'who waits gets its lock');
	$stranger->delete($theirs);
	$session->quit;
}

#
# Many znodes
#

{
	my @named = map { "$members/$_" } (1 .. 7000);

	$stranger->create_all(\@named);
	my $result = sql($a, 'SELECT count(*), bool_or(local) FROM zk_fleet()');
	is($result->{out}, '1|t', 'znodes of other names do not hide instances');
	is_deeply($result->{warnings}, [], '... nor is anything left out');
	$stranger->delete_all(\@named);
}

{
	my @named = map { "$members/" . member_node($_) } (1 .. 1200);

	$stranger->create_all(\@named);
	my $result = sql($a, 'SELECT count(*) FROM zk_fleet()');
	my ($warning) = @{ $result->{warnings} };
	is($result->{out}, 1000, 'of too many that are named as instances some are shown');
	is($warning->{sqlstate}, '54000', '... with a warning');
	is($warning->{message}, 'not all znodes in "/zklock/%clusters" are shown', '... of which');
	is($warning->{detail}, '1000 are shown, 201 more are not.', '... and how many');
	is(sql($a, 'SELECT count(*) FROM zk_fleet()')->{warnings}[0]{sqlstate}, '54000', 'so it is each time');
	$stranger->delete_all(\@named);
	is(sql($a, 'SELECT count(*) FROM zk_fleet()')->{out}, 1, 'when they have gone, all is shown');
}

#
# Bytes
#

# What would forge a line of the log, drive a terminal, and be invalid in UTF-8,
# behind a character that UTF-8 and EUC_JP have; as it is, and as it is shown.
my $evil = "\xe6\x97\xa5\nFORGED\e[31m\xff\x00\xe2\x80\xae";
my $shown = "\xe6\x97\xa5\\x0aFORGED\\x1b[31m\\xff\\x00\\xe2\\x80\\xae";
my $coded = join '', map { sprintf '%%%02X', ord } split //, $evil;

# What EUC_JP does not have.
my $euro = "\xe2\x82\xac";

value($a, "CREATE DATABASE japan ENCODING 'EUC_JP' LOCALE 'C' TEMPLATE template0");
$a->safe_psql('japan', 'CREATE EXTENSION zklock');

sub create
{
	my ($path, $bytes, %options) = @_;

	return $stranger->create($path, hex => unpack('H*', $bytes), ephemeral => 1, %options);
}

# A value as bytes of UTF-8; the database has checked that it is valid in its own
# encoding.
sub bytes_of
{
	my ($database, $query) = @_;

	return pack 'H*', $a->safe_psql($database, "SELECT encode(convert_to(v, 'UTF8'), 'hex') FROM (SELECT $query) AS x (v)");
}

sub is_shown
{
	my ($name, $query, $expected) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(bytes_of($_, $query), ref $expected ? $expected->{$_} : $expected, "$name, in $_")
	  for qw(postgres japan);
	return;
}

# All columns that tell of others' words have only printing characters.
sub all_printing
{
	my ($name, $query) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $database (qw(postgres japan))
	{
		my $bytes = bytes_of($database, "string_agg(r::text, '|') FROM ($query) r");

		like($bytes, qr/FORGED/, "$name, in $database");
		unlike($bytes, qr/[\x00-\x1f\x7f]/, '... without a control character');
		ok(utf8::decode($bytes), '... as text');
	}
	return;
}

my $log_offset = -s $a->logfile;

# members
create("$members/" . member_node(1), "zklock host=$coded port=1 cluster=$coded version=$coded server=$coded format=$coded timeout=1");
create("$members/" . member_node(2), "zklock host=$evil port=1 cluster=$euro version=1");
is_shown("a member's $_", "$_ FROM zk_fleet() WHERE cluster_name ~ 'FORGED'", $shown)
  for qw(cluster_name host version server_version node_format);
is_shown('a member that is not encoded', "host FROM zk_fleet() WHERE version = '1'",
	substr($shown, 0, 3) . '\\x0aFORGED\\x1b[31m\\xff\\x00\\xe2\\x80\\xae');
is_shown('a member whose name the encoding lacks', "cluster_name FROM zk_fleet() WHERE version = '1'",
	{ postgres => $euro, japan => '\\xe2\\x82\\xac' });
all_printing('zk_fleet', 'SELECT * FROM zk_fleet()');
$stranger->delete("$members/" . member_node($_)) for (1, 2);
value($a, 'SELECT count(*) FROM zk_fleet()');

# A contender, and the directories of locks.
{
	my $dir = lock_dir('evil');
	my $node = "_c_\x{65e5}\x{202e}-lock-0000000001";
	my $note = "postgresql host=$coded cluster=$coded pid=1";
	my @names = map { "/zklock/$_" } ('%E6%97%A5FORGED%FF', "\x{65e5}FORGED\x{202e}", '%E2%82%ACFORGED');

	$stranger->create($dir);
	create("$dir/$node", $note);
	create("$dir/_c_x-lock-0000000002", $evil);
	$stranger->create("$dir/\x{65e5}FORGED\x{202e}", ephemeral => 1);
	$stranger->create($_) for @names;
	create("$_/_c_x-lock-0000000001", $evil) for @names;

	is_shown('the path of a contender', "path FROM zk_queue('evil') WHERE position = 1",
		"$dir/_c_\xe6\x97\xa5\\xe2\\x80\\xae-lock-0000000001");
	is_shown('the data of another client', "owner FROM zk_queue('evil') WHERE position = 2", $shown);
	is_shown("its $_", "$_ FROM zk_fleet_locks() WHERE name = 'evil'", $shown) for qw(cluster_name host);
	is_shown("its $_, in the queue", "$_ FROM zk_queue('evil') WHERE position = 1", $shown) for qw(cluster_name host);
	all_printing('zk_queue', "SELECT * FROM zk_queue('evil') UNION ALL SELECT 0, 'FORGED', '', '', '', '', 0, 0, '', now()");
	all_printing('zk_fleet_locks', 'SELECT * FROM zk_fleet_locks()');
	is_shown('names of locks', "string_agg(name, '|' ORDER BY name COLLATE \"C\") FROM zk_fleet_locks() WHERE name ~ 'FORGED'",
		{
			postgres => "%E6%97%A5FORGED%FF|\xe2\x82\xacFORGED|\xe6\x97\xa5FORGED\xe2\x80\xae",
			japan => "%E2%82%ACFORGED|%E6%97%A5FORGED%FF|\xe6\x97\xa5FORGED\\xe2\\x80\\xae"
		});

	# the log
	value($a, "ALTER SYSTEM SET log_lock_waits = on");
	$a->reload;
	for my $database (qw(postgres japan))
	{
		my $offset = -s $a->logfile;

		$a->psql($database, "SET lock_timeout = '2s'; SELECT zk_lock('evil')");
		$a->wait_for_log(qr/still waiting for exclusive lock "evil" in ZooKeeper.*\n.*First in the queue: postgresql host=\S+ cluster=\S+ pid=1$/m, $offset);
	}
	$a->wait_for_log(qr/WARNING:  ignoring znode "\\xe6\\x97\\xa5FORGED\\xe2\\x80\\xae" in lock directory/, $log_offset);
	$stranger->delete($_) for map { ("$_/_c_x-lock-0000000001", $_) } @names;
	$stranger->delete("$dir/$_") for $stranger->ls($dir);
}

# A deadlock with somebody whose instance has such a name, and who confirms it.  A text
# with a zero byte is no text.
for my $database (qw(postgres japan))
{
	my $session = ZkSession->new($a, $database);
	my ($x, $y) = map { lock_dir($_) } ('x', 'y');

	$session->run_ok("BEGIN; SELECT zk_lock('x')");
	my $wanted = $stranger->enqueue($x);
	my $held = $stranger->lock($y);
	$session->send("SELECT zk_lock('y')");
	$session->wait_waiting(2);
	my $lines = "\nwait 1 x $x 1 1 1 - - -\nkeep x $y 1\n";
	my $unread = create('/zklock/%waits/0-', "zklock1 $coded$lines", sequence => 1, makepath => 1);
	my $text = create('/zklock/%waits/z-', 'zklock1 ' . $coded =~ s/%00//r . $lines, sequence => 1);
	poll_until(
		sub {
			for (eval { $stranger->ls('/zklock/%waits') })
			{
				eval { $stranger->create("/zklock/%waits/$1.z", ephemeral => 1) } if /^([0-9a-f]{32})\.(?!z$)/;
			}
			return $session->done;
		},
		'the session to fail');
	my $result = $session->result;
	is($result->{sqlstate}, '40P01', "a session in $database fails");
	like($result->{detail}, qr/of instance (?:\xe6\x97\xa5|\\xe6\\x97\\xa5|\xc6\xfc)\\x0aFORGED\\x1b\[31m\\xff\\xe2\\x80\\xae waits for/,
		'... and the instance is named in printing characters');
	$session->quit;
	$stranger->delete($_) for ($wanted, $held, $text, $unread);
	for (eval { $stranger->ls('/zklock/%waits') }) { eval { $stranger->delete("/zklock/%waits/$_") } if /\.z$/; }
}
all_printing('zk_deadlocks', 'SELECT * FROM zk_deadlocks');

# a forged line begins where a line of the log does, or behind a tab
{
	my $log = substr(slurp_file($a->logfile), $log_offset);

	like($log, qr/FORGED/, 'the log has them');
	unlike($log, qr/[\x00-\x08\x0b-\x1f\x7f]/, '... without a control character');
	unlike($log, qr/^\t?FORGED/m, '... in lines of its own');
}

#
# Nodes of our own session
#

my $uuid = '89ab0123-4567-4def-8edc-ba9876543210';
my $orphans = 0;

# How many have been deleted, by the log?
sub deleted
{
	my @found = slurp_file($a->logfile) =~ /deleting znode ".*" of a lost contender/g;
	return scalar @found;
}

# The connections that the server has for a session, each as address and port.
sub connections
{
	my ($session) = @_;

	return $zk->fourlw('cons') =~ m{^ /(\S+?)\[[^\n]*\bsid=\Q$session\E\b}mg;
}

# A node in the session of the instance, which has its connection back then; or
# more than one, if the instance was back ahead of the answer.  The server leaves
# the instance its connection if it does not know it as the session's any more:
# where a client left the session at the moment at which the instance came back.
sub orphans
{
	my ($dir, $kind) = @_;
	my $session = session_of($a);
	my $reconnects = value($a, 'SELECT reconnects FROM zk_session');
	my ($before) = connections($session);

	$stranger->create($dir, makepath => 1) if !$stranger->exists($dir);
	$stranger->create_in_session($session, "$dir/_c_$uuid$kind");
	poll_until(
		sub {
			my ($connected, $again) =
			  split /\|/, value($a, "SELECT state = 'connected', reconnects > $reconnects FROM zk_session");
			my @now = connections($session);

			return $connected eq 't' && @now == 1 && ($again eq 't' || $now[0] eq $before);
		},
		'the instance to be connected again');
	my @nodes = map { "$dir/$_" } grep { /$uuid/ } $stranger->ls($dir);
	$orphans += @nodes;
	return @nodes;
}

# Strays of each kind, ahead of contenders of each kind

for my $case (
	[ 'a lock', 'x', '', '-lock-', "zk_lock('x')" ],
	[ 'a lock, behind a reader', 'r', '', '-__READ__', "zk_lock('r')" ],
	[ 'a shared lock', 's', '', '-lock-', "zk_lock('s', shared => true)" ],
	[ 'a permit', 'p', '/locks', '-lock-', "zk_acquire('p', 2)" ])
{
	my ($what, $name, $below, $kind, $call) = @$case;
	my $dir = lock_dir($name);

	$stranger->create("$dir/leases", makepath => 1) if $below;
	my @nodes = orphans("$dir$below", $kind);
	my $session = ZkSession->new($a);
	$session->run_ok("SELECT $call, pg_advisory_unlock_all()", "$what: not forever behind an orphan");
	is(scalar(grep { $stranger->exists($_) } @nodes), 0, "$what: it has been deleted");
	is(deleted(), $orphans, "$what: and the log says so");
	$session->quit;
}

# Behind a contender of somebody else it is found when that leaves.
{
	my @nodes = orphans(lock_dir('f'), '-lock-');
	my $theirs = $stranger->enqueue(lock_dir('f'));
	my $session = ZkSession->new($a);

	$session->send("SELECT zk_lock('f')");
	$session->wait_waiting(2);
	wait_contenders($zk, 'f', 2 + @nodes);
	is(scalar(grep { $stranger->exists($_) } @nodes), scalar(@nodes), 'an orphan that is not right ahead stays');
	$stranger->unlock($theirs);
	is($session->result->{message}, undef, 'when it is, it goes');
	is(deleted(), $orphans, 'the log says so');
	$session->quit;
}

# What is of our session and no orphan

my @sessions = map { ZkSession->new($a) } (0 .. 3);

# a writer behind readers of its own instance, which have not come yet
$sessions[0]->run_ok($_) for ('BEGIN', "SELECT zk_lock('y', shared => true)");
$sessions[1]->send("SELECT zk_lock('y')");
$sessions[1]->wait_waiting(1);
wait_contenders($zk, 'y', 2);

# readers of several locks, who share a contender
my $theirs = $stranger->lock(lock_dir('many/1'));
for my $i (2, 3)
{
	$sessions[$i]->send("SELECT zk_lock_all('{many/1,many/2}', shared => true)");
	$sessions[$i]->wait_waiting(2);
}
wait_contenders($zk, 'many/1', 2);
$stranger->unlock($theirs);
is($sessions[$_]->result->{message}, undef, 'several shared locks') for (2, 3);
$sessions[0]->run_ok('COMMIT', 'the reader has its lock');
is($sessions[1]->result->{message}, undef, 'the writer behind it gets it');

# permits that wait for each other, over a restart of the worker
$sessions[0]->run_ok($_) for ('BEGIN', "SELECT zk_acquire('q', 1)");
for my $i (1 .. 3)
{
	$sessions[$i]->send("SELECT zk_acquire('q', 1)");
	$sessions[$i]->wait_waiting(2);
}
poll_until(
	sub { my @waiting = eval { $stranger->ls(lock_dir('q') . '/locks') }; @waiting == 3 },
	'three to wait for a permit');
next_worker($a);
$sessions[0]->run_ok('COMMIT');
for (1 .. 3)
{
	my $next;
	poll_until(sub { ($next) = grep { $sessions[$_] && $sessions[$_]->done } (1 .. 3); $next }, 'the next permit');
	is($sessions[$next]->result->{message}, undef, 'a permit');
	$sessions[$next]->quit;
	$sessions[$next] = undef;
}
is(deleted(), $orphans, 'nothing else of our session was taken for an orphan');
$sessions[0]->quit;

#
# Children that are not ephemeral
#

my $b = zk_cluster('b', $zk, 'zklock.session_timeout' => '30s');
my %logged = (a => -s $a->logfile, b => 0);

$a->safe_psql('postgres', q{
	CREATE ROLE tenant1 LOGIN;
	GRANT pg_monitor TO tenant1;
	ALTER ROLE tenant1 SET zklock.root = '/zklock/tenant1';
});

# The tenant's locks are containers below what the default root takes for the
# directory of the lock "tenant1".
my $tenant = ZkSession->new($a);
$tenant->run_ok("SET zklock.root = '/zklock/tenant1'");
$tenant->run_ok("BEGIN; SELECT zk_lock_all(ARRAY['order-0000000000', 'order-0000000002', 'order--1234567890', 'order-2147483647'])",
	'the tenant has its locks');
is(scalar $stranger->ls('/zklock/tenant1'), 4, 'they are in one directory');

# sequential creates count the tenant's locks, so ours stand behind two
is(sql($b, "SELECT zk_try_lock('tenant1')")->{out}, 't', 'who tries gets the lock of that name');
my $holder = holder($b, 'tenant1');
like($holder->run("SELECT zk_fencing_token('tenant1')")->{out}, qr/^\d+$/, 'and its token');
is(sql($a, "SELECT zk_try_lock('tenant1')")->{out}, 'f', 'which excludes others');
my $waiter = waiter($a, 'tenant1', 2);
$holder->run('COMMIT');
is($waiter->result->{message}, undef, 'who waits for it gets it');
is(sql($b, "SELECT zk_try_lock('tenant1', shared => true)")->{out}, 'f', 'also from readers');
$waiter->run('COMMIT');
my @readers = map {
	my $s = ZkSession->new($_);
	$s->run_ok("BEGIN; SELECT zk_lock('tenant1', shared => true)", 'readers share it');
	$s
} ($a, $b);
is(sql($b, "SELECT zk_try_lock('tenant1')")->{out}, 'f', 'and exclude writers');
$_->run('COMMIT') for @readers;

# The tenant is not disturbed.
is($tenant->run("SELECT count(*) FROM zk_locks WHERE granted")->{out}, 4, 'the tenant still has its locks');
$tenant->run_ok('COMMIT');

# A directory that somebody has made, persistent, in the queue of a lock, before
# it is used and while somebody waits.
my $node = $stranger->create('/zklock/jobs/job-0000000000', makepath => 1);
my $first = $stranger->enqueue(lock_dir('jobs'));
$waiter = waiter($a, 'jobs', 2);
# ours has number 2 or so
$stranger->create('/zklock/jobs/job-0000000001');
$stranger->create('/zklock/jobs/job-0000000999');
$stranger->unlock($first);
is($waiter->result->{message}, undef, 'a directory in the queue is passed over');
my $behind = waiter($b, 'jobs', 2);
$waiter->run('COMMIT');
is($behind->result->{message}, undef, 'and so by the next');
$behind->run('COMMIT');
$_->quit for ($tenant, $holder, $waiter, $behind, @readers);

# zk_lock_all, and a semaphore whose queue has one
$stranger->create('/zklock/sem/locks/x-1-0000000000', makepath => 1);
$stranger->create('/zklock/sem/leases');
my $s = ZkSession->new($b);
$s->run_ok("BEGIN; SELECT zk_lock_all(ARRAY['tenant1', 'jobs'])", 'several locks');
$s->run_ok("SELECT zk_acquire('sem', 1)", 'a permit');
$s->run_ok('COMMIT');
$s->quit;

for my $cluster ($a, $b)
{
	my $log = slurp_file($cluster->logfile, $logged{ $cluster->name });
	my @warnings = $log =~ /WARNING:  (ignoring znode .*)/g;

	is(scalar @warnings, 1, $cluster->name . ': there is one warning');
	like($warnings[0], qr{^ignoring znode "\S+" in lock directory "/zklock/(tenant1|jobs)"$},
		$cluster->name . ': that names the directory');
	like($log, qr/DETAIL:  Its name ends in a sequence number, but it is not ephemeral/,
		$cluster->name . ': and says why');
}
is_deeply([ grep { !m{/(order|job)-} } all_contenders($zk) ], [], 'no contender is left');
is($a->safe_psql('postgres', "SELECT count(*) FROM zk_queue('jobs')"), 0, 'nor does zk_queue show one');
is($a->safe_psql('postgres', "SELECT zk_cancel_holders('jobs')"), 0, 'and zk_cancel_holders asks nobody');
$_->stop for ($a, $b);

done_testing();
