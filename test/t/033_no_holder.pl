
# What a call leaves behind that ends without its lock: after an error that comes
# when the lock has just been granted, and to those who wait beside it.  And that
# a try ends.  Needs a test build, which fails where it is told to.
#
# The session timeout is longer than any of these tests waits for a lock.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my $a = zk_cluster(
	'a', $zk,
	'install_path' => $ENV{ZKLOCK_TEST_INSTALL},
	'zklock.session_timeout' => '60s');

#
# An error between the grant and the end of the call
#

$a->safe_psql('postgres',
	"CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
$a->safe_psql('latin', 'CREATE EXTENSION zklock');

my $cafe = "caf\x{e9}";
my $cafe_sql = q{'caf' || chr(233)};

# Nobody of this instance has anything, in either tier, and others can have it.
sub nothing_is_held
{
	my ($name, @locks) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( value($a, q{SELECT slot_users, (SELECT count(*) FROM pg_locks WHERE locktype = 'userlock')}
			  . ' FROM zk_stat'),
		'0|0', "$name: nobody holds or wants anything");
	ok( $a->poll_query_until('postgres', 'SELECT slots = 0 FROM zk_stat'),
		"$name: nothing stays taken")
	  or die "the rest would wait forever\n";
	$foreign->unlock($foreign->lock(lock_dir($_))) for @locks;
	return;
}

# A call fails in a transaction of its own, in a savepoint, and in a block that
# catches the error.
sub fails
{
	my ($s, $point, $call, @locks) = @_;
	my $name = "$call fails at \"$point\"";
	my $message = "failed on purpose at \"$point\"";

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$s->run_ok("SET zklock.fail_at = '$point'");
	is($s->run("SELECT $call")->{message}, $message, $name);
	nothing_is_held($name, @locks);

	$s->run_ok('BEGIN; SAVEPOINT s', "$name, in a savepoint");
	is($s->run("SELECT $call")->{message}, $message, $name);
	$s->run_ok('ROLLBACK TO s');
	nothing_is_held($name, @locks);
	$s->run_ok('COMMIT');

	$s->run_ok('BEGIN', "$name, in a function");
	$s->run_ok("DO \$\$ BEGIN PERFORM $call;"
		  . " EXCEPTION WHEN internal_error THEN NULL; END \$\$");
	nothing_is_held($name, @locks);
	$s->run_ok('COMMIT');
	$s->run_ok('RESET zklock.fail_at');
	return;
}

{
	my $s = ZkSession->new($a);
	my $all = "zk_lock_all('{x,y,z}'";
	my $any = "zk_lock_any('{x,y,z}'";

	for my $point (qw(taken ask))
	{
		fails($s, $point, "zk_lock('x')", 'x');
		fails($s, $point, "zk_lock('x', shared => true)", 'x');
		fails($s, $point, "zk_try_lock('x', '1 min')", 'x');
		fails($s, $point, "zk_lock('x', session => true)", 'x');
		fails($s, $point, "zk_acquire('sem', 2)");
		fails($s, $point, "$all)", qw(x y z));
		fails($s, $point, "$all, shared => true)", qw(x y z));
		fails($s, $point, "$any)", qw(x y z));
		fails($s, $point, "$any, shared => true)", qw(x y z));
	}
	fails($s, 'session', "zk_lock('x', session => true)", 'x');
	fails($s, 'session', "zk_acquire('sem', 2, session => true)");
	fails($s, 'session', "$all, session => true)", qw(x y z));
	fails($s, 'session', "$any, session => true)", qw(x y z));

	# where one of them is held already
	$s->run_ok("SELECT zk_lock('y', session => true)");
	$s->run_ok("SET zklock.fail_at = 'session'");
	is($s->run("SELECT $all, session => true)")->{sqlstate}, 'XX000', 'one is held, and all fail');
	is(value($a, q{SELECT string_agg(name, ' ') FROM zk_locks}), 'y', 'the one is held as before');
	$s->run_ok('RESET zklock.fail_at');
	is($s->run(q{SELECT zk_unlock('y'), zk_unlock('y')})->{out}, 't|f', '... once');
	nothing_is_held('one was held', qw(x y z));

	# for which there is a waiter in this instance
	$s->run_ok("SET zklock.fail_at = 'taken'; BEGIN");
	my $ahead = $foreign->lock(lock_dir('x'));
	$s->send("SELECT zk_lock('x')");
	$s->wait_waiting(2);
	my $next = waiter($a, 'x', 1);
	$foreign->unlock($ahead);
	is($s->result->{sqlstate}, 'XX000', 'who is first fails');
	is($next->result->{sqlstate}, undef, 'the next in this instance has the lock');
	$next->run_ok('COMMIT');
	$s->run_ok('ROLLBACK');
	nothing_is_held('a waiter behind', 'x');
	$_->quit for ($s, $next);
}

# After a wait, in another encoding: the messages tell the names.
for my $call (
	"zk_lock($cafe_sql, session => true)",
	"zk_lock($cafe_sql, shared => true)",
	"zk_lock_all(ARRAY['x', $cafe_sql])")
{
	my $s = ZkSession->new($a, 'latin');

	$s->run_ok("SET log_lock_waits = on; SET deadlock_timeout = '1ms'");
	for my $point (qw(taken ask log warn))
	{
		my $offset = -s $a->logfile;
		my $ahead = $foreign->lock(lock_dir($cafe));

		$s->run_ok("SET zklock.fail_at = '$point'");
		$s->run_ok('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT');
		$s->send("SELECT $call");
		$a->wait_for_log(qr/still waiting for \S+ lock "caf\xe9" in ZooKeeper/, $offset);
		$foreign->unlock($ahead);
		is($s->result->{sqlstate}, 'XX000', "$call fails at \"$point\" after a wait");
		$s->run_ok('ROLLBACK');
		nothing_is_held("after a wait: $call", $cafe);
		$s->run_ok('RESET zklock.fail_at');
	}
	$s->quit;
}

#
# A neighbour that gives up, beside those that wait
#

# Who has got one of its locks, and stands in the queue of the other.
{
	my $ahead = $foreign->enqueue(lock_dir('all/y'));
	my $all = waiter($a, 'all', 2, "SELECT zk_lock_all(ARRAY['all/x', 'all/y'])");
	my $had = lock_dir('all/x') . '/' . (wait_contenders($zk, 'all/x', 1))[0];
	my $place = (wait_contenders($zk, 'all/y', 2))[1];
	my $neighbour = ZkSession->new($a);
	my %answers;

	# the worker has looked after its owners when it watches them, and from then
	# on does so several times a second
	my $try = sub {
		$answers{$_}++ for $neighbour->run(
			q{SELECT zk_try_lock('all/x'), zk_try_lock('all/y'), zk_try_lock('all/x', '1ms')})->{out};
	};
	poll_until(sub { $try->(); $zk->fourlw('wchp') =~ /^\Q$had\E$/m || !$foreign->exists($had) },
		'the worker to look after what it owns');
	$try->() for (1 .. 200);
	is_deeply([ keys %answers ], ['f|f|f'], 'a neighbor tries again and again');
	ok($foreign->exists($had), 'and zk_lock_all keeps what it has got');
	is((contenders($zk, 'all/y'))[1], $place, '... and its place in the other queue');
	$foreign->unlock($ahead);
	is($all->result->{message}, undef, '... until it has all');
	$all->run_ok('COMMIT');
	$_->quit for ($all, $neighbour);
}

# A writer that waits for a reader of its own instance has its place in ZooKeeper
# meanwhile, and a new one when the session has ended.
for my $way ('tries', 'waited, too, and is canceled')
{
	my $reader = ZkSession->new($a);

	$reader->run_ok("BEGIN; SELECT zk_lock('asked', shared => true)");
	my $ahead = $foreign->enqueue(lock_dir('asked'));
	my $writer = waiter($a, 'asked', 1);
	wait_contenders($zk, 'asked', 3);
	my $neighbour = ZkSession->new($a);
	if ($way eq 'tries')
	{
		is($neighbour->run("SELECT zk_try_lock('asked')")->{out}, 'f', 'a neighbor tries');
	}
	else
	{
		$neighbour->send("SELECT zk_lock('asked')");
		$neighbour->wait_waiting(1);
		value($a, 'SELECT pg_cancel_backend(' . $neighbour->pid . ')');
		is($neighbour->result->{sqlstate}, '57014', 'a neighbor is canceled');
	}
	ok(end_session($a, $foreign), 'the session ends');
	ok( eval { poll_until(sub {
			my @queue = contenders($zk, 'asked');
			return @queue == 2 && $ahead =~ /\Q$queue[0]\E$/;
		}, 'a new place') },
		"a neighbor $way: the writer queues again") or diag($@);
	$reader->run('ROLLBACK');
	$foreign->unlock($ahead);
	is($writer->result->{sqlstate}, undef, '... and has the lock');
	$writer->run_ok('COMMIT');
	$_->quit for ($reader, $writer, $neighbour);
	wait_no_contenders($zk, 'asked');
}

#
# A try ends, whatever becomes of the instance's own contender of the other mode
#

# ZooKeeper does not let it go.
for my $shared ('true', 'false')
{
	my $lock = "kept $shared";
	my $dir = lock_dir($lock);
	my $other = $shared eq 'true' ? 'false' : 'true';
	my $s = ZkSession->new($a);
	my $offset = -s $a->logfile;

	$s->run_ok("BEGIN; SELECT zk_lock('$lock', shared => $shared)");
	$foreign->set_acl($dir, 'no delete');
	$s->run_ok('COMMIT');
	$a->wait_for_log(qr/could not delete contender "\Q$dir\E\//, $offset);
	$s->run_ok("SET statement_timeout = '20s'");
	is($s->run("SELECT zk_try_lock('$lock', shared => $other)")->{out}, 'f',
		"shared is $shared, and stays: a try of the other mode");
	is($s->run("SELECT $_")->{sqlstate}, '55P03', $_)
	  for ("zk_lock('$lock', '0', shared => $other)", "zk_lock_all('{$lock}', '0', shared => $other)");
	is(value($a, 'SELECT slot_users FROM zk_stat'), 0, 'nobody wants it any more');
	$foreign->set_acl($dir, 'open');
	is($s->run("SELECT zk_try_lock('$lock', '1 min', shared => $other)")->{out}, 't', 'in the end it is available');
	$s->quit;
	wait_no_contenders($zk, $lock);
}

# ZooKeeper does not answer.
{
	my $s = ZkSession->new($a);

	$s->run_ok("BEGIN; SELECT zk_lock('slow', shared => true)");
	$zk->pause;
	$s->run_ok('COMMIT');
	$s->run_ok("SET statement_timeout = '20s'; SET lock_timeout = '50ms'");
	is($s->run("SELECT zk_try_lock('slow')")->{out}, 'f', 'ZooKeeper is slow: lock_timeout bounds a try');
	is($s->run("SELECT zk_lock('slow', '0')")->{sqlstate}, '55P03', '... and a call that waits for nobody');
	$s->run_ok('SET lock_timeout = 0');
	$s->send("SELECT zk_try_lock('slow')");
	$s->wait_waiting(2);
	value($a, 'SELECT pg_cancel_backend(' . $s->pid . ')');
	is($s->result->{sqlstate}, '57014', '... and it can be canceled');
	is(value($a, 'SELECT slot_users FROM zk_stat'), 0, 'nobody wants it any more');
	$zk->resume;
	is($s->run("SELECT zk_try_lock('slow')")->{out}, 't', 'its own instance is nobody to wait for');
	$s->quit;
	wait_no_contenders($zk, 'slow');
}

# A late word that it stands behind somebody, when it is being given up already.
{
	my $proxy = ZkProxy->new;
	my $b = zk_cluster('b', $zk,
		'zklock.servers' => $zk->connstr_through($proxy, 'b'),
		'zklock.session_timeout' => '60s',
		'log_min_messages' => 'debug3');
	my @s = map { ZkSession->new($b) } (1 .. 3);
	my $offset = -s $b->logfile;

	$s[0]->run_ok("BEGIN; SELECT zk_lock('notified', shared => true)");
	$proxy->delay(1000, 'b-0');
	$s[1]->send("SELECT zk_lock('notified')");
	$b->wait_for_log(qr/contender "\S+notified\S+" is watching/, $offset);
	$b->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $s[1]->pid . ')');
	is($s[1]->result->{sqlstate}, '57014', 'a writer that waits is canceled');
	is($s[2]->run("SELECT zk_try_lock('notified', shared => true)")->{out},
		't', 'a reader that tries need not wait behind it');
	$s[0]->run_ok('COMMIT');
	$_->quit for @s;
	$proxy->delay(0, 'b-0');
	wait_no_contenders($zk, 'notified');
	$b->stop('fast');
}

#
# Nothing is left
#

is(value($a, 'SELECT count(*) FROM zk_locks'), 0, 'no lock is left');
poll_until(sub { !all_contenders($zk) }, 'all contenders to be gone');
$a->stop('fast');
pass('and the server can be stopped');
unlike(slurp_file($a->logfile), qr/PANIC|TRAP|was terminated by signal/, 'it has not crashed');

done_testing();
