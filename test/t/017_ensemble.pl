
# Lives of the ensemble: its servers end, hang, lose each other and us.  Either
# no lock is lost and nobody notices more than a wait, or the other cluster has
# the lock and who held it before does not commit.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

# A follower that is cut off from its leader notices after syncLimit, 12 s; the
# sessions that it serves have been over for long then.
my $proxy = ZkProxy->new;
my $zk = ZooKeeper->new(
	servers => 3,
	conf => { syncLimit => 24 },
	proxy => $proxy);
$zk->start;

my ($a, $b) = map {
	zk_cluster($_, $zk,
		'zklock.servers' => $zk->connstr_through($proxy, $_),
		'zklock.session_timeout' => '4s')
} qw(a b);

sub value { return $_[0]->safe_psql('postgres', $_[1]); }

value($a, 'CREATE TABLE t (i int)');

# All links of a cluster, or all but those to some servers.
sub links
{
	my ($node, @but) = @_;
	my %but = map { $_ => 1 } @but;
	return map { $node->name . "-$_" } grep { !$but{$_} } (0 .. 2);
}

sub wait_connected
{
	my ($node) = @_;

	poll_until(sub { value($node, 'SELECT state FROM zk_session') eq 'connected' },
		$node->name . ' to be connected');
	return;
}

# Which server a cluster is connected to, by its place in zklock.servers.
sub server_of
{
	my ($node) = @_;
	my $i = value($node, q{
		SELECT array_position(string_to_array(servers, ','), server) - 1
		  FROM zk_session WHERE state = 'connected'});
	return $i eq '' ? undef : $i;
}

# Connect a cluster to one of some servers.
sub attach
{
	my ($node, @servers) = @_;

	$proxy->refuse(links($node, @servers));
	poll_until(
		sub { my $now = server_of($node); defined $now && grep { $_ == $now } @servers },
		$node->name . " to be connected to server @servers");
	$proxy->thaw(links($node));
	return;
}

sub session_of { return value($_[0], 'SELECT session_id FROM zk_session'); }

sub reconnects { return value($_[0], 'SELECT reconnects FROM zk_session'); }

sub past_lease
{
	my ($node) = @_;

	poll_until(
		sub { value($node, "SELECT coalesce(lease, '0') <= '0' FROM zk_session") eq 't' },
		"the end of " . $node->name . "'s lease");
	return;
}

my $lost = {
	sqlstate => '40001',
	message => qr/^could not commit because lock "\w+" has been lost$/,
	detail => qr/./,
	hint => qr/^Retry the transaction/
};
my $changes = 0;

# A session of cluster a that holds a lock and has changed something.
sub changer
{
	my ($lock) = @_;
	my $session = holder($a, $lock);

	$session->run_ok('INSERT INTO t VALUES (1)');
	return $session;
}

sub changes_are
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(value($a, 'SELECT count(*) FROM t'), $changes, $name);
	return;
}

# A holder in a and a waiter in b live through a fault.  @reconnected are the
# clusters that lose their connection by it.
sub live_through
{
	my ($name, $fault, @reconnected) = @_;
	my ($lock) = $name =~ /(\w+)$/;
	my $holder = changer($lock);
	my $waiter = waiter($b, $lock, 2);
	my @queue = contenders($zk, $lock);
	my @sessions = map { session_of($_) } ($a, $b);
	my @before = map { reconnects($_) } @reconnected;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$fault->($holder);
	for my $node (@reconnected)
	{
		my $before = shift @before;

		poll_until(sub { reconnects($node) > $before },
			$node->name . ' to be connected again');
		wait_connected($node);
	}
	is_deeply([ contenders($zk, $lock) ], \@queue, "$name: everybody is in the same place");
	ok(!$waiter->done, "$name: the waiter waits");
	$holder->run_ok('COMMIT', "$name: the holder commits");
	$changes++;
	changes_are("$name: and has");
	is($waiter->result->{message}, undef, "$name: then the waiter has the lock");
	$waiter->run_ok('COMMIT');
	is_deeply([ map { session_of($_) } ($a, $b) ], \@sessions, "$name: the sessions are the same");
	wait_no_contenders($zk, $lock);
	$_->quit for ($holder, $waiter);
	return;
}

#
# One server ends
#

{
	my $leader = $zk->leader;

	attach($a, $leader);
	live_through('killed leader', sub { $zk->kill9($leader) }, $a, $b);
	$zk->start($leader);
	isnt($zk->leader, $leader, 'there is another leader');

	my ($ours, $other) = $zk->followers;
	attach($a, $ours);
	attach($b, $zk->leader);
	live_through('killed follower, ours', sub { $zk->kill9($ours) }, $a);
	$zk->start($ours);

	attach($a, $zk->leader);
	my $before = reconnects($a);
	live_through('killed follower, other', sub { $zk->kill9($ours) });
	is(reconnects($a), $before, 'who was not connected to it does not notice');
	$zk->start($ours);
}

#
# The quorum is lost, and back
#

{
	my ($ours, $other) = $zk->followers;
	my $leader = $zk->leader;

	attach($a, $ours);
	live_through(
		'lost quorum',
		sub {
			my ($holder) = @_;
			my $second = changer('second');

			$zk->kill9($leader, $other);
			past_lease($a);
			$second->send('COMMIT');
			$second->wait_waiting(2);
			changes_are('lost quorum: past the lease COMMIT waits');
			$zk->start($leader, $other);
			is($second->result->{message}, undef, 'quorum is back: COMMIT goes on');
			$changes++;
			changes_are('quorum is back: it has committed');
			$second->quit;
		},
		$a, $b);
}

#
# All servers end, with their data left
#

live_through('restarted all', sub { $zk->stop; $zk->start; }, $a, $b);

#
# We are cut off from all, and do not learn that the session has expired
#

{
	my $cancelled = changer('x');
	my $late = changer('y');
	my @waiters = map { waiter($b, $_, 2) } qw(x y);
	my $session = session_of($a);

	$proxy->freeze(links($a));
	is($_->result->{message}, undef, 'cut off from all: the other cluster gets the lock')
	  for @waiters;
	$_->run_ok('COMMIT') for @waiters;
	is(session_of($a), $session, 'cut off from all: nobody has told us');

	$_->send('COMMIT') for ($cancelled, $late);
	$_->wait_waiting(2) for ($cancelled, $late);
	value($a, 'SELECT pg_cancel_backend(' . $cancelled->pid . ')');
	is($cancelled->result->{sqlstate}, '57014', 'cut off from all: COMMIT can be cancelled');
	ok(!$late->done, 'cut off from all: else it waits');
	$proxy->thaw;
	error_is($late->result, $lost, 'connected again: it fails');
	changes_are('connected again: nothing was committed');
	wait_no_contenders($zk, $_) for qw(x y);
	wait_connected($a);
	isnt(session_of($a), $session, 'connected again: in a new session');
	$_->quit for ($cancelled, $late, @waiters);
}

#
# A follower is cut off from all its peers, and answers us all the same
#

{
	my ($ours, $other) = $zk->followers;
	my $leader = $zk->leader;
	observe_through($zk, $leader);
	my $cut = sub { $zk->cut_peers($ours, $_) for ($leader, $other) };

	# We find out, since our heartbeats are not answered.
	attach($a, $ours);
	attach($b, $leader);
	live_through('lying follower', $cut, $a);
	isnt(server_of($a), $ours, 'lying follower: we are connected to another');
	is($zk->mode($ours), 'follower', 'lying follower: it does not know it yet');
	$zk->heal_peers;
	$zk->wait_ready;

	# But there may be no other that we can reach.
	attach($a, $ours);
	$proxy->refuse(links($a, $ours));
	my $holder = changer('z');
	my $waiter = waiter($b, 'z', 2);

	$cut->();
	is($waiter->result->{message}, undef, 'only a lying follower: the other cluster gets the lock');
	is($zk->mode($ours), 'follower', 'only a lying follower: it does not know it yet');
	$holder->send('COMMIT');
	$holder->wait_waiting(2);
	changes_are('only a lying follower: COMMIT waits');
	$waiter->run_ok('COMMIT');
	$zk->heal_peers;
	error_is($holder->result, $lost, 'it is back: COMMIT fails');
	changes_are('it is back: nothing was committed');
	$proxy->thaw;
	$zk->wait_ready;
	wait_connected($a);
	wait_no_contenders($zk, 'z');
	observe_through($zk);
	$_->quit for ($holder, $waiter);
}

#
# A server hangs, or we are cut off from one
#

{
	my ($ours, $other) = $zk->followers;
	my $clock;

	attach($a, $ours);
	attach($b, $other);
	observe_through($zk, $zk->leader);
	live_through(
		'paused for a moment',
		sub {
			my $session = holder($a, 'other');

			$zk->pause($ours);
			$session->run_ok('COMMIT', 'paused: a commit within the lease');
			$zk->resume($ours);
			wait_no_contenders($zk, 'other');
			$session->quit;
		});
	live_through(
		'one paused for long, one cut off',
		sub {
			$clock = $zk->session_clock(4);
			$zk->pause($ours);
			$proxy->freeze("b-$other");
		},
		$a, $b);
	isnt(server_of($a), $ours, 'we are not connected to the one that is paused');
	isnt(server_of($b), $other, 'nor to the one that we are cut off from');
	$clock->();
	$zk->resume($ours);
	$proxy->thaw;
	observe_through($zk);

	# The leader, replaced while it hangs; it takes itself for the leader when
	# it goes on.
	my $leader = $zk->leader;
	attach($a, $leader);
	live_through(
		'paused leader',
		sub {
			$zk->pause($leader);
			$proxy->reset(map { ("peer-$leader-$_", "peer-$_-$leader") }
				  grep { $_ != $leader } (0 .. 2));
			poll_until(sub { defined $zk->leader }, 'another leader');
		},
		$a, $b);
	$zk->resume($leader);
	$zk->wait_ready;

	# All of them, for so long that they may take the sessions for expired
	my $holder = changer('w');
	my $waiter = waiter($b, 'w', 2);
	$zk->pause;
	past_lease($a);
	$holder->send('COMMIT');
	$holder->wait_waiting(2);
	$zk->resume;
	my $result = $holder->result;
	if ($result->{message})
	{
		error_is($result, $lost, 'all paused: the lock is lost');
	}
	else
	{
		pass('all paused: the lock is not lost');
		$changes++;
	}
	changes_are('all paused: the table agrees');
	is($waiter->result->{message}, undef, 'all paused: then the waiter has the lock');
	$waiter->run_ok('COMMIT');
	$_->quit for ($holder, $waiter);
	wait_connected($_) for ($a, $b);
}

#
# zklock.servers is changed
#

{
	my @servers = split /,/, $zk->connstr_through($proxy, 'a');
	my $ours = server_of($a);
	my $others = join(',', @servers[ grep { $_ != $ours } (0 .. 2) ]);

	live_through(
		'changed servers',
		sub {
			value($a, "ALTER SYSTEM SET zklock.servers = '$others'");
			$a->reload;
			poll_until(
				sub {
					value($a, "SELECT servers = '$others' AND state = 'connected' FROM zk_session") eq 't';
				},
				'a to be connected to other servers');
			$proxy->refuse("a-$ours");
		});
	$proxy->thaw;
	value($a, 'ALTER SYSTEM RESET zklock.servers');
	$a->reload;
	poll_until(sub { defined server_of($a) && value($a, 'SELECT servers FROM zk_session') ne $others },
		'all servers to be known');
}

#
# All data is lost: tokens start over
#

# Take a lock, and fence; returns the result and the token.
sub fence
{
	my $result = sql($a, "BEGIN; SELECT zk_lock('f'); SELECT zk_fence('f'); COMMIT");
	my ($token) = $result->{out} =~ /(\d+)\z/;

	return ($result, $token);
}

sub lose_data
{
	my ($epoch) = @_;

	$zk->stop;
	$zk->wipe;
	$zk->set_epoch($epoch) if $epoch;
	$zk->start;
	return;
}

{
	my ($result, $token) = fence();
	my $holder = changer('g');

	lose_data();
	$holder->send('COMMIT');
	error_is($holder->result, $lost, 'lost data: no lock is left');
	changes_are('lost data: nothing was committed');
	wait_connected($_) for ($a, $b);
	$holder->quit;

	# Trying again does not help, but the error says what does.
	for my $try (1 .. 2)
	{
		($result) = fence();
		error_is(
			$result,
			{
				sqlstate => '40001',
				message => 'lock "f" has had a later holder',
				detail => qr/^The fencing token of this hold is \d+, but table "zk_fences" has $token, written at 20/,
				hint => qr/ If the error persists, ZooKeeper's data has been lost or replaced,/
			},
			"lost data: zk_fence fails, try $try");
	}
	value($a, "DELETE FROM zk_fences WHERE name = 'f' AND root = '/zklock'");
	($result, my $new) = fence();
	is($result->{message}, undef, 'lost data: the row is deleted, zk_fence works');
	cmp_ok($new, '<', $token, 'lost data: tokens have started over');

	# The epoch is the upper half of a token: servers that begin with a higher
	# one give higher tokens.
	$token += 4 * 2**32;
	value($a, "UPDATE zk_fences SET token = $token");
	my $epoch = value($a, 'SELECT max(token >> 32) FROM zk_fences');
	lose_data($epoch);
	wait_connected($a);
	($result, $new) = fence();
	is($result->{message}, undef, 'lost data, but a higher epoch: zk_fence works');
	is($new >> 32, $epoch + 1, 'with tokens of the next one');
}

$_->stop for ($a, $b);
done_testing();
