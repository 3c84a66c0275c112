# Copyright (c) 2026, zklock developers

# What somebody can do who reaches ZooKeeper and is no instance, with zklock.acl
# open and creator: forge a deadlock, or that one has been ended, end a session while
# its instance does not hear of it, make znodes in its session, and write what nobody
# can read.

use strict;
use warnings;
no warnings 'portable';	# the number of a session has 64 bits

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

my $proxy = ZkProxy->new;
my $zk = ZooKeeper->new;
$zk->start;
$zk->connstr_through($proxy, $_) for qw(a b);
$proxy->count('a-0', 'b-0');
my ($a, $b) = zk_clusters(
	$zk, [qw(a b)],
	'zklock.servers' => sub { $zk->connstr_through($proxy, $_[0]) },
	'zklock.session_timeout' => '40s',
	'autovacuum' => 'off',
	'deadlock_timeout' => '300ms',
	'log_lock_waits' => 'off');
my $stranger = $zk->client(timeout => 60);
my $room = '/zklock/%waits';

wait_connected($_) for ($a, $b);


my %worker = map { $_->name => worker_of($_) } ($a, $b);

# What the owner of a lock tells.
sub owner_data
{
	my ($dir) = @_;
	my ($owner) = $stranger->contenders($dir) or return '';
	return (eval { $stranger->get("$dir/$owner")->{data} } // '');
}

sub in_room { return eval { $stranger->ls($room) }; }

sub wait_empty_room
{
	poll_until(sub { !in_room() }, 'the instances to tidy up');
	return;
}

#
# A session that holds one lock, and waits for another, of a session that waits
# for nothing: no deadlock.
#

# A text by which somebody in instance z keeps one lock and waits for another; the
# later its transaction began, the rather it is the victim.
sub forged
{
	my ($kept, $wanted, $began) = @_;

	return sprintf "zklock1 z\nwait 1 x %s 1 1 %s - - -\nkeep x %s 1\n",
	  lock_dir($wanted), $began // 1, lock_dir($kept);
}

# The cycles that instances have confirmed.
sub confirmed
{
	my %hashes = map { /^([0-9a-f]{32})\./ ? ($1 => 1) : () } in_room();

	return keys %hashes;
}

{
	my $p = ZkSession->new($a);
	my $q = holder($b, 'y');

	$p->run_ok("BEGIN; SELECT zk_lock('x')");
	my $theirs = $stranger->enqueue(lock_dir('x'));
	$p->send("SELECT zk_lock('y')");
	poll_until(sub { told($zk, 'keep', 'x') }, 'a to tell for whom it waits');

	# the stranger says that the owner of y waits for x
	my @made = $stranger->create("$room/z-", data => forged('y', 'x'), ephemeral => 1, sequence => 1);
	poll_until(sub { confirmed() == 1 }, 'a to confirm the forged deadlock');
	ok(!$p->done, 'open: a forged text alone makes nobody fail');

	push @made, $stranger->create("$room/" . (confirmed())[0] . '.z', ephemeral => 1);
	is($p->result->{sqlstate}, '40P01',
		'open: who forges the confirm, too, ends a session that waits in ZooKeeper');
	$p->run_ok('ROLLBACK');
	$q->run_ok('SELECT 1', 'open: a session that waits for nothing does not fail');
	is(value($b, "SELECT count(*) FROM zk_locks WHERE name = 'y' AND NOT lost"), 1, '... and keeps its lock');
	$q->run_ok('COMMIT');
	for (@made, $theirs) { eval { $stranger->delete($_) }; }
	wait_empty_room();
	$_->quit for ($p, $q);
}

#
# The end of a session that its instance does not hear of
#

sub lease { return value($a, 'SELECT extract(epoch FROM lease) FROM zk_session'); }

value($a, 'CREATE TABLE sales (n int)');

for my $check ('quorum', 'lease')
{
	my $s = ZkSession->new($a);
	my $other = ZkSession->new($b);
	my $session = session_of($a);

	$s->run_ok("SET zklock.commit_check = $check; BEGIN; SELECT zk_lock('w'); INSERT INTO sales VALUES (1)");
	poll_until(sub { my $left = lease(); $left ne '' && $left > 10 }, 'a long lease') if $check eq 'lease';
	$proxy->freeze('a-0');
	ok($stranger->kill_session($session), "$check: the session is ended, and no news arrives");
	is($other->run("SELECT zk_try_lock('w', '3 min', session => true)")->{out}, 't',
		"$check: another instance gets the lock at once");
	is(session_of($a), $session, "$check: the holder's does not know");
	if ($check eq 'quorum')
	{
		$s->send('COMMIT');
		$s->wait_waiting(2);
		is(value($a, 'SELECT count(*) FROM sales'), 0, 'quorum: COMMIT waits for ZooKeeper');
		$proxy->thaw('a-0');
		error_is($s->result, $lock_lost, 'quorum: ... and fails');
		is(value($a, 'SELECT count(*) FROM sales'), 0, 'quorum: nothing is committed');
	}
	else
	{
		cmp_ok(lease(), '>', 0, 'lease: it has a lease');
		$s->run_ok('COMMIT', 'lease: COMMIT does not wait');
		is(value($a, 'SELECT count(*) FROM sales'), 1, 'lease: what is done under a lost lock is committed');
		$proxy->thaw('a-0');
	}
	$other->run_ok("SELECT zk_unlock('w')");
	poll_until(sub { session_of($a) ne $session }, 'a new session');
	wait_connected($a);
	$_->quit for ($s, $other);
}

# With quorum, what ZooKeeper has confirmed before is good for a second.  On a slow
# machine that may be over, and the COMMIT fails.
{
	my $s = ZkSession->new($a);
	my $other = ZkSession->new($b);
	my $committed;

	for (1 .. 20)
	{
		my $session = session_of($a);

		$s->run_ok("SET zklock.commit_check = quorum; BEGIN; SELECT zk_lock('w'); INSERT INTO sales VALUES (2)");
		my $change = $zk->last_change;
		$proxy->mute('a-0');
		$s->send('COMMIT');
		poll_until(sub { $zk->last_change ne $change }, 'ZooKeeper to process the question');
		$stranger->kill_session($session);
		is($other->run("SELECT zk_try_lock('w', '3 min', session => true)")->{out}, 't',
			'quorum: a session is ended behind the check, and another instance gets the lock');
		$proxy->thaw('a-0');
		my $result = $s->result;
		$other->run_ok("SELECT zk_unlock('w')");
		poll_until(sub { session_of($a) ne $session }, 'a new session');
		wait_connected($a);
		$committed = !defined $result->{sqlstate} and last;
		error_is($result, $lock_lost, '... too late');
	}
	ok($committed, 'quorum: what was confirmed before that is committed');
	is(value($a, 'SELECT count(*) FROM sales WHERE n = 2'), 1, '... once');
	$_->quit for ($s, $other);
}

#
# Data that nobody can read, while two instances wait for each other
#

seed();

sub random_bytes { return join '', map { chr int rand 256 } 1 .. $_[0]; }

# What is like a text, and is not: changed, cut, or longer.
sub garble
{
	my ($text) = @_;
	my $kind = int rand 5;

	return random_bytes(1 + int rand 300) if $kind == 0 || $text eq '';
	return substr $text, 0, int rand length $text if $kind == 1;
	return $text x (1 + 200_000 / length $text) if $kind == 2;
	for (0 .. rand 8)
	{
		substr $text, rand length $text, 1, $kind == 3 ? chr int rand 256 : (',', ' ', '%', '-', '/', "\n", '9' x 30)[ rand 7 ];
	}
	return $text;
}

# Names below a directory, which are there until they are thrown away.
my @made;

sub make
{
	my ($dir, $name, $data) = @_;

	$name =~ s/[^!-.0-~]/?/g;
	$name = substr $name, 0, 1000;
	# a name may be there already, or not be allowed
	push @made, eval { $stranger->create("$dir/$name", hex => unpack('H*', $data), ephemeral => 1) } // ();
	return;
}

# A session that holds one lock and waits for another one, and whom it keeps.
sub waits_for
{
	my ($node, $held, $wanted) = @_;
	my $session = holder($node, $held);
	my $theirs = $stranger->enqueue(lock_dir($held));

	$session->send("SELECT zk_lock('$wanted')");
	poll_until(sub { told($zk, 'keep', $held) }, 'a wait to be published');
	return { session => $session, node => $node, held => $held, theirs => $theirs };
}

#
# A forged deadlock, and its forged end: nobody has failed
#

{
	my $keep = holder($b, 'y0');
	my $wait = waits_for($a, 'x0', 'y0');
	my $latest = value($a, 'SELECT coalesce(max(id), 0) FROM zk_deadlocks');
	my $forged = "FROM zk_deadlocks WHERE victim AND id > $latest";

	push @made, $stranger->create("$room/z-", data => forged('y0', 'x0', 'f' x 16), ephemeral => 1, sequence => 1);
	poll_until(sub { confirmed() == 1 }, 'a to confirm the forged deadlock');
	push @made, $stranger->create("$room/ended." . (confirmed())[0] . '.z', ephemeral => 1);
	poll_until(sub { value($a, "SELECT count(*) $forged AND cluster_name = 'z'") ne '0' },
		'a to note a forged deadlock');
	pass('open: who forges a text and the end of its deadlock adds that to zk_deadlocks');
	is(value($a, "SELECT count(*) $forged AND local"), 0, 'open: ... but none with a victim of the instance that it is shown by');
	ok(!$wait->{session}->done, 'open: ... and nobody fails');

	value($a, 'SELECT pg_cancel_backend(' . $wait->{session}->pid . ')');
	is($wait->{session}->result->{sqlstate}, '57014', 'who waits is canceled');
	$_->run('ROLLBACK') for ($keep, $wait->{session});
	$_->quit for ($keep, $wait->{session});
	for (splice(@made), $wait->{theirs}) { eval { $stranger->delete($_) }; }
	wait_empty_room();
	wait_no_contenders($zk, $_) for qw(x0 y0);
}

for my $round (1 .. 3)
{
	my $uuid = '89ab0123-4567-4def-8edc-ba9876543210';
	my @keep = (holder($b, 'y1'), holder($a, 'y2'));
	my @wait = (waits_for($a, 'x1', 'y1'), waits_for($b, 'x2', 'y2'));
	my @dirs = map { lock_dir($_) } qw(x1 y1 x2 y2);
	my @texts = map { $stranger->get("$room/$_")->{data} } grep { /-\d{10}$/ } in_room();
	my @notes = map { owner_data(lock_dir($_)) } qw(x1 x2);
	my @names = ('z-0000000007', '0123456789abcdef0123456789abcdef.z', 'ended.0123456789abcdef0123456789abcdef.z',
		'-0000000007', 'z-00000000077', 'ended.', '.z');
	my %reads = map { $_ => $proxy->requests("$_-0")->{exists} // 0 } qw(a b);
	my $written = 0;

	for my $i (1 .. 40)
	{
		make($room, sprintf('z-%010d', rand 2**31), garble($texts[ rand @texts ])) for 1 .. 2;
		make($room, garble($names[ rand @names ]), garble($texts[ rand @texts ]));
		make('/zklock/%clusters', member_node($i), garble('zklock cluster=a host=db1 port=5432'));
		make($dirs[ rand @dirs ], garble("_c_$uuid-lock-x"), garble($notes[ rand @notes ]));
		my $dir = $dirs[ rand @dirs ];
		$written += eval { $stranger->set_hex("$dir/$_", unpack 'H*', garble($notes[ rand @notes ])); 1 } // 0
		  for $stranger->contenders($dir);
	}
	cmp_ok(@made, '>', 100, 'garbled znodes are made');
	cmp_ok($written, '>', 40, '... and contenders garbled');

	# what people ask for
	for my $node ($a, $b)
	{
		cmp_ok(value($node, 'SELECT count(*) FROM zk_fleet()'), '>', 10, $node->name . ' reads garbled members');
		cmp_ok(value($node, "SELECT count(*) FROM unnest('{x1,y1,x2,y2}'::text[]) n, zk_queue(n) WHERE owner !~ '^postgresql host=\\S+ port=\\d+ cluster=[ab] pid=\\d+\$'"),
			'>', 0, '... and garbled contenders');
		value($node, 'SELECT count(*) FROM zk_fleet_locks()');
	}

	# what workers read: among all that, a text of a deadlock with each of them
	my %held = (y1 => 'x1', y2 => 'x2');
	push @made, $stranger->create("$room/z-", data => forged($_, $held{$_}), ephemeral => 1, sequence => 1)
	  for keys %held;
	for my $node (map { $_->{node} } @wait)
	{
		my $name = $node->name;
		my $session = hex session_of($node);

		poll_until(
			sub {
				return grep { $_ && $_->{ephemeralOwner} == $session }
				  map { eval { $stranger->get("$room/$_") } } grep { /^[0-9a-f]{32}\./ } in_room();
			},
			"$name to confirm");
		pass("$name confirms a text among the garbled ones");
		cmp_ok($proxy->requests("$name-0")->{exists} - $reads{$name}, '>=', 80, '... which it has read');
	}

	value($_->{node}, 'SELECT pg_cancel_backend(' . $_->{session}->pid . ')') for @wait;
	like($_->{session}->result->{sqlstate} // 'none', qr/^(57014|40P01)$/, 'who waits ends') for @wait;
	$_->run('ROLLBACK') for @keep, map { $_->{session} } @wait;
	$_->quit for @keep, map { $_->{session} } @wait;
	for (splice(@made), map { $_->{theirs} } @wait) { eval { $stranger->delete($_) }; }
	wait_empty_room();
	wait_no_contenders($zk, $_) for qw(x1 y1 x2 y2);
}

# Afterwards all is as it was.
sub deadlock
{
	my ($what) = @_;
	my $p = holder($a, 'x3');
	my $q = holder($b, 'y3');

	$p->send("SELECT zk_lock('y3')");
	wait_contenders($zk, 'y3', 2);
	$q->send("SELECT zk_lock('x3')");

	# the end of the one lets the other go on
	my @states = sort map { $_->result->{sqlstate} // 'granted' } ($p, $q);
	is("@states", '40P01 granted', "$what: a deadlock is found, and one session goes on");
	$_->run('ROLLBACK') for ($p, $q);
	$_->quit for ($p, $q);
	wait_empty_room();
	return;
}

deadlock('after all that');
for my $node ($a, $b)
{
	my $name = $node->name;

	is(worker_of($node), $worker{$name}, "$name has the worker that it began with");
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal|"zklock[^"]*" \(PID \d+\) exited/,
		"$name: no process has failed");
}

#
# With zklock.acl = creator, below a root of their own
#

for my $node ($a, $b)
{
	$node->append_conf('postgresql.conf', "$_->[0] = '$_->[1]'")
	  for ([ 'zklock.root', '/own' ], [ 'zklock.auth', 'shop:secret' ], [ 'zklock.acl', 'creator' ]);
	$node->restart;
	wait_connected($node);
}

{
	my $owner = $zk->client(timeout => 60);
	my $p = holder($a, 'x');
	my $q = holder($b, 'y');
	my $w = ZkSession->new($b);
	my $x = lock_dir('x', '/own');
	my $y = lock_dir('y', '/own');

	$owner->add_auth('digest', 'shop:secret');
	$w->send("SELECT zk_lock('x')");
	poll_until(sub { $owner->contenders($x) == 2 }, 'somebody to wait for a');
	$p->send("SELECT zk_lock('y')");
	poll_until(sub { grep { /-\d{10}$/ } eval { $owner->ls('/own/%waits') } }, 'a to tell for whom it waits');
	my ($node) = $owner->contenders($y);
	my $session = session_of($b);
	my %try = (
		'read a note' => sub { $stranger->get("$y/$node") },
		'read the texts' => sub { $stranger->ls('/own/%waits') },
		'make a text' => sub { $stranger->create('/own/%waits/z-', ephemeral => 1, sequence => 1) },
		'make a confirm' => sub { $stranger->create('/own/%waits/0123456789abcdef0123456789abcdef.z', ephemeral => 1) },
		'pretend to be an instance' => sub { $stranger->create('/own/%clusters/' . member_node(1), ephemeral => 1) });

	for (sort keys %try)
	{
		ok(!eval { $try{$_}->(); 1 } && $@ =~ /^NoAuthError/, "creator: cannot $_") or diag($@);
	}

	# the session's password does not bring its credentials
	for my $path ("$x/_c_89ab0123-4567-4def-8edc-ba9876543210-lock-", '/own/%waits/z-', '/own/%clusters/forged-')
	{
		ok(!eval { $stranger->create_in_session($session, $path); 1 } && $@ =~ /the create failed with -102/,
			"creator: cannot make $path in the session of an instance") or diag($@);
	}
	ok($stranger->get('/own/%clusters')->{czxid}, 'creator: can read the identity of the fleet');
	is(scalar($stranger->ls('/own/%clusters')), 2, '... and see how many instances there are');

	ok(!$p->done, 'creator: who waits waits on');
	$q->run_ok('COMMIT');
	is($p->result->{message}, undef, 'creator: ... and gets its lock');
	$p->run_ok('COMMIT');
	is($w->result->{message}, undef, 'creator: ... and the next one as well');
	$_->quit for ($p, $q, $w);
}

$_->stop for ($a, $b);
done_testing();
