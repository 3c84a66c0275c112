
# Copyright (c) 2026, zklock developers

# zklock.exclusion: one instance goes on alone, without ZooKeeper, and comes back.
# The steps are those of doc/operations.md, with ZooKeeper stopped for good and
# started again.

use strict;
use warnings;

use DocPage;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $page = DocPage->new(($ENV{TESTDIR} // '.') . '/doc/operations.md', {}, run => 'a');

# The SQL of a step, from the page.
sub step { return $page->named($_[0]); }

my $zk = ZooKeeper->new;
$zk->start;
no_pauses();
my ($a, $b) = zk_clusters($zk, [qw(a b)], 'zklock.session_timeout' => '2s');

sub session { return ZkSession->new($_[0] // $a); }

$a->safe_psql('postgres', 'CREATE TABLE t (n int)');

is($a->safe_psql('postgres', 'SELECT DISTINCT exclusion FROM zk_session'), 'fleet', 'the default');

#
# ZooKeeper is away.  There is a holder from before, and one that waits.
#

my $before = holder($a, 'before');
$before->run_ok("SELECT zk_lock('session', session => true); INSERT INTO t VALUES (0)");
is($a->safe_psql('postgres', q{SELECT DISTINCT exclusion FROM zk_locks}), 'fleet', 'a lock of the fleet');
my $there = holder($b, 'there');
my $waiter = waiter($a, 'there', 2);

$zk->stop;
$b->stop('immediate');
poll_until(sub { $a->safe_psql('postgres', 'SELECT state FROM zk_session') ne 'connected' },
	'the connection to be lost');
$there->{gone} = 1;

my $log = -s $a->logfile;
$a->safe_psql('postgres', step('alone'));
$a->wait_for_log(qr/LOG:  locks exclude sessions of this server only, because "zklock\.exclusion" is "instance"/, $log);
like(slurp_file($a->logfile, $log), qr/LOG:  parameter "zklock\.exclusion" changed to "instance"/, 'PostgreSQL logs the change, too');
$a->poll_query_until('postgres', q{SELECT DISTINCT exclusion = 'instance' FROM zk_session});

# who waits in ZooKeeper waits on, and keeps the heavyweight lock
my $alone = session();
is($alone->run_ok(q{SELECT zk_try_lock('there')}), 'f', 'a session that waits in ZooKeeper keeps others away');
$a->safe_psql('postgres', step('waiters'));
is($waiter->result->{sqlstate}, '57014', 'it is canceled');
$waiter->quit;

#
# Locks of this instance
#

my $result = $alone->run(q{BEGIN; SELECT zk_lock('there')});
is($result->{sqlstate}, undef, 'then the lock is available');
is($result->{warnings}[0]{message}, 'lock "there" excludes sessions of this server only', 'with a warning');
is_deeply($alone->run(q{SELECT zk_lock('x', shared => true), zk_lock('s', session => true)})->{warnings}, [],
	'which comes once in a session');
is( $a->safe_psql('postgres', q{SELECT name, mode, scope, exclusion, token IS NULL FROM zk_locks WHERE granted AND pid = } . $alone->pid . ' ORDER BY name'),
	"s|exclusive|session|instance|t\nthere|exclusive|transaction|instance|t\nx|shared|transaction|instance|t",
	'zk_locks shows them');

# who is excluded
my $other = session();
$other->run(q{SELECT zk_try_lock('warned')});
is( $other->run_ok(
		q{SELECT zk_try_lock('there'), zk_try_lock('there', shared => true), zk_try_lock('x'), zk_try_lock('x', shared => true), zk_try_lock('s', '20ms'), zk_try_lock('free')}),
	'f|f|f|t|f|t', 'sessions of the instance exclude each other');
is($other->run(q{SELECT zk_lock('there', '20ms')})->{sqlstate}, '55P03', '... in time');
is($other->run(q{SELECT zk_lock('there', '20ms')})->{detail}, undef, '... and ZooKeeper is not to blame');
is($other->run(q{SELECT zk_lock_all(ARRAY['free', 'there'], '20ms')})->{sqlstate}, '55P03', '... all');
is($other->run_ok(q{SELECT zk_try_lock_any(ARRAY['there', 's'])}), '', '... any');
is($other->run_ok(q{SELECT zk_lock_any(ARRAY['there', 'free'])}), 'free', '... the one that is free');
is($other->run_ok(q{SELECT zk_try_lock('before')}), 'f', '... and locks of the fleet are held');
is($other->run(q{SELECT zk_cancel_holders('nobody')})->{out}, 0, 'nobody to cancel, and ZooKeeper is not asked');

# waits
$other->run_ok('BEGIN');
$other->send(q{SELECT zk_lock_all(ARRAY['there', 'x'])});
$other->wait_waiting(1);
my $any = session();
$any->run_ok('BEGIN');
$any->send(q{SELECT zk_lock_any(ARRAY['s', 'before'])});
$a->poll_query_until('postgres', 'SELECT count(*) = 2 FROM zk_locks WHERE NOT granted AND pid = ' . $any->pid);
is($a->safe_psql('postgres', 'SELECT DISTINCT exclusion FROM zk_locks WHERE NOT granted'), 'instance', 'waits are shown so, too');
is($alone->run_ok(q{SELECT zk_unlock('s')}), 't', 'unlocked');
is($any->result->{out}, 's', 'one who waits for any has it');
$any->run_ok('COMMIT');
$alone->run_ok('COMMIT');
is($other->result->{message}, undef, 'one who waits for all has them');
is($a->safe_psql('postgres', q{SELECT count(*) FROM zk_locks WHERE granted AND exclusion = 'instance'}), 2, 'both');

# savepoints, and a re-entrant lock
$other->run_ok(q{SAVEPOINT s; SELECT zk_lock('inner'), zk_lock('there'), zk_lock('there', shared => true)});
is($alone->run_ok(q{SELECT zk_try_lock('inner')}), 'f', 'held');
$other->run_ok('ROLLBACK TO s');
is($alone->run_ok(q{SELECT zk_try_lock('inner'), zk_try_lock('there')}), 't|f', 'ROLLBACK TO gives back what came behind the savepoint');

# COMMIT is not checked, and waits for nothing
is($other->run(q{SET LOCAL zklock.commit_check = quorum; INSERT INTO t VALUES (1); COMMIT})->{sqlstate},
	undef, 'a COMMIT without ZooKeeper');
is($a->safe_psql('postgres', 'SELECT count(*) FROM t WHERE n = 1'), 1, '... has committed');
is($other->run(q{BEGIN; SELECT zk_lock('p'); PREPARE TRANSACTION 'p'})->{sqlstate}, '0A000', 'PREPARE is refused, as ever');
$other->run_ok('ROLLBACK');

# waits without a snapshot
$other->run_ok(q{BEGIN; CALL zk_wait_lock('w'); CALL zk_wait_lock_all(ARRAY['w1', 'w2'])});
is($alone->run_ok(q{SELECT zk_try_lock('w'), zk_try_lock('w2')}), 'f|f', 'the procedures');
$alone->run_ok('BEGIN');
$alone->send(q{CALL zk_wait_lock_any(ARRAY['w', 'w1'], NULL)});
$a->poll_query_until('postgres', 'SELECT count(*) = 2 FROM zk_locks WHERE NOT granted AND pid = ' . $alone->pid);
is($a->safe_psql('postgres', 'SELECT backend_xmin IS NULL FROM pg_stat_activity WHERE pid = ' . $alone->pid),
	't', '... wait without a snapshot');
$other->run_ok(q{SELECT zk_unlock('w1')});
is($alone->result->{out}, 'w1', '... and get the lock');
$_->run_ok('COMMIT') for ($alone, $other);

# session scope
$other->run_ok(q{SELECT zk_lock('s1', session => true), zk_lock('s1', session => true), zk_lock('s2', shared => true, session => true)});
$other->run_ok('SELECT zk_unlock_all()');
is($alone->run_ok(q{SELECT zk_try_lock('s1'), zk_try_lock('s2')}), 't|t', 'zk_unlock_all');

# the advisory stand-ins
$_->run_ok('SET zklock.advisory_locks = on') for ($alone, $other);
$alone->run_ok('SELECT pg_advisory_lock(1), pg_advisory_lock_shared(2)');
is($other->run_ok('SELECT pg_try_advisory_lock(1), pg_try_advisory_lock(2), pg_try_advisory_lock_shared(2)'), 'f|f|t',
	'advisory locks');
is($other->run_ok(q{SELECT string_agg(DISTINCT exclusion, ',') FROM zk_locks WHERE name LIKE 'advisory/%'}), 'instance', '... of the instance');
is($alone->run_ok('SELECT pg_advisory_unlock(1), pg_advisory_unlock_shared(2), pg_advisory_unlock(2)'), 't|t|f', '... unlocked');
$other->run_ok('SELECT pg_advisory_unlock_all()');
is($alone->run_ok('SELECT pg_try_advisory_xact_lock(2)'), 't', '... all of them');

# PostgreSQL takes heavyweight locks away, and the locks are held all the same
my ($robbed, $next) = map { session() } 1 .. 2;
$robbed->run_ok(q{SELECT zk_lock('h', session => true), zk_lock('hs', shared => true, session => true), pg_advisory_unlock_all()});
is($next->run_ok(q{SELECT zk_try_lock('h'), zk_try_lock('h', shared => true), zk_try_lock('hs'), zk_try_lock('hs', shared => true)}),
	'f|f|f|t', 'held without a heavyweight lock');
is($next->run_ok(q{SELECT count(*) FROM pg_locks WHERE locktype = 'userlock' AND pid = } . $robbed->pid), 0, '... indeed');
is($next->run(q{SELECT zk_lock('h', '20ms')})->{sqlstate}, '55P03', '... in time');
is($next->run_ok(q{SELECT zk_try_lock_any(ARRAY['h', 'hs'])}), '', '... any');
$next->run_ok('BEGIN');
$next->send(q{SELECT zk_lock_all(ARRAY['free', 'h', 'hs'])});
$next->wait_waiting(2);
$any = session();
$any->run_ok('BEGIN');
$any->send(q{SELECT zk_lock_any(ARRAY['h', 'hs'])});
$a->poll_query_until('postgres', 'SELECT count(*) = 2 FROM zk_locks WHERE NOT granted AND pid = ' . $any->pid);
$robbed->run_ok(q{SELECT zk_unlock_all()});
is($any->result->{out}, 'hs', '... and then free: for one who waits for any, what nobody else waits for yet');
$any->run_ok('COMMIT');
is($next->result->{message}, undef, '... and for one who waits for all');
$next->run_ok('COMMIT');
$_->quit for ($robbed, $next);

# a deadlock is PostgreSQL's
$alone->run_ok(q{BEGIN; SET LOCAL deadlock_timeout = '1h'; SELECT zk_lock('d1')});
$other->run_ok(q{BEGIN; SELECT zk_lock('d2')});
$alone->send(q{SELECT zk_lock('d2')});
$alone->wait_waiting(1);
is($other->run(q{SELECT zk_lock('d1')})->{sqlstate}, '40P01', 'a deadlock is found');
$other->run_ok('ROLLBACK');
is($alone->result->{sqlstate}, undef, 'the other one goes on');
$alone->run_ok('ROLLBACK');

# what needs ZooKeeper
for my $call (
	"zk_acquire('p', 1)", "zk_try_acquire('p', 1)", "zk_fencing_token('x')",
	"zk_fence('x')", "zk_queue('x')", 'zk_fleet()', 'zk_fleet_locks()')
{
	$result = $other->run("SELECT $call");
	my ($name) = $call =~ /(\w+)/;
	is("$result->{sqlstate} $result->{message}",
		"0A000 cannot call $name() while locks exclude sessions of this server only", $call);
}

# holders are canceled and ended
$other->run_ok(q{BEGIN; SELECT zk_lock('held')});
$other->send('SELECT pg_sleep(3600)');
$a->poll_query_until('postgres', q{SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = } . $other->pid);
is($alone->run_ok(q{SELECT zk_cancel_holders('held')}), 1, 'a holder is found');
is($other->result->{sqlstate}, '57014', '... and canceled');
$other->run_ok(q{ROLLBACK; SELECT zk_lock('held', session => true)});
is($alone->run_ok(q{SELECT zk_terminate_holders('held')}), 1, '... and terminated');
ok($a->poll_query_until('postgres', q{SELECT count(*) = 0 FROM zk_locks WHERE name = 'held'}), '... and its hold gone');

# no worker is needed; the holder from before cannot commit
my $worker = worker_of($a);
kill 'STOP', $worker;
$alone->run_ok(q{BEGIN; SELECT zk_lock('no worker'); INSERT INTO t VALUES (2); COMMIT});
is($a->safe_psql('postgres', 'SELECT count(*) FROM t WHERE n = 2'), 1, 'without a worker');
$before->run_ok(q{SELECT zk_lock('before')}, 'a lock of the fleet is taken once more');
is($before->run_ok(q{SELECT exclusion FROM zk_locks WHERE name = 'before' AND granted}), 'fleet', '... and remains one');
is($before->run(q{SET zklock.commit_timeout = '10ms'; COMMIT})->{sqlstate}, '40001', '... of which the COMMIT is checked');
$before->quit;
kill 'CONT', $worker;

# an instance that starts so
$log = -s $a->logfile;
$_->quit for ($any, $alone);
$a->restart;
$a->wait_for_log(qr/LOG:  locks exclude sessions of this server only/, $log);
($alone, $other) = map { session() } 1 .. 2;
$alone->run_ok(q{SELECT zk_lock('kept', session => true), zk_lock('kept too', session => true)}, 'an instance that starts so');

#
# Back
#

$zk->start;
wait_connected($a);
$log = -s $a->logfile;
$a->safe_psql('postgres', step('together'));
$a->wait_for_log(qr/LOG:  locks exclude sessions of all servers again/, $log);
$a->poll_query_until('postgres', q{SELECT DISTINCT exclusion = 'fleet' FROM zk_session});

is($other->run_ok(q{SELECT zk_try_lock('kept')}), 'f', 'a hold from before excludes this instance');
like($a->safe_psql('postgres', step('left')), qr/^@{[$alone->pid]}\|.*kept/, 'the page finds it');
is(scalar contenders($zk, 'kept'), 0, 'it has no contender');
$result = $alone->run(q{BEGIN; SELECT zk_lock('kept'), zk_lock('new')});
is($result->{warnings}[0]{message}, 'lock "kept" excludes sessions of this server only', 'taken once more, it is the same hold, with a warning');
is(scalar @{ $result->{warnings} }, 1, '... and a lock of the fleet has none');
is($alone->run_ok(q{SELECT string_agg(name || ' ' || exclusion, ',' ORDER BY name) FROM zk_locks}),
	'kept instance,kept too instance,new fleet', 'both are shown as what they are');
$result = $alone->run(q{SELECT zk_fencing_token('kept')});
is("$result->{sqlstate} $result->{message}", '0A000 lock "kept" has no fencing token', 'it has no token');
$alone->run_ok('ROLLBACK');

# the other instance
$b->start;
wait_connected($b);
my $at_b = session($b);
is($at_b->run_ok(q{SELECT zk_try_lock('kept')}), 't', 'it does not exclude another instance: so its end comes first');
$alone->run_ok('SELECT zk_unlock_all()');
is($a->safe_psql('postgres', step('left')), '', 'none is left');
$alone->run_ok(q{SELECT zk_lock('kept', session => true)}, 'taken again');
is($at_b->run_ok(q{SELECT zk_try_lock('kept')}), 'f', '... it excludes the other instance');
like($alone->run_ok(q{SELECT zk_fencing_token('kept')}), qr/^\d+$/, '... and has a token');

# there again: a session is warned again
$a->safe_psql('postgres', step('alone'));
$a->poll_query_until('postgres', q{SELECT DISTINCT exclusion = 'instance' FROM zk_session});
is(scalar @{ $alone->run(q{SELECT zk_lock('y')})->{warnings} }, 1, 'a session is warned again');
is_deeply($alone->run(q{SELECT zk_lock('kept')})->{warnings}, [], 'not of what it holds of the fleet');
is($alone->run_ok(q{SELECT exclusion FROM zk_locks WHERE name = 'kept'}), 'fleet', '... which remains that');
is($alone->run_ok('SELECT zk_unlock_all(), count(*) FROM zk_locks'), '|1', 'and is unlocked');
wait_no_contenders($zk, 'kept');
is($alone->run_ok('SELECT count(*) FROM zk_locks'), 0, 'nothing is left');
comes_to(sub { value($a, 'SELECT slots FROM zk_stat') }, '0', '... no slot either');
$_->quit for ($alone, $other, $at_b);

done_testing();
