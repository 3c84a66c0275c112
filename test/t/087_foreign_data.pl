# Copyright (c) 2026, zklock developers

# What is in znodes of others: how much data, how many znodes, and which bytes.  The
# worker reads no more than a cluster or a contender can have written, and tells what
# it leaves out.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

# So many znodes of a megabyte each.  What the worker keeps of each is some bytes.
my $many = 24;
my $bound_kb = 8_000;

my $proxy = ZkProxy->new;
my $zk = ZooKeeper->new;
$zk->start;
my $servers = $zk->connstr_through($proxy, 'a');
$proxy->count('a-0');
my $a = zk_cluster(
	'a', $zk,
	'zklock.servers' => $servers,
	'zklock.session_timeout' => '60s',
	'autovacuum' => 'off',
	'deadlock_timeout' => '100ms');
my $stranger = $zk->client(timeout => 60);
my $members = '/zklock/%clusters';

wait_connected($a);

sub value { return $a->safe_psql('postgres', $_[0]); }

sub worker { return value('SELECT worker_pid FROM zk_session'); }

sub requests { return $proxy->requests('a-0')->{ $_[0] } // 0; }

# How much memory the worker has had, in kB.
sub peak
{
	my ($kb) = slurp_file('/proc/' . worker() . '/status') =~ /^VmHWM:\s+(\d+) kB/m;

	return $kb;
}

# Has the worker read no data of large znodes while this was done?
sub reads_none
{
	my ($what, $code) = @_;
	my $peak = peak();
	my $gets = requests('get');

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$code->();
	cmp_ok(requests('get') - $gets, '<', $many / 2, "$what: data of that size are not read");
	cmp_ok(peak() - $peak, '<', $bound_kb, '... and the worker does not grow');
	return;
}

#
# Large data
#

my $data = 'zklock cluster=' . 'x' x 1_000_000;
my $least = peak();
my @large = map { "$members/" . member_node($_) } (1 .. $many / 2);

push @large, map { "$members/stranger $_" } (1 .. $many / 2);
$stranger->create($_, data => $data, ephemeral => 1) for @large;
reads_none('zk_clusters', sub {
	is(value(q{SELECT string_agg(DISTINCT misfits::text, ' '), count(*) FROM zk_clusters() WHERE cluster IS DISTINCT FROM 'a'}),
		'{"not written by zklock"}|' . $many / 2, 'who is named as a cluster is shown');
});
{
	my $worker = worker();
	my $gets = requests('get');

	value("SELECT pg_terminate_backend($worker)");
	poll_until(sub { worker() ne $worker }, 'the next worker');
	wait_connected($a);
	is(value("SELECT count(*) FROM zk_clusters() WHERE local"), 1, 'the next worker has joined');
	cmp_ok(requests('get') - $gets, '<', $many / 2, '... and reads none of that either');
	cmp_ok(peak() - $least, '<', $bound_kb, '... and is no larger');
}
$stranger->delete_all(\@large);

# contenders
@large = map { "/zklock/large/_c_x$_-lock-" . sprintf('%010d', $_) } (0 .. $many / 2 - 1);
push @large, map { sprintf '/zklock/large %02d/_c_x-lock-0000000000', $_ } (1 .. $many / 2);
$stranger->create($_) for '/zklock/large', map { sprintf '/zklock/large %02d', $_ } (1 .. $many / 2);
$stranger->create($_, data => $data, ephemeral => 1) for @large;
reads_none('zk_queue', sub {
	is(value("SELECT count(*), count(owner), count(session_id) FROM zk_queue('large')"), $many / 2 . '|0|' . $many / 2,
		'large contenders are in their queue, without their data');
});
reads_none('zk_queues', sub {
	is(value(q{SELECT count(*), count(holder), sum(holders + waiters) FROM zk_queues()}), $many / 2 + 1 . '|0|' . $many,
		'... and hold and wait for locks');
});
$stranger->delete_all(\@large);

# what is like a probe for a deadlock
{
	my $session = ZkSession->new($a);
	my $foreign = $stranger->lock(lock_dir('y'));

	$session->run_ok("BEGIN; SELECT zk_lock('x')");
	my $theirs = $stranger->enqueue(lock_dir('x'));
	$session->send("SELECT zk_lock('y')");
	poll_until(sub { $stranger->exists('/zklock/%waits') }, 'a to watch for deadlocks');
	reads_none('a deadlock', sub {
		my $before = requests('get') + requests('exists');
		my @probes = map {
			$stranger->create('/zklock/%waits/probe-', data => $data, ephemeral => 1, sequence => 1)
		} (1 .. $many);

		poll_until(sub { requests('get') + requests('exists') >= $before + $many }, 'a to look at them');
		value('SELECT count(*) FROM zk_clusters()');
		$stranger->delete_all(\@probes);
	});
	$stranger->delete($foreign);
	$session->result;
	$session->run_ok('COMMIT', 'who waits gets its lock');
	$stranger->delete($theirs);
	$session->quit;
}

#
# Many znodes
#

{
	my @named = map { "$members/$_" } (1 .. 7000);

	$stranger->create_all(\@named);
	my $result = sql($a, 'SELECT count(*), bool_or(local) FROM zk_clusters()');
	is($result->{out}, '1|t', 'znodes of other names do not hide clusters');
	is_deeply($result->{warnings}, [], '... nor is anything left out');
	$stranger->delete_all(\@named);
}

{
	my @named = map { "$members/" . member_node($_) } (1 .. 1200);
	my $offset = -s $a->logfile;

	$stranger->create_all(\@named);
	my $result = sql($a, 'SELECT count(*) FROM zk_clusters()');
	my ($warning) = @{ $result->{warnings} };
	is($result->{out}, 1000, 'of too many that are named as clusters some are shown');
	is($warning->{sqlstate}, '54000', '... with a warning');
	is($warning->{message}, 'not all znodes in "/zklock/%clusters" are shown', '... of which');
	is($warning->{detail}, '1000 are shown, 201 more are not.', '... and how many');
	ok($a->log_contains(qr/\n\t201 znodes have not been read\./, $offset), 'the log tells it as well');
	is(sql($a, 'SELECT count(*) FROM zk_clusters()')->{warnings}[0]{sqlstate}, '54000', 'so it is each time');
	$stranger->delete_all(\@named);
	is(sql($a, 'SELECT count(*) FROM zk_clusters()')->{out}, 1, 'when they have gone, all is shown');
}

$a->stop;
done_testing();
