
# Some operations of a batch fail: each gets an error of its own, and the others
# go together all the same, whatever fails and how much of it.

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
my $servers = $zk->connstr_through($proxy, 'a');
$proxy->count('a-0');
my $foreign = $zk->client(timeout => 60);
my $node = zk_cluster('a', $zk,
	'zklock.servers' => $servers,
	'zklock.session_timeout' => '60s',
	'zklock.commit_check' => 'off',
	'max_connections' => 200);
my @sessions = map { ZkWire->new($node) } (0 .. $n - 1);
my $worker = worker_of($node);
my $before;

# While the worker stands still, all that is asked of it becomes pending.
sub hold_back
{
	stop_process($worker);
	$before = $proxy->requests('a-0');
	return;
}

# How many of these kinds of requests there were since then.
sub requests
{
	my $now = $proxy->requests('a-0');
	my $sum = 0;

	$sum += ($now->{$_} // 0) - ($before->{$_} // 0) for @_;
	return $sum;
}

# Wait for the end of what all run; returns the errors' SQLSTATEs by number.
sub errors
{
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;

	while (my @busy = grep { $_->busy } @sessions)
	{
		ZkWire::wait_any($end - time, @busy) or die @busy . ' sessions are not done';
	}
	return {
		map { ($_ => $sessions[$_]->result->{sqlstate}) }
		grep { defined $sessions[$_]->result->{message} } (0 .. $n - 1)
	};
}

# Directories that nobody collects, and that the worker has seen.
sub make_known
{
	my ($prefix) = @_;

	$foreign->create(lock_dir("$prefix/$_"), makepath => 1) for (0 .. $n - 1);
	$node->safe_psql('postgres',
		"SELECT zk_lock('$prefix/' || i) FROM generate_series(0, $n - 1) i");
	wait_no_contenders($zk, "$prefix/$_") for (0 .. $n - 1);
	return;
}

# All ask for their locks at the same time; returns errors as above.
sub lock_all
{
	my ($prefix) = @_;

	$sessions[$_]->send("SELECT zk_lock('$prefix/$_')") for (0 .. $n - 1);
	$node->poll_query_until('postgres',
		"SELECT count(*) = $n FROM zk_locks WHERE name LIKE '$prefix/%' AND NOT granted");
	kill 'CONT', $worker;
	return errors();
}

sub end_all
{
	my ($prefix) = @_;

	$_->run('ROLLBACK') for @sessions;
	wait_no_contenders($zk, "$prefix/$_") for (0 .. $n - 1);
	return;
}

# Each lock has one contender, whose czxid is its token.
sub check_tokens
{
	my ($name, $prefix, @which) = @_;
	my @wrong;

	for my $i (@which)
	{
		my @queue = contenders($zk, "$prefix/$i");
		my $token = $sessions[$i]->run("SELECT zk_fencing_token('$prefix/$i')")->{out};
		my $czxid =
		  @queue ? $foreign->get(lock_dir("$prefix/$i") . "/$queue[0]")->{czxid} : 0;

		push @wrong, "$i: @queue, $token" if @queue != 1 || $token ne $czxid;
	}
	is_deeply(\@wrong, [], "$name: each has one contender, and its token");
	return;
}

# Directories are missing: of one, of the first, of some, of most, of all.
my %missing = (
	'one' => [17],
	'the first' => [0],
	'some' => [ 3, 4, 19, 40, 63 ],
	'most' => [ grep { $_ % 3 } (0 .. $n - 1) ],
	'all' => [ 0 .. $n - 1 ]);

for my $which ('one', 'the first', 'some', 'most', 'all')
{
	my @gone = @{ $missing{$which} };

	make_known($which);
	$_->run('BEGIN') for @sessions;
	hold_back();
	$foreign->delete(lock_dir("$which/$_")) for @gone;
	is_deeply(lock_all($which), {}, "directories of $which are missing: all get their locks");

	# a create for a directory, and one for the one above it; a multi that
	# fails, one for the others, one for those that failed
	my $creates = requests(qw(create create_container)) - 2 * @gone;
	my $multis = requests('multi');
	note("directories of $which are missing: creates besides them $creates, multis $multis, "
		  . 'children read ' . requests('children'));
	cmp_ok($creates + $multis, '<=', 8, "$which: the creates go together");
	cmp_ok(requests('children'), '<=', 2 * $n + @gone + 8, "$which: the queues are read twice");

	check_tokens($which, $which, 0 .. $n - 1);
	end_all($which);
}

# Contenders are missing when they are to be deleted.
make_known('held');
{
	$_->run('BEGIN') for @sessions;
	$sessions[$_]->run("SELECT zk_lock('held/$_')") for (0 .. $n - 1);
	hold_back();
	for my $i (5, 6, 30, 50)
	{
		my ($contender) = contenders($zk, "held/$i");
		$foreign->delete(lock_dir("held/$i") . "/$contender");
	}
	$_->send('COMMIT') for @sessions;
	is_deeply(errors(), {}, 'four contenders have been deleted behind our back: all commit');
	kill 'CONT', $worker;
	wait_no_contenders($zk, "held/$_") for (0 .. $n - 1);
	$node->poll_query_until('postgres', 'SELECT slots = 0 FROM zk_stat');
	my $deletes = requests('delete');
	my $multis = requests('multi');
	note("deletes alone $deletes, multis $multis");
	cmp_ok($deletes + $multis, '<', $n / 2, 'the deletes go together');
}

# Some may not be created.
make_known('denied');
{
	my @denied = (2, 33);

	$_->run('BEGIN') for @sessions;
	$foreign->set_acl(lock_dir("denied/$_"), 'read') for @denied;
	hold_back();
	is_deeply(lock_all('denied'), { map { ($_ => '42501') } @denied },
		'the ACL of two directories denies us: they get the error, the others their locks');
	my $creates = requests(qw(create create_container));
	my $multis = requests('multi');
	note("creates alone $creates, multis $multis");
	cmp_ok($creates + $multis, '<', $n / 4, 'the creates go together');
	my %denied = map { ($_ => 1) } @denied;
	check_tokens('denied', 'denied', grep { !$denied{$_} } (0 .. $n - 1));
	$_->run('ROLLBACK') for @sessions;
}

is($node->safe_psql('postgres', 'SELECT sessions, reconnects FROM zk_session'),
	'1|0', 'one session, one connection');

$node->stop;
done_testing();
