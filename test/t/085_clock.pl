# Copyright (c) 2026, zklock developers

# The time of day is set by an hour while sessions wait.  The servers have a
# preloaded library that does that.  The query of doc/operations.md shows it.

use strict;
use warnings;

use DocPage;
use File::Basename qw(dirname);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $dir = PostgreSQL::Test::Utils::tempdir;
my $hour = 3600;

append_to_file("$dir/clock.c", <<'EOF');
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *ahead;		/* s */

__attribute__((constructor)) static void
attach(void)
{
	ahead = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED,
				 open(getenv("ZKLOCK_TEST_CLOCK"), O_RDONLY), 0);
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	static int (*real) (clockid_t, struct timespec *) = NULL;
	int			result;

	if (!real)
		real = (int (*) (clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
	result = real(clock, now);
	if (clock == CLOCK_REALTIME && ahead)
		now->tv_sec += *ahead;
	return result;
}

int
gettimeofday(struct timeval *now, void *zone)
{
	struct timespec time;

	(void) zone;
	clock_gettime(CLOCK_REALTIME, &time);
	now->tv_sec = time.tv_sec;
	now->tv_usec = time.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *now)
{
	struct timespec time;

	clock_gettime(CLOCK_REALTIME, &time);
	if (now)
		*now = time.tv_sec;
	return time.tv_sec;
}
EOF
system_or_bail('cc', '-O', '-shared', '-fPIC', '-o', "$dir/clock.so", "$dir/clock.c", '-ldl');

# Set the clocks of the servers, in s from now.
sub set_clock
{
	my ($ahead) = @_;

	note "the clock is set to $ahead s from now";
	open my $file, '+<', "$dir/ahead" or die "could not open $dir/ahead: $!";
	syswrite($file, pack('q', $ahead)) == 8 or die "could not set the clock: $!";
	close $file;
	return;
}

append_to_file("$dir/ahead", pack('q', 0));

my $zk = ZooKeeper->new;
$zk->start;
my ($a, $b);

# Have the function start servers with that library.
sub preloaded
{
	my ($function) = @_;

	local $ENV{LD_PRELOAD} = "$dir/clock.so";
	local $ENV{ZKLOCK_TEST_CLOCK} = "$dir/ahead";
	$function->();
	return;
}

preloaded(
	sub {
		($a, $b) = zk_clusters(
			$zk, [qw(a b)],
			'postgres_fdw.application_name' => 'zklock:%c:%C',
			'deadlock_timeout' => '500ms');
	});

{
	my $real = time;

	set_clock(-$hour);
	cmp_ok($a->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp())'),
		'<', $real - $hour / 2, 'the clock of a server can be set');
	set_clock(0);
}

for my $step ($hour, -$hour, 0)
{
	my $page = DocPage->new(($ENV{TESTDIR} // '.') . '/doc/operations.md', {}, run => 'a');

	set_clock($step);
	my ($sign, $hours, $minutes) = sql($a, $page->named('clock check'))->{out} =~ /^(-?)(\d\d):(\d\d):/m;
	my $ahead = ($sign ? -1 : 1) * (60 * $hours + $minutes);
	cmp_ok(abs($ahead - $step / 60), '<=', 10, "operations.md shows a clock that is $step s ahead");
}

sub zk_lock { return "SELECT zk_lock('$_[0]', '1 min')"; }

# One of those that wait fails, and the others go on.
sub ends
{
	my ($name, @waiting) = @_;
	my %ended;

	poll_until(sub { grep { $_->done } @waiting }, "$name: some wait to end");
	for my $session (@waiting)
	{
		$ended{ $session->result->{sqlstate} // 'well' }++;
		$session->run('ROLLBACK');
	}
	is_deeply(\%ended, { '40P01' => 1, 'well' => @waiting - 1 }, "$name: one fails with 40P01");
	$_->quit for @waiting;
	return;
}

# A deadlock by way of a wait in the lock manager that began before the clock is
# set.  (PostgreSQL's own timeouts go by that clock, too.)
for my $step (-$hour, $hour)
{
	my ($one, $two) = map { ZkSession->new($a) } (1 .. 2);
	my $other = ZkSession->new($b);

	$one->run_ok('BEGIN; ' . zk_lock('x'), 'a holds x');
	$two->run_ok('BEGIN; SELECT pg_advisory_xact_lock(1)', 'a session of a has an advisory lock');
	$other->run_ok('BEGIN; ' . zk_lock('y'), 'b holds y');
	$one->send('SELECT pg_advisory_xact_lock(1)');
	$one->wait_waiting(1);
	set_clock($step);
	$two->send(zk_lock('y'));
	wait_contenders($zk, 'y', 2);
	$other->send(zk_lock('x'));
	ends("a wait in the lock manager, clock set by $step s", $other, $two, $one);
	set_clock(0);
}

# The same, where the wait is a statement on a foreign server.
{
	my $user = $b->safe_psql('postgres', 'SELECT current_user');
	my ($host, $port) = ($b->host, $b->port);

	$b->safe_psql('postgres', 'CREATE TABLE stock (id int PRIMARY KEY, n int); INSERT INTO stock VALUES (1, 10)');
	$a->safe_psql('postgres', qq{
		CREATE EXTENSION postgres_fdw;
		CREATE SERVER b FOREIGN DATA WRAPPER postgres_fdw
			OPTIONS (host '$host', port '$port', dbname 'postgres');
		CREATE USER MAPPING FOR CURRENT_USER SERVER b OPTIONS (user '$user');
		CREATE FOREIGN TABLE stock (id int, n int) SERVER b});

	my $update = 'UPDATE stock SET n = n - 1 WHERE id = 1';
	my $caller = ZkSession->new($a);
	my $holder = ZkSession->new($b);

	$holder->run_ok("BEGIN; $update", 'b has updated a row');
	$caller->run_ok('BEGIN; ' . zk_lock('z'), 'a holds z');
	$caller->send($update);
	$b->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted");
	set_clock(-$hour);
	$holder->send(zk_lock('z'));
	ends('a wait on a foreign server', $holder, $caller);
	set_clock(0);
}

# ZooKeeper takes credentials, or refuses them all.
sub take_credentials
{
	my ($takes) = @_;

	$zk->stop;
	append_to_file(dirname($zk->data_dir) . '/zoo.cfg',
		'DigestAuthenticationProvider.enabled=' . ($takes ? 'true' : 'false') . "\n");
	$zk->start;
	return;
}

# Have a new session of a's, with credentials and a timeout.  A server that is
# started goes by the timeout with which a session has begun.
sub begin_session
{
	my ($timeout) = @_;

	edit_settings($a, 'zklock.auth' => 'shop:secret', 'zklock.session_timeout' => $timeout);
	preloaded(sub { $a->restart });
	wait_connected($a);
	return;
}

# A session whose credentials ZooKeeper refuses is given up after its timeout: not
# earlier ...
begin_session('60s');
{
	my $session = session_of($a);
	my $holder = holder($a, 'kept');

	take_credentials(0);
	ok(wait_last_error($a, qr/^ZooKeeper refused the credentials of "zklock\.auth"$/),
		'the credentials are refused');
	set_clock($hour);
	for (1 .. 3)
	{
		my $log = -s $a->logfile;

		$a->wait_for_log(qr/background worker "zklock worker" .* exited/, $log);
	}
	take_credentials(1);
	ok(wait_connected($a), 'connected again');
	is(session_of($a), $session, "clock set by $hour s: ... to the same session");
	is($holder->run('COMMIT')->{sqlstate}, undef, '... and the lock was never lost');
	$holder->quit;
	set_clock(0);
}

# ... and not later
no_pauses();
begin_session('4s');
{
	my $holder = holder($a, 'kept');
	my $waiter = waiter($b, 'kept', 2);

	take_credentials(0);
	set_clock(-$hour);
	is($waiter->result->{message}, undef, "clock set by -$hour s: the lock goes to another instance");
	$waiter->run_ok('COMMIT');
	is($holder->run('COMMIT')->{sqlstate}, '40001', '... and its holder cannot commit');
	$_->quit for ($holder, $waiter);
	set_clock(0);
}

$_->stop for ($a, $b);
done_testing();
