
# Requests that are pending together go to ZooKeeper together; if one of them
# fails, the others do not suffer; and each is done once.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkWire;
use ZooKeeper;

my $n = 64;

my $zk = ZooKeeper->new;
$zk->start;
my $proxy = ZkProxy->new;
my $foreign = $zk->client(timeout => 60);
my $node = zk_cluster('a', $zk,
	'zklock.servers' => $zk->connstr_through($proxy, 'a'),
	'zklock.session_timeout' => '60s',
	'zklock.commit_check' => 'off',
	'max_connections' => 200);
my @sessions = map { ZkWire->new($node) } (1 .. $n + 8);

my $session_id = session_of($node);

# Requests that ZooKeeper has had from the instance.
sub requests
{
	my ($line) = grep { /sid=$session_id\b/ } split /\n/, $zk->fourlw('cons');
	my ($received) = $line =~ /recved=(\d+)/;

	return $received;
}

# Watches of the instance's own contenders, a request each: one for each lock that
# has been owned for a second.
sub watches
{
	my ($list) = $zk->fourlw('wchc') =~ /^$session_id\n((?:\t.*\n)*)/m;

	return scalar(() = ($list // '') =~ /-lock-\d+\n/g);
}

# Wait for the end of what sessions run; they must all succeed.
sub succeed
{
	my ($name, @busy) = @_;
	my @all = @busy;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;

	while (@busy = grep { $_->busy } @busy)
	{
		if (!ZkWire::wait_any($end - time, @busy))
		{
			fail("$name: " . @busy . ' are not done');
			BAIL_OUT($name);
		}
	}
	is_deeply([ map { $_->result->{message} // () } @all ], [], $name);
	return;
}


# All sessions take their locks and are granted them, and the nodes are right.
sub check_locks
{
	my ($name, $prefix, @sequence) = @_;
	my %expected;
	my %found;

	for my $i (0 .. $n - 1)
	{
		my @queue = contenders($zk, "$prefix/$i");
		my ($number) = ($queue[0] // '') =~ /(\d{10})$/;
		my $token = $sessions[$i]->run("SELECT zk_fencing_token('$prefix/$i')")->{out};
		my $czxid = @queue ? $foreign->get(lock_dir("$prefix/$i") . "/$queue[0]")->{czxid} : 0;

		$expected{$i} = [ 1, $sequence[$i] // $sequence[0], 'its czxid' ];
		$found{$i} = [ scalar @queue, 0 + ($number // -1),
			$token eq $czxid ? 'its czxid' : "$token, not $czxid" ];
	}
	is_deeply(\%found, \%expected, "$name: contenders, sequence numbers, tokens");
	return;
}

# Directories that nobody collects, and that the worker has seen.
for my $prefix (qw(pending failing lost))
{
	$foreign->create(lock_dir("$prefix/$_"), makepath => 1) for (0 .. $n - 1);
	value($node, "SELECT zk_lock('$prefix/' || i) FROM generate_series(0, $n - 1) i");
	wait_no_contenders($zk, "$prefix/$_") for (0 .. $n - 1);
}


#
# All at once
#

{
	my @clients = @sessions[ 0 .. $n - 1 ];

	$_->run('BEGIN') for @clients;
	my $worker = stop_worker($node);
	my $before = requests();
	$clients[$_]->send("SELECT zk_lock('pending/$_')") for (0 .. $n - 1);
	$node->poll_query_until('postgres',
		"SELECT count(*) = $n FROM zk_locks WHERE name LIKE 'pending/%' AND NOT granted");
	kill 'CONT', $worker;
	succeed("$n locks that are pending together", @clients);
	check_locks('together', 'pending', 1);

	# a read for each, a create for all; and what the tokens take
	my $used = requests() - $before - watches();
	note "$used requests for $n locks";
	cmp_ok($used, '<', $n * 1.5, 'one create for all of them');

	# a watch for a revocation, if there is one yet, is removed at the release
	$worker = stop_worker($node);
	my $watched = watches();
	$before = requests();
	$_->send('COMMIT') for @clients;
	succeed('commits do not wait for the worker', @clients);
	kill 'CONT', $worker;
	wait_no_contenders($zk, "pending/$_") for (0 .. $n - 1);
	$used = requests() - $before - $watched;
	note "$used requests for $n releases";
	cmp_ok($used, '<', $n / 2, 'one delete for all of them');
}

#
# One fails
#

{
	my @clients = @sessions[ 0 .. $n - 1 ];
	my ($behind, $group, $permit, @holders) = @sessions[ $n .. $n + 7 ];

	# the directory of one lock has gone, and so has the contender of another
	$_->run('BEGIN') for (@clients, $behind, $group, $permit, @holders);
	$holders[$_]->run("SELECT zk_lock('held/$_')") for (0 .. $#holders);
	my $theirs = $foreign->lock(lock_dir('behind'));
	my $worker = stop_worker($node);
	my ($gone) = contenders($zk, 'held/2');
	$foreign->delete(lock_dir('held/2') . "/$gone");
	$foreign->delete(lock_dir('failing/17'));
	my $before = requests();

	$_->send('COMMIT') for @holders;
	$clients[$_]->send("SELECT zk_lock('failing/$_')") for (0 .. $n - 1);
	$behind->send("SELECT zk_lock('behind')");
	$group->send("SELECT zk_lock_all(ARRAY['failing/all', 'failing/both'])");
	$permit->send("SELECT zk_acquire('failing_permit', 1)");
	succeed('commits of the holders', @holders);
	$node->poll_query_until('postgres',
		'SELECT count(*) = ' . ($n + 3) . ' FROM zk_locks WHERE NOT granted');
	kill 'CONT', $worker;

	succeed("$n locks, of which the directory of one is gone",
		@clients, $group, $permit);
	my $used = requests() - $before - watches();
	note "$used requests, two for each lock that are reads";
	cmp_ok($used, '<', $n * 3, 'the others went together all the same');
	my @sequence = (1) x $n;
	$sequence[17] = 0;
	check_locks('one fails', 'failing', @sequence);
	wait_no_contenders($zk, "held/$_") for (0 .. $#holders);
	is(scalar(contenders($zk, "failing/$_")), 1, "one of a group: $_") for qw(all both);

	wait_contenders($zk, 'behind', 2);
	ok($behind->busy, 'who has to wait waits');
	$foreign->unlock($theirs);
	succeed('and has its lock in the end', $behind);

	$_->send('ROLLBACK') for (@clients, $behind, $group, $permit);
	succeed('the end', @clients, $behind, $group, $permit);
	wait_no_contenders($zk, $_)
	  for ((map { "failing/$_" } (0 .. $n - 1), 'all', 'both'), 'behind');
}

#
# The connection is lost while they are on their way
#

for my $try (1 .. 3)
{
	my @clients = @sessions[ 0 .. $n - 1 ];

	$_->run('BEGIN') for @clients;
	my $worker = stop_worker($node);
	my $before = value($node, 'SELECT reconnects FROM zk_session');
	$clients[$_]->send("SELECT zk_lock('lost/$_')") for (0 .. $n - 1);
	$node->poll_query_until('postgres',
		"SELECT count(*) = $n FROM zk_locks WHERE NOT granted");
	kill 'CONT', $worker;
	$proxy->reset('a-0');
	succeed("try $try: a connection that is lost", @clients);
	check_locks("try $try", 'lost', $try);
	$_->send('COMMIT') for @clients;
	$proxy->reset('a-0');
	succeed("try $try: commits", @clients);
	wait_no_contenders($zk, "lost/$_") for (0 .. $n - 1);
	is(session_of($node), $session_id, 'the session is the same');
}

done_testing();
