
# Logical replication of all tables: zk_fences is one of them, but each instance
# keeps its own tokens.  Whatever arrives for the table changes nothing, and stops
# nothing.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;
my ($a, $b) = map {
	zk_cluster($_, $zk,
		'wal_level' => 'logical', 'max_wal_senders' => 10,
		'max_replication_slots' => 10, 'wal_retrieve_retry_interval' => '100ms')
} qw(a b);
my $n = 0;

sub fence
{
	my ($node, $lock, $dbname) = @_;

	return value($node, "BEGIN; DO \$\$ BEGIN PERFORM zk_lock('$lock'); END \$\$; SELECT zk_fence('$lock'); COMMIT", $dbname);
}

sub fences { return value($_[0], 'SELECT name, root, token, fenced_at FROM zk_fences ORDER BY 1, 2', $_[1]); }

# What a has done so far has arrived in b, and b has the tokens that it had.
sub arrives
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
done_testing();
