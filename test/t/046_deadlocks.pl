
# Deadlocks between two instances: one victim, which gets 40P01, and the other
# goes on; by way of other backends of its instance as well.  While nobody has
# waited for long there is no request for that.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};
my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my $proxy = ZkProxy->new;
my $servers = $zk->connstr_through($proxy, 'a');
$proxy->count('a-0');

# PostgreSQL::Test::Cluster sets cluster_name, too.
# log_lock_waits, which is on by default from PostgreSQL 19 on, has the queue read,
# the owner of a lock that is retained by habit watches it, and who waits for long
# looks again.
my %settings = (
	install_path => $ENV{ZKLOCK_TEST_INSTALL},
	'log_lock_waits' => 'off',
	'zklock.session_timeout' => '10s',
	'zklock.retain_time' => 0,
	'zklock.look_again' => 'off');
my $a = zk_cluster('shop_a', $zk, 'zklock.servers' => $servers, %settings);
my $b = zk_cluster('shop_b', $zk, %settings);
my $room = lock_dir('x') =~ s{[^/]*$}{%waits}r;

# The room where instances confirm deadlocks becomes empty.
sub wait_quiet
{
	my ($name) = @_;

	poll_until(
		sub {
			my @left = $foreign->exists($room) ? $foreign->ls($room) : ();

			return !@left;
		},
		'the instances to tidy up');
	pass($name);
	return;
}

sub victim_like
{
	my ($result, $lines, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return error_is(
		$result,
		{   sqlstate => '40P01',
			message => 'deadlock detected',
			detail => join("\n", @$lines),
			hint => 'See server log for query details.' },
		$name);
}

sub line
{
	my ($waiter, $cluster, $lock, $owner, $other) = @_;

	return sprintf
	  'Process %d of instance %s waits for exclusive lock "%s" in ZooKeeper; blocked by process %d of instance %s.',
	  $waiter->pid, $cluster, $lock, $owner->pid, $other;
}

#
# Nothing while nobody waits for long: other instances' contenders come and go,
# and only the last wait lasts for deadlock_timeout, of a backend that holds
# nothing.
#

sub asked
{
	my ($before) = @_;
	my $now = $proxy->requests('a-0');
	my %asked = map { $_ => $now->{$_} - ($before->{$_} // 0) } keys %$now;

	delete @asked{ grep { !$asked{$_} } keys %asked };
	return \%asked;
}

# How often a has written its own znode in %clusters, which is no note.
sub marks
{
	my $clusters = $room =~ s/%waits$/%clusters/r;
	my @nodes = map { $foreign->get("$clusters/$_") } $foreign->ls($clusters);
	my ($own) = grep { $_->{data} =~ /shop_a/ } @nodes;

	return $own->{version};
}

# All that it has written since then is that.
sub only_marks
{
	my ($asked, $before, $name) = @_;
	my $sets = delete $asked->{set} // 0;

	poll_until(sub { marks() - $before >= $sets }, "$name: $sets writes of its own znode");
	pass($name);
	return;
}

{
	my $first = ZkSession->new($a);
	my $second = ZkSession->new($b);

	my $marks = marks();
	my $before = $proxy->requests('a-0');
	for my $round (1 .. 20)
	{
		$second->run_ok("BEGIN; SELECT zk_lock('x')", 'b takes x') if $round == 1;
		$second->run("BEGIN; SELECT zk_lock('x')") if $round > 1;
		$first->send("BEGIN; SELECT zk_lock('z'); SELECT zk_lock('x'); COMMIT");
		wait_contenders($zk, 'x', 2);
		$second->run('COMMIT');
		is($first->result->{message}, undef, 'a waits for a moment') if $round == 1;
		$first->result if $round > 1;
	}
	my $asked = asked($before);
	only_marks($asked, $marks, 'nothing is written to any note');
	ok(!$foreign->exists($room), 'there is no room for deadlocks');

	# long, but it keeps nobody
	$second->run("BEGIN; SELECT zk_lock('x')");
	$first->run('BEGIN');
	$before = $proxy->requests('a-0');
	$first->send("SELECT zk_lock('x')");
	$first->wait_waiting(2);
	# the last request of who queues is for the data of the contender ahead
	poll_until(sub { asked($before)->{get} }, 'it to have queued');
	$marks = marks();
	$before = $proxy->requests('a-0');
	poll_until(sub { (asked($before)->{check} // 0) >= 4 }, 'four seconds');
	$asked = asked($before);
	delete @$asked{qw(check ping)};
	only_marks($asked, $marks, 'nothing for a long wait, nor to a note');
	is_deeply($asked, {}, 'nothing for a long wait that keeps nobody');
	$second->run('COMMIT');
	$first->result;
	$first->run('COMMIT');
	$_->quit for ($first, $second);
}

#
# Two instances, two locks
#

{
	my $first = holder($a, 'x');
	my $second = holder($b, 'y');
	my $log_a = -s $a->logfile;
	my $log_b = -s $b->logfile;

	$first->send("SELECT zk_lock('y')");
	$first->wait_waiting(2);
	$second->send("SELECT zk_lock('x')");
	my $result = $second->result;
	victim_like(
		$result,
		[   line($second, 'shop_b', 'x', $first, 'shop_a'),
			line($first, 'shop_a', 'y', $second, 'shop_b') ],
		'the transaction that began last fails');
	like($result->{stderr}, qr/while waiting for lock "x" in ZooKeeper/, 'its wait is named');
	$second->run_ok('ROLLBACK');
	is($first->result->{message}, undef, 'then it goes on');
	$first->run_ok('COMMIT');

	my $log = slurp_file($b->logfile, $log_b);
	like($log, qr/deadlock detected/, 'the log of its instance has the deadlock');
	like(
		$log,
		qr/Process ${\$second->pid}: SELECT zk_lock\('x'\)/,
		'... with its statement');
	unlike(slurp_file($a->logfile, $log_a), qr/deadlock detected/, 'that of the other has no error');
	$_->quit for ($first, $second);
	wait_quiet('nothing is left of it');
}

#
# By way of a row: first waits in its instance for third, that in ZooKeeper
#

$a->safe_psql('postgres', 'CREATE TABLE stock (id int PRIMARY KEY, n int)');
$a->safe_psql('postgres', 'INSERT INTO stock VALUES (1, 0)');
{
	my $first = holder($a, 'x');
	my $second = holder($b, 'y');
	my $third = ZkSession->new($a);

	$third->run_ok('BEGIN');
	$third->run_ok('UPDATE stock SET n = n + 1 WHERE id = 1');
	$second->send("SELECT zk_lock('x')");
	$second->wait_waiting(2);
	$third->send("SELECT zk_lock('y')");
	$third->wait_waiting(2);
	$first->send('UPDATE stock SET n = n + 1 WHERE id = 1');
	my $result = $third->result;
	victim_like(
		$result,
		[   'Process '
			  . $first->pid
			  . ' of instance shop_a waits for process '
			  . $third->pid
			  . ' of the same instance.',
			line($third, 'shop_a', 'y', $second, 'shop_b'),
			line($second, 'shop_b', 'x', $first, 'shop_a') ],
		'a deadlock through a row lock');
	$third->run_ok('ROLLBACK');
	is($first->result->{message}, undef, 'who waited for the row goes on');
	$first->run_ok('COMMIT');
	is($second->result->{message}, undef, '... and then the other instance');
	$second->run_ok('COMMIT');
	$_->quit for ($first, $second, $third);
	wait_quiet('nothing is left of that');
}

poll_until(sub { !$foreign->exists($room) }, 'the directory to be removed');
pass('the directory that is not needed any more goes');

undef $foreign;
done_testing();
