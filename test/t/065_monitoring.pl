
# What monitoring/ has: the real exporter gets each metric of the queries from a
# running instance, promtool accepts the rules, and their tests pass, and rules and
# dashboard name no metric that does not exist.

use strict;
use warnings;

use FindBin;
use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $dir = "$FindBin::RealBin/../../monitoring";

for my $program (qw(prometheus-postgres-exporter promtool))
{
	plan skip_all => "no $program" unless grep { -x "$_/$program" } split /:/, $ENV{PATH};
}

my $zk = ZooKeeper->new;
$zk->start;
my $a = zk_cluster('a', $zk, 'zklock.session_timeout' => '20s');
$a->safe_psql('postgres', 'CREATE ROLE exporter LOGIN; GRANT pg_monitor TO exporter');

my $port = PostgreSQL::Test::Cluster::get_free_port();
my $exporter;

sub start_exporter
{
	local $ENV{DATA_SOURCE_NAME} =
	  'user=exporter dbname=postgres sslmode=disable port=' . $a->port . ' host=' . $a->host;
	$exporter = IPC::Run::start(
		[
			'prometheus-postgres-exporter', "--web.listen-address=127.0.0.1:$port",
			"--extend.query-path=$dir/queries.yaml", '--disable-default-metrics',
			'--disable-settings-metrics'
		],
		'<', \undef, '>&', "$PostgreSQL::Test::Utils::log_path/exporter.log");
	return;
}

END
{
	local $?;
	if ($exporter)
	{
		$exporter->signal('TERM');
		eval { $exporter->finish };
	}
}

# The metrics of zklock and their values: name => { labels => value }.
sub scrape
{
	my $answer = HTTP::Tiny->new->get("http://127.0.0.1:$port/metrics");
	my %metrics;

	return {} unless $answer->{success};
	for (split /\n/, $answer->{content})
	{
		$metrics{$1}{ $2 // '' } = $3 if /^(zklock_\w+)(?:\{(.*)\})? (\S+)$/;
	}
	return \%metrics;
}

# A metric of the only session and server.
sub metric { return (values %{ scrape()->{ $_[0] } // {} })[0]; }

#
# Each metric of each query is scraped
#

my %described;
my $prefix;

for (split /\n/, slurp_file("$dir/queries.yaml"))
{
	$prefix = $1 if /^(zklock_\w+):$/;
	$described{"${prefix}_$1"} = undef if /^    - (\w+):$/;
}
start_exporter();
poll_until(sub { %{ scrape() } }, 'the exporter to answer');
my $metrics = scrape();
is_deeply([ sort keys %$metrics ], [ sort keys %described ], 'each metric is there, and no other');
cmp_ok(scalar keys %described, '>', 25, 'these are all');

is(metric('zklock_session_connected'), 1, 'the session is connected');
is(metric('zklock_session_timeout_seconds'), 20, 'its timeout is shown');
cmp_ok(metric('zklock_worker_start_time_seconds'), '>', time - 3600, 'and when the worker began');

my $taken = metric('zklock_stat_taken');
my $holder = holder($a, 'x');
my $waiter = waiter($a, 'x', 1);
is(metric('zklock_stat_taken'), $taken + 1, 'a lock is counted');
is(metric('zklock_locks_held'), 1, 'it is held');
poll_until(sub { metric('zklock_session_lease_seconds') > 0 }, 'the lease');
pass('the session has a lease');
is(metric('zklock_locks_waiting'), 1, 'one waits');
my $waits = metric('zklock_locks_longest_wait_seconds');
poll_until(sub { metric('zklock_locks_longest_wait_seconds') > $waits }, 'the wait to grow');
pass('its wait grows');

my $before = metric('zklock_worker_start_time_seconds');
$a->safe_psql('postgres', 'SELECT pg_terminate_backend(worker_pid) FROM zk_session');
poll_until(sub { my $now = metric('zklock_worker_start_time_seconds'); $now > $before }, 'the next worker');
pass('the next worker begins later');
$zk->stop;
poll_until(sub { metric('zklock_session_connected') == 0 }, 'the connection to be lost');
is(metric('zklock_locks_held'), 1, 'without ZooKeeper a scrape goes on');
$zk->start;
wait_connected($a);
$_->quit for ($holder, $waiter);

#
# Rules and dashboard
#

sub promtool
{
	my @command = @_;
	my ($out, $err) = ('', '');
	my $ok = IPC::Run::run([ 'promtool', @command ], '<', \undef, '>', \$out, '2>', \$err);

	ok($ok, "promtool @command[0, 1]") or diag($out, $err);
	return;
}

promtool('check', 'rules', "$dir/rules.yaml");
promtool('test', 'rules', "$dir/rules.test.yaml");

my $rules = slurp_file("$dir/rules.yaml");
my @alerts = $rules =~ /- alert: (\w+)/g;
my $tests = slurp_file("$dir/rules.test.yaml");
is_deeply([ grep { $tests !~ /alertname: $_\n\s+exp_alerts/ } @alerts ], [], 'each alert is seen in the tests');
my $page = slurp_file("$FindBin::RealBin/../../doc/operations.md");
is_deeply([ grep { $page !~ /`$_`/ } @alerts ], [], 'each alert is in operations.md');

my @expressions = $rules =~ /expr: (.*)/g;
my $dashboard = decode_json(slurp_file("$dir/dashboard.json"));
push @expressions, map { $_->{expr} } map { @{ $_->{targets} } } @{ $dashboard->{panels} };
my %named = map { $_ => 1 } map { /\b(zklock_\w+)/g } @expressions;
is_deeply([ grep { !exists $described{$_} } sort keys %named ], [], 'rules and dashboard name metrics that exist');

done_testing();
