
# Counters of single locks: what they count, which of them stay, what becomes of
# the others, and that they outlive a restart, not a crash.
#
# And what monitoring/ has: the real exporter gets each metric of the queries from a
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

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client;
my $a = zk_cluster('a', $zk, 'zklock.session_timeout' => '20s', 'zklock.max_tracked_locks' => 40);
my $columns = 'taken, handed_off, waited, timed_out, failed, deadlocks, lost';

sub counters
{
	my ($name, $what) = @_;
	return value($a, 'SELECT ' . ($what // $columns) . " FROM zk_stat_locks WHERE name = '$name'");
}

#
# What is counted
#

is(value($a, 'SELECT count(*) FROM zk_stat_locks'), 0, 'at first there are none');
value($a, "SELECT zk_lock('x')") for (1 .. 3);
value($a, "SELECT zk_acquire('s', 2)");
value($a, "SELECT zk_lock('x y', shared => true)");
like(counters('x'), qr/^3\|[0-2]\|0\|0\|0\|0\|0$/, 'locks are counted');
is(counters('x', "root, stats_reset <= now() AND total_wait_time > 0 AND max_wait_time <= total_wait_time AND total_hold_time >= max_hold_time"),
	'/zklock|t', 'and how long they took');
is(counters('x', '(SELECT sum(w) FROM unnest(wait_histogram) w), (SELECT sum(h) FROM unnest(hold_histogram) h)'),
	'3|3', 'each is in its bucket');
is(value($a, "SELECT string_agg(name || ' ' || taken, ',' ORDER BY name) FROM zk_stat_locks"), 's 1,x 3,x y 1',
	'of each kind');

my $theirs = $foreign->lock(lock_dir('theirs'));
is(value($a, "SELECT zk_try_lock('theirs')"), 'f', 'a lock that is not free');
is(sql($a, "SELECT zk_lock('theirs', '10ms')")->{sqlstate}, '55P03', 'or not in time');
my $waiter = waiter($a, 'theirs', 2);
value($a, 'SELECT pg_cancel_backend(' . $waiter->pid . ')');
is($waiter->result->{sqlstate}, '57014', 'or canceled');
is(counters('theirs'), '0|0|0|2|1|0|0', 'are counted, too');
$waiter->run('ROLLBACK');
$waiter->run('BEGIN');
$waiter->send("SELECT zk_lock('theirs')");
$waiter->wait_waiting(2);
$zk->wait_watched($theirs);
$foreign->unlock($theirs);
is($waiter->result->{message}, undef, 'it is granted');
like(counters('theirs'), qr/^1\|0\|[01]\|2\|1\|0\|0$/, 'and counted');
ok(counters('theirs', 'total_hold_time = 0') eq 't', 'and is held');

end_session($a, $foreign);
poll_until(sub { counters('theirs', 'lost') eq '1' }, 'the loss to be counted');
pass('a loss is counted');
is($waiter->run('COMMIT')->{sqlstate}, '40001', 'the lock is lost');
$waiter->quit;
wait_connected($a);

# A session that hears that others are ahead of it, before it has the lock.
for my $round (1 .. 20)
{
	my $ahead = $foreign->lock(lock_dir('waited'));
	my $behind = waiter($a, 'waited', 2);

	$zk->wait_watched($ahead);
	$foreign->unlock($ahead);
	$behind->result;
	$behind->quit;
	last if counters('waited', 'waited > 0') eq 't';
}
is(counters('waited', 'waited > 0'), 't', 'a wait is counted');

my @dead = map { holder($a, "dead $_") } (0, 1);
$dead[$_]->send("SELECT zk_lock('dead " . (1 - $_) . "')") for (0, 1);
poll_until(sub { grep { $_->done } @dead }, 'the deadlock to end');
$_->quit for @dead;
is(value($a, "SELECT sum(deadlocks) FROM zk_stat_locks WHERE name LIKE 'dead%'"), 1, 'a deadlock is counted');

#
# Which locks have counters
#

value($a, "SELECT zk_lock('hot')") for (1 .. 50);
for my $part (0 .. 9)
{
	value($a, "SELECT zk_lock('cold ' || i) FROM generate_series(10 * $part, 10 * $part + 9) i");
	value($a, "SELECT zk_lock('hot')");
}
my $all = 'count(*) FILTER (WHERE root IS NOT NULL), count(*)';
is(value($a, "SELECT $all FROM zk_stat_locks"), '40|41', 'no more than there is room for, and all others');
is(counters('hot', 'taken'), 60, 'what has been waited for the most stays');
is(counters('cold 99', 'taken'), 1, 'what is new is there');
is(value($a, 'SELECT sum(taken) FROM zk_stat_locks'), value($a, 'SELECT taken FROM zk_stat'), 'nothing is forgotten');
is(value($a, "SELECT taken = (SELECT sum(w) FROM unnest(wait_histogram) w), max_wait_time BETWEEN 0.001 AND total_wait_time FROM zk_stat_locks WHERE root IS NULL"),
	't|t', 'of all others, too');

#
# Restarts
#

my $before = value($a, "SELECT string_agg(l::text, ' ' ORDER BY name) FROM zk_stat_locks l");
$a->restart;
is(value($a, "SELECT string_agg(l::text, ' ' ORDER BY name) FROM zk_stat_locks l"), $before,
	'a restart keeps all');
ok(!-e $a->data_dir . '/pg_stat/zklock_locks.stat', 'the file is gone');
wait_connected($a);
value($a, "SELECT zk_lock('hot')");
is(counters('hot', 'taken'), 61, 'and counting goes on');

$a->stop;
my $file = $a->data_dir . '/pg_stat/zklock_locks.stat';
ok(-s $file, 'the file is written at the end');

# One bit of a counter, one of a name, and a byte too many
for my $damage ([ 'taken', 500 ], [ 'name', 40 ], [ 'longer', undef ])
{
	my ($what, $offset) = @$damage;
	my $bytes = slurp_file($file);
	my $at = -s $a->logfile;

	substr($bytes, $offset, 1) ^= "\1" if defined $offset;
	$bytes .= "\0" unless defined $offset;
	open my $out, '>:raw', $file or die "could not open $file: $!";
	print $out $bytes;
	close $out;
	$a->start;
	is(value($a, 'SELECT count(*) FROM zk_stat_locks'), 0, "nothing is taken of a damaged file ($what)");
	like(slurp_file($a->logfile, $at), qr/LOG:  ignoring invalid data in file "pg_stat\/zklock_locks.stat"/, 'and is logged');
	wait_connected($a);
	value($a, "SELECT zk_lock('hot')");
	$a->stop;
	ok(-s $file, 'the next one is written');
}
truncate $file, 1000 or die "truncate: $!";
$a->append_conf('postgresql.conf', 'zklock.max_tracked_locks = 10');
$a->start;
is(value($a, 'SELECT count(*) FROM zk_stat_locks'), 0, 'a file that ends early does no harm');
like(slurp_file($a->logfile), qr/LOG:  ignoring invalid data in file "pg_stat\/zklock_locks.stat"/, 'and is logged');
wait_connected($a);
value($a, "SELECT zk_lock('warm ' || i) FROM generate_series(1, 20) i");
is(value($a, "SELECT $all FROM zk_stat_locks"), '10|11', 'there is less room now');
$a->restart;
is(value($a, "SELECT $all FROM zk_stat_locks"), '10|11', 'all of it is kept');

kill 'KILL', ZkSession->new($a)->pid;
poll_until(sub { slurp_file($a->logfile) =~ /all server processes terminated; reinitializing/ },
	'the server to crash');
wait_accepting($a);
is(value($a, 'SELECT count(*) FROM zk_stat_locks'), 0, 'a crash keeps none');
wait_connected($a);
value($a, "SELECT zk_lock('hot')");
is(counters('hot', 'taken'), 1, 'counting begins again');
value($a, 'SELECT zk_stat_reset()');
is(value($a, 'SELECT count(*) FROM zk_stat_locks'), 0, 'a reset forgets all');
value($a, "SELECT zk_lock('hot')");
is(counters('hot', 'taken'), 1, 'and counting begins again');

$a->append_conf('postgresql.conf', 'zklock.max_tracked_locks = 0');
$a->restart;
wait_connected($a);
value($a, "SELECT zk_lock('hot')");
is(value($a, 'SELECT count(*) FROM zk_stat_locks'), 0, 'nothing is counted when it is off');

#
# Who may read them
#

value($a, 'CREATE ROLE alice; CREATE ROLE bob; GRANT pg_monitor TO bob');
is(sql($a, 'SET ROLE alice; SELECT * FROM zk_stat_locks')->{sqlstate}, '42501', 'not everybody may read them');
is(sql($a, 'SET ROLE bob; SELECT count(*) FROM zk_stat_locks')->{out}, 0, 'members of pg_monitor may');

#
# Monitoring
#

my $dir = "$FindBin::RealBin/../../monitoring";

for my $program (qw(prometheus-postgres-exporter promtool))
{
	next if grep { -x "$_/$program" } split /:/, $ENV{PATH};
	SKIP: { skip "no $program", 1; }
	done_testing();
	exit;
}

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

# Each metric of each query is scraped.

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

# the session that looked has ended with a restart
delete $a->{zk_watcher};
my $taken = metric('zklock_stat_taken');
my $holder = holder($a, 'x');
$waiter = waiter($a, 'x', 1);
is(metric('zklock_stat_taken'), $taken + 1, 'a lock is counted');
is(metric('zklock_locks_held'), 1, 'it is held');
poll_until(sub { metric('zklock_session_lease_seconds') > 0 }, 'the lease');
pass('the session has a lease');
is(metric('zklock_locks_waiting'), 1, 'one waits');
my $waits = metric('zklock_locks_longest_wait_seconds');
poll_until(sub { metric('zklock_locks_longest_wait_seconds') > $waits }, 'the wait to grow');
pass('its wait grows');

$before = metric('zklock_worker_start_time_seconds');
$a->safe_psql('postgres', 'SELECT pg_terminate_backend(worker_pid) FROM zk_session');
poll_until(sub { my $now = metric('zklock_worker_start_time_seconds'); $now > $before }, 'the next worker');
pass('the next worker begins later');
$zk->stop;
poll_until(sub { metric('zklock_session_connected') == 0 }, 'the connection to be lost');
is(metric('zklock_locks_held'), 1, 'without ZooKeeper a scrape goes on');
$zk->start;
wait_connected($a);
$_->quit for ($holder, $waiter);

# Rules and dashboard

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
