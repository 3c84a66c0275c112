
# Who stands in a lock's queue, and asking its holders to give way: over two
# instances and with foreign clients, and with the worker, the backend that asks
# or ZooKeeper going away in the middle.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};

# Segments are files in the data directory, to be counted.  Sessions do not
# expire in here, but for that of c.  Only the event of its watch wakes who waits.
my %settings = (
	install_path => $ENV{ZKLOCK_TEST_INSTALL},
	'zklock.look_again' => 'off',
	'zklock.session_timeout' => '60s',
	'dynamic_shared_memory_type' => 'mmap');

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my ($a, $b) = map { zk_cluster($_, $zk, %settings) } qw(a b);

# Rows of a queue, as strings.
sub queue
{
	my ($node, $lock, $columns) = @_;
	my $result = sql($node,
		"SELECT $columns FROM zk_queue('$lock')");

	die "zk_queue: $result->{message}" if $result->{message};
	return split /\n/, $result->{out};
}

sub segments
{
	opendir my $dir, $_[0]->data_dir . '/pg_dynshmem' or die "opendir: $!";
	return scalar(grep { /^mmap/ } readdir $dir);
}

# A session that is asking, and waits for the answer.
sub asker
{
	my ($node, $statement) = @_;
	my $session = ZkSession->new($node);

	$session->send($statement);
	$session->wait_waiting(2);
	return $session;
}

# Have a session run a statement that does not end, and wait until it does.
sub run_forever
{
	my ($node, $session) = @_;

	$session->send('SELECT pg_sleep(3600)');
	$node->poll_query_until('postgres',
		'SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = '
		  . $session->pid . " AND wait_event = 'PgSleep'");
	return;
}

# A session that holds a lock and is running a statement.  It is no superuser's:
# what another instance or client asks for does not cancel that.
sub busy_holder
{
	my ($node, $lock) = @_;

	$node->safe_psql('postgres', 'CREATE ROLE app LOGIN')
	  if $node->safe_psql('postgres', q{SELECT to_regrole('app') IS NULL}) eq 't';
	my $session = holder($node, $lock, 'postgres', 'app');

	run_forever($node, $session);
	return $session;
}

# How often an instance was asked for a lock.
sub times_asked
{
	my ($node, $path) = @_;

	return scalar(() = slurp_file($node->logfile) =~
		  /another client requests revocation of lock "\Q$path\E"/g);
}

sub is_canceled
{
	my ($session, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($session->result->{sqlstate}, '57014', $name);
	$session->run_ok('ROLLBACK', "$name: the session goes on");
	return;
}

my %segments = map { ($_->name => segments($_)) } ($a, $b);

#
# Two instances and a foreign client in one queue
#

{
	my $dir = lock_dir('q/x y');
	my $us = qr/^postgresql host=\S+ port=\d+ cluster=(\w+)( pid=\d+)?$/;
	my $holder = holder($a, 'q/x y');
	my $node = $foreign->enqueue($dir);
	my $waiter = waiter($b, 'q/x y', 2);
	my @expected = wait_contenders($zk, 'q/x y', 3);

	for my $cluster ($a, $b)
	{
		my @rows = queue($cluster, 'q/x y', 'position, path, mode, session_id, owner');
		my @owners = map { (split /\|/)[4] } @rows;

		is_deeply(
			[ map { s/\|[^|]*$//r } @rows ],
			[
				join('|', 1, "$dir/$expected[0]", 'exclusive', session_of($a)),
				join('|', 2, $node, 'exclusive', sprintf('0x%x', $foreign->session)),
				join('|', 3, "$dir/$expected[2]", 'exclusive', session_of($b)),
			],
			'the queue as instance ' . $cluster->name . ' sees it');
		is($owners[0] =~ $us ? $1 : $owners[0], 'a', 'the owner is named: instance');
		like($owners[0], qr/ port=${\$a->port}\b/, '... and port');
		is($owners[1], 'foreign contender', 'a foreign contender as it names itself');
		is($owners[2] =~ $us ? $1 : $owners[2], 'b', 'who waits is named');
		is_deeply(
			[ queue($cluster, 'q/x y', q{cluster_name, port, pid, host = substring(owner FROM ' host=(\S+)')}) ],
			[ 'a|' . $a->port . '|' . $holder->pid . '|t', '|||', 'b|' . $b->port . '|' . $waiter->pid . '|t' ],
			'... in columns of their own, too');
	}
	is( (queue($a, 'q/x y', q{bool_and(queued_at BETWEEN now() - '1 hour'::interval AND now() + '1 hour')}))[0],
		't', 'since when');
	$holder->run_ok('COMMIT');
	$foreign->unlock($node);
	is($waiter->result->{message}, undef, 'all get their turns');
	$waiter->run_ok('COMMIT');
	$_->quit for ($holder, $waiter);
	wait_no_contenders($zk, 'q/x y');
	is_deeply([ queue($a, 'q/x y', '*') ], [], 'an empty queue');
}

#
# Modes, names and data of every kind
#

{
	my $dir = lock_dir('kinds');
	my @nodes = map { $foreign->enqueue($dir, $_) }
	  ('-__READ__', '-lock-', '-__READ__', '-__WRIT__');
	my %data = (
		'ff005c0a6162' => '\xff\x00\\\x0aab',
		'' => '',
		unpack('H*', "x\xc3\xa4" x 1000) => substr("x\xc3\xa4" x 1000, 0, 1024),
		unpack('H*', "\xc3\xa4" x 1000) => "\xc3\xa4" x 512,
		unpack('H*', "x" . "\xc3\xa4" x 1000) => 'x' . "\xc3\xa4" x 511,
		'ff' x 2000 => '\xff' x 1024,
		unpack('H*', "tab\tand\xe2\x82\xac") => "tab\\x09and\xe2\x82\xac");
	my @data = sort keys %data;

	push @nodes, $foreign->create("$dir/read-", ephemeral => 1, sequence => 1);
	push @nodes,
	  $foreign->create("$dir/x-", ephemeral => 1, sequence => 1, hex => $_)
	  for @data;
	$foreign->create("$dir/stranger", ephemeral => 1);

	is( join(' ', queue($a, 'kinds', 'mode')),
		join(' ', qw(shared exclusive shared exclusive shared), map { 'exclusive' } @data),
		'modes');
	is_deeply([ queue($a, 'kinds', 'path') ], \@nodes, 'contenders, and no strangers');
	my @owners = queue($a, 'kinds', "encode(convert_to(coalesce(owner, ''), 'UTF8'), 'hex')");
	is($owners[ 5 + $_ ], unpack('H*', $data{ $data[$_] }),
		'data ' . substr($data[$_], 0, 20))
	  for 0 .. $#data;

	# another encoding
	$a->safe_psql('postgres',
		"CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
	$a->safe_psql('latin', 'CREATE EXTENSION zklock');
	my $latin = $a->safe_psql('latin',
		q{SELECT string_agg(owner, '|' ORDER BY position) FROM zk_queue('kinds')}
		  . q{ WHERE owner ~ '^(x|tab)'});
	like($latin, qr/tab\\x09and\\xe2\\x82\\xac/, 'what the encoding does not have is escaped');
	is($a->safe_psql('latin',
			q{SELECT max(length(owner)) FROM zk_queue('kinds')}
			  . q{ WHERE owner LIKE 'x' || repeat(chr(228), 2) || '%'}),
		512, 'what it has is converted');
	$foreign->delete("$dir/stranger");
	$foreign->unlock($_) for @nodes;
}

#
# A long queue
#

{
	my $dir = lock_dir('long');
	my @nodes = map { $foreign->enqueue($dir) } (1 .. 700);

	is_deeply([ queue($a, 'long', 'path') ], \@nodes, 'a long queue');
	is((queue($a, 'long', "count(*) FILTER (WHERE owner = 'foreign contender')"))[0],
		700, 'with what each says');
	my @first = map { queue($a, 'long', 'path') } (1 .. 3);
	is(scalar(@first), 2100, '... again and again');
	$foreign->unlock($_) for @nodes;
}

#
# What ZooKeeper refuses
#

{
	my $dir = lock_dir('private');
	my $other = $zk->client;

	$other->add_auth('digest', 'somebody:else');
	$other->create($dir, makepath => 1, acl => 'creator');
	sql_error(
		$a,
		"SELECT * FROM zk_queue('private')",
		{
			sqlstate => '42501',
			message => 'ZooKeeper denied access to lock "private"',
			detail => qr/do not allow it to read or change the znodes in "\Q$dir\E"\.$/,
			hint => qr/zklock\.auth/,
		},
		'a directory that may not be read');
	$other->create(lock_dir('half'));
	my $node = $other->create(lock_dir('half') . '/x-lock-', ephemeral => 1,
		sequence => 1, acl => 'creator', data => 'secret');
	# Servers from 3.9.2 on do not tell of a znode either that may not be read.
	is( join('|', queue($a, 'half', 'path, owner IS NULL, session_id, queued_at IS NULL')),
		eval { $foreign->exists($node) }
		? join('|', $node, 't', sprintf('0x%x', $other->session), 'f')
		: join('|', $node, 't', '', 't'),
		'a contender that may not be read is shown, but for its data');
	sql_error(
		$a,
		"SELECT zk_cancel_holders('half')",
		{
			sqlstate => '42501',
			message => 'ZooKeeper denied access to lock "half"',
			detail => qr/do not allow it to read or change/,
			hint => qr/zklock\.auth/,
		},
		'... and may not be asked to give way');
	$other->delete($dir);
	$other->disconnect;
}

#
# A semaphore, as Curator's
#

{
	my $dir = lock_dir('sem');
	my @leases = map {
		$foreign->create("$dir/leases/_c_0-lease-", makepath => 1,
			ephemeral => 1, sequence => 1, data => "lease $_")
	} (1, 2);
	my @locks = map { $foreign->enqueue("$dir/locks") } (1, 2);

	is_deeply(
		[ queue($a, 'sem', 'position, path, mode, owner') ],
		[
			"1|$leases[0]|permit|lease 1", "2|$leases[1]|permit|lease 2",
			"3|$locks[0]|permit|foreign contender",
			"4|$locks[1]|permit|foreign contender"
		],
		'permits, and then who waits for one');
	is(sql($a, "SELECT zk_cancel_holders('sem')")->{out}, 2, 'both owners are asked');
	is(join('|', map { $foreign->get($_)->{data} } (@leases, @locks)),
		'__REVOKE__|__REVOKE__|foreign contender|foreign contender', '... and nobody else');
	$foreign->unlock($_) for (@leases, @locks);
}

#
# Asking owners to give way
#

{
	my $dir = lock_dir('r');
	my @nodes = map { $foreign->enqueue($dir, $_) }
	  ('-__READ__', '-__READ__', '-__WRIT__', '-__READ__');

	is(sql($a, "SELECT zk_cancel_holders('r')")->{out}, 2, 'readers that hold together');
	is(join('|', map { $foreign->get($_)->{data} } @nodes),
		'__REVOKE__|__REVOKE__|foreign contender|foreign contender', 'are asked');
	$foreign->unlock($_) for splice(@nodes, 0, 2);
	is(sql($b, "SELECT zk_cancel_holders('r')")->{out}, 1, 'a writer');
	is(join('|', map { $foreign->get($_)->{data} } @nodes),
		'__REVOKE__|foreign contender', 'is asked');
	$foreign->unlock($_) for @nodes;

	# a holder of this instance
	my $holder = busy_holder($a, 'r');
	is(sql($a, "SELECT zk_cancel_holders('r')")->{out}, 1, 'a holder of this instance, once');
	is_canceled($holder, 'it is canceled');

	# one that does nothing has nothing to cancel, and is not asked twice
	$holder->run("BEGIN; SELECT zk_lock('r')");
	my ($own) = contenders($zk, 'r');
	is(sql($a, "SELECT zk_cancel_holders('r')")->{out}, 1, 'an idle holder');
	like($foreign->get("$dir/$own")->{data}, qr/^postgresql /, '... is not asked by ZooKeeper too');
	$holder->run_ok('COMMIT', '... and goes on');

	# of the other one, which hears of it when it guards the lock; then again
	for my $name ('the other instance', 'the other instance again')
	{
		$holder->run("BEGIN; SELECT zk_lock('r')");
		for my $time (1, 2)
		{
			$holder->run('SAVEPOINT s');
			run_forever($a, $holder);
			is(sql($b, "SELECT zk_cancel_holders('r')")->{out}, 1, "$name is asked");
			is($holder->result->{sqlstate}, '57014', "$name cancels its holder, $time");
			$holder->run_ok('ROLLBACK TO s');
			my ($node) = contenders($zk, 'r');
			poll_until(sub { $foreign->get("$dir/$node")->{data} =~ /^postgresql / },
				'the contender to say again who it is');
		}
		$holder->run_ok('ROLLBACK');
		wait_no_contenders($zk, 'r');
	}

	# a foreign client, Curator's way; other data do nothing
	my $asked = times_asked($a, $dir);
	$holder->run("BEGIN; SELECT zk_lock('r')");
	run_forever($a, $holder);
	$b->safe_psql('postgres', 'CREATE ROLE app LOGIN');
	my $waiter = ZkSession->new($b, 'postgres', 'app');
	$waiter->send("BEGIN; SELECT zk_lock('r'), pg_sleep(3600)");
	my @both = map { "$dir/$_" } wait_contenders($zk, 'r', 2);
	for my $data ('__REVOKE', '__REVOKE__ ', '')
	{
		$zk->wait_watched($both[0]);
		$foreign->set($both[0], $data);
	}
	$zk->wait_watched($both[0]);
	$foreign->set($both[$_], '__REVOKE__') for (1, 0);
	is_canceled($holder, '__REVOKE__ by a foreign client');
	is(times_asked($a, $dir), $asked + 1, 'only that, and it is logged');

	# the other was asked while it waited
	is_canceled($waiter, 'a revocation that comes early is heard later');

	# the worker that guards is replaced
	$holder->run("BEGIN; SELECT zk_lock('r')");
	run_forever($a, $holder);
	my $node = "$dir/" . (contenders($zk, 'r'))[0];
	$zk->wait_watched($node);
	my $pid = worker_of($a);
	$a->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	$foreign->set($node, '__REVOKE__');
	is_canceled($holder, '__REVOKE__ and a new worker');
	$_->quit for ($holder, $waiter);
}

#
# In the middle of a question
#

{
	my $dir = lock_dir('m');
	my @nodes = map { $foreign->enqueue($dir) } (1 .. 20);
	my $ask = "SELECT count(*) FROM zk_queue('m')";

	# the worker ends
	$zk->pause;
	my $asker = asker($a, $ask);
	my $worker = worker_of($a);
	kill 'TERM', $worker;
	wait_next_worker($a, $worker);
	ok(!$asker->done, 'the question waits');
	$zk->resume;
	is($asker->result->{out}, 20, 'the next worker answers');

	# the connection breaks
	$zk->pause;
	$asker->send($ask);
	$asker->wait_waiting(2);
	$zk->kill9;
	$zk->start;
	is($asker->result->{out}, 20, 'a question is asked again on the next connection');

	# whoever asks ends; the answers come later, and are thrown away
	$zk->pause;
	my %end = (
		'57014' => asker($a, $ask),
		'57P01' => asker($a, $ask));
	my $killed = asker($a, "SET client_connection_check_interval = '50ms'; $ask");
	my $timed = ZkSession->new($a);
	$a->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $end{'57014'}->pid . ')');
	$a->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $end{'57P01'}->pid . ')');
	is($end{$_}->result->{sqlstate}, $_, "a question that ends in $_") for sort keys %end;
	my $gone = $killed->pid;
	$killed->kill_client;
	is($timed->run("SET statement_timeout = '100ms'; $ask")->{sqlstate},
		'57014', 'a question that ends in statement_timeout');
	$timed->run_ok("DO \$\$ BEGIN PERFORM * FROM zk_queue('m');"
		  . ' EXCEPTION WHEN query_canceled THEN NULL; END $$',
		'... or in an error that is caught');
	$a->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $gone");

	# more than can be asked at a time
	my @askers = map { asker($a, $ask) } (1 .. 20);
	$zk->resume;
	is(join(' ', map { $_->result->{out} } @askers), join(' ', (20) x 20),
		'20 questions at a time');
	$zk->pause;
	$_->send($ask) for @askers;
	$_->wait_waiting(2) for @askers;
	$a->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $_->pid . ')') for @askers[ 0 .. 18 ];
	is(join(' ', map { $_->result->{sqlstate} } @askers[ 0 .. 18 ]),
		join(' ', ('57014') x 19), 'canceled, all but one');
	my @others = map { asker($a, "SELECT count(*) FROM zk_queue('nobody $_')") } (1 .. 15);
	$zk->resume;
	is($askers[19]->result->{out}, 20, 'which has its answer');
	is(join(' ', map { $_->result->{out} } @others), join(' ', (0) x 15),
		'who asks something else in their places has no answer to their questions');
	$_->quit for (@askers, @others, $asker, $timed, values %end);
	is(sql($a, $ask)->{out}, 20, 'and so has who asks later');

	# the session ends
	my $session = session_of($a);
	$worker = worker_of($a);
	kill 'STOP', $worker;
	$asker = asker($a, $ask);
	ok($foreign->kill_session($session), 'the session is ended');
	kill 'CONT', $worker;
	is($asker->result->{out}, 20, 'a question is answered in the next');
	isnt(session_of($a), $session, '... which is another one');
	$asker->quit;

	$foreign->unlock($_) for @nodes;
}

#
# What is not canceled
#

{
	my $d = zk_cluster(
		'd', $zk, %settings,
		'wal_level' => 'replica',
		'max_wal_senders' => 2,
		'synchronous_standby_names' => 'nobody',
		'synchronous_commit' => 'local',
		'autovacuum_naptime' => '1s');
	my $holder = ZkSession->new($d);

	# a COMMIT that waits for a synchronous standby
	$d->safe_psql('postgres', 'CREATE TABLE t (n int)');
	$holder->run("SET synchronous_commit = on; BEGIN; SELECT zk_lock('committing'); INSERT INTO t VALUES (1)");
	$holder->send('COMMIT');
	$d->poll_query_until('postgres',
		"SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = " . $holder->pid);
	is(sql($d, "SELECT zk_cancel_holders('committing')")->{out}, 0,
		'a holder of this instance that waits for a standby is not asked');
	is(sql($a, "SELECT zk_cancel_holders('committing')")->{out}, 1, 'another instance is');
	$d->wait_for_log(qr/another client requests revocation of lock.*\n.*DETAIL:  .*0/);
	ok(!$holder->done, 'it goes on waiting');
	$d->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = ''");
	$d->reload;
	my $result = $holder->result;
	is($result->{sqlstate}, undef, 'and commits');
	is_deeply($result->{warnings}, [], 'having waited to the end');

	# but one that still waits for ZooKeeper can be canceled
	$holder->run("SET zklock.commit_check = quorum; BEGIN; SELECT zk_lock('unproved'); INSERT INTO t VALUES (2)");
	$zk->pause;
	$holder->send('COMMIT');
	$holder->wait_waiting(2);
	my $asker = ZkSession->new($d);
	$asker->send("SELECT zk_cancel_holders('unproved')");
	is($holder->result->{sqlstate}, '57014', 'a COMMIT that waits for ZooKeeper is canceled');
	$zk->resume;
	is($asker->result->{out}, 1, '... and counted');
	is($d->safe_psql('postgres', 'SELECT count(*) FROM t'), 1, '... and has committed nothing');
	$_->quit for ($holder, $asker);

	# an autovacuum worker, which has no role
	$d->safe_psql('postgres', <<'SQL');
CREATE ROLE canceler LOGIN IN ROLE pg_signal_backend;
CREATE TABLE analyzed (n int);
CREATE FUNCTION locked(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
$$ BEGIN
    IF current_setting('application_name') = '' AND NOT pg_try_advisory_xact_lock(1) THEN
        PERFORM public.zk_lock('auto');
        PERFORM pg_advisory_xact_lock(1);
    END IF;
    RETURN n;
END $$;
CREATE INDEX ON analyzed (locked(n));
SQL
	my $blocker = ZkSession->new($d);
	$blocker->run('BEGIN; SELECT pg_advisory_xact_lock(1)');
	$d->safe_psql('postgres', <<'SQL');
INSERT INTO analyzed SELECT generate_series(1, 100);
ALTER TABLE analyzed SET (autovacuum_analyze_threshold = 1, autovacuum_analyze_scale_factor = 0);
SQL
	my $auto;
	poll_until(
		sub {
			$auto = $d->safe_psql('postgres',
				"SELECT pid FROM pg_stat_activity JOIN zk_locks USING (pid) WHERE backend_type = 'autovacuum worker' AND granted AND wait_event_type = 'Lock'");
		},
		'an autovacuum worker to hold a lock');
	$result = sql($d, "SET SESSION AUTHORIZATION canceler; SELECT zk_cancel_holders('auto')");
	is($result->{out}, 0, 'a process without a role is not canceled for a member of pg_signal_backend');
	is($result->{warnings}[0]{message}, 'permission denied to cancel query', '... who gets a warning');
	is($result->{warnings}[0]{sqlstate}, '42501', '... by a warning');
	my $log = -s $d->logfile;
	is(sql($a, "SELECT zk_cancel_holders('auto')")->{out}, 1, 'nor from another instance');
	$d->wait_for_log(qr/another client requests revocation of lock.*\n.*DETAIL:  .*0/, $log);
	is($d->safe_psql('postgres', "SELECT pid FROM zk_locks WHERE name = 'auto' AND granted"), $auto,
		'... and goes on');
	is(sql($d, "SELECT zk_cancel_holders('auto')")->{out}, 1, 'but for a superuser');
	$d->wait_for_log(qr/canceling autovacuum task/, $log);
	pass('... it is canceled');
	$blocker->quit;
	$d->stop;
}

#
# Nothing is left
#

for my $node ($a, $b)
{
	is(segments($node), $segments{ $node->name }, $node->name . ' keeps no segment');
}
comes_to(sub { [ all_contenders($zk) ] }, [], 'no contender is left');

#
# ZooKeeper away
#

{
	my $no_pauses = no_pauses();
	my $c = zk_cluster('c', $zk, %settings, 'zklock.session_timeout' => '2s');
	my $holder = busy_holder($c, 'away');
	my %no_session = (
		sqlstate => '57P03',
		message => 'could not reach ZooKeeper for lock "away"',
		detail => qr/^There was no session with/,
		hint => qr/zk_session/);

	$zk->stop;
	poll_until(
		sub {
			$c->safe_psql('postgres', 'SELECT state FROM zk_session') ne 'connected';
		},
		'the connection to be lost');
	sql_error($c, "SELECT * FROM zk_queue('away')", \%no_session, 'zk_queue without ZooKeeper');
	my $result = sql($c, "SELECT zk_cancel_holders('away')");
	is($result->{out}, 1, 'zk_cancel_holders without ZooKeeper');
	is($result->{warnings}[0]{sqlstate}, '57P03', '... with a warning');
	is($holder->result->{sqlstate}, '57014', '... cancels the local holder');
	sql_error($c, "SELECT zk_cancel_holders('nobody')",
		{ %no_session, message => 'could not reach ZooKeeper for lock "nobody"' },
		'... and is an error if there is none');
	my $asker = ZkSession->new($c);
	$asker->send("SELECT count(*) FROM zk_queue('later')");
	$zk->start;
	poll_until(sub { $asker->done }, 'an end');
	$result = $asker->result;
	ok(($result->{sqlstate} // '') eq '57P03' || $result->{out} eq '0', 'ZooKeeper comes back');
	wait_connected($c);
	is(sql($c, "SELECT count(*) FROM zk_queue('later')")->{out}, 0, 'and answers again');
	$_->quit for ($asker, $holder);
	$c->stop;
}

# Permits of a semaphore, too.
{
	my $holder = ZkSession->new($a, 'postgres', 'app');

	$holder->run_ok("BEGIN; SELECT zk_acquire('permits asked for', 2)", 'a permit');
	run_forever($a, $holder);
	is(sql($b, "SELECT zk_cancel_holders('permits asked for')")->{out}, 1,
		'who has a permit in another instance is asked');
	is_canceled($holder, '... and canceled');
	is( (queue($a, 'permits asked for', 'count(*)'))[0], 0, '... which gives the permit back');
	$holder->quit;
}

# The node of an instance's reader is watched for a revocation, and by a writer
# of the same instance that waits for it.
{
	my $lock = 'watched twice';
	my $reader = ZkSession->new($b, 'postgres', 'app');
	my $writer;
	my $node;

	$reader->run_ok("BEGIN; SELECT zk_lock('$lock', shared => true)", 'a reader');
	$node = lock_dir($lock) . '/' . (wait_contenders($zk, $lock, 1))[0];
	run_forever($b, $reader);
	$zk->wait_watched($node);
	$writer = waiter($b, $lock, 1);
	wait_contenders($zk, $lock, 2);
	$foreign->set($node, '__REVOKE__');
	is_canceled($reader, 'a reader that a writer waits for');
	is($writer->result->{sqlstate}, undef, 'then the writer has the lock');
	$_->quit for ($reader, $writer);
}

# Of several locks that are wanted together, those that are had already are kept
# until the others are, too: the worker has looked after its owners when it
# watches them.
{
	my $ahead = $foreign->enqueue(lock_dir('all/y'));
	my $waiter =
	  waiter($a, 'all', 2, "SELECT zk_lock_all(ARRAY['all/x', 'all/y'])");
	my $had = lock_dir('all/x') . '/' . (wait_contenders($zk, 'all/x', 1))[0];
	my $place = (wait_contenders($zk, 'all/y', 2))[1];

	poll_until(
		sub { !$foreign->exists($had) or $zk->fourlw('wchp') =~ /^\Q$had\E$/m },
		'the worker to look after what it owns');
	ok($foreign->exists($had), 'zk_lock_all keeps what it has got');
	is((contenders($zk, 'all/y'))[1], $place, 'and its place in the other queue');
	$foreign->unlock($ahead);
	is($waiter->result->{message}, undef, 'until it has all');
	$waiter->quit;
}

# log_lock_waits tells of the wait for ZooKeeper too, and who owns the lock.
{
	my $holder = holder($a, 'logged');
	my $log = -s $b->logfile;
	my $waiter = ZkSession->new($b);

	$waiter->send(
		"SET log_lock_waits = on; SET deadlock_timeout = '50ms'; SELECT zk_lock('logged')");
	$b->wait_for_log(
		qr/still waiting for exclusive lock "logged" in ZooKeeper after \d+ ms\n.*First in the queue: postgresql host=\S+ port=\d+ cluster=a pid=@{[$holder->pid]}$/m,
		$log);
	pass('a wait is logged, with the owner');
	$holder->quit;
	is($waiter->result->{sqlstate}, undef, '... and ends');
	$b->wait_for_log(qr/acquired exclusive lock "logged" in ZooKeeper after \d+ ms/, $log);
	pass('... which is logged too');
	$waiter->quit;
}

for my $node ($a, $b)
{
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/,
		$node->name . ' has not crashed');
	$node->stop;
}

done_testing();
