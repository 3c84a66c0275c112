# The check ahead of COMMIT where another module's callback is ahead of ours, and
# runs statements while PostgreSQL goes through the list of callbacks.

use strict;
use warnings;

use File::Basename qw(dirname);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;
my $a = zk_cluster('a', $zk, 'zklock.session_timeout' => '20s');
my $foreign = $zk->client;
my $module = PostgreSQL::Test::Utils::tempdir() . '/late_callback';

system_or_bail('cc', '-shared', '-fPIC', '-I' . $a->config_data('--includedir-server'),
	'-o', "$module.so", dirname(__FILE__) . '/../lib/late_callback.c');

$a->safe_psql('postgres', 'CREATE TABLE t (i int); CREATE TABLE u (i int)');
wait_connected($a);

# A statement of each kind: one after which ours is to be the first, and another.
for my $statement ('TRUNCATE u', 'SELECT 1')
{
	my $s = ZkSession->new($a);
	my $pid = $s->pid;

	$s->run_ok($_) for (
		"LOAD '$module'",
		"SET late_callback.statement = '$statement'",
		"SELECT zk_lock('x', session => true)");
	$s->run_ok('INSERT INTO t VALUES (0)', "$statement: commits while the lock is held");
	ok(end_session($a, $foreign), 'the session is ended');
	$a->poll_query_until('postgres', "SELECT lost FROM zk_locks WHERE pid = $pid");
	is($s->run('INSERT INTO t VALUES (1)')->{sqlstate}, '40001', 'does not commit when it is lost');
	$s->run_ok('BEGIN');
	$s->run_ok('INSERT INTO t VALUES (2)');
	is($s->run('COMMIT')->{sqlstate}, '40001', 'nor in a block');
	is($s->run('SELECT zk_unlock_all()')->{message}, undef, 'the loss is acknowledged');
	$s->run_ok('INSERT INTO t VALUES (0)', 'then it commits');
	$s->quit;
	wait_connected($a);
}
is($a->safe_psql('postgres', 'SELECT count(*), sum(i) FROM t'), '4|0', 'no more has been committed');

done_testing();
