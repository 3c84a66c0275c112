# A leader that others have deposed, and that has not noticed: it answers from
# what it knew, and answers a sync at once.  A worker that goes on with its
# session there must not believe it.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

# Who is cut off from the others notices after syncLimit, a minute.  Sessions
# last longer than all of this: while one is to be expired that it cannot have
# expired, a deposed leader answers no sync.
my $proxy = ZkProxy->new;
my $zk = ZooKeeper->new(
	servers => 3,
	conf => { syncLimit => 120 },
	proxy => $proxy);
$zk->start;

my $a = zk_cluster('a', $zk,
	'zklock.servers' => $zk->connstr_through($proxy, 'a'),
	'zklock.session_timeout' => '60s');

# Connect the instance to one of some servers.
sub attach
{
	my (@servers) = @_;
	my %wanted = map { $_ => 1 } @servers;

	$proxy->refuse(map { "a-$_" } grep { !$wanted{$_} } (0 .. 2));
	$proxy->thaw(map { "a-$_" } @servers);
	return;
}

sub is_attached
{
	my (@servers) = @_;

	poll_until(
		sub {
			my $i = value($a, q{
				SELECT array_position(string_to_array(servers, ','), server) - 1
				  FROM zk_session WHERE state = 'connected'});
			return $i ne '' && grep { $_ == $i } @servers;
		},
		"the instance to be connected to one of @servers");
	return;
}

$proxy->count(map { "a-$_" } (0 .. 2));
wait_connected($a);
my $old = $zk->leader;
my @others = $zk->followers;
my $session = session_of($a);
attach(@others);
is_attached(@others);

# The followers are started anew, and elect one of them.
$zk->cut_peers($old, $_) for @others;
$zk->kill9(@others);
$zk->start(@others);
is_attached(@others);
is($zk->mode($old), 'leader', 'there are two leaders');

# What the first one does not know of
my $holder = ZkSession->new($a);
$holder->run_ok($_) for ('CREATE TABLE t (i int)', 'BEGIN', "SELECT zk_lock('x')", 'INSERT INTO t VALUES (1)');

# A new worker has not seen it either, so that the old leader lets it in.
my $before = worker_of($a);
my $asked = sub {
	my $requests = $proxy->requests("a-$old");
	return ($requests->{check} // 0) + ($requests->{exists} // 0);
};
my $had_asked = $asked->();
attach($old);
kill 'TERM', $before;
wait_next_worker($a, $before);
is_attached($old);
is(session_of($a), $session, 'the old leader lets the session go on');
poll_until(sub { $asked->() > $had_asked }, 'the worker to ask something');
is($zk->mode($old), 'leader', 'it still believes to be the leader');

# It is told better by the others.
attach(@others);
is_attached(@others);
is($holder->run_ok('SELECT zk_fencing_token(\'x\') > 0'), 't', 'the lock is held');
$holder->run_ok('COMMIT', 'its holder commits');
is(value($a, 'SELECT count(*) FROM t'), '1', 'it has committed');
is(session_of($a), $session, 'the session is the same');
ok(slurp_file($a->logfile) !~ /lost the lock/, 'no lock was lost');
$holder->quit;

$zk->heal_peers;
$zk->wait_ready;
wait_no_contenders($zk, 'x');

done_testing();
