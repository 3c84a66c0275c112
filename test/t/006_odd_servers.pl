# What a server may answer that no client expects: an answer that makes the
# client library fail an assertion, a delete or the look at a contender that it
# refuses, and the end of the session while a flight is being sent.
#
# And servers that speak ZooKeeper's protocol, but lack requests that zklock needs,
# or do not resume sessions: zk_session and the log name what is missing, and
# no lock is taken where it would not be safe.

use strict;
use warnings;

use OddServer;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

# Lock directories stay: where one must be made, its create goes alone.
my $zk = ZooKeeper->new(containers => 3600000);
$zk->start;
my $proxy = ZkProxy->new;
my $servers = $zk->connstr_through($proxy, 'a');
my $foreign = $zk->client(timeout => 60);
no_pauses();	# the odd servers grant sessions of 4 s
my $a = zk_cluster('a', $zk, 'zklock.servers' => $servers, 'zklock.session_timeout' => '60s');

#
# A delete that is refused is tried again
#

{
	my $dir = lock_dir('kept');
	my $holder = holder($a, 'kept');

	$foreign->set_acl($dir, 'no delete');
	$holder->run_ok('COMMIT', 'the holder commits');
	$a->wait_for_log(qr/WARNING:  could not delete contender "\Q$dir\E\//);
	is(sql($a, "SELECT zk_try_lock('kept')")->{out}, 'f', 'a try does not wait for it');
	is(sql($a, "SELECT zk_try_lock('kept', '1ms')")->{out}, 'f', '... nor with a timeout');
	sql_error($a, "SET lock_timeout = '1ms'; SELECT zk_lock('kept')",
		{ sqlstate => '55P03', message => 'could not obtain lock "kept" in ZooKeeper' },
		'lock_timeout bounds the wait');

	my $waiter = waiter($a, 'kept', 2);
	$foreign->set_acl($dir, 'open');
	is($waiter->result->{sqlstate}, undef, 'who waits has the lock in the end');
	is(scalar(contenders($zk, 'kept')), 1, 'with a new contender');
	$waiter->run_ok('COMMIT');
	wait_no_contenders($zk, 'kept');
	$_->quit for ($holder, $waiter);
}

#
# The look at a contender for the fencing token is refused: the lock is held, and
# who asks for the token is told why there is none
#

# Servers since ZooKeeper 3.9.2 refuse that by the ACL.  Here they are made to: the
# answer to each "exists" about an ephemeral node, 84 bytes, gets an error.
sub refuse_stats
{
	my ($error) = @_;

	$proxy->forge('a-0', '(?s)(\x00\x00\x00\x54.{12})\x00{4}(?=.{44}\x01)', "\\1$error");
	return;
}

my $no_auth = '\377\377\377\232';
my $throttled = '\377\377\377\201';
my $bad_arguments = '\377\377\377\370';

# Two sessions take t1 and t2 in one flight: two creates are a multi, whose answer
# tells no token.
sub hold_both
{
	my ($holder, $other, $shared) = @_;
	my $worker = stop_worker($a);

	$holder->send("SELECT zk_lock('t1', shared => $shared, session => true)");
	$other->send("SELECT zk_lock('t2', shared => $shared, session => true)");
	$_->wait_waiting(2) for ($holder, $other);
	kill 'CONT', $worker;
	is($_->result->{sqlstate}, undef, 'a lock whose contender may not be looked at is held')
	  for ($holder, $other);
	return;
}

sub token_is_denied
{
	my ($session, $call, $name) = @_;

	error_is(
		defined $call ? $session->run($call) : $session->result,
		{
			sqlstate => '42501',
			message => 'ZooKeeper denied access to the fencing token of lock "t1"',
			detail => 'The lock is held, but the ACL of its contender in "' . lock_dir('t1') .
			  '" does not allow this server to read it.',
			hint => 'Check "zklock.auth" and the ACL of the contender.  The server asks ZooKeeper again every few seconds.'
		},
		$name);
	return;
}

{
	my $holder = ZkSession->new($a);
	my @readers = map { ZkSession->new($a) } 1 .. 2;
	my $other = ZkSession->new($a);
	my $token = "SELECT zk_fencing_token('t1')";

	$holder->run_ok("SET statement_timeout = '3min'");
	refuse_stats($no_auth);
	hold_both($holder, $other, 'false');
	token_is_denied($holder, $token, 'zk_fencing_token fails');
	token_is_denied($holder, "SELECT zk_fence('t1')", 'zk_fence fails');
	is( $a->safe_psql('postgres', "SELECT granted, lost, token IS NULL FROM zk_locks WHERE name = 't1'"),
		't|f|t', 'the lock is held, and zk_locks has no token');
	$a->wait_for_log(qr/LOG:  ZooKeeper refused the fencing token of "\Q${\lock_dir('t1')}\E": not authenticated/);

	# the next worker finds the same
	next_worker($a);
	token_is_denied($holder, $token, '... also after a restart of the worker');

	# once it is allowed, the worker gets the token
	refuse_stats('\000\000\000\000');
	poll_until(sub { !defined $holder->run($token)->{sqlstate} }, 'the token to be reported');
	my ($node) = $foreign->contenders(lock_dir('t1'));
	is($holder->run($token)->{out}, $foreign->get(lock_dir('t1') . "/$node")->{czxid},
		'when it is not refused any more, the token is that of the contender');
	refuse_stats($no_auth);
	$holder->run_ok("SELECT zk_fence('t1')", 'what is known stays known');
	$_->run_ok('SELECT zk_unlock_all()') for ($holder, $other);
	wait_no_contenders($zk, $_) for qw(t1 t2);

	# all who wait for it are told; until then they can be canceled
	refuse_stats($throttled);
	$_->run_ok("SET statement_timeout = '3min'") for @readers;
	hold_both($readers[0], $other, 'true');
	$readers[1]->run_ok("SELECT zk_lock('t1', shared => true, session => true)");
	is($readers[0]->run("SET statement_timeout = '1ms'; $token")->{sqlstate}, '57014',
		'while ZooKeeper puts off the answer, the call waits, and statement_timeout ends that');
	$readers[0]->run_ok("SET statement_timeout = '3min'");
	$_->send($token) for @readers;
	$_->wait_waiting(2) for @readers;
	$a->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $readers[0]->pid . ')');
	is($readers[0]->result->{sqlstate}, '57014', '... and so does a cancel');
	$readers[0]->send($token);
	$readers[0]->wait_waiting(2);
	refuse_stats($no_auth);
	token_is_denied($_, undef, 'every holder that waits gets the error') for @readers;
	$_->run_ok('SELECT zk_unlock_all()') for (@readers, $other);
	wait_no_contenders($zk, $_) for qw(t1 t2);

	# any other error
	refuse_stats($bad_arguments);
	hold_both($holder, $other, 'false');
	error_is(
		$holder->run($token),
		{
			sqlstate => '58000',
			message => 'ZooKeeper refused the fencing token of lock "t1"',
			hint => 'The server log has the details.'
		},
		'an error that has nothing to do with rights');
	refuse_stats('\000\000\000\000');

	# the next contender is another one
	$_->run_ok('SELECT zk_unlock_all()') for ($holder, $other);
	wait_no_contenders($zk, $_) for qw(t1 t2);
	hold_both($holder, $other, 'false');
	like($holder->run_ok($token, 'a lock that is taken again has a token'), qr/^\d+$/);
	$_->quit for ($holder, $other, @readers);
	wait_no_contenders($zk, $_) for qw(t1 t2);
}

sub wait_server
{
	my ($address) = @_;

	poll_until(
		sub { $a->safe_psql('postgres', 'SELECT server FROM zk_session') eq $address },
		"the worker to be with $address");
	return;
}

#
# An assertion of the client library takes down the worker, and nothing else
#

{
	my $session = ZkSession->new($a);
	my $odd = OddServer->new('odd_server.py', 'unasked');

	$session->run_ok('CREATE TEMP TABLE alive AS SELECT 1');
	$a->safe_psql('postgres', "ALTER SYSTEM SET zklock.servers = '${\$odd->address}'");
	$a->reload;
	$a->wait_for_log(qr/FATAL:  the ZooKeeper client library failed an assertion/);
	$session->run_ok('SELECT * FROM alive', 'other sessions live on');

	$a->safe_psql('postgres', 'ALTER SYSTEM RESET zklock.servers');
	$a->reload;
	wait_server($servers);
	$session->run_ok("BEGIN; SELECT zk_lock('x')", 'and lock');
	$session->run_ok('COMMIT');
	wait_no_contenders($zk, 'x');
	$session->quit;

	unlike(slurp_file($a->logfile), qr/terminating any other active server processes/,
		'the server has not crashed');
	$odd->stop;
}

#
# A server that answers nothing but pings keeps no worker for long, and no call
#

{
	my $odd = OddServer->new('odd_server.py', 'mute');
	my $log = -s $a->logfile;

	$a->safe_psql('postgres', "ALTER SYSTEM SET zklock.servers = '${\$odd->address}'");
	$a->reload;
	wait_server($odd->address);
	is(sql($a, "SET statement_timeout = '1min'; SELECT zk_lock('mute')")->{sqlstate},
		'57P03', 'a call gives up after the session timeout');
	ok($a->wait_for_log(qr/LOG:  restarting the zklock worker, because ZooKeeper could not be reached/, $log),
		'a server that answers pings only has not been reached');
	$a->safe_psql('postgres', 'ALTER SYSTEM RESET zklock.servers');
	$a->reload;
	wait_server($servers);
	$odd->stop;
}

#
# What a list has again and again is read once
#

{
	my $odd = OddServer->new('odd_server.py', 'repeat');

	$a->safe_psql('postgres', "ALTER SYSTEM SET zklock.servers = '${\$odd->address}'");
	$a->reload;
	wait_server($odd->address);
	is(value($a, "SELECT count(*) FROM zk_queue('semaphore')"),
		2, 'a contender in a directory that is listed 50 times');
	$a->safe_psql('postgres', 'ALTER SYSTEM RESET zklock.servers');
	$a->reload;
	wait_server($servers);
	$odd->stop;
}

#
# The session ends while the worker sends a long flight, which has a multi at
# its end
#

for my $chroot ('', '/below')
{
	my $root = '/d' x 40;
	my $session = ZkSession->new($a);
	my $odd = OddServer->new('odd_server.py', 'refuse');
	my $log = -s $a->logfile;

	$a->safe_psql('postgres', "ALTER SYSTEM SET zklock.servers = '${\$odd->address}$chroot'");
	$a->safe_psql('postgres', "ALTER SYSTEM SET zklock.auth = 'odd:secret'");
	$a->reload;
	wait_server($odd->address);
	$session->run_ok("BEGIN; SET LOCAL zklock.root = '$root'");
	$session->send("SELECT zk_lock_any(array_agg('d' || i)) FROM generate_series(1, 200) i");
	$a->wait_for_log(qr/ZooKeeper refused the credentials/, $log);

	$a->safe_psql('postgres', 'ALTER SYSTEM RESET zklock.servers');
	$a->safe_psql('postgres', 'ALTER SYSTEM RESET zklock.auth');
	$a->reload;
	wait_server($servers);
	is($session->result->{sqlstate}, undef, "locks after a session that ended: \"$chroot\"");
	$session->run_ok('COMMIT');
	$session->quit;
	unlike(slurp_file($a->logfile), qr/terminating any other active server processes/,
		'the server has not crashed');
	$odd->stop;
}

#
# Servers that lack something
#

my %number = (multi => 14, create2 => 15, removeWatches => 18, createContainer => 19);
my ($port) = $zk->ports;
my $b = zk_cluster('b', $zk);

wait_connected($b);

sub of_sessions { return $a->safe_psql('postgres', "SELECT $_[0] FROM zk_session"); }

# Let instance a use these servers, and wait until it knows what they lack.
sub go_to
{
	my ($address, $missing) = @_;

	alter_system($a, 'zklock.servers' => $address);
	poll_until(
		sub { of_sessions('coalesce(missing, $${}$$)') eq "{$missing}" },
		"{$missing} to be missing");
	return;
}

sub go_back
{
	go_to($servers, '');
	wait_connected($a);
	is(of_sessions('last_error'), '', 'ZooKeeper has all');
	return;
}

#
# What is there is probed once, and nothing of that for a lock
#

{
	edit_settings($a, 'zklock.session_timeout' => '4s');
	$proxy->count('a-0');
	$a->restart;
	wait_connected($a);
	sql($a, "SELECT zk_lock('x')");
	wait_no_contenders($zk, 'x');
	my $before = $proxy->requests('a-0');
	is($before->{remove_watches}, 1, 'a session is probed on its first connection');

	$proxy->reset('a-0');
	next_worker($a);
	sql($a, "SELECT zk_lock('x')");
	wait_no_contenders($zk, 'x');
	my $after = $proxy->requests('a-0');
	is($after->{remove_watches}, 1, '... and on no other, by any worker');
	is(of_sessions('missing IS NULL'), 't', 'nothing is missing');
}

#
# Servers without a request: they say so, or close the connection
#

sub is_refused
{
	my ($manner, @missing) = @_;
	my $lesser = OddServer->new('lesser_server.py', $port, @$manner);
	my $log = -s $a->logfile;
	my $names = join(', ', @missing);
	my $address = $lesser->address;

	go_to($address, join(',', @missing));
	$a->wait_for_log(
		qr/WARNING:  ZooKeeper server $address lacks requests that zklock needs\n.*DETAIL:  They are: $names\.\n.*HINT:  Use servers of ZooKeeper/,
		$log);
	sql_error(
		$a,
		"SET statement_timeout = '1min'; SELECT zk_lock('x')",
		{
			sqlstate => '57P03',
			message => 'could not reach ZooKeeper for lock "x"',
			detail => "There was no session with \"$address\" for 4000 ms: server $address lacks requests that zklock needs: $names",
			hint => 'Check "zklock.servers" and that ZooKeeper is running; the view zk_session shows the state.'
		},
		"no lock without $names (@$manner)");
	is(of_sessions('state, last_error'),
		"down|server $address lacks requests that zklock needs: $names",
		'zk_session has the reason');
	go_back();
	$lesser->stop;
	return;
}

is_refused([ map { "refuse:$number{$_}" } qw(create2 createContainer removeWatches) ],
	qw(create2 createContainer removeWatches));
is_refused(["refuse:$number{$_}"], $_) for qw(multi removeWatches);
is_refused([ "close:$number{create2}", "close:$number{removeWatches}" ], qw(create2 removeWatches));
is_refused([ "close:$number{createContainer}", 'forget' ], 'createContainer');

# A connection that is lost for another reason shows nothing
{
	my $lesser = OddServer->new('lesser_server.py', $port, map { "close:$number{$_}:2" } qw(create2 createContainer removeWatches));

	alter_system($a, 'zklock.servers' => $lesser->address);
	poll_until(sub { of_sessions('server') eq $lesser->address }, 'a connection');
	sql($a, "SELECT zk_lock('x')");
	is(of_sessions('missing IS NULL'), 't', 'two lost connections show nothing');
	go_back();
	$lesser->stop;
}

#
# Servers that do not resume sessions: all locks are lost with a connection, and
# nobody else has them too early
#

{
	# with a new postmaster, which has not seen one resumed (and which must not
	# inherit the end of a pipe that is to end the odd server)
	$a->restart;
	my $lesser = OddServer->new('lesser_server.py', $port, 'forget');
	my $address = '127.0.0.1:' . $proxy->link('forgets', $lesser->port);
	my $log = -s $a->logfile;
	alter_system($a, 'zklock.servers' => $address);
	poll_until(sub { of_sessions('server') eq $address }, 'a connection');
	wait_connected($a);
	my $holder = holder($a, 'x');
	my ($old) = contenders($zk, 'x');
	$a->poll_query_until('postgres', "SELECT lease > '1s' FROM zk_session");
	$proxy->reset('forgets');
	$a->wait_for_log(
		qr/WARNING:  ZooKeeper ended session \w+ before its timeout\n.*DETAIL:  Another client has closed it, or the servers do not resume sessions/,
		$log);
	is(of_sessions('missing'), '{"session resumption"}', 'zk_session says what is missing');
	is($holder->run('COMMIT')->{sqlstate}, '40001', 'the lock is lost');

	my $waiter = waiter($b, 'x', 2);
	is((contenders($zk, 'x'))[0], $old, 'the contender of the old session is still first');
	is($waiter->result->{sqlstate}, undef, 'another instance has the lock when that has timed out');
	$waiter->run_ok('COMMIT');
	wait_no_contenders($zk, 'x');
	$_->quit for ($holder, $waiter);

	# ZooKeeper resumes them
	alter_system($a, 'zklock.servers' => $servers);
	poll_until(sub { of_sessions('server') eq $servers }, 'ZooKeeper');
	wait_connected($a);
	$proxy->reset('a-0');
	$a->poll_query_until('postgres', 'SELECT reconnects > 0 AND missing IS NULL FROM zk_session');
	pass('a session that is resumed shows that none is missing');
	$lesser->stop;
}

$_->stop('fast') for $a, $b;

done_testing();
