
# The worker may die, and nobody notices: the regression tests, with the worker
# terminated between every two of their statements.  Every worker resumes the
# session of the one before it, so no lock is lost.

use strict;
use warnings;

use File::Basename qw(basename);
use Cwd qw(abs_path);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZooKeeper;

# A new worker comes a second after the old one is gone, so a kill costs that
# second: clusters share the tests evenly, each with a chroot of its own.
# Tests that are not named here go with the last.
my @shares = (
	[qw(unlock)], [qw(fence)], [qw(session)], [qw(savepoint)], [qw(shared)],
	[qw(settings)], [qw(semaphore)], [qw(lock_all)], [qw(lock fencing)],
	[qw(plpgsql names)], [qw(session_end stats)], [qw(queue advisory_lock)],
	[qw(advisory_functions)], [qw(advisory_setting)], [qw(refused)]);

my $pg_regress = $ENV{PG_REGRESS};
plan skip_all => 'PG_REGRESS is not set' unless $pg_regress;

my $top = abs_path($ENV{TESTDIR} // '.');
my @tests = map { basename($_, '.sql') } sort glob("$top/test/sql/*.sql");
my $launcher = "$top/test/lib/kill_between";

my %shared = map { ($_ => 1) } map { @$_ } @shares;
push @{ $shares[-1] }, grep { !$shared{$_} } @tests;

my $zk = ZooKeeper->new;
$zk->start;
my $client = $zk->client;

# Begin to run tests on a new cluster, by pg_regress as test/run does, but with
# the launcher.
sub start_tests
{
	my ($name, @names) = @_;
	my $run = { name => $name, tests => \@names, output => '' };

	$client->create("/$name");
	my $node = $run->{node} = zk_cluster(
		$name, $zk,
		'zklock.servers' => $zk->connstr . "/$name",
		'zklock.session_timeout' => '60s');

	# Terminate a worker that has a session and that was not terminated before:
	# the caller goes on at once, while the old worker ends and the next one
	# starts.
	$node->safe_psql(
		'postgres', q{
		CREATE TABLE kills (id serial PRIMARY KEY, test text, pid integer);
		CREATE FUNCTION kill_worker(test text) RETURNS text LANGUAGE plpgsql AS $$
		DECLARE
			last integer := (SELECT k.pid FROM kills k ORDER BY id DESC LIMIT 1);
			worker integer;
		BEGIN
			LOOP
				SELECT worker_pid INTO worker FROM zk_sessions
				 WHERE state = 'connected' AND worker_pid IS DISTINCT FROM last;
				EXIT WHEN FOUND;
				PERFORM pg_sleep(0.01);
			END LOOP;
			INSERT INTO kills (test, pid) VALUES (kill_worker.test, worker);
			IF pg_terminate_backend(worker) THEN
				RETURN 'killed ' || kill_worker.test;
			END IF;
			RETURN 'could not kill the worker';
		END$$;
	});
	$run->{session} = session($node);

	my $dir = $run->{dir} =
	  $PostgreSQL::Test::Utils::tmp_check . "/worker_killed_$name";
	mkdir $dir or die "could not create $dir: $!";
	symlink "$top/expected", "$dir/expected" or die "could not symlink: $!";
	$run->{handle} = IPC::Run::start(
		[
			$pg_regress,
			'--bindir=' . $node->config_data('--bindir'),
			"--inputdir=$top/test", "--launcher=$launcher",
			'--load-extension=zklock', '--host=' . $node->host,
			'--port=' . $node->port, @names
		],
		'>', \$run->{output}, '2>&1',
		init => sub { chdir $dir or die "could not chdir: $!" });
	return $run;
}

# The id of the session, once there is one.
sub session
{
	my ($node) = @_;

	return poll_until(
		sub {
			$node->safe_psql('postgres',
				"SELECT session_id FROM zk_sessions WHERE state = 'connected'");
		},
		'a session');
}

my $n = 0;
my @runs = map { start_tests('share' . ++$n, @$_) } @shares;

for my $run (@runs)
{
	my ($node, $diffs) = ($run->{node}, "$run->{dir}/regression.diffs");

	my $passed = $run->{handle}->finish;
	note $run->{output};
	ok($passed, "@{ $run->{tests} }: nobody notices")
	  or diag(-s $diffs ? slurp_file($diffs) : $run->{output});

	my %kills = map { split /\|/ } split /\n/,
	  $node->safe_psql('postgres', 'SELECT test, count(*) FROM kills GROUP BY 1');
	for my $test (@{ $run->{tests} })
	{
		cmp_ok($kills{$test} // 0, '>=', 10,
			"$test: the worker was terminated " . ($kills{$test} // 0) . ' times');
	}

	is(session($node), $run->{session}, 'it is still the same session');
	is($node->safe_psql('postgres', 'SELECT sessions FROM zk_sessions'),
		1, '... and there was no other');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM zk_locks'),
		0, 'no lock is held');
}
poll_until(sub { lock_ephemerals($zk) == 0 }, 'the last contender to go');
pass('no contender is left');

done_testing();
