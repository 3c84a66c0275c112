
# Ownership with nothing read: which names' queues are read, and how often; and
# how much the library watches for that.
#
# A proxy between the worker and ZooKeeper counts the requests by their kinds,
# and measures them.

use strict;
use warnings;

use List::Util qw(min);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);
use ZkCluster;
use ZkProxy;
use ZkWire;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};

my $zk = ZooKeeper->new;
$zk->start;
my $proxy = ZkProxy->new;
my $servers = $zk->connstr_through($proxy, 'a');
$proxy->count('a-0');
my $foreign = $zk->client(timeout => 60);
my $node = zk_cluster('a', $zk,
	'install_path' => $ENV{ZKLOCK_TEST_INSTALL},
	'zklock.servers' => $servers,
	'zklock.session_timeout' => '60s',
	'zklock.commit_check' => 'off',
	'zklock.retain_time' => 0,
	'max_connections' => 70,
	'max_locks_per_transaction' => 128);

# The names of a set, each of which has a directory that nobody collects.
sub names
{
	my ($prefix, $n) = @_;
	my @names = map { $prefix . $_ } (1 .. $n);

	$foreign->create(lock_dir($_), makepath => 1) for @names;
	return \@names;
}

# Take and release each of the locks once.  Returns how often which kind of
# request was sent for that.
sub cycle
{
	my ($names) = @_;
	my $before = $proxy->requests('a-0');
	my $now;

	# each by itself: the worker looks after an owner that stays, which is a read
	$node->safe_psql('postgres', join '', map { "SELECT zk_lock('$_');\n" } @$names);
	$node->poll_query_until('postgres', 'SELECT slots = 0 FROM zk_stat');
	$now = $proxy->requests('a-0');
	return { map { $_ => $now->{$_} - ($before->{$_} // 0) } keys %$now };
}

sub reads
{
	my ($asked) = @_;

	return ($asked->{children} // 0) + ($asked->{get} // 0);
}

# How long is what the library asks to have watched again, after a connection
# was lost?
sub watched_again
{
	my $connections = $proxy->requests('a-0')->{connect};

	$proxy->reset('a-0');
	poll_until(sub { $proxy->requests('a-0')->{connect} > $connections }, 'the worker to connect');
	wait_connected($node);
	poll_until(sub { reads(cycle(['again'])) >= 0 }, 'a request on this connection');
	return $proxy->longest('a-0')->{set_watches} // 0;
}

# What the worker reads when it joins its fleet is read then: %clusters, which is
# not there, and %clusters again.
poll_until(sub { ($proxy->requests('a-0')->{get} // 0) >= 2 }, 'the instance to have joined');

# The first time takes two reads for each name, and all later ones take none.
{
	my $names = names('few/', 50);

	# on a loaded machine the worker reads once more now and then
	is(min(map { reads(cycle($_)) } ($names, names('other/', 50), names('more/', 50))),
		2 * 50, 'names that come for the first time');
	is(reads(cycle($names)), 0, 'the same names again') for (1 .. 3);
}

# A lock that is retained has the children of its directory watched, too.  That
# this watch fires when the lock is given up leaves the one that tells whether
# the directory is still the same.
{
	my $names = names('kept/', 50);

	alter_system($node, 'zklock.retain_time' => '20ms');
	cycle($names);
	is(cycle($names)->{children}, 50, 'retained locks: nothing is read but who is behind the owner');
}

# The library watches no more than the worker knows.
{
	cycle(names('bound/' . 'x' x 240 . '/', 2500));
	cmp_ok(watched_again(), '<=', 512 * 1024, 'many retained locks: what is watched again is bounded');
	alter_system($node, 'zklock.retain_time' => '0');
}

# There is room to watch some 1,900 directories of such names.
{
	my $n = 2500;
	my $names = names('many/' . 'x' x 240 . '/', $n);
	my $asked;

	cycle($names);
	for my $turn (2 .. 4)
	{
		$asked = cycle($names);
		cmp_ok(reads($asked), '<=', $n / 3,
			"turn $turn: most of more names than can be watched are not read");
		cmp_ok($asked->{get} // 0, '<=', 100, '... and it is always the same ones');
	}
}

# Others that come often take the place of those that do not come any more.
{
	my $names = names('often/' . 'x' x 240 . '/', 20);

	poll_until(sub { reads(cycle($names)) == 0 }, 'new names to be watched');
	is(reads(cycle($names)), 0, 'new names that come again and again');
}

# The same where watches are set by a flight that leaves when the connection is
# lost, but the worker does not know yet: on the next connection.  Its loop sleeps
# for 50 ms between the two.
{
	my $names = names('late/', 600);
	my @takers = map { ZkWire->new($node) } 1 .. 50;

	alter_system($node, 'zklock.mutation' => 'wake_late');
	while (my @some = splice @$names, 0, @takers)
	{
		$takers[$_]->send("SELECT zk_lock('$some[$_]')") for 0 .. $#some;
		sleep 0.02 + rand 0.2;
		watched_again();
		while (my @busy = grep { $_->busy } @takers) { ZkWire::wait_any(60, @busy); }
		$node->poll_query_until('postgres', 'SELECT slots = 0 FROM zk_stat');
	}
	alter_system($node, 'zklock.mutation' => 'none');
	watched_again();
	$proxy->count('a-0');
	cmp_ok(watched_again(), '<', 200, 'what was watched on earlier connections is not watched again');
}

# All of this is seen if the worker forgets both watches when one has fired.
{
	my $names = names('mutated/', 50);

	alter_system($node, 'zklock.mutation' => 'watches_of_one_type', 'zklock.retain_time' => '20ms');
	watched_again();
	cycle($names);
	is(cycle($names)->{children}, 100, 'watches_of_one_type: each queue is read, too');
	cycle(names('last/' . 'x' x 240 . '/', 2500));
	cmp_ok(watched_again(), '>', 512 * 1024, '... but by the library, with all others');
}

$node->stop;
done_testing();
