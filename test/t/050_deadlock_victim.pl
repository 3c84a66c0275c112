
# The wait that ends because of a deadlock with other instances: its error, what
# is counted and shown of it, and what the session has left.  And that no other
# wait ends.  Needs a test build, whose zk_test_deadlock() tells of deadlocks
# that are none.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client;
my $a = zk_cluster('a', $zk,
	'install_path' => $ENV{ZKLOCK_TEST_INSTALL},
	'zklock.deadlock_check' => 'off');

value($a, q{CREATE FUNCTION zk_test_deadlock(pid integer, holder integer, others integer)
	RETURNS boolean AS 'zklock' LANGUAGE C});
value($a, 'SELECT zk_stat_reset()');

# Tell that the wait of a session is part of a deadlock.
sub deadlock
{
	my ($s, $holder, $others) = @_;

	return value($a, sprintf 'SELECT zk_test_deadlock(%d, %s, %d)',
		$s->pid, $holder // 'NULL', $others // 1);
}

sub wait_deadlock
{
	my ($s, @arguments) = @_;

	poll_until(sub { deadlock($s, @arguments) eq 't' }, 'the wait to be ended');
	return;
}

# The lock is another client's, and the session waits for it.
sub blocked
{
	my ($lock, $call, $begin) = @_;
	my $node = $foreign->lock(lock_dir($lock));
	my $s = ZkSession->new($a);

	$s->run_ok($begin // 'BEGIN', "begin: $call");
	$s->send("SELECT $call");
	poll_until(sub { $foreign->contenders(lock_dir($lock)) == 2 }, 'the session to queue');
	$s->wait_waiting(2);
	return ($s, $node);
}

my $hint = 'See server log for query details.';

#
# The error
#

is(deadlock(ZkSession->new($a)), 'f', 'one who does not wait is no victim');

my ($s, $node) = blocked('x', q{zk_lock('x')}, "BEGIN; SELECT zk_lock('mine')");
my $pid = $s->pid;
my $offset = -s $a->logfile;
wait_deadlock($s);
my $result = $s->result;
error_is(
	$result,
	{
		sqlstate => '40P01',
		message => 'deadlock detected',
		detail =>
		  qq{Process $pid of instance here waits for exclusive lock "x" in ZooKeeper; blocked by process 10 of instance there_1.\n}
		  . qq{Process 10 of instance there_1 waits for exclusive lock "x" in ZooKeeper; blocked by process $pid of instance here.},
		hint => $hint
	},
	'the error of a deadlock');
is($result->{context}, 'while waiting for lock "x" in ZooKeeper', 'its context');
my $log = substr(slurp_file($a->logfile), $offset);
like($log,
	qr/blocked by process $pid of instance here\.\n\tProcess $pid: SELECT zk_lock\('x'\)\s+;\n/,
	'the log has the statement');
is($s->run('SELECT 1')->{sqlstate}, '25P02', 'the transaction is aborted');
$s->run_ok('ROLLBACK');
is(value($a, q{SELECT count(*) FROM zk_locks}), 0, 'and its locks are released');

is(value($a, 'SELECT deadlocks, failed, timed_out FROM zk_stat'), '1|0|0', 'zk_stat counts it');
ok( $a->poll_query_until('postgres',
		q{SELECT deadlocks = 1 FROM pg_stat_database WHERE datname = 'postgres'}),
	'pg_stat_database counts it');

is( value($a, q{SELECT id, detected BETWEEN now() - interval '1 min' AND now(), member,
	cluster_name, pid, mode, name, path, holder_pid, blocked_by, victim, local FROM zk_deadlocks}),
	"1|t|1|here|$pid|exclusive|x|/zklock/x|$pid|{2}|t|t\n"
	  . '1|t|2|there_1|10|exclusive|x|/zklock/x|10|{1}|f|f',
	'zk_deadlocks shows it');
value($a, 'CREATE ROLE watcher IN ROLE pg_monitor; CREATE ROLE anybody');
is(value($a, 'SET ROLE watcher; SELECT count(*) FROM zk_deadlocks'), 2, 'to pg_monitor');
is(sql($a, 'SET ROLE anybody; SELECT * FROM zk_deadlocks')->{sqlstate}, '42501', 'and to nobody else');

# one session holds what the others want, and waits for another one of the same
# instance
my $holder = ZkSession->new($a);
$holder->run_ok('SELECT 1');
my $holder_pid = $holder->pid;
$s->run('BEGIN');
$s->send(q{SELECT zk_lock('x', shared => true)});
$s->wait_waiting(2);
$offset = -s $a->logfile;
wait_deadlock($s, $holder_pid, 2);
error_is(
	$s->result,
	{
		sqlstate => '40P01',
		message => 'deadlock detected',
		detail =>
		  qq{Process $holder_pid of instance here waits for process $pid of the same instance.\n}
		  . qq{Process $pid of instance here waits for shared lock "x" in ZooKeeper; blocked by process 10 of instance there_1.\n}
		  . qq{Process 10 of instance there_1 waits for shared lock "x" in ZooKeeper; blocked by process 20 of instance there_2.\n}
		  . qq{Process 20 of instance there_2 waits for shared lock "x" in ZooKeeper; blocked by process $holder_pid of instance here.},
		hint => $hint
	},
	'the holder is another one than the waiter');
$s->run('ROLLBACK');
like(substr(slurp_file($a->logfile), $offset),
	qr/instance here\.\n\tProcess $pid: SELECT zk_lock\('x', shared => true\)\s+;\n\tProcess $holder_pid: SELECT 1\s+;\n/,
	'the log has the statements of both');
$foreign->unlock($node);

#
# Each kind of wait
#

sub victim
{
	my ($call, $begin) = @_;
	my ($s, $node) = blocked('x', $call, $begin);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_deadlock($s);
	is($s->result->{sqlstate}, '40P01', $call);
	$foreign->unlock($node);
	return $s;
}

victim($_)->quit
  for (q{zk_try_lock('x', '1h')}, q{zk_lock('x', shared => true)}, q{zk_lock('x', '1h')},
	q{zk_lock_all(ARRAY['v', 'w', 'x', 'y'])}, q{zk_lock_all(ARRAY['w', 'x'], shared => true)});

# waits for permits are told to nobody: lock_timeout ends them
my $permit = ZkSession->new($a);
$permit->run_ok(q{SELECT zk_acquire('sem', 1, session => true)});
my $other = ZkSession->new($a);
$other->run_ok(q{SET lock_timeout = '500ms'});
is($other->run(q{SELECT zk_acquire('sem', 1)})->{sqlstate}, '55P03', 'a permit');
$_->quit for ($other, $permit);
is(value($a, 'SELECT deadlocks, failed, timed_out FROM zk_stat'), '7|0|1', 'each call counts once');

# what is held stays: of the session, and of an earlier savepoint
$s = victim(q{zk_lock('x', session => true)}, q{SELECT zk_lock('s', session => true)});
is($s->run_ok('SELECT name, scope FROM zk_locks WHERE pid = pg_backend_pid()'),
	's|session', 'a session-scoped hold stays, outside of a transaction');
$s->quit;
$s = victim(q{zk_lock('x', session => true)},
	q{BEGIN; SELECT zk_lock('s', session => true); SAVEPOINT s});
$s->run_ok(q{ROLLBACK TO s; SELECT zk_lock('t')});
is($s->run_ok('SELECT name, scope FROM zk_locks WHERE pid = pg_backend_pid() ORDER BY 1'),
	"s|session\nt|transaction", 'and in one, which goes on from its savepoint');
$s->run_ok('COMMIT');
$s->quit;
$s = victim(q{zk_lock('x')}, q{BEGIN; SELECT zk_lock('t'); SAVEPOINT s});
$s->run_ok('ROLLBACK TO s');
is($s->run_ok('SELECT name FROM zk_locks WHERE pid = pg_backend_pid()'), 't',
	'so does one of the transaction');
$s->run_ok('COMMIT');
$s->quit;

#
# No other wait ends
#

# stopped: the backend does not look before it goes on
sub stopped
{
	my ($call, $code) = @_;
	my ($s, $node) = blocked('x', $call);

	kill 'STOP', $s->pid;
	wait_deadlock($s);
	$code->($s, $node);
	kill 'CONT', $s->pid;
	return $s;
}

for my $call (q{zk_lock('x')}, q{zk_lock_all(ARRAY['w', 'x'])}, q{zk_lock('x', shared => true)})
{
	$s = stopped(
		$call,
		sub {
			my ($s, $node) = @_;

			$foreign->unlock($node);
			poll_until(sub { deadlock($s) eq 'f' }, 'the lock to be granted');
		});
	is($s->result->{sqlstate}, undef, "$call: granted meanwhile");
	$s->run_ok('COMMIT');
	$s->quit;
}

# the next wait of the same backend for the same lock
$s = stopped(
	q{zk_lock('x')},
	sub {
		(my $s, $node) = @_;
		value($a, 'SELECT pg_cancel_backend(' . $s->pid . ')');
	});
is($s->result->{sqlstate}, '57014', 'canceled first');
$s->run_ok('ROLLBACK; BEGIN');
$s->send(q{SELECT zk_lock('x')});
$s->wait_waiting(2);
$foreign->unlock($node);
is($s->result->{sqlstate}, undef, 'the next wait goes on to its end');
$s->run_ok('COMMIT');
$s->quit;

#
# The latest ones
#

($s, $node) = blocked('x', q{zk_lock('x')});
kill 'STOP', $s->pid;
deadlock($s) for (1 .. 40);
is(value($a, 'SELECT count(DISTINCT id), max(id) - min(id), count(*) FROM zk_deadlocks'),
	'32|31|64', 'the latest 32 are kept');
wait_deadlock($s, undef, 63);
is(value($a, q{SELECT count(*) > 20 FROM zk_deadlocks WHERE id = (SELECT max(id) FROM zk_deadlocks)}),
	't', 'as many members as have room');
value($a, 'SELECT zk_stat_reset()');
is(value($a, 'SELECT count(*) FROM zk_deadlocks'), 0, 'a reset empties the view');
kill 'CONT', $s->pid;
like($s->result->{detail}, qr/^Process \d+ of instance here waits for .*\n.*there_20 waits/s,
	'but not the error of a victim that has not looked');
is(value($a, 'SELECT deadlocks FROM zk_stat'), 1, 'which counts from then on');
$s->quit;
$foreign->unlock($node);

# overwritten before the victim has looked
my ($first, $first_node) = blocked('x', q{zk_lock('x')});
my ($second, $second_node) = blocked('y', q{zk_lock('y')});
kill 'STOP', $first->pid, $second->pid;
wait_deadlock($first);
deadlock($second) for (1 .. 32);
kill 'CONT', $first->pid, $second->pid;
error_is(
	$first->result,
	{ sqlstate => '40P01', message => 'deadlock detected', hint => $hint },
	'what is not known any more is not shown');
is($second->result->{sqlstate}, '40P01', 'the other one has the latest');
$_->quit for ($first, $second);
$foreign->unlock($_) for ($first_node, $second_node);

#
# What the owner says of itself, for log_lock_waits
#

# Log a wait for a lock whose owner has this note, and return the detail.
sub logged
{
	my ($note) = @_;
	my $no_pauses = no_pauses();	# the note is read within a second
	my $node = $foreign->lock(lock_dir('x'));
	my $s = ZkSession->new($a);
	my $log = -s $a->logfile;

	$foreign->set($node, $note);
	$s->run_ok("SET log_lock_waits = on; SET deadlock_timeout = '10ms'");
	$s->send(q{SELECT zk_lock('x')});
	$a->wait_for_log(qr/still waiting for exclusive lock "x"/, $log);
	$foreign->unlock($node);
	is($s->result->{sqlstate}, undef, 'the wait ends');
	$a->wait_for_log(qr/acquired exclusive lock "x"/, $log);
	$s->quit;
	return join("\n",
		substr(slurp_file($a->logfile), $log) =~ /DETAIL:  (.*(?:\n\t.*)*)/) =~ s/\n\t/\n/gr;
}

my $owner = 'postgresql host=h port=1 cluster=shop%20b pid=71';
is(logged("$owner retain=yes"), "First in the queue: $owner retain=yes", 'an instance');
my $text = $foreign->create('/zklock/%waits/z-', ephemeral => 1, sequence => 1, makepath => 1,
	data => join("\n", 'zklock1 shop%20b', 'wait 71 x /zklock/a%252Fb 71 1 1 - - -', 'keep x /zklock/x 1', 'keep x /zklock/y 1',
		'wait 72 s /zklock/r 92 1 1 - - 72.1', 'keep s /zklock/x 1', ''));
is( logged($owner),
	"First in the queue: $owner\n"
	  . qq{Process 71 of instance shop b waits for exclusive lock "a/b" in ZooKeeper.\n}
	  . qq{Process 72 of instance shop b waits for process 92 of the same instance.\n}
	  . qq{Process 92 of instance shop b waits for shared lock "r" in ZooKeeper.},
	'one whose holders wait');
$foreign->delete($text);
is(logged("other\\ \e client"), 'First in the queue: other\\ \\x1b client', 'another client');

#
# Within the instance
#

value($a, 'SELECT zk_stat_reset()');
$first = holder($a, 'p');
$second = holder($a, 'q');
$first->send(q{SELECT zk_lock('q')});
$first->wait_waiting(1);
my @errors = grep { defined } $second->run(q{SELECT zk_lock('p')})->{sqlstate};
$second->run('ROLLBACK');
push @errors, grep { defined } $first->result->{sqlstate};
is("@errors", '40P01', 'a deadlock within the instance has one victim');
is(value($a, 'SELECT deadlocks, failed FROM zk_stat'), '1|0', 'which counts, too');
is(value($a, 'SELECT count(*) FROM zk_deadlocks'), 0, 'but is none with others');

done_testing();
