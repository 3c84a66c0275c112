
# zklock.advisory_locks: applications that use PostgreSQL's advisory locks, moved
# to two instances by a setting and nothing else.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $lib = ($ENV{TESTDIR} // '.') . '/test/lib';

my $zk = ZooKeeper->new;
$zk->start;
my ($a, $b) = map { zk_cluster($_, $zk, 'zklock.session_timeout' => '60s') } qw(a b);

# The database that the applications use; on for it, as for a role.
for my $node ($a, $b)
{
	$node->safe_psql('postgres', 'CREATE DATABASE shop');
	$node->safe_psql('shop', 'CREATE EXTENSION zklock');
	$node->safe_psql('postgres', 'ALTER DATABASE shop SET zklock.advisory_locks = on');
}

sub session { return ZkSession->new($_[0], 'shop'); }

# Start a program, as a client of this instance.
sub start
{
	my ($node, @command) = @_;
	my %run = (out => '', err => '');

	local %ENV = ($node->_get_env, DATABASE_URL => 'postgresql:///shop',
		PGUSER => scalar getpwuid($<));
	note join ' ', $node->name . ':', @command;
	$run{run} = IPC::Run::start(\@command, '<', \undef, '>', \$run{out}, '2>', \$run{err});
	return \%run;
}

# Wait for its end; what it has printed.
sub finish
{
	my ($run) = @_;

	$run->{run}->finish or diag $run->{err};
	return $run->{out} =~ s/\s+$//r;
}

# Has this program's session got that far?
sub wait_for
{
	my ($run, $condition, $what) = @_;

	poll_until(
		sub {
			$run->{run}->pump_nb if $run->{run}->pumpable;
			die "$run->{out}$run->{err}" unless $run->{run}->pumpable;
			return $condition->();
		},
		$what);
	return;
}

#
# PostgreSQL's own regression test, as it is
#

SKIP:
{
	my $dir = $ENV{ZKLOCK_TEST_POSTGRES};

	skip "PostgreSQL's own tests are not at hand", 1 unless $dir;
	my ($out, $err) = ('', '');

	local %ENV = (%ENV, $a->_get_env);
	# as pg_regress does
	local $ENV{PGTZ} = 'PST8PDT';
	local $ENV{PGDATESTYLE} = 'Postgres, MDY';
	IPC::Run::run(
		[ $a->installed_command('psql'), '-X', '-a', '-q', '-d', $a->connstr('shop'),
			'-v', 'HIDE_TABLEAM=on', '-v', 'HIDE_TOAST_COMPRESSION=on' ],
		'<', "$dir/advisory_lock.sql", '>', \$out, '2>&1');
	my $expected = slurp_file("$dir/advisory_lock.out");

	ok($out eq $expected, "PostgreSQL's regression test has PostgreSQL's answers");
	if ($out ne $expected)
	{
		append_to_file("$PostgreSQL::Test::Utils::tmp_check/advisory_lock.out", $out);
		diag scalar `diff -u $dir/advisory_lock.out $PostgreSQL::Test::Utils::tmp_check/advisory_lock.out`;
	}
	is($a->safe_psql('postgres', 'SELECT count(*) FROM zk_locks'), 0, 'and leaves nothing');
	is($a->safe_psql('postgres', 'SELECT taken > 0 FROM zk_stat'), 't', 'It went to ZooKeeper');
}

#
# Sessions of two instances
#

{
	my ($at_a, $at_b) = map { session($_) } ($a, $b);

	is($at_a->run_ok('SHOW zklock.advisory_locks'), 'on', 'on, by the database');
	$at_a->run_ok('SELECT pg_advisory_lock(1), pg_advisory_lock_shared(2)');
	is($at_b->run_ok('SELECT pg_try_advisory_lock(1), pg_try_advisory_lock(2)'), 'f|f', 'taken there');
	is($at_b->run_ok('SELECT pg_try_advisory_lock(1, 1), pg_try_advisory_lock_shared(2)'),
		't|t', 'another key, and a shared lock, are not');
	is(scalar contenders($zk, 'advisory/shop/1'), 1, 'the name in ZooKeeper');
	is(scalar contenders($zk, 'advisory/shop/1,1'), 1, '... of two keys');
	$at_b->send('SELECT pg_advisory_lock(1)');
	$at_b->wait_waiting(2);
	is($at_a->run_ok('SELECT pg_advisory_unlock(1)'), 't', 'unlocked');
	is($at_b->result->{message}, undef, 'the other one has it');
	$at_b->run_ok('SELECT pg_advisory_unlock_all()');
	$at_a->run_ok('SELECT pg_advisory_unlock_all()');
	wait_no_contenders($zk, "advisory/shop/$_") for ('1', '2', '1,1');

	# an unlock behind a change
	$at_a->run_ok('CREATE TABLE t (i int)');
	$at_a->run_ok('SELECT pg_advisory_lock(3)');
	$at_a->run_ok('BEGIN; INSERT INTO t VALUES (1)');
	is($at_a->run_ok('SELECT pg_advisory_unlock(3)'), 't', 'unlocked after a change');
	is($at_b->run_ok('SELECT pg_try_advisory_lock(3)'), 'f', 'nobody gets it before that is visible');
	$at_a->run_ok('COMMIT');
	$at_b->run_ok('SELECT pg_advisory_lock(3)', 'then they do');
	$at_b->run_ok('SELECT pg_advisory_unlock(3)');

	# the error of a wait
	$at_a->run_ok('SELECT pg_advisory_lock(4)');
	my $result = $at_b->run("SET lock_timeout = '10ms'; SELECT pg_advisory_lock(4)");
	is("$result->{sqlstate} $result->{message}",
		'55P03 could not obtain lock "advisory/shop/4" in ZooKeeper', 'lock_timeout');

	# another database of the same instance has keys of its own
	my $other = ZkSession->new($a, 'postgres');
	$other->run_ok('SET zklock.advisory_locks = on');
	is($other->run_ok('SELECT pg_try_advisory_lock(4)'), 't', 'another database');

	# a deadlock between the instances: the transaction that began last fails
	for my $at ($at_a, $at_b)
	{
		$at->run_ok('RESET lock_timeout');
		$at->run_ok('BEGIN; SELECT pg_advisory_xact_lock(' . ($at == $at_a ? 7 : 8) . ')');
	}
	$at_a->send('SELECT pg_advisory_xact_lock(8)');
	$at_a->wait_waiting(2);
	is($at_b->run('SELECT pg_advisory_xact_lock(7)')->{sqlstate}, '40P01', 'a deadlock');
	$at_b->run_ok('ROLLBACK');
	is($at_a->result->{message}, undef, 'the other one goes on');
	$at_a->run_ok('COMMIT');

	# the end of a session
	$at_a->quit;
	$at_b->run_ok('SELECT pg_advisory_lock(4)', 'the end of a session frees its locks');
	$at_b->quit;
	$other->quit;
}

#
# Another database of the same instance takes the lock by its name
#

# A session in a transaction that has run this, of database shop or postgres.
sub in_transaction
{
	my ($node, $dbname, $sql) = @_;
	my $s = ZkSession->new($node, $dbname);

	$s->run_ok("BEGIN; $sql");
	return $s;
}

{
	$a->safe_psql('postgres', 'CREATE ROLE stranger LOGIN; REVOKE CONNECT ON DATABASE shop FROM PUBLIC');
	my $stranger = in_transaction($a, 'postgres',
		q{SET LOCAL ROLE stranger; SELECT zk_lock('advisory/shop/10')});
	my ($on, $off) = map { session($a) } 1 .. 2;

	$off->run_ok('SET zklock.advisory_locks = off');
	is($off->run_ok('SELECT pg_try_advisory_lock(10)'), 't',
		"a role of another database does not take PostgreSQL's own lock");
	$off->run_ok('SELECT pg_advisory_unlock(10)');
	is($on->run_ok('SELECT pg_try_advisory_lock(10)'), 'f', 'but the lock in ZooKeeper');
	is($stranger->run_ok(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), 0, '... and no other');
	$stranger->run_ok('ROLLBACK');

	# PostgreSQL's own lock is not to be had: what comes before it is given back
	my $lock = q{'advisory/shop/10'};
	$off->run_ok('SELECT pg_advisory_lock(10)');
	for my $call (
		'SELECT pg_try_advisory_lock(10)',
		"SELECT zk_try_lock($lock, '20ms')",
		"SELECT zk_lock($lock, '20ms')",
		"SELECT zk_lock_all(ARRAY[$lock, 'x'], '20ms')",
		"SELECT zk_try_lock_any(ARRAY[$lock, 'advisory/shop/10'])",
		q{SET lock_timeout = '20ms'; SELECT pg_advisory_lock(10)})
	{
		$on->run_ok('BEGIN; SAVEPOINT s');
		my $result = $on->run($call);
		is($result->{sqlstate} // $result->{out}, $call =~ /zk_try_lock_any/ ? '' : $call =~ /try/ ? 'f' : '55P03', $call);
		$on->run_ok('ROLLBACK TO s') if $result->{sqlstate};
		is($stranger->run_ok("SELECT zk_try_lock($lock)"), 't', '... leaves nothing');
		$on->run_ok('ROLLBACK');
	}
	is($on->run_ok("SELECT zk_lock_any(ARRAY[$lock, 'advisory/shop/11'])"),
		'advisory/shop/11', 'zk_lock_any takes the other one');
	$off->run_ok('SELECT pg_advisory_lock(11)');
	$on->send("SELECT zk_lock_any(ARRAY[$lock, 'advisory/shop/11'])");
	$on->wait_waiting(1);
	$off->run_ok('SELECT pg_advisory_unlock(10)');
	is($on->result->{out}, 'advisory/shop/10', '... or waits for one of them');
	$off->run_ok('SELECT pg_advisory_unlock_all()');
	$_->quit for ($stranger, $on, $off);
}

# Two databases meet in one slot.  A deadlock is found, whichever came first.
for my $first (qw(shop postgres))
{
	my ($second) = grep { $_ ne $first } qw(shop postgres);
	my $holder = in_transaction($a, $first, q{SELECT zk_lock('advisory/shop/20')});
	my $other = in_transaction($a, $second, q{SELECT zk_lock('y')});

	# the other one is to find it
	$holder->run_ok(q{SET deadlock_timeout = '1h'});
	$holder->send(q{SELECT zk_lock('y')});
	$holder->wait_waiting(1);
	is($other->run(q{SELECT zk_lock('advisory/shop/20')})->{sqlstate}, '40P01', "a deadlock of two databases, $first first");
	$other->quit;
	is($holder->result->{message}, undef, 'the other one goes on');
	$holder->quit;

	# and one with another instance in it, where the transaction that began last
	# fails
	$holder = in_transaction($a, $first, q{SELECT zk_lock('advisory/shop/21')});
	$other = in_transaction($a, $second, q{SELECT zk_lock('y')});
	my $there = in_transaction($b, 'postgres', q{SELECT zk_lock('z')});

	$holder->send(q{SELECT zk_lock('z')});
	$holder->wait_waiting(2);
	$other->send(q{SELECT zk_lock('advisory/shop/21')});
	$other->wait_waiting(1);
	is($there->run(q{SELECT zk_lock('y')})->{sqlstate}, '40P01', '... and of two instances');
	$there->quit;
	is($holder->result->{message}, undef, '... where the others go on');
	$holder->quit;
	is($other->result->{message}, undef, '... one after the other');
	$other->quit;
}

# For a role
{
	for my $node ($a, $b)
	{
		$node->safe_psql('postgres', 'CREATE ROLE jobs LOGIN');
		$node->safe_psql('postgres', 'ALTER ROLE jobs SET zklock.advisory_locks = on');
	}
	for my $node ($a, $b)
	{
		is( $node->safe_psql('postgres', 'SHOW zklock.advisory_locks',
				extra_params => [ '-U', 'jobs' ]),
			'on', $node->name . ': on, by the role');
	}
}

#
# Rails: its migrations take pg_try_advisory_lock in a connection of their own,
# and give it back with pg_advisory_unlock
#

{
	my $dir = PostgreSQL::Test::Utils::tempdir('migrations');
	my $pause = "$dir/pause";

	append_to_file("$dir/1_make_things.rb", <<"EOF_RUBY");
class MakeThings < ActiveRecord::Migration[6.1]
  def change
    create_table(:things) { |t| t.string :name }
    File.write('$pause.reached', '')
    sleep 0.05 while File.exist?('$pause')
  end
end
EOF_RUBY
	my @migrate = ('ruby', "$lib/advisory_migrate.rb", $dir);

	append_to_file($pause, '');
	my $first = start($a, @migrate);
	wait_for($first, sub { -e "$pause.reached" }, 'the migration to run');
	is($a->safe_psql('postgres', q{SELECT count(*) FROM zk_locks WHERE name LIKE 'advisory/shop/%' AND scope = 'session'}),
		1, 'the migration has a lock in ZooKeeper');
	is(finish(start($b, @migrate)), 'refused: ActiveRecord::ConcurrentMigrationError',
		'Rails: no migration in the other instance meanwhile');
	unlink $pause;
	is(finish($first), 'migrated', 'Rails: the first one ends');
	is($a->safe_psql('postgres', q{SELECT count(*) FROM zk_locks}), 0, 'and its lock');
	is(finish(start($b, @migrate)), 'migrated', 'Rails: then the other one');
	is($_->safe_psql('shop', 'SELECT count(*) FROM things'), 0, $_->name . ' is migrated') for ($a, $b);

	# without, both would run
	$_->safe_psql('shop', 'DROP TABLE things; TRUNCATE schema_migrations') for ($a, $b);
	$_->safe_psql('postgres', 'ALTER DATABASE shop SET zklock.advisory_locks = off') for ($a, $b);
	unlink "$pause.reached";
	append_to_file($pause, '');
	my @both = map { start($_, @migrate) } ($a, $b);
	for my $node ($a, $b)
	{
		my $run = shift @both;

		wait_for($run, sub {
			$node->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}) == 1;
		}, 'the migration to run');
		push @both, $run;
	}
	is($a->safe_psql('postgres', 'SELECT count(*) FROM zk_locks'), 0, 'off: no lock in ZooKeeper');
	unlink $pause;
	is_deeply([ map { finish($_) } @both ], [ 'migrated', 'migrated' ], 'off: both migrate at once');
	$_->safe_psql('postgres', 'ALTER DATABASE shop SET zklock.advisory_locks = on') for ($a, $b);
}

#
# A function for which alone it is on: only its first call has plans made anew
#

{
	my $s = session($a);
	my $plans = sub {
		my $at = -s $a->logfile;

		$s->run_ok('EXECUTE plain', 'a prepared statement');
		return scalar(() = slurp_file($a->logfile, $at) =~ /PLANNER STATISTICS/g);
	};

	$s->run('SET zklock.advisory_locks = off; SET plan_cache_mode = force_generic_plan');
	$s->run(q{CREATE FUNCTION in_zookeeper() RETURNS void LANGUAGE plpgsql
		SET zklock.advisory_locks = on AS 'BEGIN PERFORM pg_advisory_xact_lock(1); END'});
	$s->run('PREPARE plain AS SELECT pg_try_advisory_xact_lock(2)');
	$s->run('SELECT in_zookeeper(); EXECUTE plain');
	$s->run('SET log_planner_stats = on');
	is($plans->(), 0, 'off: it has a plan');
	$s->run('SELECT in_zookeeper()');
	is($plans->(), 0, '... and keeps it, though the function has turned it on again');
	$s->run('DROP FUNCTION in_zookeeper()');
	$s->quit;
}

#
# Jobs in Python that count in a file, several in each instance
#

{
	my $file = PostgreSQL::Test::Utils::tempdir('job') . '/number';
	my $rounds = 25;

	append_to_file($file, '0');
	$_->safe_psql('shop', 'CREATE TABLE invoices (number int)') for ($a, $b);
	my @jobs = map {
		my $node = $_;
		map { start($node, 'python3', "$lib/advisory_job.py", $node->connstr('shop'), $file, $rounds) } 1 .. 3;
	} ($a, $b);
	is(finish($_), '', 'a job') for @jobs;
	is(slurp_file($file), @jobs * $rounds, 'no number is lost or given twice');
	my %given = map { $_ => 1 }
	  map { split /\n/, $_->safe_psql('shop', 'SELECT number FROM invoices') } ($a, $b);
	is_deeply(\%given, { map { $_ => 1 } 1 .. @jobs * $rounds }, 'each is in one of the databases');
	is($_->safe_psql('postgres', 'SELECT count(*) FROM zk_locks'), 0, $_->name . ': nothing is left') for ($a, $b);
}

done_testing();
