
# Fencing in the database, and what the counters say, when locks are lost:
# a holder that is cut off, or ends late, cannot have the last word.  Also one
# that pauses between the check of its locks and the commit: what remains of that
# without fencing; and a pause in the callbacks of others at the transaction's end.
# Needs a test build, whose backends can stop there.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};

# Nothing in here waits for a session to expire.
my %settings = ('zklock.session_timeout' => '60s');

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my $a = zk_cluster('a', $zk, %settings, 'install_path' => $ENV{ZKLOCK_TEST_INSTALL});
my $b = zk_cluster('b', $zk, %settings);

sub fences { return value($a, "SELECT token FROM zk_fences WHERE name = '$_[0]'"); }

# End the session in ZooKeeper, as if it had expired; the worker is stopped.
sub end_session_of
{
	my ($node) = @_;

	ok($foreign->kill_session(session_of($node)), $node->name . "'s session is ended");
	return;
}

sub continue_worker
{
	my ($node, $worker) = @_;
	my $old = session_of($node);

	kill 'CONT', $worker;
	poll_until(
		sub { value($node, "SELECT state = 'connected' AND session_id <> '$old' FROM zk_session") eq 't' },
		'a new session');
	return;
}

value($a, 'CREATE TABLE t (i int)');

#
# A holder that has fenced loses its lock, and the next one in the instance
# waits for the end of its transaction
#

{
	value($a, 'SELECT zk_stat_reset()');
	my $first = holder($a, 'f');
	my $old = $first->run_ok("SELECT zk_fence('f')");
	$first->run_ok('INSERT INTO t VALUES (1)');
	my $second = waiter($a, 'f', 1);

	my $worker = stop_worker($a);
	end_session_of($a);
	continue_worker($a, $worker);
	my $node = $foreign->lock(lock_dir('f'));
	is(value($a, "SELECT lost FROM zk_locks WHERE granted"), 't', 'the lock is lost');
	is(value($a, 'SELECT lost, slots, slot_users FROM zk_stat'), '1|1|2', 'and counted');

	ok(!$second->done, 'the next in line waits all the same');
	error_is(
		$first->run("SAVEPOINT s; SELECT zk_fence('f')"),
		{
			sqlstate => '40001',
			message => 'lock "f" has been lost',
			detail => qr/./,
			hint => qr/./
		},
		'a lost lock cannot be fenced');
	$first->run_ok('ROLLBACK TO s');
	is($first->run('COMMIT')->{sqlstate}, '40001', 'nor committed');
	is(fences('f'), '', 'the token has gone with the transaction');
	is(value($a, 'SELECT count(*) FROM t'), 0, 'as all it did');

	$second->wait_waiting(2);
	$foreign->unlock($node);
	is($second->result->{message}, undef, 'the next in line has the lock');
	my $new = $second->run_ok("SELECT zk_fence('f')");
	cmp_ok($new, '>', $old, 'with a higher token');
	$second->run_ok('COMMIT');
	is(fences('f'), $new, 'which is in the table');
	wait_no_contenders($zk, 'f');
	is( value($a, 'SELECT taken, handed_off, waited, timed_out, failed, lost FROM zk_stat'),
		'2|0|1|0|0|1',
		'the counters show all that');
	$_->quit for ($first, $second);
}

#
# Two instances that change the same database: sessions of b come to a as
# postgres_fdw would, with the token that b has
#

{
	# b's holder has written, is cut off, and commits late
	my $holder = holder($b, 'g');
	my $old = $holder->run_ok("SELECT zk_fencing_token('g')");
	my $remote = ZkSession->new($a);
	$remote->run_ok(
		"BEGIN; INSERT INTO zk_fences VALUES ('g', '/zklock', $old, now()); INSERT INTO t VALUES (2)");

	my $worker = stop_worker($b);
	end_session_of($b);
	my $later = holder($a, 'g');
	$later->send("SELECT zk_fence('g')");
	$later->wait_waiting(1);
	ok(!$later->done, 'a later holder waits for one that may still commit');
	$remote->run_ok('COMMIT', 'who does');
	my $new = $later->result->{out};
	cmp_ok($new, '>', $old, 'then it fences');
	is($later->run_ok('SELECT i FROM t'), 2, 'and sees what was committed late');
	is(fences('g'), $old, 'its token is to be seen');
	$later->run_ok('COMMIT');
	is(fences('g'), $new, 'when it has committed');
	continue_worker($b, $worker);
	is($holder->run('COMMIT')->{sqlstate}, '40001', 'b learns of it');
	wait_no_contenders($zk, 'g');
	$_->quit for ($holder, $remote, $later);
}

{
	# a's holder is cut off and does not know it, b's has written since
	my $holder = holder($a, 'g');
	my $old = $holder->run_ok("SELECT zk_fencing_token('g')");
	my $worker = stop_worker($a);
	end_session_of($a);
	my $later = holder($b, 'g');
	my $new = $later->run_ok("SELECT zk_fencing_token('g')");

	value($a, "UPDATE zk_fences SET token = $new WHERE name = 'g'");
	error_is(
		$holder->run("SELECT zk_fence('g')"),
		{
			sqlstate => '40001',
			message => 'lock "g" has had a later holder',
			detail => qr/^The fencing token of this hold is $old, but table "zk_fences" has $new, written at 20/,
			hint => qr/^Retry the transaction\./
		},
		'an older holder is refused');
	$holder->run_ok('ROLLBACK');
	is(fences('g'), $new, 'and nothing has changed');
	continue_worker($a, $worker);
	$later->run_ok('COMMIT');
	wait_no_contenders($zk, 'g');

	# the next holder is a later one
	$holder->run_ok("BEGIN; SELECT zk_lock('g')");
	cmp_ok($holder->run_ok("SELECT zk_fence('g')"), '>', $new, 'who comes later may');
	$holder->run_ok('COMMIT');
	$_->quit for ($holder, $later);
}

#
# A holder that pauses past the check
#

value($a, 'CREATE TABLE sold (who text)');

# How somebody who holds the lock by another client fences in this database.
my $fence = <<'SQL';
INSERT INTO zk_fences AS f VALUES ('stock', '/zklock', %s, now())
    ON CONFLICT (name, root) DO UPDATE
    SET token = excluded.token, fenced_at = excluded.fenced_at
    WHERE f.token < excluded.token
RETURNING token
SQL

# Our holder is about to commit a sale when it stops, past the check; it loses
# the lock, and a foreign client has it.
sub stopped_holder
{
	my ($fenced) = @_;
	my $holder = holder($a, 'stock');

	$holder->run_ok("SELECT zk_fence('stock')") if $fenced;
	$holder->run_ok("INSERT INTO sold VALUES ('ours')");
	$holder->run_ok('SET zklock.stop_before_commit = on');
	$holder->send('COMMIT');
	wait_stopped($holder->pid);
	ok(end_session($a, $foreign), 'its session ends');
	my $node = $foreign->lock(lock_dir('stock'));
	return ($holder, $node, $foreign->get($node)->{czxid});
}

#
# Without: the commit comes after the next holder has looked
#

{
	my ($holder, $node) = stopped_holder(0);

	is(value($a, 'SELECT count(*) FROM sold'), 0, 'the next holder sees no sale');
	kill 'CONT', $holder->pid;
	is($holder->result->{sqlstate}, undef, 'without a fence a late commit passes');
	is(value($a, 'SELECT count(*) FROM sold'), 1, 'behind the back of the next holder');
	$foreign->unlock($node);
	value($a, 'TRUNCATE sold');
	$holder->quit;
}

#
# With: the next holder, who fences with its token, waits for the late one
#

{
	my ($holder, $node, $token) = stopped_holder(1);
	my $next = ZkSession->new($a);

	$next->run('BEGIN');
	$next->send(sprintf($fence, $token));
	$next->wait_waiting(1);
	pass('the next holder waits in its fence');
	kill 'CONT', $holder->pid;
	is($holder->result->{sqlstate}, undef, 'the late one commits');
	is($next->result->{out}, $token, 'and then the next one goes on');
	is($next->run('SELECT count(*) FROM sold')->{out}, 1, 'and sees it');
	$next->run_ok("INSERT INTO sold VALUES ('theirs'); COMMIT");
	$foreign->unlock($node);
	$_->quit for ($holder, $next);
}

#
# With: the next holder was first, and the late one is refused
#

{
	my $holder = holder($a, 'stock');
	my $worker = worker_of($a);

	# the instance knows its token, and does not hear of the rest
	$holder->run_ok("SELECT zk_fencing_token('stock')");
	kill 'STOP', $worker;
	ok($foreign->kill_session(session_of($a)), 'the session ends');
	my $node = $foreign->lock(lock_dir('stock'));
	my $token = $foreign->get($node)->{czxid};
	is(value($a, sprintf($fence, $token)), $token, 'the next holder has fenced');
	error_is(
		$holder->run("SELECT zk_fence('stock')"),
		{
			sqlstate => '40001',
			message => 'lock "stock" has had a later holder',
			detail => qr/$token/,
			hint => qr/./,
		},
		'the late one is refused');
	kill 'CONT', $worker;
	$holder->quit;
	$foreign->unlock($node);
}

#
# A foreign data wrapper that commits the remote side in XACT_EVENT_COMMIT: the
# lock is held until that is over.  A rollback releases it at once.
#

{
	my %end = (
		'COMMIT' => 'COMMIT',
		'COMMIT AND CHAIN' => 'COMMIT AND CHAIN',
		'ROLLBACK' => 'ROLLBACK',
		'an error' => 'DO $$ BEGIN RAISE division_by_zero; END $$; ROLLBACK',
		'COMMIT in a procedure' => 'CALL ends()');

	value($a, 'CREATE PROCEDURE ends() LANGUAGE plpgsql AS $$ BEGIN '
		  . "PERFORM zk_lock('stock'); SET LOCAL zklock.stop_at_end = on; COMMIT; END \$\$");
	for my $end (sort keys %end)
	{
		my $holder = ZkSession->new($a);
		my $local = ZkSession->new($a);

		$holder->run_ok("BEGIN; SELECT zk_lock('stock'); SET LOCAL zklock.stop_at_end = on")
		  if $end !~ /procedure/;
		$holder->send($end{$end});
		wait_stopped($holder->pid);
		my $held = value($a, "SELECT count(*) FROM zk_locks WHERE granted AND NOT lost"
			  . " AND name = 'stock' AND pid = " . $holder->pid);
		if ($end =~ /COMMIT/)
		{
			is($held, 1, "$end: others' callbacks run while the lock is held");
			$local->send("SELECT zk_lock('stock')");
			$local->wait_waiting(1);
		}
		else
		{
			is($held, 0, "$end: others' callbacks run when the lock has been released");
			wait_no_contenders($zk, 'stock');
			$local->send("SELECT zk_lock('stock')");
		}
		kill 'CONT', $holder->pid;
		$holder->result;
		is($local->result->{sqlstate}, undef, "$end: then it is free");
		$holder->run('ROLLBACK') if $end =~ /CHAIN/;
		$_->quit for ($holder, $local);
		wait_no_contenders($zk, 'stock');
	}
}

#
# Tokens stay with the ensemble that gave them
#

my ($dump, $err) = run_command([ 'pg_dump', '-d', $a->connstr('postgres') ]);
like($dump, qr/CREATE EXTENSION .*zklock/, 'pg_dump has the extension');
unlike($dump, qr/zk_fences/, 'and not its tokens');

# counters begin with the server
$a->restart;
is(value($a, 'SELECT taken, lost FROM zk_stat'), '0|0', 'a restart sets the counters to zero');

$_->stop('fast') for ($a, $b);

retire($a, $b);

#
# Logical replication of all tables: zk_fences is one of them, but each instance
# keeps its own tokens.  Whatever arrives for the table changes nothing, and stops
# nothing.
#

{
	my ($a, $b) = map {
		zk_cluster($_, $zk,
			'wal_level' => 'logical', 'max_wal_senders' => 10,
			'max_replication_slots' => 10, 'wal_retrieve_retry_interval' => '100ms')
	} qw(a b);
	my $n = 0;

	my sub fence
	{
		my ($node, $lock, $dbname) = @_;

		return value($node, "BEGIN; DO \$\$ BEGIN PERFORM zk_lock('$lock'); END \$\$; SELECT zk_fence('$lock'); COMMIT", $dbname);
	}

	my sub fences { return value($_[0], 'SELECT name, root, token, fenced_at FROM zk_fences ORDER BY 1, 2', $_[1]); }

	# What a has done so far has arrived in b, and b has the tokens that it had.
	my sub arrives
	{
		my ($before, $name) = @_;

		$n++;
		value($a, "INSERT INTO sales VALUES ($n)");
		ok($b->poll_query_until('postgres', "SELECT count(*) = $n FROM sales"), "$name: replication goes on");
		is(fences($b), $before, '... and the tokens stay');
		return;
	}

	value($_, 'CREATE TABLE sales (n int PRIMARY KEY)') for ($a, $b);
	fence($a, $_) for qw(x y);
	fence($b, "x");
	my $before = fences($b);

	value($a, 'CREATE PUBLICATION p FOR ALL TABLES');
	value($b, sprintf("CREATE SUBSCRIPTION s CONNECTION '%s dbname=postgres' PUBLICATION p", $a->connstr));
	is(value($a, "SELECT count(*) FROM pg_publication_tables WHERE tablename = 'zk_fences'"), 1,
		'the table is published');
	ok($b->poll_query_until('postgres', "SELECT count(*) = 2 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel"),
		'what is there at the beginning is copied');
	arrives($before, 'copy');
	fence($a, 'z');
	arrives($before, 'insert');

	# a's token comes late: b has a higher one by then
	value($b, 'ALTER SUBSCRIPTION s DISABLE');
	my $late = fence($a, 'x');
	cmp_ok(fence($b, 'x'), '>', $late, 'a later holder in b');
	$before = fences($b);
	value($b, 'ALTER SUBSCRIPTION s ENABLE');
	arrives($before, 'update');
	value($a, "DELETE FROM zk_fences WHERE name = 'x'");
	arrives($before, 'delete');
	value($a, 'TRUNCATE zk_fences');
	arrives($before, 'truncate');
	fence($a, 'x');
	value($a, 'TRUNCATE zk_fences, sales');
	$n = 0;
	arrives($before, 'truncate with other tables');
	unlike(slurp_file($b->logfile), qr/(duplicate key|ERROR:)/, 'there was no error');

	# b's own are written, though it be in the name of replication
	my $s = ZkSession->new($b);
	$s->run_ok("SET session_replication_role = replica; BEGIN; SELECT zk_lock('x')");
	my $own = $s->run_ok("SELECT zk_fence('x')", "a replica's own fence");
	is($s->run("SELECT token FROM zk_fences WHERE name = 'x'")->{out}, $own, '... is written');
	$s->run_ok('SAVEPOINT p');
	$s->run_ok("DELETE FROM zk_fences", 'other changes in its name');
	is($s->run('SELECT count(*) FROM zk_fences')->{out}, 1, '... are not');
	$s->run_ok("TRUNCATE zk_fences", 'nor is TRUNCATE');
	is($s->run("SELECT token FROM zk_fences WHERE name = 'x'")->{out}, $own, '... done');
	$s->run_ok('COMMIT');
	$s->run_ok('RESET session_replication_role; TRUNCATE zk_fences; BEGIN', 'by itself, it may be truncated');
	is($s->run('SELECT count(*) FROM zk_fences')->{out}, 0, '... and is');
	$s->run('ROLLBACK');
	$s->quit;
	is(value($b, 'SELECT count(*) FROM zk_fences'), 0, 'no token is left');
	cmp_ok(fence($b, 'x'), '>', $own, 'until there is one again');

	# An error in a fence leaves nothing behind that would let others pass.
	$s = ZkSession->new($b);
	value($b, "UPDATE zk_fences SET token = 9000000000000000000");
	$s->run("SET session_replication_role = replica; BEGIN; SELECT zk_lock('x'); SAVEPOINT p");
	is($s->run("SELECT zk_fence('x')")->{sqlstate}, '40001', 'a fence that fails');
	$s->run_ok('ROLLBACK TO p; DELETE FROM zk_fences; COMMIT');
	is(value($b, 'SELECT count(*) FROM zk_fences'), 1, '... and then a change by replication does nothing');
	$s->quit;

	# A dump, restored
	value($b, 'CREATE DATABASE copy');
	{
		my $dump = $b->basedir . '/dump';

		system_or_bail('pg_dump', '-Fc', '-f', $dump, '--no-subscriptions', '-d', $b->connstr('postgres'));
		system_or_bail('pg_restore', '-e', '-d', $b->connstr('copy'), $dump);
		is(value($b, "SELECT string_agg(tgenabled::text, '') FROM pg_trigger WHERE tgrelid = 'zk_fences'::regclass", 'copy'),
			'RRR', 'restored: the triggers are there');
		is(fences($b, 'copy'), '', '... no token');
		cmp_ok(fence($b, 'x', 'copy'), '>', 0, '... and fences work');
		value($b, 'DROP DATABASE copy');
	}

	sql_error($b, 'CREATE ROLE nobody; SET SESSION AUTHORIZATION nobody; CREATE TEMP TABLE t (n int); CREATE TRIGGER t BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION zk_fences_keep()',
		{ sqlstate => '42501', message => 'permission denied for function zk_fences_keep' },
		'the trigger is for no other tables');

	value($b, 'DROP SUBSCRIPTION s');
	unlike(slurp_file($_->logfile), qr/PANIC|TRAP|was terminated by signal/, $_->name . ' has not crashed') for ($a, $b);
}

done_testing();
