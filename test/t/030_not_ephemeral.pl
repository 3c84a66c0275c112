
# A child of a lock directory that is not ephemeral is no contender, even if its
# name ends in ten digits: a tenant's locks below a root that is a lock directory
# itself, or what an operator keeps there.

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
my $foreign = $zk->client(timeout => 60);
my ($a, $b) = map { zk_cluster($_, $zk, 'zklock.session_timeout' => '30s') } ('a', 'b');
$a->safe_psql('postgres', q{
	CREATE ROLE tenant1 LOGIN;
	GRANT pg_monitor TO tenant1;
	ALTER ROLE tenant1 SET zklock.root = '/zklock/tenant1';
});

# The tenant's locks are containers below what the default root takes for the
# directory of the lock "tenant1".
my $tenant = ZkSession->new($a);
$tenant->run_ok("SET zklock.root = '/zklock/tenant1'");
$tenant->run_ok("BEGIN; SELECT zk_lock_all(ARRAY['order-0000000000', 'order-0000000002', 'order--1234567890', 'order-2147483647'])",
	'the tenant has its locks');
is(scalar $foreign->ls('/zklock/tenant1'), 4, 'they are in one directory');

# sequential creates count the tenant's locks, so ours stand behind two
is(sql($b, "SELECT zk_try_lock('tenant1')")->{out}, 't', 'who tries gets the lock of that name');
my $holder = holder($b, 'tenant1');
like($holder->run("SELECT zk_fencing_token('tenant1')")->{out}, qr/^\d+$/, 'and its token');
is(sql($a, "SELECT zk_try_lock('tenant1')")->{out}, 'f', 'which excludes others');
my $waiter = waiter($a, 'tenant1', 2);
$holder->run('COMMIT');
is($waiter->result->{message}, undef, 'who waits for it gets it');
is(sql($b, "SELECT zk_try_lock('tenant1', shared => true)")->{out}, 'f', 'also from readers');
$waiter->run('COMMIT');
my @readers = map {
	my $s = ZkSession->new($_);
	$s->run_ok("BEGIN; SELECT zk_lock('tenant1', shared => true)", 'readers share it');
	$s
} ($a, $b);
is(sql($b, "SELECT zk_try_lock('tenant1')")->{out}, 'f', 'and exclude writers');
$_->run('COMMIT') for @readers;

# The tenant is not disturbed.
is($tenant->run("SELECT count(*) FROM zk_locks WHERE granted")->{out}, 4, 'the tenant still has its locks');
$tenant->run_ok('COMMIT');

# A directory that somebody has made, persistent, in the queue of a lock, before
# it is used and while somebody waits.
my $node = $foreign->create('/zklock/jobs/job-0000000000', makepath => 1);
my $first = $foreign->enqueue(lock_dir('jobs'));
$waiter = waiter($a, 'jobs', 2);
# ours has number 2 or so
$foreign->create('/zklock/jobs/job-0000000001');
$foreign->create('/zklock/jobs/job-0000000999');
$foreign->unlock($first);
is($waiter->result->{message}, undef, 'a directory in the queue is passed over');
my $behind = waiter($b, 'jobs', 2);
$waiter->run('COMMIT');
is($behind->result->{message}, undef, 'and so by the next');
$behind->run('COMMIT');
$_->quit for ($tenant, $holder, $waiter, $behind, @readers);

# zk_lock_all, and a semaphore whose queue has one
$foreign->create('/zklock/sem/locks/x-1-0000000000', makepath => 1);
$foreign->create('/zklock/sem/leases');
my $s = ZkSession->new($b);
$s->run_ok("BEGIN; SELECT zk_lock_all(ARRAY['tenant1', 'jobs'])", 'several locks');
$s->run_ok("SELECT zk_acquire('sem', 1)", 'a permit');
$s->run_ok('COMMIT');
$s->quit;

for my $cluster ($a, $b)
{
	my $log = slurp_file($cluster->logfile);
	my @warnings = $log =~ /WARNING:  (ignoring znode .*)/g;

	is(scalar @warnings, 1, $cluster->name . ': there is one warning');
	like($warnings[0], qr{^ignoring znode "\S+" in lock directory "/zklock/(tenant1|jobs)"$},
		$cluster->name . ': that names the directory');
	like($log, qr/DETAIL:  Its name ends in a sequence number, but it is not ephemeral/,
		$cluster->name . ': and says why');
}
is_deeply([ grep { !m{/(order|job)-} } all_contenders($zk) ], [], 'no contender is left');
is($a->safe_psql('postgres', "SELECT count(*) FROM zk_queue('jobs')"), 0, 'nor does zk_queue show one');
is($a->safe_psql('postgres', "SELECT zk_cancel_holders('jobs')"), 0, 'and zk_cancel_holders asks nobody');
$_->stop for ($a, $b);

done_testing();
