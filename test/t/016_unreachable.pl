
# The client library can get into states in which it reaches no server any
# more, though there is one.  Then another worker does.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SlowCalls;
use Test::More;
use ZkCluster;
use ZkSession;
use ZkWire;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;

# An address where nobody listens, beside the server's: the library may try
# only the former when it has lost its connection (ZOOKEEPER-2466).
my $dead = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
my $two = zk_cluster('two', $zk,
	'zklock.servers' => "$dead," . $zk->connstr,
	'zklock.session_timeout' => '4s');
my $one = zk_cluster('one', $zk, 'zklock.session_timeout' => '12s');

wait_connected($_) for ($one, $two);
for my $round (1 .. 2)
{
	$zk->restart;
	ok(wait_connected($two), "one of two addresses is dead: connected again, round $round");
	is(sql($two, "SELECT zk_try_lock('x', '1 min')")->{out}, 't', '... and it locks');
}

# Without an answer nobody knows whether a claim goes on.
my $token = value($one, "SELECT zk_claim('claimed', '1 h')");
my $short = value($one, "SELECT zk_claim('short', '5 s')");
my $result;

$zk->stop;
poll_until(
	sub {
		$result = sql($one, "SELECT zk_renew_claim('$short')");
		return ($result->{out} // '') ne 't';
	},
	'the lease to run out');
error_is($result,
	{ sqlstate => '57P03', message => 'could not renew the claim', detail => qr/./ },
	'no answer before the ttl is over');
is(value($one, "SELECT zk_renew_claim('$short')"), 'f', 'then the claim has ended');
$zk->start;
ok(wait_connected($one), 'a claim: connected again');
is(value($one, "SELECT zk_renew_claim('$token')"), 't', '... and it is renewed');
is(value($one, "SELECT zk_end_claim('$token')"), 't', '... and ended');

# A server whose data were wiped refuses clients that have seen more than it
# has.
my $holder = holder($one, 'wiped');

wait_connected($one);
$holder->run_ok('CREATE TABLE t ()');
$zk->stop;
$zk->wipe;
$zk->start;
ok(wait_connected($one), 'wiped data: connected again');
is($holder->run('COMMIT')->{sqlstate}, '40001', '... in a new session: the lock is lost');
is(sql($one, "SELECT zk_try_lock('wiped', '1 min')")->{out}, 't', '... and is available again');
$holder->quit;

$_->stop for ($one, $two);

retire($one, $two);

#
# The library resolves names, or closes the session, and that takes long: who has a
# lock goes on, and the worker and the server can be stopped.
#

{
	$zk->client->create('/elsewhere');
	my $slow = SlowCalls->new;
	my $a = $slow->preloaded(sub { zk_cluster('a', $zk, 'zklock.session_timeout' => '30s') });
	wait_connected($a);
	$a->safe_psql('postgres', 'CREATE TABLE t (i int)');

	my $keeper = ZkWire->new($a);
	my $taker = ZkWire->new($a);

	# Have a lock taken that is not to be had yet.
	my sub ask
	{
		my ($lock) = @_;

		$taker->send("SELECT zk_lock('$lock', session => true)");
		$a->poll_query_until('postgres', 'SELECT count(*) = 1 FROM zk_locks WHERE NOT granted');
		return;
	}

	# It ends without an error.
	my sub is_taken
	{
		my ($name) = @_;

		local $Test::Builder::Level = $Test::Builder::Level + 1;
		poll_until(sub { ZkWire::wait_any(0, $taker) }, 'a call to end') if $taker->busy;
		is($taker->result->{message}, undef, $name);
		return;
	}

	my sub commits
	{
		my ($name) = @_;

		local $Test::Builder::Level = $Test::Builder::Level + 1;
		is($keeper->run('INSERT INTO t VALUES (1)')->{message}, undef, $name);
		return;
	}

	# Have the next worker resolve names, for long; returns its process id.
	my sub resolve
	{
		my $worker = worker_of($a);

		$slow->hold('getaddrinfo');
		kill 'TERM', $worker;
		wait_next_worker($a, $worker);
		my $next = worker_of($a);
		$slow->wait_held('getaddrinfo', $next);
		return $next;
	}

	#
	# The worker ends while names are resolved
	#

	is($keeper->run(q{SELECT zk_lock('x', session => true)})->{message}, undef, 'a lock is held');
	my $id = session_of($a);
	$a->poll_query_until('postgres', q{SELECT lease > '10 s' FROM zk_session});
	my $worker = resolve();
	commits('a COMMIT ends while names are resolved');
	ask('a');
	kill 'TERM', $worker;
	wait_next_worker($a, $worker);
	pass('a worker that is terminated makes room for the next');
	$slow->release('getaddrinfo');
	is_taken('a call has waited for it');
	is(session_of($a), $id, '... which goes on with the session');
	commits('a COMMIT ends');
	$taker->run('SELECT zk_unlock_all()');

	#
	# It closes the session
	#

	$slow->hold('zookeeper_close');
	$a->adjust_conf('postgresql.conf', 'zklock.servers', "'" . $zk->connstr . "/elsewhere'");
	$a->reload;
	is($keeper->run('SELECT zk_unlock_all()')->{message}, undef, 'the last lock is given back');
	$slow->wait_held('zookeeper_close', worker_of($a));
	my $handles = $slow->handles(worker_of($a));
	ask('b');
	$slow->release('zookeeper_close');
	is_taken('when the session is closed, another is opened in its place');
	isnt(session_of($a), $id, '... a new one');
	is($slow->handles(worker_of($a)), $handles + 1, '... with one handle more');

	#
	# The server ends while names are resolved
	#

	$id = session_of($a);
	resolve();
	$a->stop('fast');
	pass('a fast shutdown does not wait for them');
	ok($zk->has_session($id), '... and has no connection on which to end the session');
	ok(-e session_file($a), '... which it leaves to the next start');
	$slow->release('getaddrinfo');
	$a->start;
	wait_connected($a);
	ok(!$zk->has_session($id), 'that ends it');
	$a->stop;

	retire($a);
}

#
# Faults of the client library when the worker cannot end as it should: the
# thread that is parked holds what the main thread needs, or another module has
# loaded the library before zklock.
#

{
	my $dir = PostgreSQL::Test::Utils::tempdir();

	# Compile a library of C; returns its path.
	my sub library
	{
		my ($name, $source, @options) = @_;
		my $path = "$dir/$name.so";

		append_to_file("$dir/$name.c", $source);
		run_log([ 'gcc', '-shared', '-fPIC', '-o', $path, "$dir/$name.c", @options ])
		  or die "could not compile $name.c\n";
		return $path;
	}

	# The worker's pid, or '' while there is none, or while PostgreSQL restarts.
	my sub worker
	{
		my ($node) = @_;
		my ($ok, $out) = $node->psql('postgres',
			"SELECT worker_pid FROM zk_session WHERE state = 'connected'");

		return defined $ok && $ok == 0 ? $out : '';
	}

	my sub wait_other_worker
	{
		my ($node, $before) = @_;

		poll_until(sub { my $now = worker($node); $now ne '' && $now ne $before }, 'another worker');
		return;
	}

	my sub can_lock
	{
		my ($node, $name) = @_;

		poll_until(sub { (sql($node, "SELECT zk_try_lock('x', '1 min')")->{out} // '') eq 't' }, $name);
		pass($name);
		return;
	}

	#
	# A thread of the library faults with malloc's lock held
	#

	# A malloc with one lock.  Threads other than the main one fault when there is
	# the file, once, and hold the lock then.
	{
		my $flag = "$dir/fault";
		my $malloc = library('malloc', <<"EOF", '-pthread');
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void
enter(void)
{
	pthread_mutex_lock(&lock);
	if (syscall(SYS_gettid) != getpid() && unlink("$flag") == 0)
		*(volatile int *) 8 = 0;
}

#define LOCKED(type, call) \\
	type result; enter(); result = (call); pthread_mutex_unlock(&lock); return result

void *malloc(size_t size) { LOCKED(void *, __libc_malloc(size)); }
void *calloc(size_t n, size_t size) { LOCKED(void *, __libc_calloc(n, size)); }
void *realloc(void *block, size_t size) { LOCKED(void *, __libc_realloc(block, size)); }
void free(void *block) { enter(); __libc_free(block); pthread_mutex_unlock(&lock); }
EOF
		my $node;
		{
			local $ENV{LD_PRELOAD} = $malloc;
			$node = zk_cluster('a', $zk);
		}
		wait_connected($node);
		for my $round (1 .. 2)
		{
			my $worker = worker($node);
			my $holder = ZkSession->new($node);

			# with the heartbeats for a lock the library always has something to do
			$holder->run_ok("SELECT zk_lock('held $round', session => true)");
			append_to_file($flag, '');
			wait_other_worker($node, $worker);
			ok(!-e $flag, 'a thread has faulted');
			can_lock($node, "the next worker goes on, $round");
			eval { $holder->quit };
		}
		$node->stop('fast');
		pass('and PostgreSQL can be stopped');
	}

	#
	# Another module has loaded the library first
	#

	{
		my $pg_config = $ENV{PG_CONFIG} // 'pg_config';
		my $includes = `$pg_config --includedir-server`;
		chomp $includes;
		my $module = library('first', <<'EOF', "-I$includes", '-Wl,--no-as-needed', '-lzookeeper_mt');
#include "postgres.h"
#include "fmgr.h"

PG_MODULE_MAGIC;
EOF
		my $warning = qr/WARNING:  zklock cannot replace functions of the ZooKeeper client library/;
		my $hint = qr/HINT:  List zklock ahead of that module in "shared_preload_libraries"/;
		my $node = zk_cluster('b', $zk, 'shared_preload_libraries' => "zklock,$module");

		wait_connected($node);
		unlike(slurp_file($node->logfile), $warning, 'zklock is loaded first: no warning');
		$node->append_conf('postgresql.conf', "shared_preload_libraries = '$module,zklock'");
		$node->restart;
		wait_connected($node);
		like(slurp_file($node->logfile), qr/$warning.*$hint/s, 'zklock is loaded second: the worker says so');
		is(sql($node, "SELECT zk_try_lock('x')")->{out}, 't', '... and goes on');
		$node->stop('fast');
	}
}

done_testing();
