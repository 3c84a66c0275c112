
# What goes wrong around the locks, as a person meets it: each error with its
# SQLSTATE, message, detail and hint; and afterwards all works again, without a
# restart of PostgreSQL.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $zk = ZooKeeper->new;
my $servers = $zk->connstr;

# Instance a is quick to give up, b can wait.
my ($a, $b);
my $foreign;

sub state_of { return value($_[0], 'SELECT state FROM zk_session'); }

# Settings in postgresql.conf; undef takes one out.  Waits until they are
# applied and, if $state is given, until the session is in that state again.
sub set_and_reload
{
	my ($node, $state, %settings) = @_;
	my $worker = worker_of($node);
	my $session = session_of($node);

	for my $name (sort keys %settings)
	{
		$node->safe_psql('postgres',
			defined $settings{$name}
			? "ALTER SYSTEM SET $name = '$settings{$name}'"
			: "ALTER SYSTEM RESET $name");
	}
	$node->reload;
	poll_until(
		sub {
			my $now = value($node,
				"SELECT coalesce(worker_pid, $worker), coalesce(session_id, '') FROM zk_session");
			return $now ne "$worker|$session";
		},
		'the worker to apply new settings');
	wait_state($node, $state) if $state;
	return;
}

# A session with that timeout.  One that had it by reload only would go by the
# timeout that it began with when ZooKeeper restarts.
sub begin_session
{
	my ($node, $timeout) = @_;

	value($node, "ALTER SYSTEM SET zklock.session_timeout = '$timeout'");
	$node->restart;
	delete $node->{zk_watcher};
	wait_state($node, 'connected');
	return;
}

# Both instances work, and exclude each other.
sub works
{
	my ($node, $name) = @_;
	my $other = $node eq $a ? $b : $a;
	my $session = holder($node, 'works');

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql($other, "SELECT zk_try_lock('works')")->{out} // '', 'f', "$name: locks exclude");
	$session->run_ok('COMMIT', "$name: commit");
	is(sql($other, "SELECT zk_try_lock('works', '1 min')")->{out} // '',
		't', "$name: and are released");
	$session->quit;
	return;
}

# What a call says while there is no session.
sub no_session
{
	my ($lock, $ms, $reason, $at) = @_;
	$at //= $servers;
	return {
		sqlstate => '57P03',
		message => "could not reach ZooKeeper for lock \"$lock\"",
		detail => qr/^There was no session with "\Q$at\E" for $ms ms(: $reason|\.$)/,
		hint => 'Check "zklock.servers" and that ZooKeeper is running;'
		  . ' the view zk_session shows the state.',
	};
}

#
# Not preloaded
#

my $plain = PostgreSQL::Test::Cluster->new('plain');
$plain->init;
$plain->append_conf('postgresql.conf', 'max_prepared_transactions = 10');
$plain->start;
$plain->safe_psql('postgres', 'CREATE EXTENSION zklock');
for my $call ("zk_lock('x')", "zk_try_lock('x')", "zk_unlock('x')",
	"zk_fencing_token('x')", "zk_fence('x')", 'zk_stat_reset()',
	'* FROM zk_locks', '* FROM zk_session', '* FROM zk_stat')
{
	sql_error(
		$plain,
		"SELECT $call",
		{
			sqlstate => '55000',
			message => 'zklock must be loaded via "shared_preload_libraries"',
			hint => 'Add zklock to "shared_preload_libraries" and restart the server.',
		},
		"not preloaded: $call");
}

#
# ZooKeeper is not there at start
#

my $no_pauses = no_pauses();

{
	# a is the last, since its worker is replaced after a while without ZooKeeper
	$b = zk_cluster('b', $zk, 'zklock.session_timeout' => '30s');
	$a = zk_cluster('a', $zk, 'zklock.session_timeout' => '2s');

	my $start = time;
	sql_error($a, "SELECT zk_lock('x')", no_session('x', 2000, '.*(refused|connect).*'),
		'no ZooKeeper: zk_lock');
	cmp_ok(time - $start, '>=', 2, 'after the session timeout');
	sql_error($a, "SELECT zk_try_lock('x')", no_session('x', 2000, '.*'),
		'no ZooKeeper: zk_try_lock');
	is(state_of($a), 'connecting', 'zk_session shows the state');
	is(value($a, 'SELECT session_id IS NULL AND server IS NULL FROM zk_session'),
		't', 'and that there is no session');
	like(value($a, 'SELECT last_error FROM zk_session'),
		qr/refused|connect/, 'and why');

	# b would wait for long
	no_zookeeper_waits('no ZooKeeper');

	# A wait that begins before ZooKeeper does ends well.
	my $waiter = waiter($b, 'x', 2);
	$zk->start;
	is($waiter->result->{message}, undef, 'a waiter gets the lock when ZooKeeper is there');
	$waiter->run_ok('COMMIT');
	$waiter->quit;
	works($a, 'ZooKeeper is there');
	is(value($a, 'SELECT last_error FROM zk_session'), '', 'zk_session has no error');
	like($a->safe_psql('postgres', 'SELECT state, server, servers, timeout, sessions FROM zk_session'),
		qr/^connected\|(127\.0\.0\.1:\d+)\|\1\|00:00:02\|1$/, 'and shows the session');
	$foreign = $zk->client(timeout => 60);
}

# Every way out of a wait without ZooKeeper, in b, whose calls would wait long.
sub no_zookeeper_waits
{
	my ($name) = @_;
	my %in_time = (
		"SET lock_timeout = '300ms'; SELECT zk_lock('y')" => '55P03',
		"SET lock_timeout = '300ms'; SELECT zk_try_lock('y', NULL)" => undef,
		"SET statement_timeout = '300ms'; SELECT zk_lock('y')" => '57014',
		"SELECT zk_lock('y', '300ms')" => '55P03',
		"SELECT zk_try_lock('y', '300ms')" => undef);

	for my $sql (sort keys %in_time)
	{
		is(sql($b, $sql)->{sqlstate}, $in_time{$sql}, "$name: $sql");
	}
	for my $how ('pg_cancel_backend', 'pg_terminate_backend')
	{
		my $first = waiter($b, 'z', 2);
		my $second = waiter($b, 'z', 1);

		value($b, "SELECT $how(" . $first->pid . ')');
		isnt($first->result->{sqlstate}, undef, "$name: $how");
		$second->wait_waiting(2);
		value($b, "SELECT $how(" . $second->pid . ')');
		isnt($second->result->{sqlstate}, undef, "$name: $how, of the next in line");
		$_->quit for ($first, $second);
	}
	return;
}

#
# ZooKeeper goes away later, and comes back
#

{
	value($a, 'CREATE TABLE t (i int)');
	my $holder = holder($a, 'h');
	my $remote = waiter($b, 'h', 2);
	my $node = (contenders($zk, 'h'))[1];
	my $czxid = $foreign->get(lock_dir('h') . "/$node")->{czxid};

	$holder->run_ok('INSERT INTO t VALUES (1)');
	$zk->kill9;
	wait_state($_, 'suspended') for ($a, $b);
	sql_error($a, "SELECT zk_lock('x')", no_session('x', 2000, '.*'),
		'ZooKeeper is gone: new calls');

	# also those that wait for another new call
	my @new = map { ZkSession->new($a) } 1 .. 3;
	$_->send("SELECT zk_lock('x')") for @new;
	error_is($_->result, no_session('x', 2000, '.*'), 'ZooKeeper is gone: new calls of the same lock') for @new;
	$_->quit for @new;
	no_zookeeper_waits('ZooKeeper is gone');

	# As long as the session may be alive, holders go on: they can take the
	# lock again and, unless they want to be sure, commit, and the next local
	# backend can have it.
	my $local = waiter($a, 'h', 1);
	$holder->run_ok("SELECT zk_lock('h')", 'a holder takes the lock again');
	$holder->run_ok('SET zklock.commit_check = off; COMMIT', 'a holder can commit');
	is(value($a, 'SELECT count(*) FROM t'), 1, 'and has');
	is($local->result->{message}, undef, 'the next local backend has the lock');
	$local->run_ok('SET zklock.commit_check = off; COMMIT');
	ok(!$remote->done, 'the other instance waits');

	$zk->start;
	is($remote->result->{message}, undef, 'ZooKeeper is back: the wait goes on');
	is((contenders($zk, 'h'))[0], $node, 'in the same place');
	is($foreign->get(lock_dir('h') . "/$node")->{czxid}, $czxid, 'with the same contender');
	is(scalar(contenders($zk, 'h')), 1, 'the old holder has left');
	$remote->run_ok('COMMIT');
	wait_no_contenders($zk, 'h');
	wait_no_contenders($zk, $_) for qw(x y z);
	works($_, 'ZooKeeper is back') for ($a, $b);
	$_->quit for ($holder, $local, $remote);

	# A machine that hangs, rather than a server that is gone
	$zk->pause;
	wait_state($a, 'suspended');
	sql_error($a, "SELECT zk_lock('x')", no_session('x', 2000, '.*'),
		'ZooKeeper hangs: new calls');
	no_zookeeper_waits('ZooKeeper hangs');
	$zk->resume;
	wait_state($_, 'connected') for ($a, $b);
	works($_, 'ZooKeeper goes on') for ($a, $b);
	wait_no_contenders($zk, $_) for qw(x y z);
}

#
# Servers strings
#

{
	my %wrong = (
		'nonsense' => '"nonsense" is not of the form host:port.',
		'' => '"" is not of the form host:port.',
		':2181' => '":2181" is not of the form host:port.',
		'h:' => '"h:" does not end in a port number.',
		'h:port' => '"h:port" does not end in a port number.',
		'h:0' => '"h:0" does not end in a port number.',
		'h:65536' => '"h:65536" does not end in a port number.',
		'h:1,,i:2' => '"" is not of the form host:port.',
		'h:1/a//b' => qr/^The chroot "\/a\/\/b" is not valid: /,
		'h:1/../b' => qr/^The chroot "\/\.\.\/b" is not valid: /);

	for my $string (sort keys %wrong)
	{
		sql_error(
			$a,
			"ALTER SYSTEM SET zklock.servers = '$string'",
			{
				sqlstate => '22023',
				message => "invalid value for parameter \"zklock.servers\": \"$string\"",
				detail => $wrong{$string},
			},
			"servers string \"$string\" is refused");
	}

	# in the file, at reload
	my $before = value($a, 'SELECT session_id, worker_pid FROM zk_session');
	my $offset = -s $a->logfile;
	$a->append_conf('postgresql.conf', "zklock.servers = 'nonsense'");
	$a->reload;
	$a->wait_for_log(
		qr/invalid value for parameter "zklock\.servers": "nonsense"/, $offset);
	$a->wait_for_log(qr/"nonsense" is not of the form host:port/, $offset);
	is(value($a, 'SHOW zklock.servers'), $servers, 'the old value stays in force');
	works($a, 'wrong servers string at reload');
	is(value($a, 'SELECT session_id, worker_pid FROM zk_session'),
		$before, 'and the session too');

	# at start: PostgreSQL complains, and nothing takes its place
	$offset = -s $a->logfile;
	$a->restart;
	delete $a->{zk_watcher};
	like(substr(slurp_file($a->logfile), $offset),
		qr/WARNING: +invalid value for parameter "zklock\.servers": "nonsense"/,
		'wrong servers string at start');
	is(value($a, 'SHOW zklock.servers'), 'nonsense', 'leaves no default');
	is(sql($a, "SELECT zk_lock('x')")->{sqlstate}, 'F0000', '... and no locks');
	$a->adjust_conf('postgresql.conf', 'zklock.servers', "'$servers'");
	$a->reload;
	wait_state($a, 'connected');
	works($a, 'servers string made right');
}

# a host that cannot be resolved
{
	my $away = 'nohost.invalid:2181';

	set_and_reload($a, undef, 'zklock.servers' => $away);
	poll_until(sub { value($a, 'SELECT last_error FROM zk_session') ne '' },
		'the worker to meet the wrong host');
	sql_error($a, "SELECT zk_lock('x')", no_session('x', 2000, '.+', $away),
		'unresolvable host');
	note(value($a, 'SELECT state, last_error FROM zk_session'));
	set_and_reload($a, 'connected', 'zklock.servers' => undef);
	works($a, 'host made right');
}

#
# Credentials
#

{
	my %denied = (
		sqlstate => '42501',
		hint => 'Check "zklock.auth" and "zklock.acl", and the ACL of the znode.');
	my $denied = sub {
		my ($lock) = @_;
		return {
			%denied,
			message => "ZooKeeper denied access to lock \"$lock\"",
			detail => 'The credentials of this server do not allow it to create'
			  . " znodes in \"/zklock/$lock\".",
		};
	};

	set_and_reload($a, 'connected', 'zklock.acl' => 'creator');
	sql_error($a, "SELECT zk_lock('k')", $denied->('k'), 'creator, but no credentials');
	sql_error($a, "SELECT zk_try_lock('k')", $denied->('k'), '... also for zk_try_lock');

	set_and_reload($a, 'connected', 'zklock.auth' => 'user:a');
	my $holder = holder($a, 'k');
	ok( !eval { $foreign->create(lock_dir('k') . '/x'); 1 } && $@ =~ /^NoAuthError/,
		'other clients are kept out');
	sql_error($b, "SELECT zk_lock('k')", $denied->('k'), 'no credentials');
	set_and_reload($b, 'connected', 'zklock.auth' => 'user:b');
	sql_error($b, "SELECT zk_lock('k')", $denied->('k'), 'wrong credentials');
	sql_error($b, "SELECT zk_try_lock('k')", $denied->('k'), '... also for zk_try_lock');
	is(value($b, 'SELECT count(*) FROM zk_locks'), 0, 'no slot is left');

	# the credentials are nobody's business
	is(value($b, 'SHOW zklock.auth'), '********', 'credentials are not shown');
	value($b, 'CREATE ROLE nobody');
	is(sql($b, 'SET ROLE nobody; SHOW zklock.auth')->{sqlstate},
		'42501', 'to nobody');

	set_and_reload($b, 'connected', 'zklock.auth' => 'user:a');
	is(sql($b, "SELECT zk_try_lock('k')")->{out}, 'f', 'right credentials: the lock is seen');
	my $waiter = waiter($b, 'k', 2);
	$holder->run_ok('COMMIT');
	is($waiter->result->{message}, undef, 'and had in turn');
	$waiter->run_ok('COMMIT');
	# only who has the credentials may list it, but all see when it is collected:
	# until then exists is refused, from ZooKeeper 3.9.2 on
	poll_until(
		sub {
			my $there = eval { $foreign->exists(lock_dir('k')) };

			die $@ if $@ && $@ !~ /^NoAuthError/;
			return !$@ && !$there;
		},
		'the idle lock directory to be collected');

	set_and_reload($a, 'connected', 'zklock.auth' => undef, 'zklock.acl' => undef);
	set_and_reload($b, 'connected', 'zklock.auth' => undef);
	works($a, 'no credentials needed');
	$_->quit for ($holder, $waiter);
}

#
# A chroot
#

{
	my $missing = {
		sqlstate => 'F0000',
		message => 'could not create lock "x" in ZooKeeper',
		detail => 'The chroot of "zklock.servers" does not exist in ZooKeeper.',
		hint => 'Create that znode, or change "zklock.servers".',
	};
	my $holder = holder($a, 'kept');
	my $session = session_of($a);

	# It takes effect when nothing is held below the old one.
	$holder->run_ok('INSERT INTO t VALUES (2)');
	$a->safe_psql('postgres',
		"ALTER SYSTEM SET zklock.servers = '$servers/some/where'");
	$a->reload;
	poll_until(
		sub { sql($a, "SELECT zk_try_lock('y', '100ms')")->{out} eq 'f' },
		'the worker to begin no contender any more');
	my $waiter = waiter($a, 'x', 2);
	is(session_of($a), $session, 'a new chroot waits for the holder');
	is(scalar(contenders($zk, 'kept')), 1, 'whose contender stays');
	$holder->run_ok('COMMIT', 'the holder commits');
	wait_no_contenders($zk, 'kept');
	is(value($a, 'SELECT count(*) FROM t WHERE i = 2'), 1, 'so it is committed');
	poll_until(sub { session_of($a) ne $session }, 'the session to end');
	error_is($waiter->result, $missing, 'who waited is below the new chroot');
	$waiter->quit;

	$a->wait_for_log(
		qr/publish this server in "\/zklock\/%clusters": no node\n.*DETAIL:  The chroot of /);
	sql_error($a, "SELECT zk_lock('x')", $missing, 'missing chroot');
	sql_error($a, "SELECT zk_try_lock('x')", $missing, '... also for zk_try_lock');
	$foreign->create('/some/where', makepath => 1);
	$holder->run_ok("BEGIN; SELECT zk_lock('x')", 'the chroot is there: works');
	is(scalar(contenders($zk, 'x', '/some/where/zklock')), 1, 'below it');
	is(sql($b, "SELECT zk_try_lock('x')")->{out}, 't', 'which is not where others look');
	$holder->run_ok('COMMIT');
	wait_no_contenders($zk, 'x', '/some/where/zklock');
	set_and_reload($a, 'connected', 'zklock.servers' => undef);
	works($a, 'no chroot');
	$holder->quit;
}

#
# Slots are full
#

{
	my $full = {
		sqlstate => '53200',
		message => 'out of lock slots',
		detail => 'All 4 slots for locks in ZooKeeper are in use.',
		hint => 'You might need to increase "zklock.max_locks".',
	};

	$plain->append_conf('postgresql.conf',
		    "shared_preload_libraries = 'zklock'\nzklock.max_locks = 4\n"
		  . "zklock.servers = '$servers'\nzklock.session_timeout = '30s'\n");
	$plain->restart;
	my $holder = holder($plain, 's1');
	$holder->run_ok("SAVEPOINT s; SELECT zk_lock('s2')");
	$holder->run_ok("SAVEPOINT s4; SELECT zk_lock('s3'), zk_lock('s4')");
	sql_error($plain, "SELECT zk_lock('s5')", $full, 'slots full');
	sql_error($plain, "SELECT zk_try_lock('s5')", $full, '... also for zk_try_lock');
	error_is($holder->run("SELECT zk_lock('s5')"), $full, '... also for a holder');
	$holder->run_ok('ROLLBACK TO s4');
	is(value($plain, 'SELECT string_agg(name, $$ $$ ORDER BY name) FROM zk_locks'),
		's1 s2', 'which keeps what it has');
	wait_no_contenders($zk, 's4');
	poll_until(sub { !sql($plain, "SELECT zk_lock('s5')")->{message} },
		'a slot to be free');
	$holder->run_ok("SELECT zk_lock('s6')", 'a slot was freed: works');
	is(sql($b, "SELECT zk_try_lock('s1')")->{out}, 'f', 'nothing was lost');
	$holder->run_ok('COMMIT');
	wait_no_contenders($zk, $_) for qw(s1 s2 s3 s5 s6);
	for my $i (1 .. 40)
	{
		$holder->run_ok("SELECT zk_lock('n$i')", "lock $i in turn") if $i <= 3;
		$holder->run("SELECT zk_lock('n$i')") if $i > 3;
	}
	$holder->quit;
}

#
# ZooKeeper restarts in the middle of a wait, and of a hold
#

for my $how ('stop', 'kill9')
{
	my $dir = lock_dir('m');
	my $node = $foreign->lock($dir);
	my @sessions = (waiter($b, 'm', 2), holder($b, 'm2'));

	if ($how eq 'stop')
	{
		begin_session($a, '30s');
		undef $no_pauses;
	}
	push @sessions, waiter($a, 'm2', 2);
	my ($waiter, $holder, $remote) = @sessions;
	my $queue = sub {
		map { my $lock = $_; map { "$_ " . $foreign->get(lock_dir($lock) . "/$_")->{czxid} } contenders($zk, $lock) }
		  qw(m m2);
	};
	my @before = $queue->();
	my $session = session_of($b);
	my $reconnects = value($b, 'SELECT reconnects FROM zk_session');

	$zk->$how;
	wait_state($b, 'suspended');
	$zk->start;
	wait_state($b, 'connected');
	is(session_of($b), $session, "$how: the session survives");
	is(value($b, 'SELECT reconnects FROM zk_session'), $reconnects + 1,
		"$how: zk_session counts it");
	is_deeply([ $queue->() ], \@before, "$how: everybody is in the same place");
	wait_state($a, 'connected');
	ok(!$waiter->done, "$how: the waiter waits");
	ok(!$remote->done, "$how: so does who waits for what we hold");
	is(sql($a, "SELECT zk_try_lock('m2')")->{out}, 'f', "$how: which is still held");
	$foreign->unlock($node);
	is($waiter->result->{message}, undef, "$how: the grant arrives");
	$holder->run_ok('COMMIT');
	is($remote->result->{message}, undef, "$how: the other grant too");
	$_->run_ok('COMMIT') for ($waiter, $remote);
	wait_no_contenders($zk, $_) for qw(m m2);
	$_->quit for @sessions;
}

#
# The session ends, as when it has expired
#

{
	# while waiting: at the end of the queue again
	my $node = $foreign->lock(lock_dir('w'));
	my $waiter = waiter($b, 'w', 2);
	my $second = waiter($b, 'w', 1);
	my $behind = $foreign->enqueue(lock_dir('w'));

	lose_session($b, $foreign);
	wait_contenders($zk, 'w', 3);
	is($foreign->position($behind), 1, 'the waiter has lost its place');
	ok(!$waiter->done, 'and waits in a new one');
	$foreign->unlock($node);
	poll_until(sub { $foreign->position($behind) == 0 }, 'who was behind it');
	ok(!$waiter->done, 'who was behind it is ahead now');
	$foreign->unlock($behind);
	is($waiter->result->{message}, undef, 'then it gets the lock');
	$waiter->run_ok('COMMIT');
	is($second->result->{message}, undef, 'and the next after it');
	$second->run_ok('COMMIT');
	wait_no_contenders($zk, 'w');
	$_->quit for ($waiter, $second);
}

{
	# while holding; b also changes something in plain, by postgres_fdw
	value($plain, 'CREATE TABLE far (i int)');
	value($b, q{
		CREATE EXTENSION postgres_fdw;
		CREATE SERVER plain FOREIGN DATA WRAPPER postgres_fdw
			OPTIONS (host '} . $plain->host . q{', port '} . $plain->port . q{', dbname 'postgres');
		CREATE USER MAPPING FOR CURRENT_USER SERVER plain;
		CREATE FOREIGN TABLE far (i int) SERVER plain;
		CREATE TABLE near (i int)});

	# postgres_fdw is loaded behind the lock, ahead of it, and again behind it
	my $session = ZkSession->new($b);
	for my $order (
		[ "SELECT zk_lock('l')", 'INSERT INTO far VALUES (1)' ],
		[ 'INSERT INTO far VALUES (1)', "SELECT zk_lock('l')" ],
		[ "SELECT zk_lock('l')", 'INSERT INTO far VALUES (1)' ])
	{
		$session->run_ok('BEGIN');
		$session->run_ok($_) for @$order;
		$session->run_ok('INSERT INTO near VALUES (1)');
		my $remote = waiter($a, 'l', 2);

		lose_session($b, $foreign);
		is($remote->result->{message}, undef, 'the lost lock goes to another instance');
		is(value($b, q{SELECT name, granted, lost FROM zk_locks}), 'l|t|t', 'zk_locks shows that it is lost');
		my $local = waiter($b, 'l', 1);
		is($session->run("SAVEPOINT s; SELECT zk_lock('l')")->{sqlstate},
			'40001', 'it cannot be taken again');
		$session->run('ROLLBACK TO s');
		error_is(
			$session->run('COMMIT'),
			{
				sqlstate => '40001',
				message => 'could not commit because lock "l" has been lost',
				detail => 'The ZooKeeper session of this server has ended.',
				hint => 'Retry the transaction.',
			},
			'a holder cannot commit');
		is(value($b, 'SELECT count(*) FROM near'), 0, 'nothing is committed');
		is(value($plain, 'SELECT count(*) FROM far'), 0, 'on the foreign server neither');

		ok(!$local->done, 'a local waiter has to wait for the other instance');
		$remote->run_ok('COMMIT');
		is($local->result->{message}, undef, 'and has the lock then');
		$local->run_ok('COMMIT');
		$session->run_ok("BEGIN; SELECT zk_lock('l'); COMMIT", 'the next transaction works');
		wait_no_contenders($zk, 'l');
		$_->quit for ($remote, $local);
	}

	# its end by ROLLBACK, and by zk_unlock
	for my $end ('ROLLBACK', "SELECT zk_unlock('l'); COMMIT")
	{
		$session->run_ok("BEGIN; SELECT zk_lock('l')");
		lose_session($b, $foreign);
		$session->run_ok($end, "a lost lock and $end");
		is(value($b, 'SELECT count(*) FROM zk_locks'), 0, 'nothing is left of it');
		works($b, 'a new session');
	}
	$session->quit;
}

{
	# really expired: the worker hangs for longer than the session lives
	$no_pauses = no_pauses();
	set_and_reload($a, 'connected', 'zklock.session_timeout' => '2s');
	my $holder = holder($a, 'l');
	my $remote = waiter($b, 'l', 2);
	my $worker = worker_of($a);

	$holder->run_ok('INSERT INTO t VALUES (3)');
	stop_process($worker);
	is($remote->result->{message}, undef, 'a hanging instance loses its locks');
	kill 'CONT', $worker;
	$a->poll_query_until('postgres', 'SELECT lost FROM zk_locks');
	is($holder->run('COMMIT')->{sqlstate}, '40001', 'and cannot commit');
	is(value($a, 'SELECT count(*) FROM t WHERE i = 3'), 0, 'nothing is committed');
	$remote->run_ok('COMMIT');
	wait_state($a, 'connected');
	works($a, 'the instance hangs no more');
	$_->quit for ($holder, $remote);
}

#
# The connection is lost in the middle of everything
#

{
	begin_session($a, '30s');
	undef $no_pauses;
	my $script = PostgreSQL::Test::Utils::tempdir . '/random';
	append_to_file($script, "\\set i random(1, 1000)\nSELECT zk_lock('random' || :i);\n");
	my $run = sub {
		my ($node) = @_;
		local %ENV = $node->_get_env();
		my ($out, $err) = ('', '');
		return {
			out => \$out,
			err => \$err,
			run => IPC::Run::start(
				[
					$node->installed_command('pgbench'), '-n', '-c', 8, '-T', 600,
					'-f', $script, $node->connstr('postgres')
				],
				'<', \undef, '>', \$out, '2>', \$err)
		};
	};
	my @benches = map { $run->($_) } ($a, $b);
	my $seen = sub { value($_[0], 'SELECT xact_commit FROM pg_stat_database WHERE datname = $$postgres$$'); };
	my $progress = sub {
		for my $node ($a, $b)
		{
			# a new grant in ZooKeeper has a new czxid
			my $names = sub { join(' ', all_contenders($zk)) };
			my $before = $names->();
			poll_until(sub { $names->() ne $before }, 'locks to be taken');
		}
	};

	for my $how (qw(kill9 stop kill9 stop kill9))
	{
		$progress->();
		$zk->$how;
		wait_state($_, 'suspended') for ($a, $b);
		$zk->start;
		wait_state($_, 'connected') for ($a, $b);
	}
	$progress->();
	for my $bench (@benches)
	{
		is(${ $bench->{err} } =~ /(error:.*)/ ? $1 : '', '', 'no call has failed');
		# its backends are in the middle of their calls
		$bench->{run}->signal('KILL');
		eval { $bench->{run}->finish };
	}
	for my $node ($a, $b)
	{
		$node->poll_query_until('postgres',
			q{SELECT count(*) = 0 FROM pg_stat_activity}
			  . q{ WHERE query LIKE '%random%' AND pid <> pg_backend_pid()});
		is(value($node, 'SELECT count(*) FROM zk_locks'), 0, 'no lock is left')
		  or diag(value($node, 'SELECT l.*, a.* FROM zk_locks l LEFT JOIN pg_stat_activity a USING (pid)'));
	}
	poll_until(sub { !all_contenders($zk) }, 'all contenders to be gone');
	is_deeply([ all_contenders($zk) ], [], 'no contender is left');
	works($a, 'after all that');
}

{
	# The answers to two creates are lost, and one of them is not wanted any
	# more: the server gets them from a connection that is gone when it goes on.
	$no_pauses = no_pauses();
	set_and_reload($b, 'connected', 'zklock.session_timeout' => '6s');
	my $session = session_of($b);

	$zk->pause;
	my $unwanted = waiter($b, 'unwanted', 2);
	my $wanted = waiter($b, 'wanted', 2);
	value($b, 'SELECT pg_cancel_backend(' . $unwanted->pid . ')');
	is($unwanted->result->{sqlstate}, '57014', 'canceled, its create on the way');
	wait_state($b, 'suspended');
	$zk->resume;
	is($wanted->result->{message}, undef, 'the other one gets the lock');
	is(session_of($b), $session, 'in the same session');
	is(scalar(wait_contenders($zk, 'wanted', 1)), 1, 'with one contender');
	$wanted->run_ok('COMMIT');
	wait_no_contenders($zk, 'wanted');
	wait_no_contenders($zk, 'unwanted');
	is(session_of($b), $session, 'all contenders have been deleted, not just expired');
	$_->quit for ($wanted, $unwanted);
	works($b, 'lost answers');
	set_and_reload($b, 'connected', 'zklock.session_timeout' => '30s');
	undef $no_pauses;
}

#
# An ensemble: from one server to another by reload
#

{
	my $three = ZooKeeper->new(servers => 3, name => 'three');
	$three->start;
	my @server = map { "127.0.0.1:$_" } $three->ports;
	my $client = $three->client(timeout => 60);

	set_and_reload($_, undef, 'zklock.servers' => $server[0]) for ($a, $b);
	for my $node ($a, $b)
	{
		poll_until(sub { value($node, "SELECT state || server FROM zk_session") eq "connected$server[0]" },
			'the session with the ensemble');
	}
	my $holder = holder($a, 'c');
	my $foreign_node = $client->lock(lock_dir('c2'));
	my $waiter = waiter($a, 'c2', 2);
	my $remote = waiter($b, 'c', 2);
	my $session = session_of($a);
	my @before = map { contenders($three, $_) } qw(c c2);

	$holder->run_ok('INSERT INTO t VALUES (4)');
	for my $to (1, 2)
	{
		set_and_reload($a, undef, 'zklock.servers' => $server[$to]);
		poll_until(sub { value($a, 'SELECT server FROM zk_session') eq $server[$to] },
			'the session to move');
		is(state_of($a) . ' ' . session_of($a), "connected $session",
			"server $to: the session is the same");
		is_deeply([ map { contenders($three, $_) } qw(c c2) ], \@before,
			'so are holds and waits');
		ok(!$remote->done, 'the other instance waits');
	}

	# the member that we are at ends, and another one is there
	set_and_reload($a, undef, 'zklock.servers' => $three->connstr);
	poll_until(sub { value($a, 'SELECT coalesce(server, $$$$) FROM zk_session') ne '' }, 'the session');
	my ($at) = grep { $server[$_] eq value($a, 'SELECT server FROM zk_session') } 0 .. 2;
	$three->kill9($at);
	poll_until(sub { my $now = value($a, 'SELECT server FROM zk_session'); $now ne '' && $now ne $server[$at] },
		'the session to go to another member');
	is(session_of($a), $session, 'a member ends: the session is the same');
	set_and_reload($b, undef, 'zklock.servers' => $three->connstr);
	wait_state($b, 'connected');
	# the old client may not be connected again yet
	my $second_client = $three->client(timeout => 60);
	is_deeply([ map { $second_client->contenders(lock_dir($_)) } qw(c c2) ], \@before,
		'so are holds and waits');
	ok(!$remote->done, 'the other instance waits');

	$holder->run_ok('COMMIT');
	is(value($a, 'SELECT count(*) FROM t WHERE i = 4'), 1, 'the holder has committed');
	is($remote->result->{message}, undef, 'the other instance has the lock');
	$remote->run_ok('COMMIT');
	$client->unlock($foreign_node);
	is($waiter->result->{message}, undef, 'the waiter has the other one');
	$waiter->run_ok('COMMIT');
	$_->quit for ($holder, $waiter, $remote);

	set_and_reload($_, undef, 'zklock.servers' => undef) for ($a, $b);
	for my $node ($a, $b)
	{
		poll_until(sub { value($node, "SELECT state || server FROM zk_session") eq "connected$servers" },
			'the session with the single server');
	}
	$three->stop;
	works($a, 'back at the single server');
}

#
# Shutdown and crash
#

{
	# b's session would live on for 30 s
	my $holder = holder($b, 'd');
	my $waiter = waiter($a, 'd', 2);
	my $session = session_of($b);

	$b->stop('fast');
	is($waiter->result->{message}, undef, 'fast shutdown: locks are free');
	unlike(slurp_file($zk->logfile), qr/Expiring session \Q$session\E/, 'at once, not after the session timeout');
	is(scalar(contenders($zk, 'd')), 1, 'no contender is left');
	$waiter->run_ok('COMMIT');
	$_->quit for ($holder, $waiter);
	$b->start;
	delete $b->{zk_watcher};
	works($b, 'started again');

	# with a hold and a wait, and no ZooKeeper to tell
	$no_pauses = no_pauses();
	set_and_reload($b, 'connected', 'zklock.session_timeout' => '4s');
	for my $how ('pause', 'kill9')
	{
		my $holder = holder($b, 'd');
		my $waiter = waiter($b, 'd', 1);

		$zk->$how;
		$b->stop('fast');
		pass("fast shutdown ($how) without ZooKeeper");
		$how eq 'pause' ? $zk->resume : $zk->start;
		$_->quit for ($holder, $waiter);
		$b->start;
		delete $b->{zk_watcher};
		# the old session could not be closed, and is so now
		is(sql($b, "SELECT zk_try_lock('d', '1 min')")->{out}, 't', 'then all works again');
		works($b, 'started again');
		wait_no_contenders($zk, 'd');
	}
}

{
	# a crash of one backend restarts them all, and ends the session
	my $holder = holder($b, 'd');
	my $waiter = waiter($b, 'd', 1);
	my $remote = waiter($a, 'd', 2);
	my $killed = ZkSession->new($b);

	kill 'KILL', $killed->pid;
	wait_accepting($b);
	is($remote->result->{message}, undef, 'crash: another instance gets the lock');
	ok($holder->run('COMMIT')->{stderr}, 'the holder has not survived');
	delete $b->{zk_watcher};
	$remote->run_ok('COMMIT');
	wait_state($b, 'connected');
	works($b, 'crash');
	wait_no_contenders($zk, 'd');
	$_->quit for ($holder, $waiter, $remote, $killed);

	$holder = holder($b, 'd');
	$b->stop('immediate');
	is(sql($a, "SELECT zk_try_lock('d', '1 min')")->{out}, 't', 'immediate shutdown: the lock is free in the end');
	$b->start;
	works($b, 'immediate shutdown');
	$holder->quit;
}

for my $node ($a, $b, $plain)
{
	is($node->safe_psql('postgres', 'SELECT count(*) FROM zk_locks'),
		0, $node->name . ' has no lock');
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP/, $node->name . ' has not crashed by itself');
}
poll_until(sub { !all_contenders($zk) }, 'all contenders to be gone');
$_->stop for ($a, $b, $plain);

done_testing();
