
# A session that has lost a lock of the session is told by NOTIFY, also if it is
# idle.

use strict;
use warnings;

use DocPage;
use IPC::Run;
use JSON::PP qw(decode_json);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $lib = ($ENV{TESTDIR} // '.') . '/test/lib';

my $zk = ZooKeeper->new;
$zk->start;
my $client = $zk->client;

# Of the postmaster's processes there is one to spare.
my $a = zk_cluster(
	'a', $zk,
	'zklock.session_timeout' => '30s',
	'log_min_messages' => 'debug1',
	'max_worker_processes' => 3,
	'wal_level' => 'replica',
	'max_wal_senders' => 5,
	'synchronous_standby_names' => 'nobody',
	'synchronous_commit' => 'local');

value($a, $_) for ("CREATE DATABASE latin1 TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'", 'CREATE DATABASE closed');
$a->safe_psql($_, 'CREATE EXTENSION zklock') for qw(latin1 closed);

# A session that listens: lib/lost_listener.py.
sub listener
{
	my ($node, $dbname) = @_;
	my $self = { in => '', out => '' };

	local %ENV = $node->_get_env;
	$self->{run} = IPC::Run::start(
		[ '/usr/bin/python3', "$lib/lost_listener.py", $node->connstr($dbname // 'postgres') ],
		'<', \$self->{in}, '>', \$self->{out});
	$self->{pid} = next_line($self) =~ s/^pid //r;
	return $self;
}

# Has it printed another line?
sub has_line
{
	my ($self) = @_;

	$self->{run}->pump_nb if $self->{run}->pumpable;
	die 'the listener has ended' if $self->{out} !~ /\n/ && !$self->{run}->pumpable;
	return $self->{out} =~ /\n/;
}

sub next_line
{
	my ($self) = @_;

	poll_until(sub { has_line($self) }, 'a line of the listener');
	$self->{out} =~ s/^(.*)\n//;
	return $1;
}

# Run a statement; what comes of it.
sub run_sql
{
	my ($self, $sql) = @_;

	$self->{in} .= "$sql\n";
	return next_line($self);
}

sub run_ok
{
	my ($self, $sql, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(run_sql($self, $sql), 'ok', $name // $sql);
	return;
}

# The next n notifications, as "pid name" in order; names in UTF-8.
sub told
{
	my ($self, $n) = @_;
	my @told = map { decode_json(next_line($self)) } 1 .. $n;

	for (@told)
	{
		utf8::encode($_->{name});
		is_deeply([ sort keys %$_ ], [qw(name pid)], 'name and pid') if $n < 10;
	}
	return [ sort map { "$_->{pid} $_->{name}" } @told ];
}

# Nothing has come to these listeners that was sent ahead of this.
sub nothing_more
{
	my ($node, $dbname, $name, @listeners) = @_;
	my $marker = '{"name": "marker", "pid": 0}';

	$node->safe_psql($dbname, "NOTIFY zklock_lost, '$marker'");
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(next_line($_), $marker, $name) for @listeners;
	return;
}

sub quit
{
	my ($self) = @_;

	$self->{run}->kill_kill;
	return;
}

sub notices { return "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'zklock notice'"; }

sub wait_no_notices { poll_until(sub { value($a, notices()) == 0 }, 'the process to end'); return; }

# How many processes have been asked for, in all
sub asked
{
	my ($node) = @_;
	my @asked = slurp_file($node->logfile) =~ /  registering background worker "zklock notice"/g;

	return scalar @asked;
}

#
# Who is told, and what
#

my $holder = listener($a);
my $other = listener($a);
my $latin1 = listener($a, 'latin1');
my $closed = listener($a, 'closed');

run_ok($holder, "SELECT zk_lock('stock/17', session => true), zk_lock(e'Tür \"\\\\\\t1\"', session => true, shared => true)");
run_ok($holder, "SELECT zk_acquire('mailers', 2, session => true)");
run_ok($latin1, "SELECT zk_lock('Tür', session => true)");
run_ok($closed, "SELECT zk_lock('door', session => true)");
value($a, 'ALTER DATABASE closed ALLOW_CONNECTIONS false');
my $transaction = ZkSession->new($a);
$transaction->run("BEGIN; SELECT zk_lock('of the transaction')");
my $elsewhere = ZkSession->new($a, 'latin1');
$elsewhere->run("SELECT zk_lock('x' || i, session => true) FROM generate_series(1, 3) i");

is(asked($a), 0, 'nobody is told of anything before that');
lose_session($a, $client);
my $expected = [ sort map { "$holder->{pid} $_" } ('stock/17', "Tür \"\\\t1\"", 'mailers') ];
is_deeply(told($holder, 3), $expected, 'the idle session is told');
is_deeply(told($other, 3), $expected, 'and so is another one in the same database');
is_deeply(told($latin1, 4),
	[ sort "$latin1->{pid} Tür", map { $elsewhere->pid . " x$_" } 1 .. 3 ],
	'and those of another database, of its own locks, whatever its encoding');
is_deeply(told($closed, 1), ["$closed->{pid} door"], 'and of one that allows no connections');
nothing_more($a, 'postgres', 'no more than that', $holder, $other);
nothing_more($a, 'latin1', 'no more than that there', $latin1);
wait_no_notices();
is(asked($a), 3, 'a process for each database');
is(value($a, "SELECT count(*) FROM zk_locks WHERE lost AND scope = 'session'"), 8, 'the holds stay until they are given back');
is(run_sql($holder, 'SELECT 1'), 'error 40001', 'and commits fail');
is($transaction->run('COMMIT')->{sqlstate}, '40001', 'a transaction is told by its COMMIT');
run_ok($_, 'SELECT zk_unlock_all()') for ($holder, $latin1, $closed);
$elsewhere->run('SELECT zk_unlock_all()');
is(value($a, 'SELECT count(*) FROM zk_locks'), 0, 'given back');

# in a transaction
run_ok($holder, "SELECT zk_lock('y', session => true)");
run_ok($holder, 'BEGIN');
lose_session($a, $client);
is_deeply(told($other, 1), ["$holder->{pid} y"], 'in a transaction: others are told');
is(run_sql($holder, 'COMMIT'), 'error 40001', '... its COMMIT fails');
is_deeply(told($holder, 1), ["$holder->{pid} y"], '... and then it is told as well');
nothing_more($a, 'postgres', 'once', $holder, $other);
run_ok($holder, 'SELECT zk_unlock_all()');

# more often than there are processes
for my $round (1 .. 5)
{
	run_ok($holder, "SELECT zk_lock('round $round', session => true)");
	lose_session($a, $client);
	is_deeply(told($_, 1), ["$holder->{pid} round $round"], 'again') for ($holder, $other);
	run_ok($holder, 'SELECT zk_unlock_all()');
}
wait_no_notices();
unlike(slurp_file($a->logfile), qr/could not start a process/, 'no process has been left over');

# as doc/applications.md has it
{
	my $page = DocPage->new(($ENV{TESTDIR} // '.') . '/doc/applications.md', {});
	my $dir = PostgreSQL::Test::Utils::tempdir('program');
	my $leader = { in => '', out => '' };

	append_to_file("$dir/leader.py", $page->named('python lost') . <<'END');
import sys
import psycopg2

connection = psycopg2.connect(sys.argv[1])
connection.autocommit = True
cursor = connection.cursor()
cursor.execute('LISTEN zklock_lost')
cursor.execute("SELECT zk_lock('leader', session => true)")
print(wait_for_loss(connection, 0), flush=True)
lost = None
while lost is None:             # other sessions lose locks, too
    lost = wait_for_loss(connection, 60)
print(lost, flush=True)
cursor.execute("SELECT zk_unlock('leader')")
print(cursor.fetchone()[0], flush=True)
END
	run_ok($holder, "SELECT zk_lock('a' || i, session => true) FROM generate_series(1, 3) i");
	$leader->{run} = IPC::Run::start([ '/usr/bin/python3', "$dir/leader.py", $a->connstr('postgres') ],
		'<', \$leader->{in}, '>', \$leader->{out});
	is(next_line($leader), 'None', 'the page: nothing is lost yet');
	lose_session($a, $client);
	is(next_line($leader), 'leader', 'the page: lost');
	is(next_line($leader), 'True', 'the page: and acknowledged');
	$leader->{run}->finish;
	is(scalar @{ told($_, 4) }, 4, 'others are told, too') for ($holder, $other);
	run_ok($holder, 'SELECT zk_unlock_all()');
}

#
# What PostgreSQL does in a session that is idle, when a lock has been lost
#

run_ok($holder, "SELECT zk_lock('z', session => true)");
lose_session($a, $client);
is_deeply(told($_, 1), ["$holder->{pid} z"], 'idle with a lost lock') for ($holder, $other);
nothing_more($a, 'postgres', 'NOTIFY of others is heard', $holder, $other);
value($a, 'DO $$ BEGIN FOR i IN 1 .. 1500 LOOP CREATE TABLE many (n int PRIMARY KEY); DROP TABLE many; END LOOP; END $$');
run_ok($holder, 'SELECT zk_unlock_all()', 'it has caught up with changes of catalogs');

#
# Many at once
#

{
	my $n = 3000;
	my $before = asked($a);

	run_ok($holder,
		"SELECT zk_lock_all(array_agg('m' || i), session => true) FROM generate_series(1, $n) i GROUP BY i % 6");
	lose_session($a, $client);
	my @expected = sort map { "$holder->{pid} m$_" } 1 .. $n;
	is_deeply(told($holder, $n), \@expected, 'many locks at once');
	is_deeply(told($other, $n), \@expected, 'many locks at once, elsewhere');
	is(asked($a), $before + 1, 'by one process');
	run_ok($holder, 'SELECT zk_unlock_all()');
	nothing_more($a, 'postgres', 'each once', $holder, $other);
	wait_no_notices();
}

#
# No process to be had
#

{
	my $parallel = ZkSession->new($a);
	my $started = qr/could not start a process to notify sessions of lost locks/;
	my $offset = -s $a->logfile;

	value($a, 'CREATE TABLE t AS SELECT generate_series(1, 100000) n; ANALYZE t');
	$parallel->run('SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0');
	$parallel->run('SET parallel_leader_participation = off');
	$parallel->send('SELECT count(*) FROM t WHERE pg_sleep(600) IS NOT NULL');
	poll_until(sub { value($a, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker' AND wait_event = 'PgSleep'") == 1 },
		'all processes to be in use');
	run_ok($holder, "SELECT zk_lock('late', session => true)");
	lose_session($a, $client);
	poll_until(sub { slurp_file($a->logfile, $offset) =~ $started }, 'the log to tell');
	run_ok($other, "SELECT zk_lock('too', session => true)");
	lose_session($a, $client);
	nothing_more($a, 'postgres', 'nobody can be told', $holder, $other);
	value($a, 'SELECT pg_cancel_backend(' . $parallel->pid . ')');
	is($parallel->result->{sqlstate}, '57014', 'a process is free again');
	is_deeply(told($_, 2), [ sort "$holder->{pid} late", "$other->{pid} too" ], 'they are told when there is one') for ($holder, $other);
	my @lines = slurp_file($a->logfile, $offset) =~ /$started/g;
	is(scalar @lines, 1, 'the log has told once');
	run_ok($_, 'SELECT zk_unlock_all()') for ($holder, $other);
	$parallel->quit;
	wait_no_notices();
}

#
# Processes that end
#

{
	my $notifier = ZkSession->new($a);
	my $waiting = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'zklock notice' AND wait_event_type = 'Lock'};
	my $pid;

	# a commit that waits for a standby keeps NOTIFY from all others
	$notifier->run('SET synchronous_commit = on; BEGIN; INSERT INTO t VALUES (0); NOTIFY channel');
	$notifier->send('COMMIT');
	poll_until(sub { value($a, 'SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $notifier->pid) eq 'SyncRep' },
		'the commit to wait');
	run_ok($holder, "SELECT zk_lock('kept', session => true)");
	lose_session($a, $client);
	poll_until(sub { $pid = value($a, $waiting) }, 'the process to wait');

	value($a, "SELECT pg_terminate_backend($pid)");
	wait_no_notices();
	value($a, 'SELECT pg_terminate_backend(worker_pid) FROM zk_sessions');
	poll_until(sub { value($a, $waiting) }, 'the next worker to start another process');
	value($a, 'SELECT pg_cancel_backend(' . $notifier->pid . ')');
	$notifier->result;
	is_deeply(told($_, 1), ["$holder->{pid} kept"], 'told by the next worker') for ($holder, $other);
	nothing_more($a, 'postgres', 'once', $holder, $other);
	run_ok($holder, 'SELECT zk_unlock_all()');
	wait_no_notices();

	# given back ahead of that
	$notifier->run('BEGIN; INSERT INTO t VALUES (0); NOTIFY channel');
	$notifier->send('COMMIT');
	poll_until(sub { value($a, 'SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $notifier->pid) eq 'SyncRep' },
		'the commit to wait');
	run_ok($holder, "SELECT zk_lock('given back', session => true)");
	lose_session($a, $client);
	poll_until(sub { $pid = value($a, $waiting) }, 'the process to wait');
	value($a, "SELECT pg_terminate_backend($pid)");
	wait_no_notices();
	run_ok($holder, 'SELECT zk_unlock_all()');
	run_ok($holder, "SELECT zk_lock('kept', session => true)");
	lose_session($a, $client);
	poll_until(sub { value($a, $waiting) }, 'the process to wait');
	value($a, 'SELECT pg_cancel_backend(' . $notifier->pid . ')');
	$notifier->result;
	is_deeply(told($_, 1), ["$holder->{pid} kept"], 'nobody is told of what has been given back') for ($holder, $other);
	run_ok($holder, 'SELECT zk_unlock_all()');
	wait_no_notices();
	$notifier->quit;
}

#
# A standby
#

{
	my $s = PostgreSQL::Test::Cluster->new('s');

	$a->backup('base');
	$s->init_from_backup($a, 'base', has_streaming => 1);
	$s->start;
	wait_connected($s);
	my $session = ZkSession->new($s);
	$session->run_ok("SELECT zk_lock('s', session => true)");
	lose_session($s, $client);
	$s->poll_query_until('postgres', "SELECT lost FROM zk_locks WHERE name = 's'");
	is($s->safe_psql('postgres', notices()), 0, 'a standby tells nobody');
	$s->promote;
	my $listener = listener($s);
	run_ok($listener, "SELECT zk_lock('t', session => true)");
	lose_session($s, $client);
	is_deeply(told($listener, 1), ["$listener->{pid} t"], 'after promotion those are told who lose a lock from then on');
	is(asked($s), 1, 'by one process, the only one');
	is($session->run('SELECT 1')->{sqlstate}, '40001', 'what was lost before is lost');
	$_->quit for ($session);
	quit($listener);
	$s->stop;
}

# a shutdown with a lost lock
run_ok($holder, "SELECT zk_lock('last', session => true)");
lose_session($a, $client);
is_deeply(told($_, 1), ["$holder->{pid} last"], 'the last one') for ($holder, $other);
$_->quit for ($transaction, $elsewhere);
quit($_) for ($holder, $other, $latin1, $closed);
$a->stop;
unlike(slurp_file($a->logfile), qr/PANIC|TRAP|was terminated by signal/, 'nothing has crashed');
done_testing();
