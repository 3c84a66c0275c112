
# Locks that an instance keeps while nobody holds them (zklock.retain_time): who
# gets them, what others find, and what ends them.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

# Nothing in here waits for a lock to be given up by itself, but where it says so.
my %settings = (
	'zklock.session_timeout' => '30s',
	'zklock.retain_time' => '1h',
	'zklock.handoff_quantum' => 0);
my $mark = qr/ retain=yes$/;

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my $proxy = ZkProxy->new;
my $a = zk_cluster('a', $zk, %settings,
	'zklock.servers' => $zk->connstr_through($proxy, 'a'));
my $b = zk_cluster('b', $zk, %settings);
my $c = zk_cluster('c', $zk, %settings);

# One transaction that takes a lock; returns the fencing token.
sub take
{
	my ($node, $lock, $call) = @_;
	my $result =
	  sql($node, 'BEGIN; SELECT FROM ' . ($call // "zk_lock('$lock')")
		  . "; SELECT zk_fencing_token('$lock'); COMMIT;");

	die "could not take $lock: $result->{message}" if $result->{message};
	return $result->{out};
}

sub try { return sql($_[0], "SELECT zk_try_lock('$_[1]')")->{out}; }

sub data { return $foreign->get(lock_dir($_[0]) . '/' . (contenders($zk, $_[0]))[0])->{data}; }

# The leases of a semaphore, whose directory ZooKeeper collects when it is idle.
sub leases
{
	my ($name) = @_;
	my @found = eval { $foreign->ls(lock_dir($name) . '/leases') };

	die $@ if $@ and $@ !~ /^NoNodeError/;
	return @found;
}

# The instance whose contender is first, by what it says.
sub owner { return data($_[0]) =~ /cluster=(\w+)/ ? $1 : ''; }

sub setting
{
	my ($node, $name, $value) = @_;

	$node->safe_psql('postgres', "ALTER SYSTEM SET $name = '$value'");
	$node->reload;
	$node->poll_query_until('postgres', "SELECT current_setting('$name') = '$value'");
	return;
}

#
# Kept, and taken again
#

# The first contender of a session: no lease yet that lasts from one heartbeat
# to the next, which is 5 s.
{
	take($a, 'first');
	$a->poll_query_until('postgres',
		"SELECT coalesce(lease, '0') <= '0' OR lease > '10 s' FROM zk_session");
	is(sql($a, "SELECT zk_try_lock('first', '2 s')")->{out}, 't',
		'whether the session is alive is asked when it matters');
}

{
	my $token = take($a, 'k');
	my @kept = contenders($zk, 'k');

	is(scalar(@kept), 1, 'the contender stays behind the transaction');
	like(data('k'), $mark, 'and says that it may be idle');
	is($a->safe_psql('postgres', 'SELECT count(*) FROM zk_locks'), 0, 'nobody holds the lock');
	is(take($a, 'k'), $token, 'the next taker of the instance has it, with the same token');
	is_deeply([contenders($zk, 'k')], \@kept, 'by the same contender');
	sql($a, "BEGIN; SAVEPOINT s; SELECT zk_lock('k'); ROLLBACK TO s; COMMIT;");
	is_deeply([contenders($zk, 'k')], \@kept, '... after ROLLBACK TO');
	sql($a, "SELECT zk_lock('k', session => true); SELECT zk_unlock('k');");
	is_deeply([contenders($zk, 'k')], \@kept, '... after zk_unlock');
	is(try($a, 'k'), 't', '... and zk_try_lock');
	is(take($a, 'k', "zk_lock_all(ARRAY['k', 'k2'])") ne '', 1, 'zk_lock_all has it, too');
	is(take($b, 'k') > $token, 1, 'a later owner has a higher token');
	is(owner('k'), 'b', 'and keeps the lock in its turn');
}

#
# Given up for others, at once
#

for my $how (
	['zk_lock' => sub { take($b, $_[0]) }],
	['zk_try_lock' => sub { is(try($b, $_[0]), 't', 'zk_try_lock gets a retained lock') }],
	['zk_try_lock, with a timeout' =>
		  sub { is(sql($b, "SELECT zk_try_lock('$_[0]', '1 min')")->{out}, 't', 'so does one that waits') }],
	['zk_lock_all' => sub { take($b, $_[0], "zk_lock_all(ARRAY['$_[0]', 'z'])") }],
	['a reader' => sub { take($b, $_[0], "zk_lock('$_[0]', shared => true)") }],
	['a reader that tries' =>
		  sub { is(sql($b, "SELECT zk_try_lock('$_[0]', shared => true)")->{out}, 't', 'a reader, too') }])
{
	my ($name, $act) = @$how;
	my $lock = $name =~ s/\W/_/gr;

	take($a, $lock);
	is(owner($lock), 'a', "$name: retained in one instance");
	$act->($lock);
	is(owner($lock), 'b', "... and then in the other");
}

{
	take($a, 'f');
	my $node = $foreign->enqueue(lock_dir('f'));
	poll_until(sub { $foreign->position($node) == 0 }, 'the lock to be free for another client');
	is(try($a, 'f'), 'f', 'the other client has it');
	$foreign->unlock($node);
	wait_no_contenders($zk, 'f');
}

#
# In use, it is not given up; and is not kept after that
#

{
	my $holder = holder($a, 'u');

	like(data('u'), $mark, 'a holder that nobody has asked');
	is(try($b, 'u'), 'f', 'zk_try_lock waits for no holder');
	wait_contenders($zk, 'u', 1);
	unlike(data('u'), $mark, 'the holder has said that it uses the lock');
	is(try($b, 'u'), 'f', '... and does so');
	$holder->run_ok('COMMIT');
	wait_no_contenders($zk, 'u');

	$holder->run("BEGIN; SELECT zk_lock('u');");
	my $waiter = waiter($b, 'u', 2);
	hand_over($holder, $waiter, 'who waits gets it at its end');
	is(owner('u'), 'b', 'and keeps it');
}

# Somebody of the same instance wants it, too, but is held up: by the one who had
# it, whose rollback waits for another server.
{
	$a->safe_psql('postgres', q{CREATE EXTENSION postgres_fdw;
		CREATE SERVER loopback FOREIGN DATA WRAPPER postgres_fdw
			OPTIONS (host '} . $a->host . q{', port '} . $a->port . q{', dbname 'postgres');
		CREATE USER MAPPING FOR CURRENT_USER SERVER loopback;
		CREATE VIEW myself AS SELECT pg_backend_pid() AS pid;
		CREATE FOREIGN TABLE remote (pid int) SERVER loopback OPTIONS (table_name 'myself')});
	my $holder = holder($a, 'h');
	my $remote = $holder->run_ok('SELECT pid FROM remote');

	stop_process($remote);
	$holder->send('ROLLBACK');
	$a->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zk_locks');
	my $waiter = waiter($a, 'h', 1);
	# postgres_fdw gives up after 30 s
	is(sql($b, "SELECT zk_try_lock('h', '20 s')")->{out}, 't',
		'a retained lock is not kept for somebody who cannot take it');
	ok(!$holder->done, '... while that is so');
	kill 'CONT', $remote;
	$holder->result;
	is($waiter->result->{message}, undef, 'who then gets it');
	$_->quit for ($waiter, $holder);
}

#
# Readers
#

{
	my $read = "zk_lock('r', shared => true)";

	take($a, 'r', $read);
	my @kept = contenders($zk, 'r');
	take($b, 'r', $read);
	is(scalar(contenders($zk, 'r')), 2, 'readers keep the lock together');
	take($a, 'r', $read);
	is((contenders($zk, 'r'))[0], $kept[0], 'and take it again');
	is(try($c, 'r'), 't', 'a writer that tries gets it from all of them');
	wait_contenders($zk, 'r', 1);
	is(owner('r'), 'c', 'and keeps it alone');
	take($_, 'r', $read) for ($a, $b);
	is(try($a, 'r'), 't', 'a writer of one of the instances gets it from both');
	wait_contenders($zk, 'r', 1);
	is(owner('r'), 'a', 'and keeps it alone');
	take($a, 'r', $read);
	wait_contenders($zk, 'r', 1);
	like((contenders($zk, 'r'))[0], qr/__READ__/,
		'a reader of the same instance makes it give that up');
}

#
# Permits are not kept
#

sql($a, "SELECT zk_acquire('p', 2)");
poll_until(sub { !grep { !/kept/ } all_contenders($zk) or !leases('p') }, 'the permit to go');
is(sql($b, "SELECT zk_try_acquire('p', 2)")->{out}, 't', 'a permit goes at transaction end');

#
# An owner that does not answer counts as a holder
#

{
	take($b, 's');
	my $pid = worker_of($b);

	stop_process($pid);
	is(try($a, 's'), 'f', 'zk_try_lock does not wait for a worker that is stopped');
	kill 'CONT', $pid;
	is(sql($a, "SELECT zk_try_lock('s', '1 min')")->{out}, 't', 'it has the lock when that goes on');
}

#
# Lives of worker, connection and session
#

{
	my $token = take($a, 'w');

	next_worker($a);
	is(take($a, 'w'), $token, 'the next worker keeps what this one has kept');
	is(try($b, 'w'), 't', 'and gives it up as well');

	take($a, 'w');
	my $reconnects = $a->safe_psql('postgres', 'SELECT reconnects FROM zk_session');
	$proxy->reset('a-0');
	$a->poll_query_until('postgres',
		"SELECT state = 'connected' AND reconnects > $reconnects FROM zk_session");
	is(owner('w'), 'a', 'kept over a reconnect');
	is(try($b, 'w'), 't', 'and given up after it');

	take($a, 'w');
	$proxy->freeze('a-0');
	my $waiter = waiter($b, 'w', 2);
	$proxy->thaw('a-0');
	is($waiter->result->{message}, undef, 'given up when the news arrive');
	$waiter->run_ok('COMMIT');
	$waiter->quit;

	take($a, 'e');
	end_session($a, $foreign);
	$a->poll_query_until('postgres', 'SELECT sessions = 2 FROM zk_session');
	wait_no_contenders($zk, 'e');
	is(try($a, 'e'), 't', 'a retained lock goes with its session, and nothing is lost');
	is($a->safe_psql('postgres', 'SELECT lost FROM zk_stat'), 0, 'by anybody');
}

#
# Not for ever
#

{
	take($a, 't');
	my $holder = holder($a, 't');

	setting($a, 'zklock.retain_time', '10ms');
	$holder->run_ok('COMMIT');
	$holder->quit;
	wait_no_contenders($zk, 't');
	pass('a retained lock goes when its time is over');

	setting($a, 'zklock.retain_time', '1h');
	take($a, 't');
	setting($a, 'zklock.retain_time', '0');
	wait_no_contenders($zk, 't');
	pass('... or when that has become shorter');
	take($a, 't');
	wait_no_contenders($zk, 't');
	pass('and without retain_time at transaction end');

	setting($a, 'zklock.retain_time', '1h');
	take($a, 't');
	$a->stop('fast');
	wait_no_contenders($zk, 't');
	pass('and when the server stops');
}

#
# Not at the cost of others
#

{
	my $no_pauses = no_pauses();
	my $d = zk_cluster('d', $zk, %settings,
		'zklock.session_timeout' => '4s',
		'zklock.handoff_quantum' => '10ms',
		'zklock.max_locks' => 10);
	my @s = map { ZkSession->new($d) } (1, 2);

	$s[0]->run_ok("SELECT zk_lock('c' || i) FROM generate_series(1, 4) i");
	is(scalar(grep { $s[0]->run("SELECT zk_lock('m$_')")->{message} } (1 .. 30)),
		0, 'retained locks leave slots to others');

	# A worker that does not run gives nothing up, and hears of nothing.
	setting($d, 'zklock.retain_time', '0');
	wait_no_contenders($zk, 'c1');
	$s[0]->run_ok("BEGIN; SELECT zk_lock('o');");
	my $pid = worker_of($d);
	stop_process($pid);
	$s[0]->run_ok('ROLLBACK');
	my $other = holder($b, 'o');
	$s[1]->run('BEGIN');
	$s[1]->send("SELECT zk_lock('o')");
	$s[1]->wait_waiting(2);
	pass('what has been idle for long is not taken in a session that may have ended');
	kill 'CONT', $pid;
	$other->run_ok('COMMIT');
	is($s[1]->result->{message}, undef, 'but when it is ours again');
	$s[1]->run_ok('COMMIT');
	$other->quit;

	# A new chroot takes effect when nothing is held.
	setting($d, 'zklock.retain_time', '1h');
	$s[$_]->run_ok("BEGIN; SELECT zk_lock('d$_');") for (0, 1);
	setting($d, 'zklock.servers', $zk->connstr . '/zklock');
	poll_until(sub { sql($d, "SELECT zk_try_lock('new', '100ms')")->{out} eq 'f' },
		'nothing new to be begun');
	$s[0]->run_ok('COMMIT');
	$s[0]->send("SELECT zk_lock('d0')");
	$s[0]->wait_waiting(2);
	pass('what is retained does not put off the end of the session');
	$s[1]->run_ok('COMMIT');
	is($s[0]->result->{message}, undef, 'and the lock is had in the next one');
	$_->quit for @s;
	$d->stop('fast');
}

#
# Many are given up, each at a time of its own
#

{
	my $n = 1500;
	my $e = zk_cluster('e', $zk, %settings,
		'zklock.retain_time' => '2s',
		'log_min_messages' => 'debug2',
		'log_line_prefix' => '%n [%p] ',
		'log_statement' => 'none');

	$e->safe_psql('postgres',
		"DO 'BEGIN FOR i IN 1..$n LOOP PERFORM zk_lock(''many'' || i); COMMIT; END LOOP; END'");
	$e->poll_query_until('postgres', 'SELECT slots = 0 FROM zk_stat');

	# The worker looks at all once a second, and besides that at those that are
	# due: not at all of them whenever one is.
	my @looks = slurp_file($e->logfile) =~ /^(\d+\.\d+) .*looked after (\d+) contenders$/mg;
	my ($from, $to) = @looks[ 0, -2 ];
	my $sum = 0;
	$sum += $looks[ 2 * $_ + 1 ] for (0 .. $#looks / 2);
	note(@looks / 2 . " times, at $sum contenders, in " . ($to - $from) . ' s');
	cmp_ok($sum, '>=', $n, "$n retained locks are looked after");
	cmp_ok($sum, '<=', $n * ($to - $from + 4), 'but not all for each that is given up');
	$e->stop('fast');
}

$_->stop('fast') for ($b, $c);
is_deeply([all_contenders($zk)], [], 'no contender is left');
is($a->logfile ? slurp_file($b->logfile) =~ /PANIC|TRAP|server process .* was terminated/ : '', '',
	'nothing has crashed');

done_testing();
