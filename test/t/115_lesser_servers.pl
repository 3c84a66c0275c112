# Copyright (c) 2026, zklock developers

# Servers that speak ZooKeeper's protocol, but lack requests that zklock needs,
# or do not resume sessions: zk_session and the log name what is missing, and
# no lock is taken where it would not be safe.

use strict;
use warnings;

use OddServer;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

my %number = (multi => 14, create2 => 15, removeWatches => 18, createContainer => 19);

my $zk = ZooKeeper->new;
$zk->start;
my ($port) = $zk->ports;
my $proxy = ZkProxy->new;
my $servers = '127.0.0.1:' . $proxy->link('zookeeper', $port);
my $a = zk_cluster('a', $zk, 'zklock.servers' => $servers, 'zklock.session_timeout' => '4s');
my $b = zk_cluster('b', $zk);
wait_connected($_) for $a, $b;

sub of_sessions { return $a->safe_psql('postgres', "SELECT $_[0] FROM zk_session"); }

# Let instance a use these servers, and wait until it knows what they lack.
sub go_to
{
	my ($address, $missing) = @_;

	alter_system($a, 'zklock.servers' => $address);
	poll_until(
		sub { of_sessions('coalesce(missing, $${}$$)') eq "{$missing}" },
		"{$missing} to be missing");
	return;
}

sub go_back
{
	go_to($servers, '');
	wait_connected($a);
	is(of_sessions('last_error'), '', 'ZooKeeper has all');
	return;
}

#
# What is there is probed once, and nothing of that for a lock
#

{
	$proxy->count('zookeeper');
	$a->restart;
	wait_connected($a);
	sql($a, "SELECT zk_lock('x')");
	wait_no_contenders($zk, 'x');
	my $before = $proxy->requests('zookeeper');
	is($before->{remove_watches}, 1, 'a session is probed on its first connection');

	$proxy->reset('zookeeper');
	next_worker($a);
	sql($a, "SELECT zk_lock('x')");
	wait_no_contenders($zk, 'x');
	my $after = $proxy->requests('zookeeper');
	is($after->{remove_watches}, 1, '... and on no other, by any worker');
	is(of_sessions('missing IS NULL'), 't', 'nothing is missing');
}

#
# Servers without a request: they say so, or close the connection
#

sub is_refused
{
	my ($manner, @missing) = @_;
	my $lesser = OddServer->new('lesser_server.py', $port, @$manner);
	my $log = -s $a->logfile;
	my $names = join(', ', @missing);
	my $address = $lesser->address;

	go_to($address, join(',', @missing));
	$a->wait_for_log(
		qr/WARNING:  ZooKeeper server $address lacks requests that zklock needs\n.*DETAIL:  They are: $names\.\n.*HINT:  Use servers of ZooKeeper/,
		$log);
	sql_error(
		$a,
		"SET statement_timeout = '1min'; SELECT zk_lock('x')",
		{
			sqlstate => '57P03',
			message => 'could not reach ZooKeeper for lock "x"',
			detail => "There was no session with \"$address\" for 4000 ms: server $address lacks requests that zklock needs: $names",
			hint => 'Check "zklock.servers" and that ZooKeeper is running; the view zk_session shows the state.'
		},
		"no lock without $names (@$manner)");
	is(of_sessions('state, last_error'),
		"down|server $address lacks requests that zklock needs: $names",
		'zk_session has the reason');
	go_back();
	$lesser->stop;
	return;
}

is_refused([ map { "refuse:$number{$_}" } qw(create2 createContainer removeWatches) ],
	qw(create2 createContainer removeWatches));
is_refused(["refuse:$number{$_}"], $_) for qw(multi removeWatches);
is_refused([ "close:$number{create2}", "close:$number{removeWatches}" ], qw(create2 removeWatches));
is_refused([ "close:$number{createContainer}", 'forget' ], 'createContainer');

# A connection that is lost for another reason shows nothing
{
	my $lesser = OddServer->new('lesser_server.py', $port, map { "close:$number{$_}:2" } qw(create2 createContainer removeWatches));

	alter_system($a, 'zklock.servers' => $lesser->address);
	poll_until(sub { of_sessions('server') eq $lesser->address }, 'a connection');
	sql($a, "SELECT zk_lock('x')");
	is(of_sessions('missing IS NULL'), 't', 'two lost connections show nothing');
	go_back();
	$lesser->stop;
}

#
# Servers that do not resume sessions: all locks are lost with a connection, and
# nobody else has them too early
#

{
	# with a new postmaster, which has not seen one resumed (and which must not
	# inherit the end of a pipe that is to end the odd server)
	$a->restart;
	my $lesser = OddServer->new('lesser_server.py', $port, 'forget');
	my $address = '127.0.0.1:' . $proxy->link('forgets', $lesser->port);
	my $log = -s $a->logfile;
	alter_system($a, 'zklock.servers' => $address);
	poll_until(sub { of_sessions('server') eq $address }, 'a connection');
	wait_connected($a);
	my $holder = holder($a, 'x');
	my ($old) = contenders($zk, 'x');
	$a->poll_query_until('postgres', "SELECT lease > '1s' FROM zk_session");
	$proxy->reset('forgets');
	$a->wait_for_log(
		qr/WARNING:  ZooKeeper ended session \w+ before its timeout\n.*DETAIL:  Another client has closed it, or the servers do not resume sessions/,
		$log);
	is(of_sessions('missing'), '{"session resumption"}', 'zk_session says what is missing');
	is($holder->run('COMMIT')->{sqlstate}, '40001', 'the lock is lost');

	my $waiter = waiter($b, 'x', 2);
	is((contenders($zk, 'x'))[0], $old, 'the contender of the old session is still first');
	is($waiter->result->{sqlstate}, undef, 'another instance has the lock when that has timed out');
	$waiter->run_ok('COMMIT');
	wait_no_contenders($zk, 'x');
	$_->quit for ($holder, $waiter);

	# ZooKeeper resumes them
	alter_system($a, 'zklock.servers' => $servers);
	poll_until(sub { of_sessions('server') eq $servers }, 'ZooKeeper');
	wait_connected($a);
	$proxy->reset('zookeeper');
	$a->poll_query_until('postgres', 'SELECT reconnects > 0 AND missing IS NULL FROM zk_session');
	pass('a session that is resumed shows that none is missing');
	$lesser->stop;
}

$_->stop('fast') for $a, $b;

done_testing();
