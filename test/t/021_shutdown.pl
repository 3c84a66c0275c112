
# Shutdown, smart, fast and immediate, in the middle of everything that a
# session can be at: it waits in either tier, holds and is idle, holds and runs
# a statement, or is in a COMMIT that waits for a synchronous standby.  And
# servers without a worker: single-user mode and pg_upgrade.
#
# And the end of a process that holds a lock of the session, while nobody knows
# whether that is still its own: ZooKeeper has been away for longer than the
# lease.  PostgreSQL commits when it removes temporary tables, and what waits or
# fails there cannot be ended by anybody.  And a shutdown meanwhile.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZkWire;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;

# The session timeout is longer than any of the tests of these two waits for a lock.
my %settings = (
	'zklock.session_timeout' => '30s',
	'log_statement' => 'none');
my $a = zk_cluster(
	'a', $zk, %settings,
	'wal_level' => 'replica',
	'max_wal_senders' => 2,
	'synchronous_standby_names' => 'nobody',
	'synchronous_commit' => 'local');
my $b = zk_cluster('b', $zk, %settings);
my $file = session_file($a);

$a->safe_psql('postgres', 'CREATE TABLE t (round text, what text)');

sub run_ok
{
	my ($session, $sql, $name) = @_;
	my $result = $session->run($sql);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{message}, undef, $name // $sql);
	return $result->{out};
}

sub begin
{
	my ($node, $sql) = @_;
	my $session = ZkWire->new($node);

	$session->run('BEGIN');
	$session->run($sql) if $sql;
	return $session;
}

# In b, behind the owner of a lock.
sub remote_waiter
{
	my ($lock) = @_;
	my $session = begin($b);

	$session->send("SELECT zk_lock('$lock')");
	wait_contenders($zk, $lock, 2);
	return $session;
}

sub ended { return ZkWire::wait_any(0, $_[0]); }

sub wait_ended
{
	my ($session, $what) = @_;

	poll_until(sub { !$session->busy || ended($session) }, $what);
	return $session->result;
}

# It waits, or its backend does, in that way.
sub wait_event
{
	my ($session, $event) = @_;

	$a->poll_query_until('postgres',
		"SELECT wait_event = '$event' FROM pg_stat_activity WHERE pid = " . $session->pid);
	return;
}

# Sessions of a in all phases, and in b one behind each that holds.
sub all_phases
{
	my ($round) = @_;
	my %s;

	$s{foreign} = begin($b, "SELECT zk_lock('wait')");
	$s{waits} = begin($a);
	$s{waits}->send("SELECT zk_lock('wait')");
	wait_contenders($zk, 'wait', 2);

	$s{idle} = begin($a, "SELECT zk_lock('idle')");
	run_ok($s{idle}, "INSERT INTO t VALUES ('$round', 'idle')");
	$s{waits_locally} = begin($a);
	$s{waits_locally}->send("SELECT zk_lock('idle')");
	wait_event($s{waits_locally}, 'userlock');

	$s{runs} = begin($a, "SELECT zk_lock('runs')");
	run_ok($s{runs}, "INSERT INTO t VALUES ('$round', 'runs')");
	$s{runs}->send('SELECT pg_sleep(1000)');
	wait_event($s{runs}, 'PgSleep');

	$s{commits} = begin($a, "SELECT zk_lock('commits')");
	run_ok($s{commits}, "INSERT INTO t VALUES ('$round', 'commits')");
	$s{commits}->run('SET LOCAL synchronous_commit = on');
	$s{commits}->send('COMMIT');
	wait_event($s{commits}, 'SyncRep');

	$s{"behind $_"} = remote_waiter($_) for qw(idle runs commits);
	return \%s;
}

sub stopping
{
	my ($node, $mode) = @_;
	my $offset = -s $node->logfile;

	system_or_bail('pg_ctl', '-D', $node->data_dir, '-m', $mode, '--no-wait', 'stop');
	$node->wait_for_log(qr/received $mode shutdown request/, $offset);
	return;
}

sub stopped
{
	my ($node) = @_;

	poll_until(sub { !-e $node->data_dir . '/postmaster.pid' }, 'the end of ' . $node->name);
	$node->_update_pid(0);
	return;
}

sub committed
{
	my ($round) = @_;
	return value($a, "SELECT coalesce(string_agg(what, ' ' ORDER BY what), '') FROM t WHERE round = '$round'");
}

# Another instance has the lock, and gives it back.
sub had
{
	my ($session, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(wait_ended($session, $name)->{message}, undef, $name);
	run_ok($session, 'COMMIT', '... and commits');
	$session->vanish;
	return;
}

# The client is told that its server goes.
sub is_terminated
{
	my ($session, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	# who is idle hears of it at the next statement
	$session->send('SELECT') if !$session->busy;
	# which may still be answered
	poll_until(sub { $session->gone || (ended($session) && $session->gone) }, $name);
	is($session->result->{sqlstate}, '57P01', $name);
	ok($session->gone, '... and disconnected');
	return;
}

sub is_clean
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(value($_, 'SELECT count(*) FROM zk_locks'), 0, "$name: no lock is left in " . $_->name) for ($a, $b);
	poll_until(sub { !all_contenders($zk) }, 'all contenders to be gone');
	return;
}

#
# Smart: who is there goes on to its end
#

{
	my $s = all_phases('smart');
	my $worker = worker_of($a);

	stopping($a, 'smart');
	ok(!eval { ZkWire->new($a); 1 }, 'smart: nobody comes in any more');
	ok(!ended($s->{$_}), "smart: the session $_") for ('behind idle', 'behind runs', 'behind commits', 'waits');
	run_ok($s->{foreign}, 'COMMIT');
	is(wait_ended($s->{waits}, 'its lock')->{message}, undef, 'smart: who waits gets its lock');
	run_ok($s->{waits}, "INSERT INTO t VALUES ('smart', 'waits')");
	run_ok($s->{waits}, 'COMMIT', 'and commits');
	run_ok($s->{idle}, 'COMMIT', 'so does a holder');
	is(wait_ended($s->{waits_locally}, 'the local waiter')->{message}, undef,
		'and who waits behind it has the lock');
	run_ok($s->{waits_locally}, 'COMMIT');
	had($s->{'behind idle'}, 'and then the other instance');
	kill 'INT', $s->{runs}->pid;
	is(wait_ended($s->{runs}, 'the statement')->{sqlstate}, '57014', 'a statement can be canceled');
	run_ok($s->{runs}, 'ROLLBACK');
	had($s->{'behind runs'}, 'and the other instance has its lock');
	ok(!ended($s->{commits}) && !ended($s->{'behind commits'}),
		'a commit waits for its standby, and the other instance for the lock');
	$a->append_conf('postgresql.auto.conf', "synchronous_standby_names = ''");
	$a->reload;
	is(wait_ended($s->{commits}, 'the commit')->{message}, undef, 'until none is needed');
	had($s->{'behind commits'}, 'then the other instance has its lock');
	ok(kill(0, $worker), 'the worker has been there all the time');
	ok(-e $file, 'and its session');
	$_->vanish for (values %$s);
	stopped($a);
	ok(!-e $file, 'the session is closed when the last client has gone');
	is($zk->fourlw('dump') =~ m{/zklock/(?!%clusters/)} ? 1 : 0, 0, 'no contender is left');
	$a->append_conf('postgresql.auto.conf', "synchronous_standby_names = 'nobody'");
	$a->start;
	wait_connected($a);
	is(committed('smart'), 'commits idle waits', 'what was committed is there');
	is_clean('smart');
}

#
# Fast: all are ended, and no lock is free before its transaction is over
#

{
	my $s = all_phases('fast');
	my $offset = -s $a->logfile;
	my $pid = $s->{commits}->pid;

	# The shutdown ends the wait for the standby.  What if that takes long?
	kill 'STOP', $pid;
	stopping($a, 'fast');
	is_terminated($s->{$_}, "fast: the client that $_") for qw(idle runs waits waits_locally);
	had($s->{"behind $_"}, "the other cluster has the lock of the session that $_") for qw(idle runs);
	poll_until(sub { contenders($zk, 'wait') == 1 }, 'who waits to leave the queue');
	is(scalar(contenders($zk, 'commits')), 2, 'who commits, and cannot go on, has its lock');
	ok(!ended($s->{'behind commits'}), 'and the other instance waits for it');
	ok(-e $a->data_dir . '/postmaster.pid', 'so does the shutdown');

	kill 'CONT', $pid;
	is(wait_ended($s->{'behind commits'}, 'the lock')->{message}, undef, 'when it goes on, the lock is free');
	stopped($a);
	like(substr(slurp_file($a->logfile), $offset),
		qr/\[$pid\] .*canceling the wait for synchronous replication and terminating connection/,
		'the wait for the standby was ended');
	ok(!-e $file, 'the session is closed');
	run_ok($s->{'behind commits'}, 'COMMIT');
	run_ok($s->{foreign}, 'COMMIT');
	$_->vanish for (values %$s);
	$a->start;
	wait_connected($a);
	is(committed('fast'), 'commits', 'the commit that had waited for its standby is there, no other');
	is_clean('fast');
}

#
# Immediate: locks are kept until the server is there again
#

{
	my $s = all_phases('immediate');

	$a->stop('immediate');
	ok(-e $file, 'immediate: the session goes on');
	ok(!ended($s->{"behind $_"}), "the other cluster waits for the lock of the session that $_") for qw(idle runs commits);
	is(scalar(contenders($zk, 'wait')), 2, 'who waited is in its queue');
	$a->start;
	had($s->{"behind $_"}, "started again: the other cluster has the lock of the session that $_") for qw(idle runs commits);
	poll_until(sub { contenders($zk, 'wait') == 1 }, 'who waits to leave the queue');
	is(committed('immediate'), 'commits', 'the commit that had waited for its standby is there, no other');
	run_ok($s->{foreign}, 'COMMIT');
	$_->vanish for (values %$s);
	wait_connected($a);
	is_clean('immediate');
}

#
# Fast, without a ZooKeeper that could be told
#

{
	my $holder = begin($a, "SELECT zk_lock('idle')");
	my $behind = remote_waiter('idle');

	$zk->kill9;
	$a->poll_query_until('postgres', "SELECT state = 'suspended' FROM zk_session");
	$a->stop('fast');
	ok(-e $file, 'without ZooKeeper: what could not be closed is remembered');
	$zk->start;
	$a->start;
	had($behind, 'and closed by the next start');
	$holder->vanish;
	wait_connected($a);
	is_clean('without ZooKeeper');
}

#
# Single-user mode: there is no worker, and nobody waits for it
#

{
	my $behind;
	my $holder = begin($a, "SELECT zk_lock('idle')");
	my ($out, $err) = ('', '');
	my @calls = (
		"zk_lock('x')", "zk_try_lock('x')", "zk_lock_all('{x,y}')", "zk_acquire('x', 1)",
		"zk_fencing_token('x')", "zk_fence('x')", "zk_unlock('x')", "* FROM zk_queue('x')",
		"zk_cancel_holders('x')");

	$behind = remote_waiter('idle');
	$a->stop('immediate');
	$holder->vanish;
	my $start = time;
	run_log(
		[ 'postgres', '--single', '-D', $a->data_dir, 'postgres' ], '<',
		\join('', map { "SELECT $_\n" } @calls, 'zk_unlock_all()', 'count(*), 99 FROM zk_locks', 'state FROM zk_session'),
		'>', \$out, '2>', \$err);
	is($?, 0, 'single-user mode ends well');
	is(scalar(() = $err =~ /ERROR:  cannot use locks in ZooKeeper in single-user mode/g),
		scalar(@calls), 'and every call of zklock says at once that there are no locks')
	  or diag($err);
	like($out, qr/count = "0".*state = "down"/s, 'views work');
	ok(-e $file, 'the old session is remembered');
	ok(!ended($behind), 'and lives');
	$a->start;
	had($behind, 'until the server is there again');
	wait_connected($a);
	is_clean('single-user mode');
}

#
# pg_upgrade
#

# as pg_upgrade starts its servers
{
	$a->stop;
	system_or_bail('pg_ctl', '-D', $a->data_dir, '-l', $a->logfile, '-w', '-o', '-b', 'start');
	is( value($a, "SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'zklock'"),
		0, 'binary upgrade: no worker');
	ok(!-e $file, 'and no session');
	my ($ret, $out, $err) = $a->psql('postgres', "SELECT zk_lock('x')");
	like($err, qr/zklock must be loaded/, 'and no locks');
	system_or_bail('pg_ctl', '-D', $a->data_dir, '-w', 'stop');
}

{
	my $new = PostgreSQL::Test::Cluster->new('new');
	my $bin = $a->config_data('--bindir');

	$new->init;
	$new->append_conf('postgresql.conf', "$_ = '$settings{$_}'") for (sort keys %settings);
	$new->append_conf('postgresql.conf',
		"shared_preload_libraries = 'zklock'\nzklock.servers = '" . $zk->connstr . "'\n");
	my $dir = PostgreSQL::Test::Utils::tempdir;
	my $client = $zk->client;

	# the server deletes idle directories by itself, and b writes its own znode
	# once more
	$b->stop;
	poll_until(sub { !grep { !/^%/ } $client->ls('/zklock') }, 'the idle directories to be gone');
	my $change = $zk->last_change;
	my ($out, $err) = ('', '');
	run_log(
		[
			'pg_upgrade', '--no-sync', '-b', $bin, '-B', $bin, '-d', $a->data_dir, '-D', $new->data_dir,
			'-p', $a->port, '-P', $new->port, '-s', $dir
		],
		'>', \$out, '2>', \$err, init => sub { chdir $dir or die "could not chdir: $!" });
	is($?, 0, 'pg_upgrade works') or diag($out, $err);
	is($zk->last_change, $change, 'and ZooKeeper has not learned of it');
	$new->start;
	wait_connected($new);
	is(value($new, 'SELECT count(*) FROM t'), 5, 'the data is there');
	is(value($new, "SELECT zk_try_lock('x')"), 't', 'and locks work');
	is(value($new, 'SET zklock.advisory_locks = on; SELECT pg_try_advisory_xact_lock(1)'),
		't', 'and so do the functions in pg_catalog');
	is(value($new, q{DROP EXTENSION zklock; SELECT count(*) FROM pg_proc WHERE proname LIKE 'zk\_%'}),
		0, 'which go with the extension');
	$new->stop;
}

unlike(slurp_file($_->logfile), qr/PANIC|TRAP|was terminated by signal/, $_->name . ' has not crashed') for ($a, $b);
$_->stop for ($a, $b);

#
# ZooKeeper has been away for longer than the lease
#

no_pauses();
my $foreign = $zk->client(timeout => 60);
my $proxy = ZkProxy->new;
my $c = zk_cluster('c', $zk,
	'zklock.servers' => $zk->connstr_through($proxy, 'c'),
	'zklock.session_timeout' => '4s');

sub temp_tables
{
	return value($c, q{SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'});
}

# A session that holds a lock, and has a temporary table of later, or of before.
sub holder_with_table
{
	my ($lock, $before) = @_;
	my $s = ZkSession->new($c);
	my @statements = ("SELECT zk_lock('$lock', session => true)", 'CREATE TEMP TABLE t (n int)');

	$s->run_ok($_) for $before ? reverse @statements : @statements;
	return $s;
}

# ZooKeeper is away for longer than the lease.
sub wait_no_lease
{
	$c->poll_query_until('postgres',
		q{SELECT lease <= '0'::interval AND state <> 'connected' FROM zk_session});
	return;
}

sub has_ended
{
	my ($s, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( $c->poll_query_until('postgres',
			'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . $s->pid),
		"$name: its backend ends");
	return;
}

sub is_free
{
	my ($lock) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$foreign->unlock($foreign->lock(lock_dir($lock)));
	pass("the lock \"$lock\" is free for others");
	return;
}

sub has_stopped
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(eval { stopped($c); 1 }, $name) or die $@;
	return;
}

#
# A backend ends
#

{
	my %s = map { ($_ => holder_with_table($_)) } qw(quits terminated idle commits lost);

	$s{before} = holder_with_table('before', 1);
	$s{idle}->run_ok('BEGIN; INSERT INTO t VALUES (1)');
	$s{commits}->run_ok('BEGIN; INSERT INTO t VALUES (1)');
	is(temp_tables(), 6, 'everybody has a temporary table');

	$proxy->refuse('c-0');
	wait_no_lease();
	$s{commits}->send('COMMIT');
	$s{commits}->wait_waiting(2);
	value($c, "SELECT pg_terminate_backend($_)") for map { $s{$_}->pid } qw(terminated idle commits);
	$s{$_}->quit for qw(quits before);
	has_ended($s{quits}, 'a client that disconnects');
	has_ended($s{before}, 'one whose temporary table is older than its lock');
	has_ended($s{terminated}, 'a session that is terminated');
	has_ended($s{idle}, 'the same in a transaction');
	has_ended($s{commits}, 'the same in a COMMIT that waits');
	is($s{commits}->result->{sqlstate}, '57P01', '... whose client gets the error');
	is(temp_tables(), 1, 'their temporary tables have gone');
	is(value($c, q{SELECT string_agg(name, ' ') FROM zk_locks}), 'lost', 'and so have their locks');

	# so do those of who has lost its lock, if the session has not ended by itself
	$foreign->kill_session(session_of($c));
	$proxy->thaw;
	wait_connected($c);
	$c->poll_query_until('postgres', 'SELECT lost FROM zk_locks');
	$s{lost}->quit;
	has_ended($s{lost}, 'a session that has lost its lock');
	is(temp_tables(), 0, 'its temporary table has gone');
	is_free($_) for sort keys %s;
	$_->quit for values %s;
	poll_until(sub { !all_contenders($zk) }, 'all contenders to be gone');
}

#
# A shutdown without ZooKeeper
#

{
	my $s = holder_with_table('x');

	$proxy->refuse('c-0');
	wait_no_lease();
	stopping($c, 'fast');
	has_stopped('a fast shutdown without ZooKeeper ends');
	ok(-e session_file($c), 'what could not be closed is remembered');
	$s->quit;
	$proxy->thaw;
	$c->start;
	wait_connected($c);
	is_free('x');
	is(temp_tables(), 0, 'nothing is left');
}

#
# A shutdown that takes long, and ZooKeeper comes back: it is for the worker to
# see the holder out, since there will be no other
#

{
	# A server that starts slowly answers a client that comes too early only when
	# the client tries again, after two thirds of the timeout.
	$c->append_conf('postgresql.conf', "zklock.session_timeout = '15s'");
	$c->restart;
	wait_connected($c);

	my $s = holder_with_table('x');
	my $worker = worker_of($c);
	my $offset = -s $c->logfile;
	my $restarting = qr/restarting the zklock worker/;

	# ZooKeeper itself ends, so that the session lives when it is back
	stop_process($s->pid);
	$zk->kill9;
	wait_no_lease();
	my $since = time;
	stopping($c, 'fast');

	# a worker goes that has had no connection for 10 s
	poll_until(sub { time - $since > 12 || slurp_file($c->logfile, $offset) =~ $restarting },
		'the time after which a worker is replaced');
	unlike(slurp_file($c->logfile, $offset), $restarting, 'the worker does not go');
	ok(-e $c->data_dir . '/postmaster.pid', 'nor does the server while a holder cannot');

	# neither for new settings
	$c->append_conf('postgresql.conf', "zklock.session_timeout = '5s'");
	kill 'HUP', $worker;
	$zk->start;
	$c->wait_for_log(qr/\[$worker\] .*connected to ZooKeeper/, $offset);
	pass('it connects again');
	kill 'CONT', $s->pid;
	has_stopped('the shutdown ends with the holder');
	ok(!-e session_file($c), 'the session is closed');
	unlike(slurp_file($c->logfile, $offset), $restarting, 'by the same worker');
	is_free('x');
	$s->quit;
	$c->start;
	is(temp_tables(), 0, 'nothing is left');
}

unlike(slurp_file($c->logfile), qr/PANIC|TRAP|was terminated by signal/, 'no process has crashed');
$c->stop;

done_testing();
