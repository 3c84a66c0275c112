
# Who waits for a watch that never fires, since its event was lost on the way,
# gets the lock all the same: it looks again every now and then, and no more
# often than it must.
#
# A proxy between the worker and ZooKeeper counts the requests by their kinds,
# and makes events of another kind, unknown to the client library.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

my $timeout = 2;
my $proxy = ZkProxy->new;
my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my $servers = $zk->connstr_through($proxy, 'a');
$proxy->count('a-0');
my $a = zk_cluster('a', $zk,
	'zklock.servers' => $servers,
	'zklock.session_timeout' => "${timeout}s");
my $session = ZkSession->new($a);

# An event is an answer to no request, which is -1; behind zxid and error come its
# type, which is 2 if the node was deleted and 4 if its children have changed, and
# the state.
sub lose_events
{
	my ($lost) = @_;

	$proxy->forge('a-0',
		$lost
		? ('(?s)(\xff{4}.{8}\x00{7})[\x02\x04](?=\x00\x00\x00\x03)', '\g<1>c')
		: ('(?!)', ''));
	return;
}

# How often the worker has read since, and how long that is at the least.
sub reads
{
	my ($since) = @_;
	my $n = 0;
	my $count = $proxy->requests('a-0');
	my $now = time;

	$n += $count->{$_} // 0 for qw(get children);
	return { n => $n, at => $now } unless $since;
	return { n => $n - $since->{n}, seconds => $now - $since->{at} };
}

# What happens until it has read so often.
sub reads_until
{
	my ($n) = @_;
	my $since = reads();
	my $asked;

	poll_until(sub { ($asked = reads($since))->{n} >= $n }, "$n reads");
	return $asked;
}

wait_connected($a);

#
# A lock
#

{
	my $theirs = $foreign->lock(lock_dir('x'));

	$session->send("BEGIN; SELECT zk_lock('x')");
	wait_contenders($zk, 'x', 2);
	$session->wait_waiting(2);
	lose_events(1);
	$foreign->unlock($theirs);
	is($session->result->{sqlstate}, undef, 'who waits for a lock has it though the event was lost');
	lose_events(0);
	$session->run_ok('COMMIT');
	wait_no_contenders($zk, 'x');
}

{
	my $theirs = $foreign->lock(lock_dir('y'));
	my $asked;

	$session->send("BEGIN; SELECT zk_lock('y')");
	wait_contenders($zk, 'y', 2);
	$session->wait_waiting(2);
	$asked = reads_until(4);
	cmp_ok($asked->{n}, '<=', $asked->{seconds} / $timeout + 2,
		'who waits reads once in a session timeout, or less');
	$foreign->unlock($theirs);
	is($session->result->{sqlstate}, undef, '... and has the lock in the end');
	$session->run_ok('COMMIT');
}

#
# A permit
#

{
	my $other = ZkSession->new($a);

	$other->run_ok("BEGIN; SELECT zk_acquire('s', 1)");
	$session->send("BEGIN; SELECT zk_acquire('s', 1)");
	$session->wait_waiting(2);
	lose_events(1);
	$other->run_ok('COMMIT');
	is($session->result->{sqlstate}, undef, 'who waits for a permit has it though the event was lost');
	lose_events(0);
	$session->run_ok('COMMIT');
	$other->quit;
}

#
# Many locks: no more than so many reads a second, and each has its turn
#

{
	my @names = map { "many/$_" } 1 .. 300;
	my %theirs = map { ($_ => $foreign->lock(lock_dir($_))) } @names;
	my $asked;

	$session->send('BEGIN; SELECT zk_lock_all(ARRAY[' . join(',', map { "'$_'" } @names) . '])');
	wait_contenders($zk, $_, 2) for @names;
	$session->wait_waiting(2);
	reads_until(1);
	$asked = reads_until(scalar @names);
	cmp_ok($asked->{n}, '<=', 100 * ($asked->{seconds} + 0.1) + 10,
		'however many wait, 100 of them read in a second, or fewer');
	lose_events(1);
	$foreign->unlock($theirs{$_}) for @names;
	is($session->result->{sqlstate}, undef, '... and each looks again');
	lose_events(0);
	$session->run_ok('COMMIT');
}

$session->quit;
$a->stop('fast');

done_testing();
