# Copyright (c) 2026, zklock developers

# zklock.terminate_on_loss: the loss of a session-scoped lock ends its session, idle
# or not, but no commit that has passed its check; and nothing else does.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkWire;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};

my $zk = ZooKeeper->new;
$zk->start;
my $client = $zk->client;
my $a = zk_cluster('a', $zk, install_path => $ENV{ZKLOCK_TEST_INSTALL});

value($a, 'CREATE TABLE sales (n int)');

# A session in which these statements have run.
sub session
{
	my (@statements) = @_;
	my $session = ZkWire->new($a);

	for my $statement (@statements)
	{
		my $result = $session->run($statement);

		die "$statement: $result->{message}" if $result->{sqlstate};
	}
	return $session;
}

my $on = 'SET zklock.terminate_on_loss = on';
my $off = 'SET zklock.terminate_on_loss = off';
my $lock = q{SELECT zk_lock('x', session => true)};

sub lose { lose_session($a, $client); return; }

# Has the session ended, with this error at the end?
sub has_ended
{
	my ($session, $name) = @_;
	my $result = $session->{busy} ? undef : $session->run('SELECT 1');

	ZkWire::wait_any(180, $session) if $session->{busy};
	$result //= $session->result;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($session->gone, $name);
	is($result->{sqlstate}, '57P01', "$name: as by pg_terminate_backend()");
	return;
}

sub goes_on
{
	my ($session, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($session->run('SELECT 1')->{out}, 1, $name);
	$session->quit;
	return;
}

sub is_not_there
{
	my ($pid) = @_;

	$a->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
	return;
}

#
# Idle, at work, in a transaction
#

is(value($a, 'SHOW zklock.terminate_on_loss'), 'off', 'it is off by default');
{
	my $log = -s $a->logfile;
	my $idle = session($on, $lock);
	my $working = session($on, $lock =~ s/x/y/r);
	my $open = session($on, $lock =~ s/x/z/r, 'BEGIN', 'INSERT INTO sales VALUES (1)');
	my $other = session($lock =~ s/x/o/r);
	my $bystander = session('SELECT 1');

	$working->send('SELECT pg_sleep(600)');
	lose();
	is_not_there($idle->pid);
	has_ended($idle, 'an idle session ends');
	has_ended($working, 'so does one with a statement that runs');
	is_not_there($open->pid);
	has_ended($open, 'and one in a transaction');
	is(value($a, 'SELECT count(*) FROM sales'), 0, '... of which nothing is committed');
	goes_on($bystander, 'others go on');
	is($other->run('BEGIN; INSERT INTO sales VALUES (1); COMMIT')->{sqlstate}, '40001', 'off: no COMMIT');
	goes_on($other, 'off: the session goes on');
	like(slurp_file($a->logfile, $log),
		qr/\[@{[$idle->pid]}\] .*LOG:  session ends because it has lost lock "x"\n.*DETAIL:  "zklock.terminate_on_loss" was on when it took the lock\./,
		'the log names the lock');
}

#
# The value when the lock is taken counts, and only for the session's locks
#

{
	my $was_on = session($on, $lock, $off);
	my $was_off = session($off, $lock =~ s/x/y/r, $on);
	my $of_transaction = session($on, q{BEGIN; SELECT zk_lock('z')});
	my $given_back = session($on, $lock =~ s/x/w/r, q{SELECT zk_unlock('w')});
	my $becomes = session($on, q{BEGIN; SELECT zk_lock('v')}, q{SELECT zk_lock('v', session => true)}, 'COMMIT');

	lose();
	is_not_there($was_on->pid);
	has_ended($was_on, 'on when the lock was taken');
	is_not_there($becomes->pid);
	has_ended($becomes, 'a lock of the transaction that became the session\'s');
	goes_on($was_off, 'off when the lock was taken');
	is($of_transaction->run('COMMIT')->{sqlstate}, '40001', 'a lock of the transaction: no COMMIT');
	goes_on($of_transaction, '... and the session goes on');
	goes_on($given_back, 'a lock that was given back');
}

#
# Between the check of a commit and its end
#

{
	my $commits = session($on, $lock, 'BEGIN', 'INSERT INTO sales VALUES (2)',
		'SET LOCAL zklock.stop_before_commit = on');

	$commits->send('COMMIT');
	wait_stopped($commits->pid);
	lose();
	kill 'CONT', $commits->pid;
	# behind the answer to COMMIT
	poll_until(sub { $commits->{busy} = 1; ZkWire::wait_any(1, $commits); $commits->{gone} },
		'the session to end');
	is($commits->result->{sqlstate}, '57P01', 'the session ends behind a commit that has passed its check');
	is(value($a, 'SELECT count(*) FROM sales WHERE n = 2'), 1, '... which is there');
	is_not_there($commits->pid);
}

unlike(slurp_file($a->logfile), qr/PANIC|TRAP|was terminated by signal/, 'nothing has crashed');
$a->stop;
done_testing();
