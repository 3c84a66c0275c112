
# Locks between instances: who excludes whom, in which order, what is in
# ZooKeeper meanwhile, and that every way to end a hold or a wait ends it there.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};

# Nothing in here waits for a session to expire.  No watch is looked after, so that
# only its event wakes who waits.
my %settings = (
	install_path => $ENV{ZKLOCK_TEST_INSTALL},
	'zklock.session_timeout' => '60s',
	'zklock.look_again' => 'off',
	'log_lock_waits' => 'on');

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my ($a, $b, $c) = map { zk_cluster($_, $zk, %settings) } qw(a b c);

for my $node ($a, $b)
{
	$node->safe_psql('postgres', 'CREATE DATABASE other');
	$node->safe_psql('other', 'CREATE EXTENSION zklock');
}

sub try { return sql($_[0], "SELECT zk_try_lock('$_[1]')", $_[2])->{out}; }

# The lock can be had by another instance, and nothing of it is left then.
sub is_free
{
	my ($node, $lock, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql($node, "SELECT zk_try_lock('$lock', '1 min')")->{out},
		't', "$name: the next taker gets the lock");
	wait_no_contenders($zk, $lock);
	return;
}

#
# Exclusion
#

for my $dbname ('postgres', 'other')
{
	my $holder = holder($a, 'e', $dbname);

	is(try($b, 'e', 'postgres'), 'f', "a lock of a.$dbname excludes b.postgres");
	is(try($b, 'e', 'other'), 'f', "... b.other");
	is(try($c, 'e'), 'f', '... c');
	is(try($a, 'e', $dbname eq 'other' ? 'postgres' : 'other'),
		'f', '... the other database of a');
	is(try($a, 'e', $dbname), 'f', '... and other sessions of its own');
	is(try($b, 'E'), 't', 'but no other lock');
	is(scalar(contenders($zk, 'e')), 1, 'zk_try_lock leaves nothing behind');

	my $waiter = waiter($b, 'e', 2);
	wait_contenders($zk, 'e', 2);
	ok(!$waiter->done, 'zk_lock waits');
	$holder->run_ok('COMMIT');
	is($waiter->result->{message}, undef, 'and gets the lock at last');
	is(try($a, 'e', $dbname), 'f', 'it excludes the first instance');
	$waiter->run_ok('COMMIT');
	wait_no_contenders($zk, 'e');
	$_->quit for ($holder, $waiter);
}

#
# What is in ZooKeeper
#

{
	my $holder = holder($a, 'n');
	my $dir = lock_dir('n');
	my @children = $foreign->ls($dir);

	is(scalar(@children), 1, 'one znode in the lock directory');
	like($children[0],
		qr/^_c_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}-lock-[0-9]{10}$/,
		"it is named as Curator's");

	my $node = $foreign->get("$dir/$children[0]");
	like($node->{data}, qr/^postgresql host=\S+ port=\d+ cluster=a pid=\d+$/,
		'its data says who we are');
	is( sprintf('0x%x', $node->{ephemeralOwner}),
		session_of($a),
		'it is an ephemeral node of the session that zk_session shows');
	is($holder->run("SELECT zk_fencing_token('n')")->{out},
		$node->{czxid}, 'its czxid is the fencing token');
	my $locks = $a->safe_psql('postgres',
		"SELECT name, pid, mode, scope, granted, lost, path, token FROM zk_locks");
	is( $locks,
		join('|', 'n', $holder->pid, 'exclusive', 'transaction', 't', 'f', $dir,
			$node->{czxid}),
		'zk_locks shows the same');
	is( $a->safe_psql('postgres',
			'SELECT count(*) FROM pg_locks p JOIN zk_locks z'
			  . ' USING (classid, objid, objsubid, pid)'
			  . " WHERE p.locktype = 'userlock' AND p.granted"),
		1, 'and joins with pg_locks');
	$holder->run_ok('COMMIT');
	$holder->quit;
	wait_no_contenders($zk, 'n');
	# stat does not tell a container from another node, what becomes of it does
	poll_until(sub { !$foreign->exists($dir) },
		'the idle lock directory to be collected, as a container is');
	ok($foreign->exists('/zklock'), 'the root stays');
	is_free($b, 'n', 'collected directory');
}

#
# Order between instances: Curator's clients and ours in one queue
#

{
	my $dir = lock_dir('o');
	my $holder = holder($a, 'o');
	my (@queue, %waiter);

	push @queue, $foreign->enqueue($dir);
	$waiter{b} = waiter($b, 'o', 2);
	push @queue, "$dir/" . (wait_contenders($zk, 'o', 3))[-1];
	push @queue, $foreign->enqueue($dir);
	$waiter{c} = waiter($c, 'o', 2);
	push @queue, "$dir/" . (wait_contenders($zk, 'o', 5))[-1];
	push @queue, $foreign->enqueue($dir, '-__WRIT__');

	$holder->run_ok('COMMIT');
	for my $turn (0 .. $#queue)
	{
		my ($node) = ('', 'b', '', 'c', '')[$turn];

		poll_until(sub { $foreign->position($queue[$turn]) == 0 },
			"turn $turn in the queue");
		if ($node)
		{
			is($waiter{$node}->result->{message},
				undef, "turn $turn: instance $node has the lock");
		}
		ok(!$waiter{b}->done, "turn $turn: b still waits") if $turn < 1;
		ok(!$waiter{c}->done, "turn $turn: c still waits") if $turn < 3;
		is_deeply(
			[ map { "$dir/$_" } contenders($zk, 'o') ],
			[ @queue[ $turn .. $#queue ] ],
			"turn $turn: nobody has lost their place");
		$node ? $waiter{$node}->run_ok('COMMIT') : $foreign->unlock($queue[$turn]);
	}
	wait_no_contenders($zk, 'o');
	$_->quit for ($holder, values %waiter);

	# kazoo's own recipe
	ok($foreign->kazoo_lock($dir, 60), 'kazoo gets the lock');
	is(try($a, 'o'), 'f', 'it excludes us');
	$waiter{a} = waiter($a, 'o', 2);
	ok($foreign->kazoo_unlock($dir), 'kazoo releases it');
	is($waiter{a}->result->{message}, undef, 'and we have it');
	ok(!$zk->client->kazoo_lock($dir, 0.1), 'we exclude kazoo');
	$waiter{a}->run_ok('COMMIT');
	ok($foreign->kazoo_lock($dir, 60), 'kazoo gets it back');
	$foreign->kazoo_unlock($dir);
	$waiter{a}->quit;
}

#
# Order inside an instance, and one contender for it
#

{
	my $node = $foreign->lock(lock_dir('i'));
	my (@in_a, @in_b);

	$_->safe_psql('postgres', 'CREATE TABLE turns (id serial, who int)')
	  for ($a, $b);
	for my $who (1 .. 6)
	{
		my $statement = "SELECT zk_lock('i'); INSERT INTO turns (who)"
		  . " VALUES ($who); COMMIT;";
		my $tier = $who == 1 ? 2 : 1;

		push @in_a, waiter($a, 'i', $tier, $statement);
		push @in_b, waiter($b, 'i', $tier, $statement);
	}
	is(scalar(contenders($zk, 'i')), 3, 'one contender for each instance');
	is(scalar($foreign->ls(lock_dir('i'))), 3, 'and no other znode');
	is( $a->safe_psql('postgres',
			"SELECT count(*) FROM zk_locks WHERE name = 'i' AND NOT granted"),
		6, 'zk_locks shows all who wait');

	# who gives up keeps the others' place
	my @before = contenders($zk, 'i');
	for my $quitter (splice(@in_a, 0, 1), splice(@in_a, 1, 1))
	{
		$a->safe_psql('postgres',
			'SELECT pg_cancel_backend(' . $quitter->pid . ')');
		is($quitter->result->{sqlstate}, '57014', 'a waiter is canceled');
		$quitter->quit;
	}
	$in_a[0]->wait_waiting(2);
	is_deeply([ contenders($zk, 'i') ],
		\@before, "the instance's place in the queue stays");

	$foreign->unlock($node);
	for (@in_a, @in_b)
	{
		is($_->result->{message}, undef, 'a waiter gets the lock');
		$_->quit;
	}
	my $turns = 'SELECT string_agg(who::text, $$ $$ ORDER BY id) FROM turns';
	is($a->safe_psql('postgres', $turns), '2 4 5 6', 'in order in one instance');
	is($b->safe_psql('postgres', $turns), '1 2 3 4 5 6', 'and in the other');
	wait_no_contenders($zk, 'i');
}

#
# The quantum: how long a lock stays in an instance while others wait
#

# A lock that is retained by habit has its queue watched: its quantum counts from
# when the other instance came.  Here it counts from the first handoff.
alter_system($a, 'zklock.retain_time' => 0);

for my $quantum ('1h', '0', '1ms')
{
	alter_system($a, 'zklock.handoff_quantum' => $quantum);
	my $first = holder($a, 'q');
	my $token = $first->run("SELECT zk_fencing_token('q')")->{out};
	my $remote = waiter($b, 'q', 2);
	my $second = waiter($a, 'q', 1);
	my $third = waiter($a, 'q', 1);

	$first->run_ok('COMMIT');
	if ($quantum eq '0')
	{
		is($remote->result->{message}, undef, 'no quantum: the other instance is next');
		ok(!$second->done, 'and not the next backend');
		my $new = $remote->run("SELECT zk_fencing_token('q')")->{out};
		cmp_ok($new, '>', $token, 'the fencing token grows');
		$remote->run_ok('COMMIT');
		is($second->result->{message}, undef, 'which follows');
		cmp_ok($second->run("SELECT zk_fencing_token('q')")->{out},
			'>', $new, 'the fencing token grows again');
		$second->run_ok('COMMIT');
		is($third->result->{message}, undef, 'the last one');
		$third->run_ok('COMMIT');
	}
	elsif ($quantum eq '1ms')
	{
		# the first handoff starts the clock
		is($second->result->{message}, undef, 'a short quantum: the next backend is next');
		$second->run_ok('SELECT pg_sleep(0.002)', 'which outlasts it');
		$second->run_ok('COMMIT');
		is($remote->result->{message}, undef, 'the other instance follows');
		ok(!$third->done, 'ahead of the last backend');
		$remote->run_ok('COMMIT');
		is($third->result->{message}, undef, 'the last one');
		$third->run_ok('COMMIT');
	}
	else
	{
		for my $next ($second, $third)
		{
			is($next->result->{message}, undef, 'a long quantum: the next backend is next');
			ok(!$remote->done, 'and not the other instance');
			is($next->run("SELECT zk_fencing_token('q')")->{out},
				$token, 'with the same contender');
			$next->run_ok('COMMIT');
		}
		is($remote->result->{message}, undef, 'which follows');
		$remote->run_ok('COMMIT');
	}
	wait_no_contenders($zk, 'q');
	$_->quit for ($first, $remote, $second, $third);
}
$a->safe_psql('postgres', 'ALTER SYSTEM RESET zklock.retain_time');
$a->reload;
$a->safe_psql('postgres', 'ALTER SYSTEM RESET zklock.handoff_quantum');
$a->reload;

#
# Strangers in the lock directory
#

{
	my $dir = lock_dir('s');
	my $offset = -s $a->logfile;
	my $ours;

	$foreign->create("$dir/stranger", makepath => 1);
	$foreign->create("$dir/0");
	$ours = holder($a, 's');
	pass('strangers do not keep us from the lock');
	is(try($b, 's'), 'f', 'and others are excluded');
	$ours->run_ok('COMMIT; BEGIN; SELECT zk_lock($$s$$); COMMIT');
	wait_no_contenders($zk, 's');
	is_deeply([ $foreign->ls($dir) ], [ '0', 'stranger' ], 'they are left alone');

	my $log = substr(slurp_file($a->logfile), $offset);
	my @warnings = $log =~ /WARNING: +(.*)/g;
	is(scalar(@warnings), 1, 'one warning in the log');
	like($warnings[0],
		qr/^ignoring znode "(0|stranger)" in lock directory "\Q$dir\E"/,
		'of what is ignored');
	$ours->quit;
}

#
# The end of a hold
#

{
	my %end = (
		'COMMIT' => sub { $_[0]->run_ok('COMMIT', 'COMMIT'); },
		'ROLLBACK' => sub { $_[0]->run_ok('ROLLBACK', 'ROLLBACK'); },
		'an error' => sub { is($_[0]->run('SELECT 1/0')->{sqlstate}, '22012', 'an error'); },
		'an error at commit' => sub {
			is( $_[0]->run(
					'CREATE TABLE d (i int UNIQUE DEFERRABLE INITIALLY DEFERRED);'
					  . ' INSERT INTO d VALUES (1), (1); COMMIT')->{sqlstate},
				'23505', 'an error at commit');
		},
		'zk_unlock' => sub {
			is($_[0]->run("SELECT zk_unlock('r')")->{out}, 't', 'zk_unlock');
		},
		'PREPARE TRANSACTION' => sub {
			error_is(
				$_[0]->run("PREPARE TRANSACTION 'p'"),
				{
					sqlstate => '0A000',
					message => 'cannot PREPARE a transaction that holds a lock in ZooKeeper',
					hint => qr/prepared transaction/,
				},
				'PREPARE TRANSACTION is refused');
		},
		'the client being killed' => sub { $_[0]->kill_client; },
		'pg_terminate_backend' => sub {
			$a->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $_[0]->pid . ')');
		});

	for my $how (sort keys %end)
	{
		my $session = holder($a, 'r');
		my @others = map { waiter($_, 'r', 2) } ($b);

		$end{$how}->($session);
		is($others[0]->result->{message}, undef, "$how: the waiter gets the lock");
		is(scalar(contenders($zk, 'r')), 1, "$how: no other contender is left");
		$others[0]->run_ok('COMMIT');
		is_free($a, 'r', $how);
		$_->quit for ($session, @others);
	}

	# a savepoint: only what was taken after it
	my $session = holder($a, 'r');
	$session->run("SAVEPOINT s; SELECT zk_lock('r'); SELECT zk_lock('r2')");
	my $waiter = waiter($b, 'r2', 2);
	$session->run_ok('ROLLBACK TO s');
	is($waiter->result->{message}, undef, 'ROLLBACK TO: the waiter gets the lock');
	is(try($b, 'r'), 'f', 'not what was taken ahead of the savepoint');
	is($session->run("SELECT zk_lock('r3'); SELECT nosuch")->{sqlstate},
		'42703', 'an error after the savepoint');
	is(try($b, 'r'), 'f', 'gives nothing back as long as the transaction may go on');
	$session->run_ok('ROLLBACK TO s');
	is_free($b, 'r3', 'ROLLBACK TO');
	$session->run_ok("DO \$\$ BEGIN PERFORM zk_lock('r3'); RAISE 'no';"
		  . ' EXCEPTION WHEN OTHERS THEN NULL; END $$');
	is_free($b, 'r3', 'an exception that was caught');
	$session->run_ok('COMMIT');
	is_free($b, 'r', 'COMMIT after all that');
	$waiter->run_ok('COMMIT');
	wait_no_contenders($zk, 'r2');
	$_->quit for ($session, $waiter);

	# many at once
	$session = ZkSession->new($a);
	$session->run_ok("BEGIN; SELECT count(zk_lock('m' || i)) FROM generate_series(1, 100) i");
	is(try($b, 'm1') . try($b, 'm100'), 'ff', '100 locks in one transaction');
	$session->run_ok('COMMIT');
	is( sql($b, "SELECT count(*) FROM generate_series(1, 100) i"
			  . " WHERE zk_try_lock('m' || i, '1 min')")->{out},
		100, 'are released at its end');
	wait_no_contenders($zk, "m$_") for (1 .. 100);
	$session->quit;

	# autocommit
	is(sql($a, "SELECT zk_lock('r')")->{message}, undef, 'autocommit');
	is_free($b, 'r', 'autocommit');
}

#
# The end of a wait, behind a backend of the same instance or behind another
#

{
	my $cancel = sub {
		$a->safe_psql('postgres', "SELECT $_[0](" . $_[1]->pid . ')');
	};
	my %end = (
		'pg_cancel_backend' => {
			act => sub { $cancel->('pg_cancel_backend', @_) },
			error => '57014',
		},
		'pg_terminate_backend' => {
			act => sub { $cancel->('pg_terminate_backend', @_) },
			error => '57P01',
		},
		'a killed client' => { act => sub { $_[0]->kill_client; } },
		'a killed client of zk_lock_all' => {
			call => "zk_lock_all('{w, w1}')",
			act => sub { $_[0]->kill_client; },
		},
		'a killed client of zk_lock_any' => {
			call => "zk_lock_any('{w, w1}')",
			waits => 2,
			act => sub { $_[0]->kill_client; },
		},
		'a killed client, with client_connection_check_interval' => {
			before => "SET client_connection_check_interval = '50ms'",
			act => sub { $_[0]->kill_client; },
		},
		'statement_timeout' =>
		  { before => "SET statement_timeout = '300ms'", error => '57014' },
		'lock_timeout' =>
		  { before => "SET lock_timeout = '300ms'", error => '55P03' },
		'a timeout of zk_lock' =>
		  { call => "zk_lock('w', '300ms')", error => '55P03' },
		'a timeout of zk_try_lock' =>
		  { call => "zk_try_lock('w', '300ms')", result => 'f' },
		'lock_timeout and zk_try_lock' => {
			before => "SET lock_timeout = '300ms'",
			call => "zk_try_lock('w', NULL)",
			result => 'f',
		},
		'a caught lock_timeout' => {
			before => "SET lock_timeout = '300ms'",
			statement => 'DO $$ BEGIN PERFORM zk_lock($q$w$q$);'
			  . ' EXCEPTION WHEN lock_not_available THEN NULL; END $$',
			result => '',
		});

	# what several locks are asked for together with
	my $also = $foreign->lock(lock_dir('w1'));

	for my $tier (1, 2)
	{
		for my $how (sort keys %end)
		{
			my $end = $end{$how};
			my $name = "$how in tier $tier";
			my $statement = $end->{statement}
			  // 'SELECT ' . ($end->{call} // "zk_lock('w')");
			my $owner;
			my $session = ZkSession->new($a);

			$owner = $tier == 1 ? holder($a, 'w') : $foreign->lock(lock_dir('w'));
			my @before = contenders($zk, 'w');
			$session->run_ok("$end->{before}") if $end->{before};
			$session->run_ok('BEGIN');
			$session->send($statement);
			if ($end->{act})
			{
				$session->wait_waiting($end->{waits} // $tier);
				wait_contenders($zk, 'w', 2) if $tier == 2;
				$end->{act}->($session);
			}
			if ($end->{error})
			{
				is($session->result->{sqlstate}, $end->{error}, $name);
			}
			elsif (defined $end->{result})
			{
				my $result = $session->result;
				is($result->{message}, undef, "$name: no error");
				is($result->{out}, $end->{result}, "$name: the result");
			}
			wait_contenders($zk, 'w', 1);
			is_deeply([ contenders($zk, 'w') ], \@before, "$name: no contender is left");
			$a->poll_query_until('postgres',
				"SELECT count(*) = 0 FROM zk_locks WHERE NOT granted");
			$tier == 1 ? $owner->run_ok('COMMIT') : $foreign->unlock($owner);
			is_free($b, 'w', $name);
			$session->quit;
			$owner->quit if $tier == 1;
		}
	}
	wait_contenders($zk, 'w1', 1);
	$foreign->unlock($also);
}

#
# Released only after the commit is visible
#

# A slow commit: from its record to when it is visible it takes 10 ms.
my $slow = "fsync = on\ncommit_delay = 10000\ncommit_siblings = 0\n";
my $rounds = 200;

# Run a procedure that works under the lock in one instance, until another one
# in the other instance has seen enough of it.
sub watch_work
{
	my ($worker, $checker, $name) = @_;
	my $work = ZkSession->new($worker);
	my $check = ZkSession->new($checker);

	$work->send('CALL work()');
	$check->run_ok("CALL checks($rounds)", "$name: $rounds rounds");
	$worker->safe_psql('postgres', 'UPDATE stop SET now = true');
	is($work->result->{message}, undef, "$name: the work went on until then");
	$_->quit for ($work, $check);
	return;
}

# What the checks found, as the number of rounds in which all was right.
sub found
{
	return $_[0]->safe_psql('postgres',
		'SELECT count(*), count(*) FILTER (WHERE drawn = visible) FROM found');
}

# zk_lock and COMMIT in a loop within a procedure.
sub make_work
{
	my ($node, $lock, $do) = @_;

	$node->safe_psql('postgres', qq{
		CREATE TABLE stop (now bool);
		INSERT INTO stop VALUES (false);
		CREATE PROCEDURE work() LANGUAGE plpgsql AS \$\$
		BEGIN
			LOOP
				PERFORM zk_lock('$lock');
				EXIT WHEN (SELECT now FROM stop);
				$do;
				COMMIT;
			END LOOP;
		END \$\$;
	});
	return;
}

# Note whenever a number has been drawn since the last time.
sub make_checks
{
	my ($node, $lock, $look) = @_;

	$node->safe_psql('postgres', qq{
		CREATE TABLE found (drawn bigint, visible bigint);
		CREATE PROCEDURE checks(rounds int) LANGUAGE plpgsql AS \$\$
		DECLARE
			state record;
			last bigint := 1;
		BEGIN
			WHILE rounds > 0 LOOP
				PERFORM zk_lock('$lock');
				$look INTO state;
				IF state.drawn > last THEN
					INSERT INTO found VALUES (state.drawn, state.visible);
					rounds := rounds - 1;
				END IF;
				last := state.drawn;
				COMMIT;
			END LOOP;
		END \$\$;
	});
	return;
}

{
	$a->append_conf('postgresql.conf', $slow);
	$a->restart;
	delete $a->{zk_watcher};

	# a number is drawn at once, its row is visible after the commit
	$a->safe_psql('postgres', q{
		CREATE SEQUENCE draws;
		CREATE TABLE drawn (n bigint);
		INSERT INTO drawn VALUES (nextval('draws'));
	});
	make_work($a, 'v', q{INSERT INTO drawn VALUES (nextval('draws'))});
	my $connstr = $a->connstr('postgres');
	$connstr =~ s/'/''/g;
	$b->safe_psql('postgres', 'CREATE EXTENSION dblink');
	$b->safe_psql('postgres', "CREATE FUNCTION look(OUT drawn bigint, OUT visible bigint)"
		  . " LANGUAGE plpgsql AS \$\$ BEGIN"
		  . " IF dblink_get_connections() IS NULL THEN PERFORM dblink_connect('a', '$connstr'); END IF;"
		  . " SELECT * FROM dblink('a', 'SELECT last_value, (SELECT max(n) FROM drawn) FROM draws')"
		  . " AS t(d bigint, v bigint) INTO drawn, visible; END \$\$");
	make_checks($b, 'v', 'SELECT * FROM look()');

	watch_work($a, $b, 'commit');
	is(found($b), "$rounds|$rounds", 'who gets the lock sees what was committed under it');
	wait_no_contenders($zk, 'v');
}

#
# postgres_fdw's remote commit happens while the lock is held
#

{
	# c is the warehouse, a the shop, b who checks.
	$c->append_conf('postgresql.conf', $slow);
	$c->restart;
	$c->safe_psql('postgres', q{
		CREATE SEQUENCE sales;
		CREATE TABLE stock (sold bigint);
		INSERT INTO stock VALUES (nextval('sales'));
		CREATE VIEW sell AS SELECT nextval('sales') AS n;
		CREATE VIEW state AS
			SELECT last_value AS drawn, (SELECT sold FROM stock) AS visible
			FROM sales;
	});
	$_->safe_psql('postgres', q{
		DROP TABLE IF EXISTS stop, found;
		DROP PROCEDURE IF EXISTS work, checks;
		CREATE EXTENSION postgres_fdw;
		CREATE SERVER warehouse FOREIGN DATA WRAPPER postgres_fdw
			OPTIONS (host '} . $c->host . q{', port '} . $c->port . q{', dbname 'postgres');
		CREATE USER MAPPING FOR CURRENT_USER SERVER warehouse;
		IMPORT FOREIGN SCHEMA public LIMIT TO (stock, sell, state)
			FROM SERVER warehouse INTO public;
	}) for ($a, $b);
	make_work($a, 'f', 'UPDATE stock SET sold = (SELECT n FROM sell)');
	make_checks($b, 'f', 'SELECT * FROM state');

	watch_work($a, $b, 'foreign table');
	is(found($b), "$rounds|$rounds", 'who gets the lock sees what was committed in the warehouse');
	wait_no_contenders($zk, 'f');
}

#
# A timeout that strikes when the lock is just granted is no error of a try
#

$a->pgbench(
	'--no-vacuum --client=16 --transactions=3000', 0,
	[qr{processed: 48000/48000}], [qr{^$}],
	'zk_try_lock is never an error',
	{
		try => q{
			\set ms random(1, 4)
			BEGIN;
			SELECT zk_try_lock('try', :ms * interval '1 ms');
			COMMIT;
		}
	});
wait_no_contenders($zk, 'try');

#
# Nothing of all that is left
#

for my $node ($a, $b, $c)
{
	my $name = $node->name;

	is($node->safe_psql('postgres', 'SELECT count(*) FROM zk_locks'),
		0, "$name has no lock");
	is($node->safe_psql('postgres', 'SELECT sessions, reconnects FROM zk_session'),
		'1|0', "$name has had one session, and it never broke");
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/,
		"$name has not crashed");
	$node->stop;
}
is_deeply([ all_contenders($zk) ], [], 'no contender is left anywhere');

done_testing();
