# A server whose answers are wrong in every way: locks may fail, the worker may
# be replaced, but PostgreSQL is not restarted, and with a real server all is
# well again.  ZKLOCK_TEST_SEED chooses another run.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $seed = seed();
my $answers = soak(1000, 8000);

my $zk = ZooKeeper->new;
$zk->start;
my $a = zk_cluster('a', $zk, 'zklock.session_timeout' => '4s', 'max_connections' => 50,
	'log_statement' => 'none', 'log_min_error_statement' => 'panic',
	'zklock.retain_time' => '20ms');
my $witness = ZkSession->new($a);

wait_connected($a);
$witness->run_ok('CREATE TEMP TABLE alive AS SELECT 1');

# What clients do all the time, each a little of everything.
sub statements
{
	my @statements = ("SET lock_timeout = '50ms';", "SET statement_timeout = '200ms';");

	for (1 .. 20000)
	{
		my ($x, $y, $z) = map { "'" . chr(97 + int(rand(4))) . "'" } 1 .. 3;
		my $shared = rand() < 0.5 ? 'true' : 'false';
		my @choices = (
			"SELECT zk_try_lock($x);",
			"SELECT zk_try_lock($x, '20ms', shared => $shared);",
			"BEGIN; SELECT zk_lock($x, '30ms', shared => $shared);"
			  . " SELECT zk_fencing_token($x); COMMIT;",
			"BEGIN; SAVEPOINT s; SELECT zk_lock($x); ROLLBACK TO s; SELECT zk_lock($y); COMMIT;",
			"SELECT zk_lock_all(ARRAY[$x, $y, $z], '30ms', shared => $shared);",
			"SELECT zk_try_acquire('s' || $x, 2, '20ms');",
			"SELECT zk_lock($x, '20ms', session => true); SELECT zk_unlock($x); SELECT zk_unlock_all();",
			"BEGIN; SET LOCAL zklock.commit_check = 'quorum'; SELECT zk_lock($x, '20ms'); COMMIT;",
			"SELECT count(*) FROM zk_queue($x);",
			"SELECT zk_cancel_holders($x);");
		push @statements, $choices[ int(rand(@choices)) ];
	}
	return join("\n", @statements);
}

my ($in, $told) = ('', '');
my $fuzz = IPC::Run::start(
	[ '/usr/bin/python3', "$FindBin::Bin/../lib/fuzz_server.py", $seed, 8 ],
	'<', \$in, '>', \$told);
poll_until(sub { $fuzz->pump_nb; $told =~ /\n/ }, 'the odd server to listen');
my ($ports) = $told =~ /^(\S+)/;

$a->safe_psql('postgres', q{ALTER SYSTEM SET zklock.servers = '}
	  . join(',', map { "127.0.0.1:$_" } split /,/, $ports) . q{'});
$a->reload;

my @clients;
for my $i (1 .. 16)
{
	my $file = $a->basedir . "/statements$i.sql";
	my %client = (out => '');

	open my $out, '>', $file or die "$file: $!";
	print $out statements();
	close $out;
	$client{run} = IPC::Run::start(
		[ $a->installed_command('psql'), '-XAtq', '-d', $a->connstr('postgres'), '-f', $file ],
		'>', '/dev/null', '2>', '/dev/null');
	push @clients, \%client;
}

# Until there were so many answers and by one of them the worker has failed, not
# only for the new setting; or until PostgreSQL has crashed.
my $failures = 0;
poll_until(
	sub {
		my $log = slurp_file($a->logfile);

		$fuzz->pump_nb;
		$failures = () = $log =~ /exited with exit code 1/g;
		return $log =~ /terminating any other active server processes/
		  || ($failures > 1 && (($told =~ /^answers: (\d+)/mg)[-1] // 0) >= $answers);
	},
	"$answers answers, and another worker");

# no more of it
$a->safe_psql('postgres', 'ALTER SYSTEM RESET zklock.servers');
$a->reload;
for (@clients)
{
	$_->{run}->signal('KILL');
	eval { $_->{run}->finish };
}
$in = undef;
$told = '';
$fuzz->finish;
my %counts = $told =~ /^(.+): (\d+)$/mg;
note($told);
cmp_ok($counts{answers} // 0, '>=', $answers, "$answers answers");

$witness->run_ok('SELECT * FROM alive', 'other sessions live on');
my $log = slurp_file($a->logfile);
unlike($log, qr/terminating any other active server processes/, 'PostgreSQL was not restarted');
unlike($log, qr/was terminated by signal/, 'no process has died of a signal');
cmp_ok($failures, '>', 1, 'though the worker was replaced');

poll_until(sub { $a->safe_psql('postgres', 'SELECT server FROM zk_session') eq $zk->connstr },
	'the worker to be with ZooKeeper again');
$witness->run_ok("BEGIN; SELECT zk_lock(n) FROM unnest('{a,b,c,d}'::text[]) n", 'with a real server: locks');
is(scalar(contenders($zk, $_)), 1, "... in ZooKeeper: $_") for qw(a b c d);
$witness->run_ok('COMMIT');
is(sql($a, "SELECT zk_try_acquire('sa', 2, '1 min')")->{out}, 't', '... and permits');
wait_no_contenders($zk, $_) for qw(a b c d);
$witness->quit;
$a->stop('fast');

done_testing();
