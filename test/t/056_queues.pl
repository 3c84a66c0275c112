
# All locks in use at a glance: over two instances and with foreign clients, while
# queues move, and with many directories.

use strict;
use warnings;
use utf8;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

# As many reads may be out at a time.
my $at_a_time = 16;

my $zk = ZooKeeper->new;
$zk->start;
my $proxy = ZkProxy->new;
my $servers = $zk->connstr_through($proxy, 'a');
$proxy->count('a-0');
my %settings = ('zklock.session_timeout' => '60s', 'deadlock_timeout' => '100ms');
my $a = zk_cluster('a', $zk, %settings, 'zklock.servers' => $servers);
my $b = zk_cluster('b', $zk, %settings);
my $foreign = $zk->client(timeout => 60);

# Rows as strings.
sub queues
{
	my ($node, $columns, $where) = @_;

	my $rows = $node->safe_psql('postgres',
		"SELECT $columns FROM zk_fleet_locks()" . ($where ? " WHERE $where" : '')
		  . ' ORDER BY name COLLATE "C"');

	utf8::decode($rows);
	return [ split /\n/, $rows ];
}

sub listed { return $proxy->requests('a-0')->{children} // 0; }

is_deeply(queues($a, '*'), [], 'at first there is none');

#
# Each kind of lock, held and waited for by each kind of client
#

my $x = holder($a, 'x y');
my $x_waits = waiter($b, 'x y', 2);
my $x_foreign = $foreign->enqueue(lock_dir('x y'));
my @readers = map { ZkSession->new($_) } ($a, $b);
for my $reader (@readers)
{
	$reader->run_ok($_) for ('BEGIN', "SELECT zk_lock('r', shared => true)");
}
my $r_foreign = $foreign->enqueue(lock_dir('r'));
my $s = ZkSession->new($a);
$s->run_ok($_) for ('BEGIN', "SELECT zk_acquire('s', 1)");
my $s_waits = waiter($b, 's', 2, "SELECT zk_acquire('s', 1)");
my $f_foreign = $foreign->lock(lock_dir('f'));
my $odd = holder($b, '%25 ä');
my $own = holder($b, '%waits');

# what is there and in use by nobody: a directory, another root, and a child
# that is not ephemeral
$foreign->create('/zklock/nobody', makepath => 1);
$foreign->create('/zklock/tenant/z/_c_1-lock-0000000000', makepath => 1);
$foreign->create('/zklock/jobs/job-0000000000', makepath => 1);
$foreign->create('/zklock/%clusters/a', makepath => 1);

# who holds x waits for f
$x->send("SELECT zk_lock('f')");
$x->wait_waiting(2);
poll_until(sub { queues($b, 'waits_for', "name = 'x y'")->[0] ne '' }, 'the wait to be published');

my $expected = [
	'%25 ä|exclusive|1|b|0|',
	'%waits|exclusive|1|b|0|',
	'f|exclusive|1||1|',
	'r|shared|2|a|1|',
	's|permit|2|a|1|',
	'x y|exclusive|1|a|2|{f}' ];
for my $node ($a, $b)
{
	is_deeply(queues($node, 'name, mode, holders, cluster_name, waiters, waits_for'), $expected,
		$node->name . ' sees all of them');
}
is_deeply(
	queues($b, "cluster_name, port, pid, host = substring(holder FROM ' host=(\\S+)')", "name IN ('f', 'x y')"),
	[ '|||', 'a|' . $a->port . '|' . $x->pid . '|t' ],
	'and where the holder runs, and its session');
like(queues($b, 'holder', "name = 'x y'")->[0], qr/^postgresql host=\S+ port=\d+ cluster=a pid=\d+$/,
	'and what it says of itself, without what workers publish');
is(queues($b, 'holder', "name = 'f'")->[0], 'foreign contender', 'and of other clients');
is($b->safe_psql('postgres',
		'SELECT bool_and(queued_at <= seen AND seen <= clock_timestamp() AND seen >= now()),'
		  . " bool_and((longest_wait >= '0') = (waiters > 0)) FROM zk_fleet_locks()"),
	't|t', 'and since when, how long, and how old the row is');
my $before = queues($b, 'longest_wait', "name = 'x y'")->[0];
poll_until(sub { queues($b, "longest_wait > '$before'", "name = 'x y'")->[0] eq 't' }, 'the wait to grow');
pass('the longest wait grows');
is($b->safe_psql('postgres', "SET zklock.root = '/zklock/tenant'; SELECT count(*) FROM zk_fleet_locks()"),
	0, 'below another root there is none');
is($b->safe_psql('postgres', "SET zklock.root = '/none'; SELECT count(*) FROM zk_fleet_locks()"),
	0, 'nor below one that does not exist');

# A waiter that leaves is no longer there.
$foreign->unlock($x_foreign);
is(queues($a, 'waiters', "name = 'x y'")->[0], 1, 'who leaves does not count');

#
# Who may ask, and what may be read
#

$b->safe_psql('postgres', 'CREATE ROLE alice; CREATE ROLE bob; GRANT pg_monitor TO bob');
sql_error($b, 'SET ROLE alice; SELECT * FROM zk_fleet_locks()',
	{ sqlstate => '42501', message => 'permission denied for function zk_fleet_locks' });
is($b->safe_psql('postgres', 'SET ROLE bob; SELECT count(*) FROM zk_fleet_locks()'), 6,
	'a member of pg_monitor may ask');

$foreign->add_auth('digest', 'them:secret');
$foreign->create('/zklock/theirs', makepath => 1);
$foreign->set_acl('/zklock/theirs', 'creator');
is_deeply(queues($b, 'name, mode, holders, holder, waiters, longest_wait', "name = 'theirs'"),
	['theirs|||||'], 'of what may not be listed it shows only that it is there');

#
# The queue moves while it is read
#

# The first owner goes when the worker has sent what reads it, and the server
# has not seen that: then the next one is read.
{
	my @queue = map { $foreign->enqueue(lock_dir('moves')) } (1 .. 30);
	my $next = 0;

	while (@queue > 1 && !$next)
	{
		my $session = ZkSession->new($a);
		my $reads = $proxy->requests('a-0')->{exists} // 0;

		$proxy->delay(200, 'a-0');
		$session->send("SELECT waiters FROM zk_fleet_locks() WHERE name = 'moves' AND holder IS NOT NULL");
		poll_until(sub { ($proxy->requests('a-0')->{exists} // 0) > $reads }, 'the worker to read');
		$proxy->freeze('a-0');
		$foreign->unlock(shift @queue);
		$proxy->thaw('a-0');
		$proxy->delay(0, 'a-0');
		$next = $session->result->{out} == $#queue;
		$session->quit;
	}
	ok($next, 'an owner that has gone is not shown, but the next one');
	$foreign->unlock($_) for @queue;
}

#
# Many directories
#

$foreign->create("/zklock/many $_", makepath => 1) for (1 .. 2 * $at_a_time);
{
	my $session = ZkSession->new($a);
	my $lists = listed();

	$proxy->delay(200, 'a-0');
	$session->send('SELECT count(*) FROM zk_fleet_locks()');
	poll_until(sub { listed() > $lists + 10 }, 'the worker to list');
	$proxy->mute('a-0');
	poll_until(sub { listed() >= $lists + 1 + $at_a_time }, 'as many lists as may be out');
	cmp_ok(listed(), '<', $lists + 2 * $at_a_time, 'it lists many directories at a time, and not all');
	$proxy->delay(0, 'a-0');
	$proxy->thaw('a-0');
	is($session->result->{out}, 7, 'and answers');

	# nobody waits for the answer any more
	$lists = listed();
	$proxy->delay(200, 'a-0');
	$session->send('SELECT count(*) FROM zk_fleet_locks()');
	poll_until(sub { listed() > $lists + 10 }, 'the worker to list');
	$a->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $session->pid . ')');
	is($session->result->{sqlstate}, '57014', 'it can be canceled');
	$proxy->delay(0, 'a-0');
	is(sql($a, "SELECT count(*) FROM zk_queue('f')")->{out}, 2, 'the worker answers others');
	cmp_ok(listed(), '<', $lists + 2 * $at_a_time, 'and does not go on listing');
	$session->quit;
}

$foreign->unlock($_) for ($r_foreign, $f_foreign);
is($x->result->{message}, undef, 'the waiter gets its lock');
$_->quit for ($x, $x_waits, $s, $s_waits, $odd, $own, @readers);
is_deeply(queues($b, 'name', 'holders + waiters > 0'), [], 'in the end there is none')
  if poll_until(sub { !@{ queues($b, 'name', 'holders + waiters > 0') } }, 'all to be given back');

retire($a, $b);

#
# A client of ZooKeeper makes tens of thousands of znodes where instances list:
# in %waits, in %clusters, and in a lock directory; and with each change instances
# list them again.  Meanwhile lock calls of others go on.  What counts is the time
# for which the worker keeps them waiting: that of the processor that its loop
# takes, which does not depend on what else the machine does.
#

{
	my $crowd = 60_000;
	my $changes = 10;

	# ms
	my $longest = 100;

	my ($a, $b) = zk_clusters(
		$zk, [ 'a', 'b' ],
		'zklock.session_timeout' => '20s',
		'deadlock_timeout' => '100ms');
	my $stranger = $zk->client(timeout => 60);
	my %caller = map { $_->name => ZkSession->new($_) } ($a, $b);
	my $caller = $caller{a};
	my %worker = map { $_->name => worker_of($_) } ($a, $b);

	# The processor time of a worker's loop, in ms.
	my sub busy
	{
		my ($worker) = @_;
		my $stat = slurp_file("/proc/$worker/task/$worker/stat");
		my @fields = split ' ', $stat =~ s/^.*\) //sr;

		return ($fields[11] + $fields[12]) * 10;
	}

	$_->run_ok('CREATE TEMP TABLE calls (ms float)') for values %caller;

	# Calls for locks that nobody else wants, each by way of ZooKeeper.
	my $calls = 0;

	my sub call
	{
		my ($what) = @_;
		my $name = 'other' . $calls++;

		is( $caller->run(
				"DO \$\$ DECLARE since timestamptz; BEGIN FOR i IN 1 .. 10 LOOP since := clock_timestamp();"
				  . " PERFORM zk_lock('$name-' || i, '1 min'); COMMIT;"
				  . " INSERT INTO calls VALUES (extract(epoch FROM clock_timestamp() - since) * 1000); COMMIT; END LOOP; END \$\$")->{sqlstate},
			undef,
			"$what: other locks are taken");
		return;
	}

	# Changes of a directory with a crowd, and calls behind each, beside another
	# session's query.
	my sub scene
	{
		my ($what, $pattern, $beside, $query) = @_;
		my $data = $beside ? 'x' : '';    # those of clients that live

		$stranger->create_crowd($pattern, 0, $crowd, $data);
		call("$what, before");
		$caller->run_ok('TRUNCATE calls');

		my %before = map { $_ => busy($worker{$_}) } keys %worker;
		for my $change (1 .. $changes)
		{
			$stranger->create_crowd($pattern, $crowd + $change, 1, $data);
			$beside->send($query) if $beside;
			call("$what, change $change");
			$beside->result if $beside;
		}
		for my $node ($a, $b)
		{
			my $name = $node->name;
			my $spent = busy($worker{$name}) - $before{$name};

			note("$what: ${name}'s worker took $spent ms for $changes changes");
			cmp_ok($spent, '<', $changes * $longest, "$what: no change keeps ${name}'s worker busy for longer than $longest ms");
			is(worker_of($node), $worker{$name}, "$what: ${name}'s worker lives");
		}
		note("$what: the longest call took " . $caller->run_ok('SELECT round(max(ms)::numeric, 1) FROM calls') . ' ms');
		$stranger->delete_crowd($pattern, 0, $crowd);
		$stranger->delete_crowd($pattern, $crowd + 1, $changes);
		return;
	}

	my sub waits_below
	{
		my ($name) = @_;
		my $holder = holder($b, $name);
		my $held = holder($a, "held $name");

		$held->send("SELECT zk_lock('$name')");
		return sub { $holder->run_ok('COMMIT'); $held->result; $held->run_ok('COMMIT'); $_->quit for ($holder, $held); };
	}

	call('nobody');

	# Members of the fleet, which the worker lists
	scene('members', '/zklock/%%clusters/%08x-0000-4000-8000-000000000000-cluster');

	# Deadlocks: a wait is told, and %waits is listed and watched
	{
		my $end = waits_below('y');
		my $theirs = $stranger->enqueue(lock_dir('held y'));

		poll_until(sub { $stranger->exists('/zklock/%waits') }, 'the directory where deadlocks are confirmed');
		scene('texts', '/zklock/%%waits/z-%010d');
		scene('confirms', '/zklock/%%waits/0123456789abcdef0123456789abcdef.%d');
		scene('anything', '/zklock/%%waits/anything-%d');
		$stranger->delete($theirs);
		$end->();
	}

	# A lock directory: the owner's instance lists it, and so does each new contender
	{
		my $end = waits_below('crowded');
		my $beside = ZkSession->new($b);

		$caller = $caller{b};
		scene('contenders', '/zklock/crowded/_c_89ab0123-4567-4def-8edc-ba9876543210-lock-%010d');
		scene('no contenders', '/zklock/crowded/x%d');
		$stranger->create('/zklock/tried');
		scene('tries', '/zklock/tried/_c_89ab0123-4567-4def-8edc-ba9876543210-lock-%010d',
			$beside, q{SELECT zk_try_lock('tried')});
		$beside->quit;
		$end->();
	}

	# Locks of all instances, more than fit into an answer of 8 MB
	{
		my $fits = 4_000;
		my $n = 9_000;
		my $data = 'x' x 1000;
		my $contender = '/many/%d/_c_89ab0123-4567-4def-8edc-ba9876543210-lock-0000000001';
		my $all = "SET zklock.root = '/many'; SELECT count(*), count(holder) FROM zk_fleet_locks()";

		$stranger->create('/many');
		$stranger->create_crowd('/many/%d', 0, $n);
		$stranger->create_crowd($contender, 0, $fits, $data);
		is(sql($a, $all)->{out}, "$fits|$fits", 'many locks: all are shown');
		$stranger->create_crowd($contender, $fits, $n - $fits, $data);
		error_is(sql($a, $all),
			{
				sqlstate => '54000',
				message => 'too many locks below "/many"',
				detail => 'An answer has at most 8 MB.',
				hint => 'Call zk_queue() for single locks, or look at zk_locks in each server.'
			},
			'many locks: more than fit into an answer');
		is(worker_of($a), $worker{a}, 'many locks: the worker lives');
	}

	$_->quit for values %caller;
	$_->stop for ($a, $b);
}

done_testing();
