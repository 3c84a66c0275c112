
# Standbys: a standby has a worker and a session of its own, and takes locks.
# Promotion loses nothing, a crash is as on a primary, and what base backups and
# pg_rewind copy from another instance is never taken for one's own session.
#
# The session timeout is longer than any of these tests waits for a lock.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $zk = ZooKeeper->new(servers => 3);
$zk->start;
my $a = zk_cluster('a', $zk,
	'zklock.session_timeout' => '30s',
	'log_statement' => 'none',
	'wal_level' => 'replica',
	'wal_log_hints' => 'on',
	'max_wal_senders' => 5,
	'wal_keep_size' => '256MB');
$a->safe_psql('postgres', 'CREATE TABLE t (what text)');

#
# A base backup
#

wait_connected($a);
my $session_a = session_of($a);
my $holder_a = holder($a, 'x');
my $s = PostgreSQL::Test::Cluster->new('s');

ok(-e session_file($a), 'the primary has its session in a file');
$a->backup('base');
ok(!-e $a->backup_dir . '/base/pgsql_tmp.zklock_session', 'a base backup has not');
$s->init_from_backup($a, 'base', has_streaming => 1);

# what a tool may do that copies all there is
system_or_bail('cp', '-a', session_file($a), session_file($s));
$s->start;
wait_connected($s);
like(slurp_file($s->logfile), qr/ignoring file .*\n.*another data directory/,
	'a standby ignores the session of its primary');
my $session_s = session_of($s);
isnt($session_s, $session_a, 'and has one of its own');
ok($zk->has_session($session_a), 'that of the primary lives');

#
# Locks in recovery
#

my $holder_s = holder($s, 's');
is($holder_s->run_ok('SELECT pg_is_in_recovery()'), 't', 'a standby');
is(sql($a, "SELECT zk_try_lock('s')")->{out}, 'f', 'its locks exclude the primary');
is(sql($s, "SELECT zk_try_lock('x')")->{out}, 'f', 'and the other way round');
is(sql($s, "BEGIN READ ONLY; SELECT zk_try_lock('r', shared => true), zk_fencing_token('r') > 0; COMMIT")->{out},
	't|t', 'a shared lock in a read-only transaction, and its token');

# a crash, as on a primary
{
	my $behind = waiter($a, 's', 2);
	my $offset = -s $s->logfile;

	delete $s->{zk_watcher};
	kill 'KILL', $holder_s->pid;
	is($behind->result->{message}, undef, 'the standby crashes: its lock is free');
	$behind->run_ok('COMMIT');
	$behind->quit;
	$s->wait_for_log(qr/connected to ZooKeeper/, $offset);
	poll_until(sub { !$zk->has_session($session_s) }, 'the end of the old session');
	$holder_s->kill_client;
	$session_s = session_of($s);
	ok($zk->has_session($session_a), 'the session of the primary lives');
}

# Which is primary, which standby, and do they fit, as the other one sees it?
sub members_of
{
	return join ' ', split /\n/, value($_[0],
		'SELECT cluster_name, standby, conflicts IS NULL FROM zk_fleet() ORDER BY 1');
}

comes_to(sub { members_of($a) }, 'a|f|t s|t|t', 'zk_fleet has the standby as one');

#
# Promotion, with holders and waiters
#

$holder_s = holder($s, 's');
my $session_scope = ZkSession->new($s);
$session_scope->run_ok("SELECT zk_lock('session', session => true)");
my $local = waiter($s, 's', 1);
my $remote = waiter($s, 'x', 2);
my $worker = worker_of($s);

$s->promote;
$s->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
is(value($s, 'SELECT worker_pid, session_id, sessions FROM zk_session'),
	"$worker|$session_s|1", 'promoted: the same worker, the same session');
comes_to(sub { members_of($s) }, 'a|f|t s|f|t', 'and as a primary');
is(sql($a, "SELECT zk_try_lock('s')")->{out}, 'f', 'the lock is held');
ok(!$local->done && !$remote->done, 'who waits waits');
$holder_s->run_ok('COMMIT', 'the holder commits');
is($local->result->{message}, undef, 'the next one has the lock');
$local->run_ok('COMMIT');
$holder_a->run_ok('COMMIT');
is($remote->result->{message}, undef, 'so has who waited for the old primary');
$remote->run_ok('COMMIT');
is($session_scope->run_ok("SELECT zk_unlock('session')"), 't', 'a session-scoped hold is still there');
$holder_s->run_ok("BEGIN; SELECT zk_lock('s'); INSERT INTO t VALUES ('promoted')", 'and now locks protect changes');
is(value($s, 'SELECT lost FROM zk_stat'), 0, 'no lock was lost');

#
# pg_rewind
#

{
	my $conf = slurp_file($a->data_dir . '/postgresql.conf');

	value($s, 'CHECKPOINT');
	value($a, "INSERT INTO t VALUES ('diverged')");
	$a->stop;
	ok(!-e session_file($a), 'an orderly shutdown removes the file');
	system_or_bail('pg_rewind', '--no-sync', '-D', $a->data_dir,
		'--source-server', $s->connstr('postgres'));
	note('pg_rewind has ', -e session_file($a) ? 'copied the file' : 'not copied the file');
	system_or_bail('cp', session_file($s), session_file($a));
	unlink $a->data_dir . '/postgresql.conf';
	$a->append_conf('postgresql.conf', $conf);
	$a->enable_streaming($s);
	my $offset = -s $a->logfile;
	$a->start;
	wait_connected($a);
	like(substr(slurp_file($a->logfile), $offset),
		qr/ignoring file .*\n.*another data directory/, 'rewound: the file of the source is ignored');
	ok($zk->has_session($session_s), 'whose session lives');
	is(sql($a, "SELECT zk_try_lock('s')")->{out}, 'f', 'and holds its lock');
	$holder_s->run_ok('COMMIT', 'which commits');
	$a->poll_query_until('postgres', "SELECT count(*) = 1 FROM t WHERE what = 'promoted'");
	is(sql($a, "SELECT zk_try_lock('s', '1 min')")->{out}, 't', 'the old primary, now a standby, takes locks');
}

$_->quit for ($holder_a, $holder_s, $local, $remote, $session_scope);
for my $node ($a, $s)
{
	is(value($node, 'SELECT count(*) FROM zk_locks'), 0, $node->name . ' has no lock');
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|signal (6|11):/, $node->name . ' has not crashed by itself');
}
poll_until(sub { !all_contenders($zk) }, 'all contenders to be gone');
$_->stop for ($a, $s);

done_testing();
