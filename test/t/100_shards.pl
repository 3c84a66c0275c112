
# Copyright (c) 2026, zklock developers

# zklock.advisory_namespace: four shards, databases of four names on two
# instances, whose applications use PostgreSQL's advisory locks.  The settings are
# those of doc/from-advisory-locks.md.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $page = slurp_file(($ENV{TESTDIR} // '.') . '/doc/from-advisory-locks.md');

my $zk = ZooKeeper->new;
$zk->start;
my ($a, $b) = zk_clusters($zk, [qw(a b)], 'zklock.session_timeout' => '60s');
my @shards = ([ $a, 'shop_0' ], [ $a, 'shop_1' ], [ $b, 'shop_2' ], [ $b, 'shop_3' ]);

my ($settings) = $page =~ /^<!-- run: no, 100_shards.pl [^\n]*-->\n```sql\n(.*?)^```$/ms
  or die 'doc/from-advisory-locks.md has no block for 100_shards.pl';

for my $shard (@shards)
{
	my ($node, $dbname) = @$shard;

	$node->safe_psql('postgres', "CREATE DATABASE $dbname");
	$node->safe_psql($dbname, $settings =~ s/\bshop_0\b/$dbname/gr);
}

# A session in each shard, as the router has them.
my @sessions = map { ZkSession->new($_->[0], $_->[1]) } @shards;

is($_->run_ok('SHOW zklock.advisory_namespace'), 'shop', 'the namespace, by the database')
  for @sessions;

#
# A lock of a transaction is one of all shards, and so of sessions of one
# instance in two databases
#

for my $i (0 .. $#sessions)
{
	my $holder = $sessions[$i];

	$holder->run_ok('BEGIN; SELECT pg_advisory_xact_lock(42), pg_advisory_xact_lock_shared(1, 2)');
	is(scalar contenders($zk, 'advisory/shop/42'), 1, 'the name in ZooKeeper');
	for my $j (grep { $_ != $i } 0 .. $#sessions)
	{
		my $other = $sessions[$j];

		is( $other->run_ok(
				'SELECT pg_try_advisory_xact_lock(42), pg_try_advisory_xact_lock(1, 2), pg_try_advisory_xact_lock_shared(1, 2), pg_try_advisory_xact_lock(43)'),
			'f|f|t|t', "$shards[$i][1] excludes $shards[$j][1]");
	}
	$holder->run_ok('COMMIT');
}

# those that wait get it one after the other
$sessions[0]->run_ok('BEGIN; SELECT pg_advisory_xact_lock(7)');
$_->send('SELECT pg_advisory_xact_lock(7)') for @sessions[ 1 .. 3 ];
$sessions[1]->wait_waiting(1);
$sessions[0]->run_ok('COMMIT');
is($_->result->{message}, undef, 'a waiter has had the lock') for @sessions[ 1 .. 3 ];

#
# Only a database's own advisory lock is taken beside the one in ZooKeeper
#

{
	my $off = ZkSession->new(@{ $shards[0] });
	my $neighbor = ZkSession->new(@{ $shards[1] });

	$_->run_ok('SET zklock.advisory_locks = off') for ($off, $neighbor);
	$sessions[0]->run_ok('BEGIN; SELECT pg_advisory_xact_lock(42)');
	is($off->run_ok('SELECT pg_try_advisory_xact_lock(42)'), 'f',
		'a session of the database with the setting off is excluded');
	is($neighbor->run_ok('SELECT pg_try_advisory_xact_lock(42)'), 't', 'one of another database is not');

	# by the name of the lock, from a database that has another namespace
	my $stranger = ZkSession->new($a, 'postgres');
	is($stranger->run_ok(q{SELECT zk_try_lock('advisory/shop/42')}), 'f', 'the name is that of the lock');
	$sessions[0]->run_ok('COMMIT');
	$stranger->run_ok(q{BEGIN; SELECT zk_lock('advisory/shop/42')});
	is($off->run_ok('SELECT pg_try_advisory_xact_lock(42)'), 't',
		"and taken there takes no database's advisory lock");
	is($sessions[1]->run_ok('SELECT pg_try_advisory_xact_lock(42)'), 'f', 'but the one in ZooKeeper');
	$stranger->run_ok('COMMIT');
	$_->quit for ($off, $neighbor, $stranger);
}

#
# A lock of the session belongs to the session of that shard: the router's client
# cannot unlock it, nor take it again, by way of another one
#

{
	my ($first, $second) = @sessions[ 0, 2 ];

	$first->run_ok('SELECT pg_advisory_lock(9)');
	my $result = $second->run('SELECT pg_advisory_unlock(9)');
	is($result->{out}, 'f', 'another shard does not unlock it');
	like($result->{warnings}[0]{message}, qr/^you don't own a lock of type ExclusiveLock/, '... with a WARNING');
	is($second->run("SET lock_timeout = '10ms'; SELECT pg_advisory_lock(9)")->{sqlstate}, '55P03',
		'... nor take it again');
	is($first->run_ok('SELECT pg_advisory_unlock(9)'), 't', 'the same shard does');
	$second->run_ok('RESET lock_timeout');
}

# A deadlock of shards is found, within an instance and between them.
for my $pair ([ 0, 1 ], [ 1, 2 ])
{
	my ($first, $second) = @sessions[@$pair];

	$first->run_ok(q{BEGIN; SET LOCAL deadlock_timeout = '1h'; SELECT pg_advisory_xact_lock(1)})
	  if $pair->[1] == 1;
	$first->run_ok('BEGIN; SELECT pg_advisory_xact_lock(1)') if $pair->[1] == 2;
	$second->run_ok('BEGIN; SELECT pg_advisory_xact_lock(2)');
	$first->send('SELECT pg_advisory_xact_lock(2)');
	$first->wait_waiting($pair->[1] == 1 ? 1 : 2);
	is($second->run('SELECT pg_advisory_xact_lock(1)')->{sqlstate}, '40P01', 'a deadlock');
	$second->run_ok('ROLLBACK');
	is($first->result->{message}, undef, 'the other one goes on');
	$first->run_ok('COMMIT');
}

# A wrong value that was stored while zklock was not loaded is not replaced by
# the default.
$sessions[0]->run_ok('SELECT 1');
is($a->psql('postgres', q{ALTER DATABASE shop_1 SET zklock.advisory_namespace = '} . 'x' x 219 . q{'}),
	3, 'a value that is too long is refused');
$_->quit for @sessions;
$a->append_conf('postgresql.conf', q{zklock.advisory_namespace = '} . 'x' x 219 . q{'});
$a->restart;
my $error = sql($a, q{SELECT zk_lock('x')});
is($error->{sqlstate}, 'F0000', 'in the configuration it is no default: no locks');
like($error->{detail}, qr/With it, the names of locks are too long\./, '... with the reason');
is($a->safe_psql('shop_0', q{SELECT zk_try_lock('x')}), 't', 'a database that has a value of its own has locks');

done_testing();
