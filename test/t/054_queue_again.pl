
# An instance that gives a lock up and wants it again deletes its contender and
# creates the next one in one step.  The next worker, if the one that did that
# ends before it hears the answer, finds out whether it was done.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;
my $proxy = ZkProxy->new;
my $servers = $zk->connstr_through($proxy, 'a');
$proxy->count('a-0');
my $a = zk_cluster('a', $zk,
	'zklock.servers' => $servers,
	'zklock.session_timeout' => '60s',
	'zklock.handoff_quantum' => '0',
	'zklock.commit_check' => 'off');
my $foreign = $zk->client(timeout => 60);
my $session_id = session_of($a);


# The contenders for a lock of the instance, as "uuid number" in their order.
sub queue
{
	my ($name) = @_;

	return [ map { /^_c_(.{36})-lock-(\d{10})$/ ? "$1 " . (0 + $2) : $_ } contenders($zk, $name) ];
}

# What requests there were since the last call, apart from those that nobody
# asked for.
my %before;

sub requests
{
	my %now = %{ $proxy->requests('a-0') };
	my %since = map { $_ => $now{$_} - ($before{$_} // 0) } keys %now;

	%before = %now;
	delete @since{qw(ping check connect)};
	return { map { $since{$_} ? ($_ => $since{$_}) : () } keys %since };
}

# A session holds the lock; then it commits and wants it again, before the
# worker, which is stopped, has done anything.  Returns the number that its
# contender has, and that session.
sub give_up_and_want
{
	my ($name, $session) = @_;

	$session->run_ok('COMMIT', "$name: the lock is given up ...");
	$session->run_ok('BEGIN');
	$session->send("SELECT zk_lock('$name')");
	$session->wait_waiting(2);
	return;
}

sub hold
{
	my ($name) = @_;
	my $session = ZkSession->new($a);

	# a watch for revocation would be a request of its own: not so soon
	$session->run_ok($_) for ('BEGIN', "SELECT zk_lock('$name')");
	return ($session, split / /, queue($name)->[0]);
}

# The lock is granted, to a contender of that UUID and number.
sub granted
{
	my ($session, $name, $uuid, $number) = @_;

	is($session->result->{message}, undef, "$name: the lock is granted");
	is_deeply(queue($name), ["$uuid $number"], "$name: there is one contender, with the number expected");
	is($session->run_ok("SELECT zk_fencing_token('$name')"),
		$foreign->get(lock_dir($name) . '/' . (contenders($zk, $name))[0])->{czxid},
		"$name: and the token is its own");
	return;
}

sub done
{
	my ($session, $name) = @_;

	$session->run_ok('COMMIT');
	wait_no_contenders($zk, $name);
	$session->quit;
	is(session_of($a), $session_id, "$name: the session has stayed");
	unlike(slurp_file($a->logfile), qr/deleting znode|could not delete|lost the lock/,
		"$name: nothing was left, and nothing lost");
	return;
}

wait_connected($a);

#
# In one step
#
{
	my ($session, $uuid, $number) = hold('one');
	my $worker = stop_worker($a);

	give_up_and_want('one', $session);
	requests();
	kill 'CONT', $worker;
	granted($session, 'one', $uuid, $number + 1);
	my $requests = requests();
	is_deeply([ @$requests{qw(multi delete create children)} ], [ 1, undef, undef, undef ],
		'one: by one multi, with nothing read')
	  or diag explain $requests;
	done($session, 'one');
}

# Whoever stands behind has the lock first.
{
	my ($session, $uuid, $number) = hold('fair');
	my $theirs = $foreign->enqueue(lock_dir('fair'));
	my $worker = stop_worker($a);

	give_up_and_want('fair', $session);
	kill 'CONT', $worker;
	poll_until(sub { queue('fair')->[1] eq "$uuid " . ($number + 2) }, 'our contender to stand behind theirs');
	is($foreign->position($theirs), 0, 'fair: theirs is the first');
	ok(!$session->done, 'fair: ours waits');
	$foreign->unlock($theirs);
	granted($session, 'fair', $uuid, $number + 2);
	done($session, 'fair');
}

# One was deleted by somebody: another one in the same multi goes on.
{
	my ($robbed) = hold('robbed');
	my ($session, $uuid, $number) = hold('neighbour');
	my $worker = stop_worker($a);

	give_up_and_want('robbed', $robbed);
	give_up_and_want('neighbour', $session);
	$foreign->delete(lock_dir('robbed') . '/' . (contenders($zk, 'robbed'))[0]);
	kill 'CONT', $worker;
	granted($session, 'neighbour', $uuid, $number + 1);
	is($robbed->result->{message}, undef, 'robbed: the lock is granted');
	is(scalar @{ queue('robbed') }, 1, 'robbed: to a contender of its own');
	done($session, 'neighbour');
	done($robbed, 'robbed');
}

#
# The answer is lost: with the connection, or with the worker
#
# "arrives" tells whether the server gets the multi; "other" that another
# client comes before it is known; "cancel" that the waiter gives up.
#
my $n = 0;
for my $case (
	{ name => 'lost before', arrives => 0 },
	{ name => 'lost behind', arrives => 1 },
	{ name => 'ended before', arrives => 0, end => 1 },
	{ name => 'ended behind', arrives => 1, end => 1 },
	{ name => 'ended before, another comes', arrives => 0, end => 1, other => 1 },
	{ name => 'ended behind, another comes', arrives => 1, end => 1, other => 1 },
	{ name => 'ended before, given up', arrives => 0, end => 1, cancel => 1 },
	{ name => 'ended behind, given up', arrives => 1, end => 1, cancel => 1 })
{
	my $name = 'case' . $n++;
	my ($session, $uuid, $number) = hold($name);
	my $worker = stop_worker($a);
	my $theirs;

	note $case->{name};
	give_up_and_want($name, $session);
	requests();
	$case->{arrives} ? $proxy->mute('a-0') : $proxy->freeze('a-0');
	kill 'CONT', $worker;
	poll_until(sub { ($proxy->requests('a-0')->{multi} // 0) > ($before{multi} // 0) }, 'the multi to be sent');
	poll_until(sub { queue($name)->[0] eq "$uuid " . ($number + 1) }, 'the multi to be carried out')
	  if $case->{arrives};
	is_deeply(queue($name), [ "$uuid " . ($number + $case->{arrives}) ],
		"$name: the contender is " . ($case->{arrives} ? 'the next one' : 'the one of before'));
	$theirs = $foreign->enqueue(lock_dir($name)) if $case->{other};
	if ($case->{end})
	{
		value($a, "SELECT pg_terminate_backend($worker)");
		poll_until(sub { !kill 0, $worker }, 'the worker to end');
	}
	if ($case->{cancel})
	{
		value($a, 'SELECT pg_cancel_backend(' . $session->pid . ')');
		error_is($session->result, { sqlstate => '57014', message => qr/canceling statement/ }, "$name: the waiter gives up");
	}
	$proxy->reset('a-0');
	$proxy->thaw('a-0');
	wait_next_worker($a, $worker), wait_connected($a) if $case->{end};

	if ($case->{cancel})
	{
		wait_no_contenders($zk, $name);
		$session->run_ok('ROLLBACK');
		$session->run_ok('BEGIN');
		$session->run_ok("SELECT zk_lock('$name')", "$name: and can have the lock after that");
	}
	elsif ($theirs && !$case->{arrives})
	{
		poll_until(sub { queue($name)->[1] eq "$uuid " . ($number + 2) },
			'our contender to stand behind theirs');
		ok(!$session->done, "$name: ours waits");
		$foreign->unlock($theirs);
		granted($session, $name, $uuid, $number + 2);
	}
	else
	{
		# nobody is ahead
		is($session->result->{message}, undef, "$name: the lock is granted");
		$foreign->unlock($theirs) if $theirs;
		is_deeply(queue($name), [ "$uuid " . ($number + 1) ], "$name: to the next contender");
	}
	done($session, $name);
}

is(value($a, 'SELECT count(*) FROM zk_locks'), 0, 'no slot is left');

done_testing();
