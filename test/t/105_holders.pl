
# Copyright (c) 2026, zklock developers

# A holder that hangs: zk_cancel_holders and zk_terminate_holders, in its own
# instance and from another one; who may, and what both logs tell.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZkWire;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;
my ($a, $b) = zk_clusters($zk, [qw(a b)], 'zklock.session_timeout' => '60s');

for my $node ($a, $b)
{
	$node->safe_psql('postgres', 'CREATE ROLE app LOGIN; CREATE ROLE app2 LOGIN;'
		  . ' CREATE ROLE operator LOGIN IN ROLE pg_signal_backend, pg_monitor');
}

# A session of a role that holds a lock.
sub hold
{
	my ($node, $role, $call) = @_;
	my $s = ZkSession->new($node, 'postgres', $role);

	$s->run_ok("BEGIN; SELECT $call");
	return $s;
}

# The same, which runs a statement.
sub busy
{
	my $s = hold(@_);

	$s->send('SELECT pg_sleep(3600)');
	$_[0]->poll_query_until('postgres',
		q{SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = } . $s->pid);
	return $s;
}

sub operator { return ZkSession->new($_[0], 'postgres', 'operator'); }

sub is_gone
{
	my ($node, $s, $name) = @_;

	ok( $node->poll_query_until('postgres',
			'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . $s->pid),
		$name);
	return;
}

my ($at_a, $at_b) = map { operator($_) } ($a, $b);

#
# Cancel: all holders of a shared lock, here and there
#

{
	my ($log_a, $log_b) = map { -s $_->logfile } ($a, $b);
	my @holders = map { busy($_->[0], $_->[1], q{zk_lock('s', shared => true)}) }
	  ([ $a, 'app' ], [ $a, 'app2' ], [ $b, 'app' ], [ $b, 'app2' ]);
	my $super = busy($b, undef, q{zk_lock('s', shared => true)});

	my $result = $at_a->run(q{SELECT zk_cancel_holders('s')});
	is($result->{out}, 3, 'two holders here, and one contender');
	is_deeply($result->{warnings}, [], 'which has learned of it');
	is($_->result->{sqlstate}, '57014', 'a holder is canceled') for @holders;
	like(slurp_file($a->logfile, $log_a),
		qr/LOG:  role "operator" cancels the statements of the holders of lock "\/zklock\/s"\n.*DETAIL:  Statements canceled here: 2\.  Contenders of others asked: 1\./,
		'the log of the instance that asks');
	like(slurp_file($b->logfile, $log_b),
		qr/LOG:  another client requests revocation of lock "\/zklock\/s"\n.*DETAIL:  Holders whose statement has been canceled: 2\.  Holders left alone, since only superusers may cancel them: 1\./,
		'that of the one that is asked');
	ok(!$super->done, "a superuser's statement goes on there, for any caller");
	is(value($a, q{SELECT zk_cancel_holders('s')}), 1, 'even for a superuser');
	$b->wait_for_log(qr/canceled: 0\.  Holders left alone, since only superusers may cancel them: 1\./, $log_b);
	ok(!$super->done, '... which is not known there');

	# in its own instance
	$result = $at_b->run(q{SELECT zk_cancel_holders('s')});
	is("$result->{out} $result->{warnings}[0]{sqlstate}", '0 42501', 'nor does the operator cancel it there');
	is(value($b, q{SELECT zk_cancel_holders('s')}), 1, 'a superuser does');
	is($super->result->{sqlstate}, '57014', '... by the rules of pg_cancel_backend');
	$_->quit for (@holders, $super);
}

#
# Terminate: a holder that is idle, found from the other instance
#

{
	my $log = -s $b->logfile;
	my $hanging = hold($b, 'app', q{zk_lock('hangs', session => true)});
	my $waiter = waiter($a, 'hangs', 2);
	my ($cluster, $host, $port, $pid) = split /\|/,
	  $at_a->run_ok(q{SELECT cluster_name, host, port, pid FROM zk_queue('hangs') WHERE position = 1});

	is("$cluster $port $pid", join(' ', 'b', $b->port, $hanging->pid), 'who holds it');
	is($at_a->run_ok(q{SELECT zk_cancel_holders('hangs')}), 1, 'asked');
	$b->wait_for_log(qr/requests revocation of lock "\/zklock\/hangs"/, $log);
	is($at_a->run_ok(q{SELECT zk_terminate_holders('hangs')}), 0, 'another instance ends no session of it');
	ok(!$waiter->done, 'it is held on');
	is($at_b->run_ok(q{SELECT zk_terminate_holders('hangs')}), 1, 'its own does');
	is_gone($b, $hanging, 'the session is gone');
	is($waiter->result->{message}, undef, 'and the next has the lock');
	like(slurp_file($b->logfile, $log),
		qr/LOG:  role "operator" terminates the sessions that hold lock "\/zklock\/hangs"\n.*DETAIL:  Process: @{[$hanging->pid]}\./,
		'the log says which role');
	$waiter->quit;
}

#
# All holders, by the rules of pg_terminate_backend
#

{
	my $super = hold($a, undef, q{zk_lock('s', shared => true)});
	my @holders = map { hold($a, $_, q{zk_lock('s', shared => true)}) } qw(app app2);

	$at_a->run_ok(q{BEGIN; SELECT zk_lock('other')});
	my $result = $at_a->run(q{SELECT zk_terminate_holders('s')});
	is($result->{out}, 2, 'those of other roles');
	is($result->{warnings}[0]{sqlstate}, '42501', "a superuser's is a warning");
	is($result->{warnings}[0]{detail}, "Process @{[$super->pid]} is not terminated.", '... that says which');
	is_gone($a, $_, 'a holder is gone') for @holders;
	is($at_a->run_ok('SELECT 1; COMMIT'), 1, 'the transaction of the caller goes on');
	is($super->run_ok('SELECT 1'), 1, "... and the superuser's");
	is(value($a, q{SELECT zk_terminate_holders('s')}), 1, 'a superuser may');
	is_gone($a, $super, '... and it is gone');

	# waiters are no holders, permits are
	my $permit = hold($a, 'app', q{zk_acquire('p', 1)});
	my $next = waiter($a, 'p', 2, q{SELECT zk_acquire('p', 1)});
	is($at_a->run_ok(q{SELECT zk_terminate_holders('p')}), 1, 'who has a permit');
	is_gone($a, $permit, '... is gone');
	is($next->result->{message}, undef, '... and a waiter is not');
	$next->quit;

	# the caller itself: the last one
	my $own = ZkSession->new($a, 'postgres', 'operator');
	my $other = hold($a, 'app', q{zk_lock('s', shared => true)});
	$own->run_ok(q{BEGIN; SELECT zk_lock('s', shared => true)});
	is($own->run(q{SELECT zk_terminate_holders('s')})->{sqlstate}, '57P01', 'the own session');
	is_gone($a, $_, 'both are gone') for ($own, $other);

	# in vain, and who may not
	is($at_a->run_ok(q{SELECT zk_terminate_holders('nobody')}), 0, 'nobody');
	my $app = ZkSession->new($a, 'postgres', 'app');
	is($app->run(q{SELECT zk_terminate_holders('s')})->{sqlstate}, '42501', 'who may not');
	is($at_a->run(q{SELECT zk_terminate_holders('')})->{sqlstate}, '22023', 'no name');
	is($at_a->run(q{SELECT zk_terminate_holders(NULL)})->{sqlstate}, '22004', 'NULL');
	$app->quit;
}

#
# An instance hears of requests for 1,000 of its locks; beyond that, the one that
# asks is told that it has not been heard
#

{
	my $many = ZkSession->new($b, 'postgres', 'app');

	$many->run_ok("SELECT zk_lock_all(ARRAY(SELECT 'many/$_/' || i FROM generate_series(1, 400) i), session => true)") for 1 .. 3;

	my $dir = lock_dir('many/1/1') =~ s/1%2F1$//r;
	my %watched;
	poll_until(
		sub {
			%watched = map { $_ => 1 } $zk->fourlw('wchp') =~ m{^(\Q$dir\E\d%2F\d+)/}mg;
			return %watched >= 1000;
		},
		'1,000 to be watched');
	is(scalar(keys %watched), 1000, 'no more are watched');
	my ($name) = grep { !$watched{ lock_dir($_) } } map { my $i = $_; map { "many/$i/$_" } 1 .. 400 } 1 .. 3;

	$many->send('SELECT pg_sleep(3600)');
	my $result = $at_a->run("SELECT zk_cancel_holders('$name')");
	is($result->{out}, 1, 'one that is not watched is asked');
	is($result->{warnings}[0]{message}, qq(1 of 1 owners of lock "$name" have not answered), '... and has not heard');
	like($result->{warnings}[0]{detail}, qr/^Not answered: postgresql host=\S+ port=@{[$b->port]} cluster=b pid=@{[$many->pid]}/,
		'... which says where to go');
	ok(!$many->done, 'nothing is canceled');
	my ($heard) = keys %watched;
	$heard =~ s{^.*/}{};
	$heard =~ s{%2F}{/}g;
	$result = $at_a->run("SELECT zk_cancel_holders('$heard')");
	is_deeply($result->{warnings}, [], 'one that is watched has heard');
	is($many->result->{sqlstate}, '57014', '... and is canceled');
	is($at_b->run_ok("SELECT zk_terminate_holders('$name')"), 1, 'there, the holder is found');
	is_gone($b, $many, '... and ended');
}

$_->quit for ($at_a, $at_b);
wait_no_contenders($zk, $_) for qw(s hangs p);

retire($a, $b);

#
# zklock.terminate_on_loss: the loss of a session-scoped lock ends its session, idle
# or not, but no commit that has passed its check; and nothing else does.
#

{
	die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};

	my $client = $zk->client;
	my $a = zk_cluster('a', $zk, install_path => $ENV{ZKLOCK_TEST_INSTALL});

	value($a, 'CREATE TABLE sales (n int)');

	# A session in which these statements have run.
	my sub session
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

	my sub lose { lose_session($a, $client); return; }

	# Has the session ended, with this error at the end?
	my sub has_ended
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

	my sub goes_on
	{
		my ($session, $name) = @_;

		local $Test::Builder::Level = $Test::Builder::Level + 1;
		is($session->run('SELECT 1')->{out}, 1, $name);
		$session->quit;
		return;
	}

	my sub is_not_there
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
}

done_testing();
