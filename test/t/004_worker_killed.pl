
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
use Time::HiRes qw(sleep);
use ZkCluster;
use ZooKeeper;

# A new worker comes a second after the old one is gone, so a kill costs that
# second: instances share the tests, the longest first, each with a chroot of its
# own.
my $nclusters = 12;

my $pg_regress = $ENV{PG_REGRESS};
plan skip_all => 'PG_REGRESS is not set' unless $pg_regress;

my $top = abs_path($ENV{TESTDIR} // '.');

# Claims end by time, and a kill takes a second; t/103 has them with a worker
# that is killed.
my @tests = grep { $_ ne 'claims' }
  map { basename($_, '.sql') } sort { -s $b <=> -s $a } glob("$top/test/sql/*.sql");
my $launcher = "$top/test/lib/kill_between";

my $zk = ZooKeeper->new;
$zk->start;
my $client = $zk->client;

sub start_cluster
{
	my ($name) = @_;

	$client->create("/$name");
	my $node = zk_cluster(
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
				SELECT worker_pid INTO worker FROM zk_session
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
	wait_connected($node);
	return { node => $node, session => session_of($node) };
}

# Begin to run a test, by pg_regress as test/run does, but with the launcher.
sub start_test
{
	my ($cluster, $test) = @_;
	my $node = $cluster->{node};
	my $dir = $PostgreSQL::Test::Utils::tmp_check . "/worker_killed_$test";

	mkdir $dir or die "could not create $dir: $!";
	symlink "$top/expected", "$dir/expected" or die "could not symlink: $!";
	@$cluster{qw(test dir output)} = ($test, $dir, '');
	$cluster->{run} = IPC::Run::start(
		[
			$pg_regress,
			'--bindir=' . $node->config_data('--bindir'),
			"--inputdir=$top/test", "--launcher=$launcher",
			'--load-extension=zklock', '--host=' . $node->host,
			'--port=' . $node->port, $test
		],
		'>', \$cluster->{output}, '2>&1',
		init => sub { chdir $dir or die "could not chdir: $!" });
	return;
}

sub end_test
{
	my ($cluster) = @_;
	my ($node, $test) = @$cluster{qw(node test)};
	my $diffs = "$cluster->{dir}/regression.diffs";
	my $passed = (delete $cluster->{run})->finish;

	note $cluster->{output};
	ok($passed, "$test: nobody notices")
	  or diag(-s $diffs ? slurp_file($diffs) : $cluster->{output});
	my $kills = value($node, "SELECT count(*) FROM kills WHERE test = '$test'");
	cmp_ok($kills, '>=', 10, "$test: the worker was terminated $kills times");
	is(value($node, 'SELECT count(*) FROM zk_locks'), 0, 'no lock is held');
	return;
}

my @clusters = map { start_cluster("share$_") } (1 .. $nclusters);

while (@tests || grep { $_->{run} } @clusters)
{
	for my $cluster (@clusters)
	{
		my $run = $cluster->{run};

		# pump_nb dies if the process has ended meanwhile
		end_test($cluster) if $run && !(eval { $run->pump_nb; 1 } && $run->pumpable);
		start_test($cluster, shift @tests) if !$cluster->{run} && @tests;
	}
	sleep 0.1;
}
for my $cluster (@clusters)
{
	wait_connected($cluster->{node});
	is(session_of($cluster->{node}), $cluster->{session}, 'it is still the same session');
	is(value($cluster->{node}, 'SELECT sessions FROM zk_session'), 1, '... and there was no other');
}
poll_until(sub { lock_ephemerals($zk) == 0 }, 'the last contender to go');
pass('no contender is left');

done_testing();
