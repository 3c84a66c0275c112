
# A pause exactly between the check of the locks and the commit: what remains
# without fencing, and that zk_fence closes it.  And a pause in the callbacks of
# others at the transaction's end.  Needs a test build, whose backends can stop
# there.

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
my $foreign = $zk->client(timeout => 60);
my $a = zk_cluster(
	'a', $zk,
	'install_path' => $ENV{ZKLOCK_TEST_INSTALL},
	'zklock.session_timeout' => '60s');

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

done_testing();
