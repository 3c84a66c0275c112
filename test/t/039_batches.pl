
# Requests that are pending together go to ZooKeeper together, and each is done
# once.  If some of them fail, each of those gets an error of its own, and the others
# go together all the same, whatever fails and how much of it.
#
# And an instance that gives a lock up and wants it again deletes its contender and
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
use ZkWire;
use ZooKeeper;

my $n = 64;

my $zk = ZooKeeper->new;
$zk->start;
my $proxy = ZkProxy->new;
my $servers = $zk->connstr_through($proxy, 'a');
$proxy->count('a-0');
my $foreign = $zk->client(timeout => 60);
my $node = zk_cluster('a', $zk,
	'zklock.servers' => $servers,
	'zklock.session_timeout' => '60s',
	'zklock.commit_check' => 'off',
	'max_connections' => 200);
my @clients = map { ZkWire->new($node) } (1 .. $n + 8);
my @sessions = @clients[ 0 .. $n - 1 ];
my $session_id = session_of($node);
my $worker = worker_of($node);
my $before;

# While the worker stands still, all that is asked of it becomes pending.
sub hold_back
{
	stop_process($worker);
	$before = $proxy->requests('a-0');
	return;
}

# Requests that ZooKeeper has had from the instance, those that nobody asked for, too.
sub all_requests
{
	my ($line) = grep { /sid=$session_id\b/ } split /\n/, $zk->fourlw('cons');
	my ($received) = $line =~ /recved=(\d+)/;

	return $received;
}

# Watches of the instance's own contenders, a request each: one for each lock that
# has been owned for a second.
sub watches
{
	my ($list) = $zk->fourlw('wchc') =~ /^$session_id\n((?:\t.*\n)*)/m;

	return scalar(() = ($list // '') =~ /-lock-\d+\n/g);
}

# How many of these kinds of requests there were since then.
sub requests
{
	my $now = $proxy->requests('a-0');
	my $sum = 0;

	$sum += ($now->{$_} // 0) - ($before->{$_} // 0) for @_;
	return $sum;
}

# Wait for the end of what sessions run.
sub wait_done
{
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;

	while (my @busy = grep { $_->busy } @_)
	{
		ZkWire::wait_any($end - time, @busy) or die @busy . ' sessions are not done';
	}
	return;
}

# The same; they must all succeed.
sub succeed
{
	my ($name, @busy) = @_;

	wait_done(@busy);
	is_deeply([ map { $_->result->{message} // () } @busy ], [], $name);
	return;
}

# Wait for the end of what all run; returns the errors' SQLSTATEs by number.
sub errors
{
	wait_done(@sessions);
	return {
		map { ($_ => $sessions[$_]->result->{sqlstate}) }
		grep { defined $sessions[$_]->result->{message} } (0 .. $n - 1)
	};
}

# Directories that nobody collects, and that the worker has seen.
sub make_known
{
	my ($prefix) = @_;

	$foreign->create(lock_dir("$prefix/$_"), makepath => 1) for (0 .. $n - 1);
	value($node, "SELECT zk_lock('$prefix/' || i) FROM generate_series(0, $n - 1) i");
	wait_no_contenders($zk, "$prefix/$_") for (0 .. $n - 1);
	return;
}

# All ask for their locks at the same time; returns errors as above.
sub lock_all
{
	my ($prefix) = @_;

	$sessions[$_]->send("SELECT zk_lock('$prefix/$_')") for (0 .. $n - 1);
	$node->poll_query_until('postgres',
		"SELECT count(*) = $n FROM zk_locks WHERE name LIKE '$prefix/%' AND NOT granted");
	kill 'CONT', $worker;
	return errors();
}

sub end_all
{
	my ($prefix) = @_;

	$_->run('ROLLBACK') for @sessions;
	wait_no_contenders($zk, "$prefix/$_") for (0 .. $n - 1);
	return;
}

# Each lock has one contender, whose czxid is its token.
sub check_tokens
{
	my ($name, $prefix, @which) = @_;
	my @wrong;

	for my $i (@which)
	{
		my @queue = contenders($zk, "$prefix/$i");
		my $token = $sessions[$i]->run("SELECT zk_fencing_token('$prefix/$i')")->{out};
		my $czxid =
		  @queue ? $foreign->get(lock_dir("$prefix/$i") . "/$queue[0]")->{czxid} : 0;

		push @wrong, "$i: @queue, $token" if @queue != 1 || $token ne $czxid;
	}
	is_deeply(\@wrong, [], "$name: each has one contender, and its token");
	return;
}

# All sessions take their locks and are granted them, and the nodes are right.
sub check_locks
{
	my ($name, $prefix, @sequence) = @_;
	my %expected;
	my %found;

	for my $i (0 .. $n - 1)
	{
		my @queue = contenders($zk, "$prefix/$i");
		my ($number) = ($queue[0] // '') =~ /(\d{10})$/;
		my $token = $sessions[$i]->run("SELECT zk_fencing_token('$prefix/$i')")->{out};
		my $czxid = @queue ? $foreign->get(lock_dir("$prefix/$i") . "/$queue[0]")->{czxid} : 0;

		$expected{$i} = [ 1, $sequence[$i] // $sequence[0], 'its czxid' ];
		$found{$i} = [ scalar @queue, 0 + ($number // -1),
			$token eq $czxid ? 'its czxid' : "$token, not $czxid" ];
	}
	is_deeply(\%found, \%expected, "$name: contenders, sequence numbers, tokens");
	return;
}

#
# All at once
#

make_known($_) for qw(pending failing lost);

{
	$_->run('BEGIN') for @sessions;
	my $worker = stop_worker($node);
	my $before = all_requests();
	$sessions[$_]->send("SELECT zk_lock('pending/$_')") for (0 .. $n - 1);
	$node->poll_query_until('postgres',
		"SELECT count(*) = $n FROM zk_locks WHERE name LIKE 'pending/%' AND NOT granted");
	kill 'CONT', $worker;
	succeed("$n locks that are pending together", @sessions);
	check_locks('together', 'pending', 1);

	# a read for each, a create for all; and what the tokens take
	my $used = all_requests() - $before - watches();
	note "$used requests for $n locks";
	cmp_ok($used, '<', $n * 1.5, 'one create for all of them');

	# a watch for a revocation, if there is one yet, is removed at the release
	$worker = stop_worker($node);
	my $watched = watches();
	$before = all_requests();
	$_->send('COMMIT') for @sessions;
	succeed('commits do not wait for the worker', @sessions);
	kill 'CONT', $worker;
	wait_no_contenders($zk, "pending/$_") for (0 .. $n - 1);
	$used = all_requests() - $before - $watched;
	note "$used requests for $n releases";
	cmp_ok($used, '<', $n / 2, 'one delete for all of them');
}

#
# One fails
#

{
	my ($behind, $group, $permit, @holders) = @clients[ $n .. $n + 7 ];

	# the directory of one lock has gone, and so has the contender of another
	$_->run('BEGIN') for (@sessions, $behind, $group, $permit, @holders);
	$holders[$_]->run("SELECT zk_lock('kept/$_')") for (0 .. $#holders);
	my $theirs = $foreign->lock(lock_dir('behind'));
	my $worker = stop_worker($node);
	my ($gone) = contenders($zk, 'kept/2');
	$foreign->delete(lock_dir('kept/2') . "/$gone");
	$foreign->delete(lock_dir('failing/17'));
	my $before = all_requests();

	$_->send('COMMIT') for @holders;
	$sessions[$_]->send("SELECT zk_lock('failing/$_')") for (0 .. $n - 1);
	$behind->send("SELECT zk_lock('behind')");
	$group->send("SELECT zk_lock_all(ARRAY['failing/all', 'failing/both'])");
	$permit->send("SELECT zk_acquire('failing_permit', 1)");
	succeed('commits of the holders', @holders);
	$node->poll_query_until('postgres',
		'SELECT count(*) = ' . ($n + 3) . ' FROM zk_locks WHERE NOT granted');
	kill 'CONT', $worker;

	succeed("$n locks, of which the directory of one is gone",
		@sessions, $group, $permit);
	my $used = all_requests() - $before - watches();
	note "$used requests, two for each lock that are reads";
	cmp_ok($used, '<', $n * 3, 'the others went together all the same');
	my @sequence = (1) x $n;
	$sequence[17] = 0;
	check_locks('one fails', 'failing', @sequence);
	wait_no_contenders($zk, "kept/$_") for (0 .. $#holders);
	is(scalar(contenders($zk, "failing/$_")), 1, "one of a group: $_") for qw(all both);

	wait_contenders($zk, 'behind', 2);
	ok($behind->busy, 'who has to wait waits');
	$foreign->unlock($theirs);
	succeed('and has its lock in the end', $behind);

	$_->send('ROLLBACK') for (@sessions, $behind, $group, $permit);
	succeed('the end', @sessions, $behind, $group, $permit);
	wait_no_contenders($zk, $_)
	  for ((map { "failing/$_" } (0 .. $n - 1), 'all', 'both'), 'behind');
}

#
# Some fail
#

# Directories are missing: of one, of the first, of some, of most, of all.
my %missing = (
	'one' => [17],
	'the first' => [0],
	'some' => [ 3, 4, 19, 40, 63 ],
	'most' => [ grep { $_ % 3 } (0 .. $n - 1) ],
	'all' => [ 0 .. $n - 1 ]);

for my $which ('one', 'the first', 'some', 'most', 'all')
{
	my @gone = @{ $missing{$which} };

	make_known($which);
	$_->run('BEGIN') for @sessions;
	hold_back();
	$foreign->delete(lock_dir("$which/$_")) for @gone;
	is_deeply(lock_all($which), {}, "directories of $which are missing: all get their locks");

	# a create for a directory, and one for the one above it; a multi that
	# fails, one for the others, one for those that failed
	my $creates = requests(qw(create create_container)) - 2 * @gone;
	my $multis = requests('multi');
	note("directories of $which are missing: creates besides them $creates, multis $multis, "
		  . 'children read ' . requests('children'));
	cmp_ok($creates + $multis, '<=', 8, "$which: the creates go together");
	cmp_ok(requests('children'), '<=', 2 * $n + @gone + 8, "$which: the queues are read twice");

	check_tokens($which, $which, 0 .. $n - 1);
	end_all($which);
}

# Contenders are missing when they are to be deleted.
make_known('held');
{
	$_->run('BEGIN') for @sessions;
	$sessions[$_]->run("SELECT zk_lock('held/$_')") for (0 .. $n - 1);
	hold_back();
	for my $i (5, 6, 30, 50)
	{
		my ($contender) = contenders($zk, "held/$i");
		$foreign->delete(lock_dir("held/$i") . "/$contender");
	}
	$_->send('COMMIT') for @sessions;
	is_deeply(errors(), {}, 'four contenders have been deleted behind our back: all commit');
	kill 'CONT', $worker;
	wait_no_contenders($zk, "held/$_") for (0 .. $n - 1);
	$node->poll_query_until('postgres', 'SELECT slots = 0 FROM zk_stat');
	my $deletes = requests('delete');
	my $multis = requests('multi');
	note("deletes alone $deletes, multis $multis");
	cmp_ok($deletes + $multis, '<', $n / 2, 'the deletes go together');
}

# Some may not be created.
make_known('denied');
{
	my @denied = (2, 33);

	$_->run('BEGIN') for @sessions;
	$foreign->set_acl(lock_dir("denied/$_"), 'read') for @denied;
	hold_back();
	is_deeply(lock_all('denied'), { map { ($_ => '42501') } @denied },
		'the ACL of two directories denies us: they get the error, the others their locks');
	my $creates = requests(qw(create create_container));
	my $multis = requests('multi');
	note("creates alone $creates, multis $multis");
	cmp_ok($creates + $multis, '<', $n / 4, 'the creates go together');
	my %denied = map { ($_ => 1) } @denied;
	check_tokens('denied', 'denied', grep { !$denied{$_} } (0 .. $n - 1));
	$_->run('ROLLBACK') for @sessions;
}

is($node->safe_psql('postgres', 'SELECT sessions, reconnects FROM zk_session'),
	'1|0', 'one session, one connection');

#
# The connection is lost while they are on their way
#

for my $try (1 .. 3)
{
	$_->run('BEGIN') for @sessions;
	my $worker = stop_worker($node);
	$sessions[$_]->send("SELECT zk_lock('lost/$_')") for (0 .. $n - 1);
	$node->poll_query_until('postgres',
		"SELECT count(*) = $n FROM zk_locks WHERE NOT granted");
	kill 'CONT', $worker;
	$proxy->reset('a-0');
	succeed("try $try: a connection that is lost", @sessions);
	check_locks("try $try", 'lost', $try);
	$_->send('COMMIT') for @sessions;
	$proxy->reset('a-0');
	succeed("try $try: commits", @sessions);
	wait_no_contenders($zk, "lost/$_") for (0 .. $n - 1);
	is(session_of($node), $session_id, 'the session is the same');
}

#
# A lock that is given up and wanted again
#

$_->vanish for @clients;
edit_settings($node, 'zklock.handoff_quantum' => '0');
$node->restart;
wait_connected($node);
$session_id = session_of($node);
my $log_offset = -s $node->logfile;

# The contenders for a lock of the instance, as "uuid number" in their order.
sub queue
{
	my ($name) = @_;

	return [ map { /^_c_(.{36})-lock-(\d{10})$/ ? "$1 " . (0 + $2) : $_ } contenders($zk, $name) ];
}

# What requests there were since the last call, apart from those that nobody
# asked for.
my %before;

sub requests_since
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
	my $session = ZkSession->new($node);

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
	is(session_of($node), $session_id, "$name: the session has stayed");
	unlike(slurp_file($node->logfile, $log_offset), qr/deleting znode|could not delete|lost the lock/,
		"$name: nothing was left, and nothing lost");
	return;
}

{
	my ($session, $uuid, $number) = hold('one');
	my $worker = stop_worker($node);

	give_up_and_want('one', $session);
	requests_since();
	kill 'CONT', $worker;
	granted($session, 'one', $uuid, $number + 1);
	my $requests = requests_since();
	is_deeply([ @$requests{qw(multi delete create children)} ], [ 1, undef, undef, undef ],
		'one: by one multi, with nothing read')
	  or diag explain $requests;
	done($session, 'one');
}

# Whoever stands behind has the lock first.
{
	my ($session, $uuid, $number) = hold('fair');
	my $theirs = $foreign->enqueue(lock_dir('fair'));
	my $worker = stop_worker($node);

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
	my $worker = stop_worker($node);

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

# The answer is lost: with the connection, or with the worker.
#
# "arrives" tells whether the server gets the multi; "other" that another
# client comes before it is known; "cancel" that the waiter gives up.
#
my $cases = 0;
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
	my $name = 'case' . $cases++;
	my ($session, $uuid, $number) = hold($name);
	my $worker = stop_worker($node);
	my $theirs;

	note $case->{name};
	give_up_and_want($name, $session);
	requests_since();
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
		value($node, "SELECT pg_terminate_backend($worker)");
		poll_until(sub { !kill 0, $worker }, 'the worker to end');
	}
	if ($case->{cancel})
	{
		value($node, 'SELECT pg_cancel_backend(' . $session->pid . ')');
		error_is($session->result, { sqlstate => '57014', message => qr/canceling statement/ }, "$name: the waiter gives up");
	}
	$proxy->reset('a-0');
	$proxy->thaw('a-0');
	wait_next_worker($node, $worker), wait_connected($node) if $case->{end};

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

is(value($node, 'SELECT count(*) FROM zk_locks'), 0, 'no slot is left');

$node->stop;
done_testing();
