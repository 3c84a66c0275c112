# Settings that are wrong: nothing takes the default in their place, and every
# lock call says why.  Credentials that change while locks are held.

use strict;
use warnings;

use IO::Socket::IP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $has_ipv6 = IO::Socket::IP->new(Listen => 1, LocalHost => '::1');
my $zk = ZooKeeper->new($has_ipv6 ? (conf => { clientPortAddress => '::' }) : ());
$zk->start;

my @lock_calls = (
	"zk_lock('x')", "zk_try_lock('x')", "zk_lock_all('{x}')",
	"zk_acquire('x', 1)", "zk_try_acquire('x', 1)", "zk_unlock('x')",
	"zk_fencing_token('x')", "zk_fence('x')", "(zk_queue('x')).*",
	"zk_cancel_holders('x')");

sub wrong
{
	my ($name, $detail) = @_;
	return {
		sqlstate => 'F0000',
		message => 'cannot use locks in ZooKeeper because of an invalid value for'
		  . " parameter \"$name\"",
		detail => $detail,
		hint => qr/^Correct the value where it is set/
	};
}

# All lock calls fail, at once: the patience of a call without a session is
# longer than a test waits.
sub all_fail
{
	my ($node, $name, $detail) = @_;

	sql_error($node, "SELECT $_", wrong($name, $detail), "$name: $_ fails")
	  for @lock_calls;
	return;
}

sub last_error
{
	my ($node) = @_;

	$node->poll_query_until('postgres', 'SELECT last_error IS NOT NULL FROM zk_session');
	return sql($node, 'SELECT state, server, last_error FROM zk_session')->{out};
}

# Wait until new sessions have another value.
sub wait_shown
{
	my ($node, $name, $value) = @_;

	poll_until(
		sub { sql($node, "SHOW $name")->{out} eq $value },
		"$name to be \"$value\"");
	return;
}

my %right = ('zklock.servers' => $zk->connstr);
my $a = zk_cluster('a', $zk, 'zklock.session_timeout' => '10min');

#
# The servers
#

for my $case (
	[ '127.0.0.1', '"127.0.0.1" is not of the form host:port.' ],
	[ '127.0.0.1;2181', '"127.0.0.1;2181" is not of the form host:port.' ],
	[ $zk->connstr . ',', '"" is not of the form host:port.' ],
	[ $zk->connstr . '/a//b', qr{^The chroot "/a//b" is not valid: } ])
{
	my ($value, $problem) = @$case;

	edit_settings($a, 'zklock.servers' => $value);
	$a->restart;
	is(sql($a, 'SHOW zklock.servers')->{out}, $value, "servers \"$value\": no default");
	my $detail = ref $problem ? qr/^The value is "\Q$value\E"\.  The chroot/ :
	  "The value is \"$value\".  $problem";
	if ($value eq '127.0.0.1')
	{
		all_fail($a, 'zklock.servers', $detail);
	}
	else
	{
		sql_error($a, "SELECT zk_lock('x')", wrong('zklock.servers', $detail),
			"servers \"$value\": a lock call fails");
	}
	like(last_error($a), qr/^down\|\|invalid value for parameter "zklock.servers": "\Q$value\E": /,
		'... and zk_session shows it');
}
like(slurp_file($a->logfile), qr/WARNING:  invalid value for parameter "zklock.servers": "127.0.0.1"/,
	'the log has it');

# parallel workers take over what their leader has
is( sql($a, "SET force_parallel_mode = on; SET parallel_setup_cost = 0; SELECT count(*) > 0 FROM pg_class")->{out},
	't', 'parallel queries run');

# ALTER SYSTEM refuses another one, and the worker's end changes nothing
edit_settings($a, 'zklock.servers' => '127.0.0.1');
$a->restart;
is(sql($a, "ALTER SYSTEM SET zklock.servers = '127.0.0.1'")->{sqlstate}, '22023',
	'ALTER SYSTEM refuses a wrong value, even that in force');
last_error($a);
sql($a, 'SELECT pg_terminate_backend(worker_pid) FROM zk_session');
like(last_error($a), qr/^down\|\|/, 'another worker is down, too');
sql_error($a, "SELECT zk_lock('x')", wrong('zklock.servers', qr/^The value is "127.0.0.1"\./),
	'... and lock calls fail');

# corrected, without a restart
my $session = ZkSession->new($a);
edit_settings($a, %right);
$a->reload;
ok(wait_connected($a), 'corrected and reloaded: connected');
poll_until(sub { sql($a, 'SELECT last_error IS NULL FROM zk_session')->{out} eq 't' },
	'the error to go, once a server has answered');
is(sql($a, "SELECT zk_try_lock('x', '1 min')")->{out}, 't', '... and it locks');
wait_shown($a, 'zklock.servers', $zk->connstr);
poll_until(sub { $session->run("SELECT zk_try_lock('x', '1 min')")->{out} eq 't' },
	'a session of before to lock');
$session->quit;

# a reload with a wrong value keeps the right one
$session = ZkSession->new($a);
$session->run_ok("BEGIN; SELECT zk_lock('kept')");
edit_settings($a, 'zklock.servers' => '127.0.0.1');
my $logged = -s $a->logfile;
$a->reload;
$a->wait_for_log(qr/invalid value for parameter "zklock.servers": "127.0.0.1"/, $logged);
is(sql($a, "SELECT zk_try_lock('x', '1 min')")->{out}, 't', 'a reload with a wrong value: locks go on');
is(scalar(contenders($zk, 'kept')), 1, '... also held ones');
$session->run_ok('COMMIT');
$session->quit;

# taken away, without a restart: the default, as if there had never been one
$a->restart;
last_error($a);
my $no_pauses = no_pauses();
edit_settings($a, 'zklock.servers' => undef, 'zklock.session_timeout' => '2s');
$a->reload;
wait_shown($a, 'zklock.servers', 'localhost:2181');
poll_until(
	sub { last_error($a) !~ /invalid value/ },
	'the worker to look for the default servers');
pass('taken away and reloaded: the default');

# in the file that ALTER SYSTEM writes, and on the command line
edit_settings($a, %right, 'zklock.session_timeout' => '10min');
undef $no_pauses;
$a->append_conf('postgresql.auto.conf', "zklock.servers = 'localhost'");
$a->restart;
sql_error($a, "SELECT zk_lock('x')", wrong('zklock.servers', qr/^The value is "localhost"\./),
	'postgresql.auto.conf: a lock call fails');
sql($a, 'ALTER SYSTEM RESET zklock.servers');
$a->reload;
ok(wait_connected($a), '... until ALTER SYSTEM RESET');

$a->stop;
command_ok(
	[
		$a->installed_command('pg_ctl'), '-w', '-D', $a->data_dir, '-l', $a->logfile,
		'-o', '--cluster-name=a -c zklock.servers=localhost', 'start'
	],
	'with a wrong value on the command line the server starts');
$a->_update_pid(1);
sql_error($a, "SELECT zk_lock('x')", wrong('zklock.servers', qr/^The value is "localhost"\./),
	'... and a lock call fails');
$a->stop;						# a restart would keep the command line
$a->start;
ok(wait_connected($a), 'without it: connected');

#
# The others
#

for my $case (
	[ 'zklock.acl', 'creater', 'Available values: open, creator.', 'down' ],
	[ 'zklock.auth', 'geheim', 'The credentials are not of the form user:password.', 'down' ],
	[ 'zklock.root', 'zklock', 'The path must start with "/".', 'connected' ],
	[ 'zklock.node_format', 'readwrit', 'Available values: mutex, readwrite.', 'connected' ],
	[ 'zklock.commit_check', 'quroum', 'Available values: lease, quorum, off.', 'connected' ],
	[ 'zklock.advisory_locks', 'onn', 'Available values: off, on.', 'connected' ])
{
	my ($name, $value, $problem, $state) = @$case;
	my $detail = $name eq 'zklock.auth' ? $problem : "The value is \"$value\".  $problem";

	edit_settings($a, $name => $value);
	$a->restart;
	ok(wait_connected($a), "$name: there is a session, for others") if $state eq 'connected';
	all_fail($a, $name, $detail);
	sql_error($a, 'SELECT pg_advisory_lock(1)', wrong($name, $detail),
		"$name: PostgreSQL's lock does not stand in for it")
	  if $name eq 'zklock.advisory_locks';
	is(scalar(contenders($zk, 'x')), 0, "... and nothing is in ZooKeeper");
	like(last_error($a), qr/^$state\|.*\|invalid value for parameter "\Q$name\E"/,
		'zk_session tells');
	is(sql($a, "ALTER SYSTEM SET $name = '$value'")->{sqlstate}, '22023', 'ALTER SYSTEM refuses it');
	is( sql($a, 'SET force_parallel_mode = on; SELECT count(*) > 0 FROM pg_class')->{out},
		't', 'parallel queries run');
	if ($state eq 'connected')
	{
		my $own = $name eq 'zklock.root' ? '/own' : $problem =~ /: (\w+)/ && $1;

		is(sql($a, "SET $name = '$own'; SELECT zk_try_lock('x', '1 min')")->{out}, 't',
			'a session with a right one of its own locks');
	}

	edit_settings($a, $name => undef);
	$a->reload;
	poll_until(
		sub { sql($a, "SELECT zk_try_lock('x', '1 min')")->{out} eq 't' },
		"locks without $name");
	ok(wait_connected($a), "$name taken away and reloaded: locks");
}
unlike(join("\n", grep { !/STATEMENT:|statement:/ } split /\n/, slurp_file($a->logfile)),
	qr/geheim/, 'wrong credentials are not logged');

# one of a role or database, stored while nobody knew what is right
edit_settings($a, 'shared_preload_libraries' => '');
$a->restart;
$a->safe_psql('postgres', q{
	CREATE ROLE shop SUPERUSER LOGIN;
	CREATE ROLE free SUPERUSER LOGIN;
	ALTER ROLE shop SET zklock.root = 'shop';
	ALTER DATABASE postgres SET zklock.root = 'shops';
	ALTER ROLE free IN DATABASE postgres SET zklock.root = '/free'});
edit_settings($a, 'shared_preload_libraries' => 'zklock');
$a->restart;
poll_until(sub { sql($a, 'SELECT state FROM zk_session')->{out} eq 'connected' },
	'the instance to be connected');
for my $case ([ 'shop', 'shop' ], [ 'postgres', 'shops' ])
{
	my ($role, $value) = @$case;
	my ($out, $err);

	$a->psql('postgres', "SELECT zk_lock('x')", stderr => \$err,
		extra_params => [ '-v', 'VERBOSITY=verbose', '-U', $role ]);
	like($err, qr/WARNING:  (?:22023: )?invalid value for parameter "zklock.root": "$value"/,
		"ALTER ROLE or DATABASE: role $role is warned when it connects");
	like($err, qr/ERROR:  F0000: .*zklock.root.*\nDETAIL:  The value is "$value"\.  The path must start/,
		'... and cannot lock');
}
is( $a->safe_psql('postgres', "SELECT zk_try_lock('x', '1 min')", extra_params => [ '-U', 'free' ]),
	't', 'one with a right value can');
$a->safe_psql('postgres', 'ALTER DATABASE postgres RESET zklock.root');
is(sql($a, "SELECT zk_try_lock('x', '1 min')")->{out}, 't', '... and all others can, once it is corrected');

#
# An IPv6 address, in brackets as everywhere, or bare as the library has it
#

SKIP:
{
	my ($port) = $zk->ports;

	skip 'this machine has no IPv6', 4 unless $has_ipv6;
	$zk->client->create('/chroot');
	for my $servers ("[::1]:$port", "::1:$port", "[::1]:1,[::1]:$port/chroot")
	{
		edit_settings($a, 'zklock.servers' => $servers);
		$a->reload;
		poll_until(
			sub { sql($a, 'SELECT server, servers FROM zk_session')->{out} eq "[::1]:$port|$servers" },
			"the instance to be connected to $servers");
		pass("$servers: connected");
	}
	edit_settings($a, %right);
	$a->reload;
	poll_until(
		sub { sql($a, 'SELECT server FROM zk_session')->{out} eq "127.0.0.1:$port" },
		'the instance to be connected as before');
	is(sql($a, "SELECT zk_try_lock('x', '1 min')")->{out}, 't', 'and it locks');
}

#
# Credentials in a file of their own, which only the server's owner may read
#

{
	my $file = PostgreSQL::Test::Utils::tempdir() . '/zklock_auth.conf';

	append_to_file($file, "zklock.auth = 'me:secret'\n");
	chmod 0600, $file or die "chmod: $!";
	$a->append_conf('postgresql.conf', "include '$file'");
	$a->reload;
	wait_shown($a, 'zklock.auth', '********');
	append_to_file($file, "zklock.auth = ''\n");
	$a->reload;
	wait_shown($a, 'zklock.auth', '');
}

#
# Credentials that change while locks are held
#

sub apply
{
	my ($node, %settings) = @_;

	edit_settings($node, %settings);
	next_worker($node, sub { $node->reload; });
	return;
}

{
	my %old = ('zklock.acl' => 'creator', 'zklock.auth' => 'user:old',
		'zklock.session_timeout' => '60s');
	my $b = zk_cluster('b', $zk, %old);
	my $c = zk_cluster('c', $zk, %old, 'zklock.auth' => 'user:new');
	my $foreign = $zk->client;
	my $gone = sub {
		my ($dir, $name) = @_;
		poll_until(
			sub { !grep { /\d{10}$/ } eval { $foreign->ls(lock_dir($dir)) } },
			"no contender in $dir");
		pass($name);
	};

	$foreign->add_auth('digest', "user:$_") for ('old', 'new');
	apply($a, %old, 'zklock.retain_time' => '10min');
	is(sql($a, "SELECT zk_try_lock('kept')")->{out}, 't', 'a retained lock');

	my $session = session_of($a);
	my %held = map { $_ => ZkSession->new($a) } qw(tx sess shared sem);
	$held{tx}->run_ok("BEGIN; SELECT zk_lock('tx')");
	$held{sess}->run_ok("SELECT zk_lock('sess', session => true)");
	$held{shared}->run_ok("BEGIN; SELECT zk_lock('shared', shared => true)");
	$held{sem}->run_ok("BEGIN; SELECT zk_acquire('sem', 2)");
	my $other = holder($b, 'awaited');
	my $waiter = waiter($a, 'awaited', 2);

	apply($a, 'zklock.auth' => 'user:new');
	is(session_of($a), $session, 'other credentials: the session goes on');
	$gone->('kept', 'a retained lock is given up');
	is(sql($a, "SELECT zk_try_lock('young', '1 min')")->{out}, 't', 'new locks are available');

	# and the worker after that one knows them, too
	next_worker($a);

	$held{$_}->run_ok('COMMIT') for qw(tx shared sem);
	is($held{sess}->run_ok("SELECT zk_unlock('sess')"), 't', 'a lock of the session is released');
	$gone->($_, "nothing is left of $_") for qw(tx sess shared sem/leases sem/locks);
	is(sql($b, "SELECT zk_try_lock('$_', '1 min')")->{out}, 't', "$_ is available elsewhere")
	  for qw(tx sess shared);

	$other->run_ok('COMMIT');
	is($waiter->result->{message}, undef, 'who waited gets the lock in turn');
	is(session_of($a), $session, '... in the same session');
	$waiter->run_ok('COMMIT');
	$gone->('awaited', '... and its contender goes');
	unlike(slurp_file($a->logfile), qr/could not delete contender|left behind/, 'no delete was refused');

	# nothing is held any more: from now on with the new ones only
	poll_until(
		sub { slurp_file($a->logfile) =~ /no longer needs the former credentials.*connected to ZooKeeper/s },
		'a worker with the new ones only');
	is(session_of($a), $session, 'with the new ones only, in the same session');
	$held{tx}->run_ok("BEGIN; SELECT zk_lock('late')");
	is(sql($b, "SELECT zk_try_lock('late')")->{sqlstate}, '42501', 'the old credentials are out');
	is(sql($c, "SELECT zk_try_lock('late')")->{out}, 'f', 'the new ones are in');

	# none any more
	apply($a, 'zklock.auth' => undef, 'zklock.acl' => undef);
	$held{tx}->run_ok('COMMIT');
	$gone->('late', 'without credentials: nothing is left');
	is(sql($c, "SELECT zk_try_lock('late', '1 min')")->{out}, 't', '... and others have the lock');
	is(sql($a, "SELECT zk_try_lock('open', '1 min')")->{out}, 't', 'and we have others');

	$_->quit for (values %held, $other, $waiter);
	$_->stop('fast') for ($b, $c);
}

$a->stop('fast');

done_testing();
