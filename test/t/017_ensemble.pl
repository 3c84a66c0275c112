
# Lives of the ensemble: its servers end, hang, lose each other and us.  Either
# no lock is lost and nobody notices more than a wait, or the other instance has
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

# A follower that is cut off from its leader notices after syncLimit, 20 s; the
# sessions that it serves have been over for long then.
my $proxy = ZkProxy->new;
my $zk = ZooKeeper->new(
	servers => 3,
	conf => { syncLimit => 40 },
	proxy => $proxy);
$zk->start;

my ($a, $b) = map {
	zk_cluster($_, $zk,
		'zklock.servers' => $zk->connstr_through($proxy, $_),
		'zklock.session_timeout' => '20s')
} qw(a b);

# Servers by their numbers: the leader, the one that instance a is connected to,
# and a follower that is neither.
my ($leader, $ours, $other);

value($a, 'CREATE TABLE t (i int)');

# All links of an instance, or all but those to some servers.
sub links
{
	my ($node, @but) = @_;
	my %but = map { $_ => 1 } @but;
	return map { $node->name . "-$_" } grep { !$but{$_} } (0 .. 2);
}

# Which server an instance is connected to, by its place in zklock.servers.
sub server_of
{
	my ($node) = @_;
	my $i = value($node, q{
		SELECT array_position(string_to_array(servers, ','), server) - 1
		  FROM zk_session WHERE state = 'connected'});
	return $i eq '' ? undef : $i;
}

# Connect an instance to one of some servers.
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

sub reconnects { return value($_[0], 'SELECT reconnects FROM zk_session'); }

sub past_lease
{
	my ($node) = @_;

	poll_until(
		sub { value($node, "SELECT coalesce(lease, '0') <= '0' FROM zk_session") eq 't' },
		"the end of " . $node->name . "'s lease");
	return;
}

my $changes = 0;

# A session of instance a that holds a lock and has changed something.
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

# A holder in a and a waiter in b live through a fault.  Options:
#
#   before, fault, after  what to do
#   reconnect             the instances that lose their connection by it
#   tries                 a fault that takes most of the session timeout may end
#                         the session if the machine is slow; how often to try
sub live_through
{
	my ($name, %options) = @_;
	my $nothing = sub { };
	my $tries = $options{tries} // 1;

	for my $try (1 .. $tries)
	{
		($options{before} // $nothing)->();
		my $alive = try_to_live("$name, try $try", $try == $tries, %options);
		($options{after} // $nothing)->();
		last if $alive;
	}
	return;
}

sub try_to_live
{
	my ($name, $must, %options) = @_;
	my @clusters = @{ $options{reconnect} // [] };
	my $holder = changer('lives');
	my $waiter = waiter($b, 'lives', 2);
	my @queue = wait_contenders($zk, 'lives', 2);
	my @sessions = map { session_of($_) } ($a, $b);
	my @before = map { reconnects($_) } @clusters;

	local $Test::Builder::Level = $Test::Builder::Level + 2;
	$options{fault}->();
	for my $node (@clusters)
	{
		my ($before, $session) = (shift @before, session_of($node));

		poll_until(
			sub { reconnects($node) > $before || session_of($node) ne $session },
			$node->name . ' to be connected again');
		wait_connected($node);
	}

	my @now = map { session_of($_) } ($a, $b);
	my $alive = "@now" eq "@sessions";
	if ($alive || $must)
	{
		is_deeply(\@now, \@sessions, "$name: the sessions are the same");
		is_deeply([ contenders($zk, 'lives') ], \@queue, "$name: everybody is in the same place");
		ok(!$waiter->done, "$name: the waiter waits");
	}
	else
	{
		note("$name: the machine is too slow, sessions have expired");
	}
	if ($alive || $must || $now[0] eq $sessions[0])
	{
		$holder->run_ok('COMMIT', "$name: the holder commits");
		$changes++;
	}
	else
	{
		error_is($holder->run('COMMIT'), $lock_lost, "$name: the holder does not commit");
	}
	changes_are("$name: the table agrees");
	is($waiter->result->{message}, undef, "$name: then the waiter has the lock");
	$waiter->run_ok('COMMIT');
	wait_no_contenders($zk, 'lives');
	$_->quit for ($holder, $waiter);
	return $alive;
}

#
# One server ends
#

live_through(
	'killed leader',
	before => sub { $leader = $zk->leader; attach($a, $leader); },
	fault => sub { $zk->kill9($leader) },
	reconnect => [ $a, $b ],
	after => sub { $zk->start($leader) });
isnt($zk->leader, $leader, 'killed leader: there is another leader');

live_through(
	'killed follower, ours',
	before => sub {
		($leader, $ours, $other) = ($zk->leader, $zk->followers);
		attach($a, $ours);
		attach($b, $leader);
	},
	fault => sub { $zk->kill9($ours) },
	reconnect => [$a],
	after => sub { $zk->start($ours) });

{
	my $before;

	live_through(
		'killed follower, other',
		before => sub {
			attach($a, $leader);
			$before = reconnects($a);
		},
		fault => sub { $zk->kill9($other) },
		after => sub { $zk->start($other) });
	is(reconnects($a), $before, 'killed follower, other: we do not notice');
}

#
# The quorum is lost, and back
#

live_through(
	'lost quorum',
	before => sub {
		($leader, $ours, $other) = ($zk->leader, $zk->followers);
		attach($a, $ours);
	},
	fault => sub {
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
	reconnect => [ $a, $b ]);

#
# All servers end, with their data left
#

live_through(
	'restarted all',
	fault => sub { $zk->stop; $zk->start; },
	reconnect => [ $a, $b ]);

#
# A server hangs for a moment
#

live_through(
	'paused for a moment',
	before => sub { ($ours) = $zk->followers; attach($a, $ours); },
	fault => sub {
		my $session = holder($a, 'other');

		$zk->pause($ours);
		$session->run_ok('COMMIT', 'paused for a moment: another holder commits');
		$zk->resume($ours);
		wait_no_contenders($zk, 'other');
		$session->quit;
	});

#
# zklock.servers is changed
#

{
	my @servers = split /,/, $zk->connstr_through($proxy, 'a');
	my $others;
	my $servers_are = sub {
		my ($servers) = @_;

		$a->reload;
		poll_until(
			sub { value($a, "SELECT servers = '$servers' AND state = 'connected' FROM zk_session") eq 't' },
			'the worker to know the new servers');
	};

	live_through(
		'changed servers',
		before => sub {
			$ours = server_of($a);
			$others = join(',', @servers[ grep { $_ != $ours } (0 .. 2) ]);
		},
		fault => sub {
			value($a, "ALTER SYSTEM SET zklock.servers = '$others'");
			$servers_are->($others);
			$proxy->refuse("a-$ours");
		},
		after => sub {
			$proxy->thaw;
			value($a, 'ALTER SYSTEM RESET zklock.servers');
			$servers_are->(join(',', @servers));
		});
}

#
# From here on, sessions are to expire, or take most of their time to find out
#

no_pauses();
for my $node ($a, $b)
{
	value($node, q{ALTER SYSTEM SET zklock.session_timeout = '4s'});
	$node->reload;
	poll_until(
		sub { value($node, q{SELECT state = 'connected' AND timeout = '4s' FROM zk_session}) eq 't' },
		'a shorter session timeout');
}

# We are cut off from the server that we are connected to.
live_through(
	'cut off from one',
	tries => 5,
	before => sub {
		($leader, $ours, $other) = ($zk->leader, $zk->followers);
		attach($a, $ours);
		attach($b, $other);
	},
	fault => sub { $proxy->freeze("a-$ours", "b-$other") },
	reconnect => [ $a, $b ],
	after => sub {
		isnt(server_of($a), $ours, 'cut off from one: we are connected to another');
		$proxy->thaw;
	});

# A server hangs for longer than a session lasts.
{
	my $clock;

	live_through(
		'paused for long',
		tries => 5,
		before => sub {
			($leader, $ours, $other) = ($zk->leader, $zk->followers);
			attach($a, $ours);
			attach($b, $other);
			observe_through($zk, $leader);
		},
		fault => sub {
			$clock = $zk->session_clock(4);
			$zk->pause($ours);
		},
		reconnect => [$a],
		after => sub {
			isnt(server_of($a), $ours, 'paused for long: we are connected to another');
			$clock->();
			$zk->resume($ours);
		});
}

# The leader is replaced while it hangs, and takes itself for the leader when it
# goes on.
live_through(
	'paused leader',
	tries => 5,
	before => sub {
		($leader, $ours, $other) = ($zk->leader, $zk->followers);
		attach($a, $leader);
		observe_through($zk, $ours, $other);
	},
	fault => sub {
		$zk->pause($leader);
		$proxy->reset(map { ("peer-$leader-$_", "peer-$_-$leader") } ($ours, $other));
		poll_until(sub { defined $zk->leader }, 'another leader');
	},
	reconnect => [ $a, $b ],
	after => sub {
		$zk->resume($leader);
		poll_until(sub { $zk->followers == 2 }, 'the old leader to follow');
	});

# A follower is cut off from all its peers, and answers us all the same.  We find
# out, since our heartbeats are not answered.
sub cut_ours { $zk->cut_peers($ours, $_) for ($leader, $other); return; }

live_through(
	'lying follower',
	tries => 5,
	before => sub {
		($leader, $ours, $other) = ($zk->leader, $zk->followers);
		attach($a, $ours);
		attach($b, $leader);
		observe_through($zk, $leader);
	},
	fault => \&cut_ours,
	reconnect => [$a],
	after => sub {
		isnt(server_of($a), $ours, 'lying follower: we are connected to another');
		is($zk->mode($ours), 'follower', 'lying follower: it does not know it yet');
		$zk->heal_peers;
		$zk->wait_ready;
	});

# But there may be no other that we can reach.
{
	($leader, $ours, $other) = ($zk->leader, $zk->followers);
	attach($b, $leader);
	attach($a, $ours);
	$proxy->refuse(links($a, $ours));
	observe_through($zk, $leader);
	my $holder = changer('z');
	my $waiter = waiter($b, 'z', 2);

	cut_ours();
	is($waiter->result->{message}, undef, 'only a lying follower: the other instance gets the lock');
	is($zk->mode($ours), 'follower', 'only a lying follower: it does not know it yet');
	$holder->send('COMMIT');
	$holder->wait_waiting(2);
	changes_are('only a lying follower: COMMIT waits');
	$waiter->run_ok('COMMIT');
	$zk->heal_peers;
	error_is($holder->result, $lock_lost, 'it is back: COMMIT fails');
	changes_are('it is back: nothing was committed');
	$proxy->thaw;
	$zk->wait_ready;
	wait_connected($a);
	wait_no_contenders($zk, 'z');
	observe_through($zk);
	$_->quit for ($holder, $waiter);
}

# We are cut off from all, and do not learn that the session has expired.
{
	my $canceled = changer('x');
	my $late = changer('y');
	my @waiters = map { waiter($b, $_, 2) } qw(x y);
	my $session = session_of($a);

	$proxy->freeze(links($a));
	is($_->result->{message}, undef, 'cut off from all: the other instance gets the lock')
	  for @waiters;
	$_->run_ok('COMMIT') for @waiters;
	is(session_of($a), $session, 'cut off from all: no notification has come');

	$_->send('COMMIT') for ($canceled, $late);
	$_->wait_waiting(2) for ($canceled, $late);
	value($a, 'SELECT pg_cancel_backend(' . $canceled->pid . ')');
	is($canceled->result->{sqlstate}, '57014', 'cut off from all: COMMIT can be canceled');
	ok(!$late->done, 'cut off from all: else it waits');
	$proxy->thaw;
	error_is($late->result, $lock_lost, 'connected again: it fails');
	changes_are('connected again: nothing was committed');
	wait_no_contenders($zk, $_) for qw(x y);
	wait_connected($a);
	isnt(session_of($a), $session, 'connected again: in a new session');
	$_->quit for ($canceled, $late, @waiters);
}

# All of them, for so long that the lease is over: they may find the session
# expired or not, but all must agree.
{
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
		error_is($result, $lock_lost, 'all paused: the lock is lost');
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

	# The servers refuse who has seen more than they have, but not a worker that
	# has just started.
	lose_data();
	$holder->send('COMMIT');
	value($_, 'SELECT pg_terminate_backend(worker_pid) FROM zk_session') for ($a, $b);
	error_is($holder->result, $lock_lost, 'lost data: no lock is left');
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
