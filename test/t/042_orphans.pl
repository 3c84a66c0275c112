# A node of our own session that no contender of ours knows of is in the way of
# all, until the session ends: who has to wait for it deletes it.  And nothing
# else that is of our session.

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
my $a = zk_cluster('a', $zk, 'zklock.session_timeout' => '20s');
my $foreign = $zk->client;
my $uuid = '89ab0123-4567-4def-8edc-ba9876543210';
my $orphans = 0;

# How many has the log told of?
sub told
{
	my @found = slurp_file($a->logfile) =~ /deleting znode ".*" of a lost contender/g;
	return scalar @found;
}

# The connections that the server has for a session, each as address and port.
sub connections
{
	my ($session) = @_;

	return $zk->fourlw('cons') =~ m{^ /(\S+?)\[[^\n]*\bsid=\Q$session\E\b}mg;
}

# A node in the session of the instance, which has its connection back then; or
# more than one, if the instance was back ahead of the answer.  The server leaves
# the instance its connection if it does not know it as the session's any more:
# where a client left the session at the moment at which the instance came back.
sub orphans
{
	my ($dir, $kind) = @_;
	my $session = session_of($a);
	my $reconnects = value($a, 'SELECT reconnects FROM zk_session');
	my ($before) = connections($session);

	$foreign->create($dir, makepath => 1) if !$foreign->exists($dir);
	$foreign->create_in_session($session, "$dir/_c_$uuid$kind");
	poll_until(
		sub {
			my ($connected, $again) =
			  split /\|/, value($a, "SELECT state = 'connected', reconnects > $reconnects FROM zk_session");
			my @now = connections($session);

			return $connected eq 't' && @now == 1 && ($again eq 't' || $now[0] eq $before);
		},
		'the instance to be connected again');
	my @nodes = map { "$dir/$_" } grep { /$uuid/ } $foreign->ls($dir);
	$orphans += @nodes;
	return @nodes;
}

wait_connected($a);

#
# Strays of each kind, ahead of contenders of each kind
#

for my $case (
	[ 'a lock', 'x', '', '-lock-', "zk_lock('x')" ],
	[ 'a lock, behind a reader', 'r', '', '-__READ__', "zk_lock('r')" ],
	[ 'a shared lock', 's', '', '-lock-', "zk_lock('s', shared => true)" ],
	[ 'a permit', 'p', '/locks', '-lock-', "zk_acquire('p', 2)" ])
{
	my ($what, $name, $below, $kind, $call) = @$case;
	my $dir = lock_dir($name);

	$foreign->create("$dir/leases", makepath => 1) if $below;
	my @nodes = orphans("$dir$below", $kind);
	my $session = ZkSession->new($a);
	$session->run_ok("SELECT $call, pg_advisory_unlock_all()", "$what: not forever behind an orphan");
	is(scalar(grep { $foreign->exists($_) } @nodes), 0, "$what: it has been deleted");
	is(told(), $orphans, "$what: and the log says so");
	$session->quit;
}

# Behind a contender of somebody else it is found when that leaves.
{
	my @nodes = orphans(lock_dir('f'), '-lock-');
	my $theirs = $foreign->enqueue(lock_dir('f'));
	my $session = ZkSession->new($a);

	$session->send("SELECT zk_lock('f')");
	$session->wait_waiting(2);
	wait_contenders($zk, 'f', 2 + @nodes);
	is(scalar(grep { $foreign->exists($_) } @nodes), scalar(@nodes), 'an orphan that is not right ahead stays');
	$foreign->unlock($theirs);
	is($session->result->{message}, undef, 'when it is, it goes');
	is(told(), $orphans, 'the log says so');
	$session->quit;
}

#
# What is of our session and no orphan
#

my @sessions = map { ZkSession->new($a) } (0 .. 3);

# a writer behind readers of its own instance, which have not come yet
$sessions[0]->run_ok($_) for ('BEGIN', "SELECT zk_lock('y', shared => true)");
$sessions[1]->send("SELECT zk_lock('y')");
$sessions[1]->wait_waiting(1);
wait_contenders($zk, 'y', 2);

# readers of several locks, who share a contender
my $theirs = $foreign->lock(lock_dir('many/1'));
for my $i (2, 3)
{
	$sessions[$i]->send("SELECT zk_lock_all('{many/1,many/2}', shared => true)");
	$sessions[$i]->wait_waiting(2);
}
wait_contenders($zk, 'many/1', 2);
$foreign->unlock($theirs);
is($sessions[$_]->result->{message}, undef, 'several shared locks') for (2, 3);
$sessions[0]->run_ok('COMMIT', 'the reader has its lock');
is($sessions[1]->result->{message}, undef, 'the writer behind it gets it');

# permits that wait for each other, over a restart of the worker
$sessions[0]->run_ok($_) for ('BEGIN', "SELECT zk_acquire('q', 1)");
for my $i (1 .. 3)
{
	$sessions[$i]->send("SELECT zk_acquire('q', 1)");
	$sessions[$i]->wait_waiting(2);
}
poll_until(
	sub { my @waiting = eval { $foreign->ls(lock_dir('q') . '/locks') }; @waiting == 3 },
	'three to wait for a permit');
my $worker = "SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'zklock%'";
my $before = value($a, $worker);
value($a, "SELECT pg_terminate_backend($before)");
poll_until(sub { my $now = value($a, $worker); $now ne '' && $now ne $before }, 'the next worker');
wait_connected($a);
$sessions[0]->run_ok('COMMIT');
for (1 .. 3)
{
	my $next;
	poll_until(sub { ($next) = grep { $sessions[$_] && $sessions[$_]->done } (1 .. 3); $next }, 'the next permit');
	is($sessions[$next]->result->{message}, undef, 'a permit');
	$sessions[$next]->quit;
	$sessions[$next] = undef;
}
is(told(), $orphans, 'nothing else of our session was taken for an orphan');
$sessions[0]->quit;

done_testing();
