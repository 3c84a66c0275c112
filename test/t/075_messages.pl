
# Copyright (c) 2026, zklock developers

# What users and operators are told: who keeps a session waiting, that ZooKeeper
# is away, that the library was not loaded, and how a server stops.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;
my $a = zk_cluster('a', $zk, 'zklock.session_timeout' => '40s');
my $foreign = $zk->client(timeout => 60);

#
# Without shared_preload_libraries
#

{
	my $not_loaded = {
		severity => 'WARNING',
		sqlstate => '55000',
		message => 'zklock must be loaded via "shared_preload_libraries"',
		detail => 'Its functions and views fail until then.',
		hint => 'Add zklock to "shared_preload_libraries" and restart the server.',
	};
	my $plain = PostgreSQL::Test::Cluster->new('plain');
	my $is_told = sub {
		my ($sql, $name) = @_;
		my $result = sql($plain, $sql);

		is($result->{message}, undef, "$name does not fail");
		delete $_->{context} for @{ $result->{warnings} };
		is_deeply($result->{warnings}, [$not_loaded], '... and warns');
	};

	$plain->init;
	# as if it had been reloaded, and not restarted
	$plain->append_conf('postgresql.conf', "zklock.servers = 'localhost:2181'");
	$plain->start;
	$is_told->('CREATE EXTENSION zklock', 'CREATE EXTENSION, not preloaded,');
	$is_told->('DROP EXTENSION zklock; CREATE EXTENSION zklock', '... again');
	$is_told->(
		"DROP EXTENSION zklock; SET check_function_bodies = off; CREATE EXTENSION zklock",
		'... as pg_restore does it');
	is(value($plain, "SELECT count(*) FROM pg_proc WHERE proname ~ 'preload'"),
		0, 'it leaves no function behind');
	is_deeply(
		sql($a, 'DROP EXTENSION zklock; CREATE EXTENSION zklock')->{warnings},
		[], 'preloaded: CREATE EXTENSION has no warning');
	$plain->stop;
}

#
# Who waits behind a session of its own server does not wait in ZooKeeper
#

{
	# PostgreSQL 19 puts its own ahead of it
	my $context = qr/^(waiting for \w+ on user lock \S+\n)?while waiting for lock "x" behind another session of this server$/;
	my $holder = holder($a, 'x');
	my $waiter = waiter($a, 'x', 1);

	kill 'INT', $waiter->pid;
	my $result = $waiter->result;
	is($result->{sqlstate}, '57014', 'a wait in the lock manager is canceled');
	like($result->{context}, $context, '... and the context does not speak of ZooKeeper');
	$waiter->run('ROLLBACK');

	for my $sql ("SELECT zk_lock('x', '100 ms')", "SET lock_timeout = '100 ms'; SELECT zk_lock('x')")
	{
		$result = sql($a, $sql);
		error_is($result,
			{ sqlstate => '55P03', message => 'canceling statement due to lock timeout' },
			"so it is past a timeout, with no outage: $sql");
		like($result->{context}, $context, '... and the context');
	}
	$result = sql($a, "SELECT zk_try_lock('x', '100 ms')");
	is($result->{out}, 'f', 'a try waits, too');
	is_deeply($result->{warnings}, [], '... and warns no more');
	$holder->run('COMMIT');

	my $node = $foreign->lock(lock_dir('x'));
	$waiter->send("SELECT zk_lock('x')");
	$waiter->wait_waiting(2);
	kill 'INT', $waiter->pid;
	is($waiter->result->{context}, 'while waiting for lock "x" in ZooKeeper',
		'who waits behind another client waits in ZooKeeper');
	$foreign->unlock($node);
	$_->quit for ($holder, $waiter);
}

#
# A clean restart
#

{
	my $exited = qr/background worker "zklock[^"]*" .* exited with exit code/;
	my $offset = -s $a->logfile;
	my $holder = holder($a, 'x');
	my $session = ZkSession->new($a);
	my $worker = worker_of($a);

	$a->restart;
	$_->kill_client for ($holder, $session);
	delete $a->{zk_watcher};
	wait_connected($a);
	is(scalar(contenders($zk, 'x')), 0, 'a fast restart releases locks');
	unlike(substr(slurp_file($a->logfile), $offset), $exited,
		'... and the log has no failure of the worker');

	# a worker that is terminated alone is replaced, even if the server waits
	# for its last client
	$session = ZkSession->new($a);
	$worker = worker_of($a);
	$session->run_ok("SELECT pg_terminate_backend($worker)");
	poll_until(
		sub { $session->run("SELECT coalesce(worker_pid, $worker) <> $worker AND state = 'connected' FROM zk_session")->{out} eq 't' },
		'another worker');
	$worker = $session->run_ok('SELECT worker_pid FROM zk_session');
	$offset = -s $a->logfile;
	system_or_bail('pg_ctl', '-D', $a->data_dir, '-m', 'smart', '--no-wait', 'stop');
	$a->wait_for_log(qr/received smart shutdown request/, $offset);
	$session->run_ok("SELECT pg_terminate_backend($worker)");
	poll_until(
		sub { $session->run("SELECT coalesce(worker_pid, $worker) <> $worker AND state = 'connected' FROM zk_session")->{out} eq 't' },
		'another worker while the server stops');
	$session->run_ok("SELECT zk_lock('x')", 'locks work with it');
	poll_until(sub { $session->run('SELECT count(*) FROM zk_fleet()')->{out} == 1 },
		'its znode');
	unlike(substr(slurp_file($a->logfile), $offset), qr/older copy/,
		'another znode of another session is no older copy of it');
	$offset = -s $a->logfile;
	$session->quit;
	poll_until(sub { !-e $a->data_dir . '/postmaster.pid' }, 'the end of a');
	$a->_update_pid(0);
	unlike(substr(slurp_file($a->logfile), $offset), $exited,
		'when the last client has gone, the worker ends well');
	$a->start;
	wait_connected($a);
}

#
# ZooKeeper is away: that is why a lock is not had in time
#

{
	my $owner = holder($a, 'held');
	my $behind = ZkSession->new($a);
	my $error = qr/[^\n]+/;
	my $away = qr/^ZooKeeper has not been reached since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+\S+: $error$/;
	my $set = "SET lock_timeout = '300 ms';";
	my $since;

	$zk->kill9;
	$a->poll_query_until('postgres', "SELECT state = 'suspended' FROM zk_session");
	wait_last_error($a, qr/refused/);
	for my $call ("SELECT zk_lock('x', '300 ms')", "$set SELECT zk_lock('x')",
		"SELECT zk_lock_all('{x,y}', '300 ms')", "SELECT zk_acquire('x', 2, '300 ms')")
	{
		error_is(
			sql($a, $call),
			{
				sqlstate => '55P03',
				message => 'could not obtain lock "x" in ZooKeeper',
				detail => $away
			},
			"without ZooKeeper: $call");
	}
	error_is(
		sql($a, "SELECT zk_lock_any('{x,y}', '300 ms')"),
		{ sqlstate => '55P03', message => 'could not obtain any of 2 locks in ZooKeeper', detail => $away },
		'without ZooKeeper: zk_lock_any');

	for my $call ("zk_try_lock('x', '300 ms')", "zk_try_acquire('x', 2, '300 ms')",
		"zk_try_lock_any('{x,y}', '300 ms')")
	{
		my $result = sql($a, "SELECT $call");
		my ($warning) = @{ $result->{warnings} };

		like($result->{out}, qr/^f?$/, "without ZooKeeper: $call");
		is(scalar @{ $result->{warnings} }, 1, '... warns');
		like($warning->{message},
			qr/^could not learn in time whether (lock "x" is free|semaphore "x" has a free permit)$|^could not learn in time whether any of 2 locks is free$/,
			'... that this does not mean that it is held');
		like($warning->{detail}, $away, '... and why');
	}

	# behind a backend that waits for ZooKeeper, in the lock manager
	$behind->send("SELECT zk_lock('x')");
	$behind->wait_waiting(2);
	for my $call ("SELECT zk_lock('x', '300 ms')", "$set SELECT zk_lock('x')")
	{
		error_is(
			sql($a, $call),
			{
				sqlstate => '55P03',
				message => 'canceling statement due to lock timeout',
				detail => $away
			},
			"behind a session that waits for ZooKeeper: $call");
	}
	for my $call ("zk_try_lock('x', '300 ms')", "zk_try_lock('x')")
	{
		my $result = sql($a, "SELECT $call");

		is($result->{out}, 'f', "behind a session that waits for ZooKeeper: $call");
		like($result->{warnings}[0]{detail}, $away, '... warns');
	}

	# it is not why a lock is not had that a session of this server holds
	error_is(
		sql($a, "SELECT zk_lock('held', '300 ms')"),
		{ sqlstate => '55P03', message => 'canceling statement due to lock timeout' },
		'behind a holder of this server: no word of ZooKeeper');
	is_deeply(sql($a, "SELECT zk_try_lock('held', '300 ms')")->{warnings}, [], '... nor by a try');

	# since when, whatever has become of the worker
	($since) = sql($a, "SELECT zk_lock('y', '1 ms')")->{detail} =~ /since (\S+ \S+): /;
	my $worker = worker_of($a);
	value($a, "SELECT pg_terminate_backend($worker)");
	$a->poll_query_until('postgres',
		"SELECT coalesce(worker_pid, $worker) <> $worker AND last_error ~ 'refused' FROM zk_session");
	like(sql($a, "SELECT zk_lock('y', '1 ms')")->{detail}, qr/ since \Q$since\E/,
		'another worker: since the same time');

	$zk->start;
	is($behind->result->{message}, undef, 'with ZooKeeper the lock is had');
	wait_connected($a);
	my $node = $foreign->lock(lock_dir('z'));
	error_is(
		sql($a, "SELECT zk_lock('z', '300 ms')"),
		{ sqlstate => '55P03', message => 'could not obtain lock "z" in ZooKeeper' },
		'and one that is late reports no more of it');
	is_deeply(sql($a, "SELECT zk_try_lock('z', '300 ms')")->{warnings}, [], '... nor by a try');
	$foreign->unlock($node);
	$owner->run_ok('COMMIT');
	$_->quit for ($owner, $behind);
}

#
# Workers that end before they are answered, which takes longer than to connect
#

{
	$zk->pause;
	for (1 .. 4)
	{
		my $before = worker_of($a);

		kill 'TERM', $before;
		wait_next_worker($a, $before);
	}
	is_deeply(sql($a, "SELECT zk_try_lock('x', '10 ms')")->{warnings},
		[], 'workers that come and go are no outage');
	$zk->resume;
	wait_connected($a);
}

#
# A server that hangs, and tells nothing
#

{
	my $silent = qr/^ZooKeeper has not reported for \d{4} ms whether another contender is ahead\.$/;

	$zk->pause;
	error_is(
		sql($a, "SELECT zk_lock('x', '3 s')"),
		{
			sqlstate => '55P03',
			message => 'could not obtain lock "x" in ZooKeeper',
			detail => $silent
		},
		'a server that does not answer');
	like(sql($a, "SELECT zk_try_lock('x', '3 s')")->{warnings}[0]{detail},
		$silent, '... a try');
	is_deeply(sql($a, "SELECT zk_try_lock('x', '10 ms')")->{warnings},
		[], 'but soon nothing is wrong yet');

	# what the library tells of it in the end, without a time that it counts
	# from a limit of its own
	no_pauses();
	$a->append_conf('postgresql.conf', "zklock.session_timeout = '4s'");
	$a->reload;
	is(wait_last_error($a, qr/timed out/), 'connection to 127.0.0.1:' . ($zk->ports)[0] . ' timed out',
		'and last_error has it');
	$zk->resume;
	wait_connected($a);
}

#
# A worker that is being replaced, which it is when it has found no ZooKeeper for a
# while
#

{
	my $s = ZkSession->new($a);
	my ($postmaster) = split /\n/, slurp_file($a->data_dir . '/postmaster.pid');
	my ($try, $result);

	$zk->kill9;
	wait_last_error($a, qr/refused/);
	# by then who has just begun to connect is told of, too
	$a->poll_query_until('postgres', q{SELECT clock_timestamp() - state_change > '3 s' FROM zk_session});
	stop_process($postmaster);
	$s->run_ok('SELECT pg_terminate_backend(worker_pid) FROM zk_session');
	poll_until(
		sub { $s->run('SELECT worker_pid IS NULL FROM zk_session')->{out} eq 't' },
		'the worker to end');
	$try = $s->run("SELECT zk_try_lock('x', '1 ms')");
	$result = $s->run("SELECT zk_lock('x')");
	kill 'CONT', $postmaster;
	is($try->{out}, 'f', 'without a worker for the moment, in an outage: a try');
	like($try->{warnings}[0]{detail} // 'no warning',
		qr/^ZooKeeper has not been reached since .*refused/, '... warns');
	error_is(
		$result,
		{
			sqlstate => '57P03',
			message => 'could not reach ZooKeeper for lock "x"',
			detail => qr/^There was no session with ".*" for \d+ ms: .*refused/,
			hint => qr/^Check "zklock\.servers"/
		},
		'... and a call: why there is no session');
	$zk->start;
	wait_connected($a);
	$s->quit;
}

#
# A server that runs, and refuses the session: its data has been replaced
#

{
	# which outlives the start of a server
	$a->append_conf('postgresql.conf', "zklock.session_timeout = '20s'");
	$a->reload;
	$a->poll_query_until('postgres', q{SELECT timeout = '20 s' AND state = 'connected' FROM zk_session});
	my $session = session_of($a);
	my $address = '127.0.0.1:' . ($zk->ports)[0];

	value($a, "SELECT zk_lock('x$_')") for (1 .. 5);
	$foreign->disconnect;
	# one that has not logged the line of late
	my $before = worker_of($a);
	kill 'TERM', $before;
	wait_next_worker($a, $before);
	wait_connected($a);
	my $offset = -s $a->logfile;
	$zk->kill9;
	$zk->wipe;
	$zk->start;
	# in last_error it stands but for a second, until the session is over
	ok( $a->wait_for_log(
			qr/ZooKeeper client: server \Q$address\E has closed the connection instead of resuming session \Q$session\E:/
			  . qr/ it is starting, has no majority, too many connections of this host, or older data than/
			  . qr/ the session has seen\n/,
			$offset),
		'a server that knows less than the session says why it refuses it');
	unlike(slurp_file($a->logfile), qr/Host is down/, '... and not how the system names it');
	wait_connected($a);
	isnt(session_of($a), $session, 'in the end there is another session');
}

$a->stop;
done_testing();
