
# Claims: locks that belong to whoever has a token, over two instances.  What
# ends them, what does not, and that no transaction that uses one commits when
# its lock is lost.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkScene;
use ZkSession;
use ZooKeeper;

# Nothing in here waits for a session to expire.
my %settings = ('zklock.session_timeout' => '60s', 'deadlock_timeout' => '100ms');

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my ($a, $b) = zk_clusters($zk, [qw(a b)], %settings,
	'cluster_name' => sub { $_[0] },
	'zklock.max_claims' => sub { $_[0] eq 'b' ? 2 : 1000 });
my @tokens;

sub claim
{
	my ($node, $name, $ttl) = @_;
	my $token = value($node, "SELECT zk_claim('$name', '" . ($ttl // '1 h') . "')");

	push @tokens, $token;
	return $token;
}

sub renew
{
	my ($node, $token, $ttl) = @_;

	return value($node, "SELECT zk_renew_claim('$token'" . ($ttl ? ", '$ttl'" : '') . ')');
}

sub is_free { return value($_[0], "SELECT zk_try_lock('$_[1]')"); }

sub becomes_free { return value($_[0], "SELECT zk_try_lock('$_[1]', '60 s')"); }

sub claims { return value($_[0], 'SELECT count(*) FROM zk_claims'); }

# A session with a transaction that uses a claim.
sub user
{
	my ($node, $token) = @_;
	my $session = ZkSession->new($node);

	$session->run('BEGIN');
	$session->run_ok("SELECT zk_use_claim('$token')", 'the claim is used');
	return $session;
}

value($a, 'CREATE TABLE t (i int)');

# an instance that was idle: the first answer proves the session for a moment only
{
	my $token = claim($a, 'idle');

	poll_until(sub { value($a, "SELECT lease = '0' FROM zk_session") eq 't' },
		'the lease of one answer to run out');
	is(renew($a, $token), 't', 'a claim is renewed when ZooKeeper has confirmed the session');
	is(value($a, "SELECT zk_end_claim('$token')"), 't', 'and ended');
}

#
# One lock for all instances, whichever connection it came from
#

{
	my $token = claim($a, 'one');

	is(is_free($b, 'one'), 'f', 'others do not get a claimed lock');
	is(value($b, "SELECT cluster_name FROM zk_queue('one')"), 'a', 'zk_queue shows whose it is');
	is(value($a, "SELECT cluster_name, pid IS NULL FROM $_"), 'a|t', "$_ shows no process of the own instance")
	  for ("zk_queue('one')", "zk_fleet_locks() WHERE name = 'one'");
	is(renew($a, $token), 't', 'it is renewed');
	sql_error($b, "SELECT $_('$token')",
		{
			sqlstate => '55000',
			message => 'the claim was given by another instance',
			hint => qr/^Connect to instance "a" \(host .+, port ${\$a->port}\)\.$/
		},
		"$_ on another instance names the one that gave it")
	  for qw(zk_renew_claim zk_use_claim zk_end_claim);
	my $other = waiter($b, 'one', 2);
	is(value($a, "SELECT zk_end_claim('$token')"), 't', 'it is ended');
	is($other->result->{message}, undef, 'and who waits elsewhere gets the lock');
	$other->run_ok('COMMIT');
	$other->quit;
}

# the ttl, with a transaction of another instance that waits
{
	my $token = claim($a, 'ttl');
	my $other = waiter($b, 'ttl', 2);

	is(renew($a, $token, '1 s'), 't', 'a claim is renewed for a shorter time');
	is($other->result->{message}, undef, 'a claim that is not renewed ends');
	is(renew($a, $token), 'f', 'and cannot be renewed any more');
	$other->run_ok('COMMIT');
	$other->quit;
	ok($a->log_contains(qr/claim of lock "\/zklock\/ttl" has ended because it was not renewed/),
		'which is logged');
}

# ... while a transaction uses it
{
	my $token = claim($a, 'used');
	my $user = user($a, $token);
	my $local = waiter($a, 'used', 1);
	my $other = waiter($b, 'used', 2);

	is(renew($a, $token, '1 s'), 't', 'one in use, too');
	$a->poll_query_until('postgres', 'SELECT expires_at < clock_timestamp() FROM zk_claims');
	is(renew($a, $token), 'f', 'a claim that is over cannot be renewed, though in use');
	sql_error($a, "SELECT zk_use_claim('$token')",
		{ sqlstate => '40001', message => 'the claim has ended', detail => qr/./, hint => qr/./ },
		'nor used by others');
	is(claims($a), 1, 'it is kept until its user ends');
	$user->run_ok('INSERT INTO t VALUES (1)');
	$user->run_ok('COMMIT', 'which commits, since nobody else has had the lock');
	$user->quit;
	is($local->result->{message}, undef, 'a local waiter gets it');
	$local->run_ok('COMMIT');
	is($other->result->{message}, undef, 'and so does the other instance');
	$other->run_ok('COMMIT');
	$_->quit for ($local, $other);
	is(claims($a), 0, 'no claim is left');
}

# a transaction that has changed something is seen by the next one
{
	my $token = claim($a, 'visible');
	my $user = user($a, $token);

	$user->run_ok('INSERT INTO t VALUES (2)');
	$user->run_ok("SELECT zk_end_claim('$token')");
	my $other = waiter($a, 'visible', 1, "SELECT zk_lock('visible')");
	$user->run_ok('COMMIT');
	$user->quit;
	is($other->result->{message}, undef, 'the next one gets the lock at COMMIT');
	is($other->run_ok('SELECT count(*) FROM t WHERE i = 2'), 1, 'and sees what was done under the claim');
	$other->run_ok('COMMIT');
	$other->quit;
}

#
# The worker
#

{
	my $token = claim($a, 'worker');
	my $user = user($a, $token);

	next_worker($a);
	is(renew($a, $token), 't', 'a claim survives the worker');
	is(is_free($b, 'worker'), 'f', 'and so does its lock');
	$user->run_ok('INSERT INTO t VALUES (3)');
	$user->run_ok('COMMIT', 'and the commit of the transaction that uses it');
	$user->quit;
	$a->reload;
	is(renew($a, $token), 't', 'it survives a reload');
	next_worker($a);
	is(value($a, "SELECT zk_end_claim('$token')"), 't', 'and is ended under the third worker');
	is(becomes_free($b, 'worker'), 't', 'which gives up the lock');

	# the ttl does not depend on the worker
	my $session = ZkSession->new($a);
	$session->run_ok('SET zklock.commit_check = off; BEGIN');
	push @tokens, $token = $session->run_ok("SELECT zk_claim('stopped', '1 s')");
	my $worker = stop_worker($a);
	$session->run_ok('COMMIT');
	$session->quit;
	$a->poll_query_until('postgres', 'SELECT expires_at < clock_timestamp() FROM zk_claims');
	is(renew($a, $token), 'f', 'without a worker, too, a claim that is over is not renewed');
	sql_error($a, "SELECT zk_use_claim('$token')",
		{ sqlstate => '40001', message => 'the claim has ended', detail => qr/./, hint => qr/./ },
		'nor used');
	kill 'CONT', $worker;
	is(becomes_free($b, 'stopped'), 't', 'the worker ends it when it goes on');
}

#
# The session
#

{
	my $token = claim($a, 'lost');
	my $idle = claim($a, 'unused');
	my $user = user($a, $token);

	$user->run_ok('INSERT INTO t VALUES (4)');
	lose_session($a, $foreign);
	is(renew($a, $_), 'f', 'a claim ends with its session') for ($token, $idle);
	error_is($user->run('COMMIT'), $lock_lost, 'and who uses it cannot commit');
	$user->quit;
	is(value($a, 'SELECT count(*) FROM t WHERE i = 4'), 0, 'nothing is committed');
	$a->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zk_claims');
	is(becomes_free($b, $_), 't', 'others get the lock') for qw(lost unused);
	$a->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zk_locks');
}

# until COMMIT, too: the token knows what the hold has lost
{
	my $session = ZkSession->new($a);

	$session->run_ok('BEGIN; SAVEPOINT s;');
	my $token = $session->run_ok("SELECT zk_claim('begun', '1 h')");

	lose_session($a, $foreign);
	$a->poll_query_until('postgres', q{SELECT lost FROM zk_locks WHERE name = 'begun'});
	is($session->run_ok("SELECT zk_renew_claim('$token')"), 'f', 'one that has not begun is not renewed');
	for my $function (qw(zk_use_claim zk_end_claim))
	{
		$session->run_ok('SAVEPOINT t');
		is($session->run("SELECT $function('$token')")->{sqlstate}, '40001', "$function: it is lost");
		$session->run_ok('ROLLBACK TO t');
	}
	error_is($session->run('COMMIT'), $lock_lost, 'and cannot begin');
	$session->quit;
}

# a statement under a claim is canceled
{
	my $token = claim($a, 'canceled');
	my $user = user($a, $token);

	$user->send('SELECT pg_sleep(1000)');
	$user->wait_event('PgSleep');
	lose_session($a, $foreign);
	is($user->result->{sqlstate}, '40001', 'a statement under a lost claim is canceled');
	$user->run('ROLLBACK');
	$user->quit;
}

# without ZooKeeper nobody knows for how long
{
	my $token = claim($a, 'lease');

	$zk->stop;
	poll_until(
		sub {
			my $renewed = sql($a, "SET statement_timeout = '100ms'; SELECT zk_renew_claim('$token')");
			return ($renewed->{sqlstate} // '') eq '57014';
		},
		'the lease to run out');

	my $session = ZkSession->new($a);

	$session->send("SELECT zk_renew_claim('$token')");
	$a->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event IN ('ZkLockRenew', 'Extension')"
		  . " AND query LIKE 'SELECT zk_renew_claim%'");
	$zk->start;
	is($session->result->{out}, 't', 'it is renewed when ZooKeeper is back');
	$session->quit;
	is(value($a, "SELECT zk_end_claim('$token')"), 't', 'the claim has survived');
	is(becomes_free($b, 'lease'), 't', 'until it was ended');
}

#
# zk_cancel_holders, on this instance and on another one
#

{
	my $token = claim($a, 'asked');

	$foreign = $zk->client(timeout => 60);
	poll_until(
		sub {
			value($b, "SELECT zk_cancel_holders('asked')");
			renew($a, $token) eq 'f';
		},
		'the claim to end because another instance has asked');
	is(becomes_free($b, 'asked'), 't', 'and its lock is free');
	ok($a->log_contains(qr/claim of lock "\/zklock\/asked" has ended because another client has requested that/),
		'which is logged');

	$token = claim($a, 'asked here');
	is(value($a, "SELECT zk_cancel_holders('asked here')"), 1, 'a claim ends because its own instance has asked');
	is(renew($a, $token), 'f', 'and is not renewed');
	ok($a->log_contains(qr/claim of lock "\/zklock\/asked%20here" has ended because zk_cancel_holders\(\) was called/),
		'which is logged');
}

#
# Deadlocks with other instances
#

# One of a scene's sessions fails.  Then the claim ends, since who waits for a
# claim itself waits on when its user fails, and all others commit.
sub resolve
{
	my ($scene, $token, @names) = @_;
	my %wire = map { $_ => $scene->wire($_) } @names;
	my $victim;

	poll_until(
		sub {
			ZkWire::wait_any(0, grep { $_->busy } values %wire);
			($victim) = grep { ($wire{$_}->result->{sqlstate} // '') eq '40P01' } sort keys %wire;
			return $victim && !$wire{$victim}->busy;
		},
		'the deadlock to end');
	is($wire{$victim}->result->{sqlstate}, '40P01', "a deadlock with another instance is one: $victim fails");
	$wire{$victim}->run('ROLLBACK');
	is(value($a, "SELECT zk_end_claim('$token')"), 't', 'the claim goes on');
	for my $name (grep { $_ ne $victim } @names)
	{
		$scene->goes_on($name);
		is($wire{$name}->run('COMMIT')->{sqlstate}, undef, "$name commits");
	}
	return;
}

# for a lock; the user has the claimed one already, whoever waits for it
{
	my $token = claim($a, 'claimed');
	my $scene = ZkScene->new($zk, 'a claim and a lock', one => $a, two => $b);

	$scene->does(one => "SELECT zk_use_claim('$token')");
	$scene->does(two => "SELECT zk_lock('other')");
	$scene->waits(one => "SELECT zk_lock('claimed'), zk_lock('other')", queue => { other => 2 });
	$scene->closes(two => "SELECT zk_lock('claimed')");
	resolve($scene, $token, qw(one two));
}

# one of two users
{
	my $token = claim($a, 'claimed');
	my $scene = ZkScene->new($zk, 'two users of a claim', idle => $a, one => $a, two => $b);

	$scene->does($_ => "SELECT zk_use_claim('$token')") for qw(idle one);
	$scene->does(two => "SELECT zk_lock('other')");
	$scene->waits(one => "SELECT zk_lock('other')", queue => { other => 2 });
	$scene->closes(two => "SELECT zk_lock('claimed')");
	resolve($scene, $token, qw(idle one two));
}

# for a row of a session that waits for the other instance
{
	my $token = claim($a, 'claimed');
	my $scene = ZkScene->new($zk, 'a claim and a row', owner => $a, user => $a, two => $b);
	my $row = 'UPDATE t SET i = i WHERE i = 1';

	$scene->does(owner => $row);
	$scene->does(user => "SELECT zk_use_claim('$token')");
	$scene->does(two => "SELECT zk_lock('other')");
	$scene->waits(owner => "SELECT zk_lock('other')", queue => { other => 2 });
	$scene->waits(user => $row, tier => 1);
	$scene->closes(two => "SELECT zk_lock('claimed')");
	resolve($scene, $token, qw(owner user two));
}

# a local taker between: the user waits for an instance that waits for it
{
	my $token = claim($a, 'claimed');
	my $user = user($a, $token);
	my $taker = ZkSession->new($a);
	my $other = ZkSession->new($b);

	$taker->run_ok("BEGIN; SELECT zk_lock('x');");
	$other->run_ok("BEGIN; SELECT zk_lock('y');");
	$taker->send("SELECT zk_lock('claimed')");
	$taker->wait_waiting(1);
	$other->send("SELECT zk_lock('x')");
	$other->wait_waiting(2);
	$user->send("SELECT zk_lock('y')");
	poll_until(sub { grep { $_->done } ($user, $other) }, 'the deadlock to end');
	value($a, "SELECT zk_end_claim('$token')");

	# the rollback of one lets the next one go on
	my %state;
	for my $session ($other->done ? ($other, $user, $taker) : ($user, $taker, $other))
	{
		$state{ $session->pid } = $session->result->{sqlstate} // '';
		$session->run('COMMIT');
	}
	is(join(',', sort values %state), ',,40P01', 'a deadlock by way of a local taker is one');
	is($state{ $taker->pid }, '', 'but the taker waits for a claim, and goes on');
	$_->quit for ($user, $taker, $other);
}

#
# Locks of this instance, without ZooKeeper: a claim from before is in their way
#

{
	my $token = claim($a, 'apart');
	my $user = user($a, $token);

	$a->append_conf('postgresql.conf', "zklock.exclusion = instance");
	$a->reload;
	$a->poll_query_until('postgres', "SELECT current_setting('zklock.exclusion') = 'instance'");
	is(sql($a, "SELECT $_")->{sqlstate}, '0A000', "no $_ then")
	  for ("zk_claim('new', '1 s')", "zk_use_claim('$token')", "zk_renew_claim('$token')");
	is(is_free($a, 'apart'), 'f', 'its lock is not free');
	is(value($a, "SELECT zk_try_lock_any(ARRAY['apart', 'apart 2'])"),
		'apart 2', 'nor as one of several');
	my $taker = waiter($a, 'apart', 1);
	is(value($a, "SELECT zk_end_claim('$token')"), 't', 'the claim is ended');
	$user->run_ok('INSERT INTO t VALUES (5)');
	ok(!$taker->done, 'but its user still has the lock');
	$user->run_ok('COMMIT');
	$user->quit;
	is($taker->result->{message}, undef, 'then another session has it');
	$taker->run_ok('COMMIT');
	$taker->quit;
	$a->append_conf('postgresql.conf', "zklock.exclusion = fleet");
	$a->reload;
	$a->poll_query_until('postgres', "SELECT current_setting('zklock.exclusion') = 'fleet'");
	is(becomes_free($b, 'apart'), 't', 'and at last, the other instance');
}

#
# Room
#

{
	my @of_b = map { claim($b, "room $_") } (1, 2);

	sql_error($b, "SELECT zk_claim('room 3', '1 h')",
		{
			sqlstate => '53200',
			message => 'out of claims',
			detail => 'All 2 claims are in use.',
			hint => qr/zklock\.max_claims/
		});
	is(is_free($a, 'room 3'), 't', 'nothing is left of the one too many');
	is(value($b, "SELECT zk_end_claim('$of_b[0]')"), 't', 'one ends');
	like(claim($b, 'room 3'), qr/./, 'and there is room');
}

#
# The instance
#

# a crash: the id stays, the claims do not
{
	my $token = claim($a, 'crash');
	my $user = user($a, $token);
	my $victim = ZkSession->new($a);

	kill 'KILL', $victim->pid;
	$victim->quit;
	$user->quit;
	wait_accepting($a);
	wait_connected($a);
	is(renew($a, $token), 'f', 'a claim ends in a crash');
	is(becomes_free($b, 'crash'), 't', 'and its lock is free');
}

# a shutdown does not wait for claims
{
	my $token = claim($a, 'shutdown');
	my $other = waiter($b, 'shutdown', 2);

	$a->stop('fast');
	is($other->result->{message}, undef, 'a shutdown ends the claims');
	$other->run_ok('COMMIT');
	$other->quit;
	$a->start;
	wait_connected($a);
	sql_error($a, "SELECT zk_renew_claim('$token')",
		{
			sqlstate => '55000',
			message => 'the claim was given by another instance',
			hint => qr/^No instance of the fleet has this id now\./
		},
		'a token of before is known to nobody');
}

# No token is in a line of the log but where that tells what the client has sent.
for my $node ($a, $b)
{
	my $log = join '', grep { !/statement:/i } split /^/, slurp_file($node->logfile);

	is((grep { index($log, (split m{/})[1]) >= 0 } @tokens), 0,
		'no token is in the log of ' . $node->name);
}

retire($a, $b);

#
# Takers of a claimed lock in the instance of the claim: a deadlock with a
# transaction that uses the claim is PostgreSQL's, and nobody else finds it, too;
# a lock that a session holds in some other way is no use of a claim.
#

{
	my ($node, $other) = zk_clusters($zk, [qw(a b)],
		'zklock.session_timeout' => '20s',
		'deadlock_timeout' => '50ms');

	value($node, 'CREATE TABLE rows (id int PRIMARY KEY, n int)');
	value($node, 'INSERT INTO rows VALUES (1, 0)');

	my $row = 'UPDATE rows SET n = n + 1 WHERE id = 1';

	# A user of a claim and a taker wait for each other.  The user's wait ends first;
	# long before, the worker has looked for deadlocks, since another instance waits.
	# A taker of the shared lock has a contender of its own, behind the claim's.
	for my $case (
		[ "SET deadlock_timeout = '2 s'", '40P01', 'by deadlock_timeout', 'false', 2 ],
		[ "SET lock_timeout = '2 s'", '55P03', 'by lock_timeout', 'false', 2 ],
		[ "SET deadlock_timeout = '2 s'", '40P01', 'by deadlock_timeout, shared', 'true', 3 ],
		[ "SET lock_timeout = '2 s'", '55P03', 'by lock_timeout, shared', 'true', 3 ])
	{
		my ($setting, $sqlstate, $how, $shared, $contenders) = @$case;
		my $token = value($node, "SELECT zk_claim('c', '1 h')");
		my $user = ZkSession->new($node);
		my $taker = ZkSession->new($node);

		$user->run_ok("SET deadlock_timeout = '60 s'; $setting; BEGIN; SELECT zk_use_claim('$token');");
		$taker->run_ok("SET deadlock_timeout = '60 s'; BEGIN; $row;");
		$taker->send("SELECT zk_lock('c', shared => $shared)");
		$taker->wait_waiting(1);
		my $elsewhere = waiter($other, 'c', $contenders);
		wait_contenders($zk, 'c', $contenders);
		is($user->run($row)->{sqlstate}, $sqlstate, "one of a user and a taker fails, $how");
		$user->run('ROLLBACK');
		is(value($node, "SELECT zk_end_claim('$token')"), 't', 'the claim goes on');
		is($taker->result->{sqlstate}, undef, 'and the other one gets the lock');
		$taker->run_ok('COMMIT');
		is($elsewhere->result->{sqlstate}, undef, 'and so does the other instance');
		$elsewhere->run_ok('COMMIT');
		$_->quit for ($user, $taker, $elsewhere);
	}

	# A session-scoped lock from the time when locks were this instance's alone, whose
	# heavyweight lock PostgreSQL has released: others may claim it.
	{
		my $exclusion = sub {
			alter_system($node, 'zklock.exclusion' => $_[0]);
			$node->poll_query_until('postgres', "SELECT current_setting('zklock.exclusion') = '$_[0]'");
		};
		my $holder = ZkSession->new($node);

		$exclusion->('instance');
		poll_until(sub { $holder->run('SHOW zklock.exclusion')->{out} eq 'instance' }, 'the session to see it');
		$holder->run("SELECT zk_lock('x', session => true), pg_advisory_unlock_all()");
		$exclusion->('fleet');
		my $token = value($node, "SELECT zk_claim('x', '1 h')");

		poll_until(sub { $holder->run('SHOW zklock.exclusion')->{out} eq 'fleet' }, 'the session to see it');
		error_is($holder->run("SELECT zk_use_claim('$token')"),
			{
				sqlstate => '55000',
				message => 'cannot use the claim of lock "x"',
				detail => 'This session has held the lock since "zklock.exclusion" was "instance".',
				hint => 'Release the lock first.'
			},
			'such a lock is no use of the claim');
		is(value($node, 'SELECT users FROM zk_claims'), 0, 'and there is none');
		$holder->run_ok("SELECT zk_unlock('x')");
		$holder->run_ok("SELECT zk_use_claim('$token')", 'then it is used');
		$holder->quit;
		is(value($node, "SELECT zk_end_claim('$token')"), 't', 'the claim goes on');
	}

	retire($node, $other);
}

#
# Tokens of other instances: whoever makes them up does not make the server read
# the members of the fleet each time.
#

{
	my $proxy = ZkProxy->new;
	my $servers = $zk->connstr_through($proxy, 'a');
	$proxy->count('a-0');
	my $a = zk_cluster('a', $zk,
		'cluster_name' => 'a',
		'zklock.servers' => $servers,
		'zklock.session_timeout' => '60s');
	my $b = zk_cluster('b', $zk,
		'cluster_name' => 'b',
		'zklock.session_timeout' => '60s');

	wait_connected($_) for ($a, $b);
	my $token = value($b, "SELECT zk_claim('x', '1 h')");
	my $named = sub {
		return (sql($a, "SELECT zk_renew_claim('$token')")->{hint} // '') =~ /^Connect to instance "b" /;
	};
	poll_until($named, 'the other instance to be a member');
	my $before = $proxy->requests('a-0');

	value($a, <<'EOC');
CREATE ROLE nobody;
SET ROLE nobody;
DO $$
BEGIN
  FOR i IN 1 .. 200 LOOP
    BEGIN
      PERFORM zk_renew_claim(md5(i::text)::char(16) || '/' || md5(i::text));
    EXCEPTION WHEN object_not_in_prerequisite_state THEN
    END;
  END LOOP;
END$$;
EOC
	my $now = $proxy->requests('a-0');
	my $reads = ($now->{children} // 0) + ($now->{get} // 0) - ($before->{children} // 0) - ($before->{get} // 0);
	cmp_ok($reads, '<', 50, "200 tokens that were made up, and $reads reads");
	poll_until($named, 'an instance to be named again');

	# one that joins is known, too
	my $c = zk_cluster('c', $zk,
		'cluster_name' => 'c',
		'zklock.session_timeout' => '60s');
	wait_connected($c);
	$token = value($c, "SELECT zk_claim('y', '1 h')");
	poll_until(
		sub { (sql($a, "SELECT zk_renew_claim('$token')")->{hint} // '') =~ /^Connect to instance "c" / },
		'a new instance to be named');
	pass('a new instance is named');
}

done_testing();
