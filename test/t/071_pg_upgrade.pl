# Copyright (c) 2026, zklock developers

# pg_upgrade of an instance with the extension, to a newer PostgreSQL: what is in
# the databases works there, and other instances do not notice.
#
# ZKLOCK_TEST_OTHER is as in 070_mixed_fleet.pl: the old PostgreSQL is there.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $other = $ENV{ZKLOCK_TEST_OTHER}
  or plan skip_all => 'needs another release of Debian: run "make matrix"';

my $zk = ZooKeeper->new;
$zk->start;
my %settings = ('zklock.session_timeout' => '60s');
my $old = zk_cluster('old', $zk, %settings, install_path => "$other/zklock");
my $neighbour = zk_cluster('neighbour', $zk, %settings);

# Database "first" has a root of its own; and each has what users make.
value($old, 'CREATE ROLE shop');
value($old, 'CREATE DATABASE first');
value($old, 'CREATE EXTENSION zklock', 'first');
value($old, q{ALTER DATABASE first SET zklock.root = '/first'});
for my $db ('postgres', 'first')
{
	value($old, q{
		CREATE VIEW held AS SELECT name, pid FROM zk_locks;
		GRANT SELECT ON held TO shop;
		REVOKE EXECUTE ON FUNCTION zk_lock, zk_try_lock FROM PUBLIC;
		GRANT EXECUTE ON FUNCTION zk_lock TO shop;
		CREATE TABLE stock (item text, quantity int);
		INSERT INTO stock VALUES ('teapot', 3);
		CREATE PROCEDURE sell() LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM zk_lock('stock');
			UPDATE stock SET quantity = quantity - 1;
		END $$;
		CALL sell();
		BEGIN;
		SELECT zk_lock('f'), zk_fence('f');
		COMMIT;
	}, $db);
}
my %fences = map { $_ => value($old, 'SELECT name, root, token FROM zk_fences', $_) }
  ('postgres', 'first');

my $new = PostgreSQL::Test::Cluster->new('new');
$new->init(
	value($neighbour, 'SHOW server_version_num') >= 180000
	? (extra => ['--no-data-checksums'])
	: ());
$new->append_conf('postgresql.conf', join("\n",
	"shared_preload_libraries = 'zklock'",
	"zklock.servers = '" . $zk->connstr . "'",
	"zklock.session_timeout = '60s'",
	'max_prepared_transactions = 10'));

my @upgrade = (
	'pg_upgrade', '--no-sync',
	'-d', $old->data_dir, '-D', $new->data_dir,
	'-b', "$other/zklock/bin", '-B', $new->config_data('--bindir'),
	'-p', $old->port, '-P', $new->port, '-s', $new->host);
chdir $PostgreSQL::Test::Utils::tmp_check or die "could not change directory: $!";

# A check while both instances work
{
	my $holder = holder($old, 'h');

	command_ok([ @upgrade, '--check' ], 'pg_upgrade --check of a running instance');
	is(value($neighbour, q{SELECT zk_try_lock('h')}), 'f', 'a lock of it is held');
	$holder->run_ok('COMMIT');
	$holder->quit;
}

my $holder = holder($neighbour, 'x');
my $session = session_of($neighbour);

$old->stop;
wait_contenders($zk, 'x', 1);
command_ok(\@upgrade, 'pg_upgrade');
is(scalar(contenders($zk, 'x')), 1, 'another instance holds its lock');
$new->start;
wait_connected($new);

for my $db ('postgres', 'first')
{
	is(value($new, 'SELECT name, root, token FROM zk_fences', $db), $fences{$db}, "$db: the fences stand");
	value($new, 'CALL sell()', $db);
	is(value($new, 'SELECT quantity FROM stock', $db), 1, "$db: procedures of users work");
	is( value($new, q{
			SELECT has_table_privilege('shop', 'held', 'SELECT'),
			       has_function_privilege('shop', 'zk_lock(text, interval, boolean, boolean)', 'EXECUTE'),
			       has_function_privilege('shop', 'zk_try_lock(text, interval, boolean, boolean)', 'EXECUTE')},
			$db),
		't|t|f', "$db: privileges are kept");

	my $session = ZkSession->new($new, $db);
	my ($token) = $fences{$db} =~ /(\d+)$/;
	$session->run_ok(q{BEGIN; SELECT zk_lock('f')});
	cmp_ok($session->run_ok(q{SELECT zk_fence('f')}), '>', $token, "$db: a later holder is fenced as such");
	is($session->run_ok('SELECT name FROM held'), 'f', "$db: views of users work");
	$session->run_ok('COMMIT');
	$session->quit;
	is(value($new, 'SELECT count(*) FROM zk_deadlocks', $db), 0, "$db: all views are there");
}
is(value($new, 'SHOW zklock.root', 'first'), '/first', 'settings of a database are kept');

# One queue with the instance that had the lock all the time
my $waiter = waiter($new, 'x', 2);
wait_contenders($zk, 'x', 2);
$holder->run_ok('COMMIT', 'it commits');
is(session_of($neighbour), $session, 'in the session that it had');
is($waiter->result->{message}, undef, 'the new instance is next');
$waiter->run_ok('COMMIT');
$_->quit for ($holder, $waiter);
wait_no_contenders($zk, 'x');

$_->stop for ($new, $neighbour);
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|was terminated by signal/, $_->name . ' has not crashed')
  for ($old, $new, $neighbour);

done_testing();
