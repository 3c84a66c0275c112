
# Faults of the client library when the worker cannot end as it should: the
# thread that is parked holds what the main thread needs, or another module has
# loaded the library before zklock.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;
my $dir = PostgreSQL::Test::Utils::tempdir();

# Compile a library of C; returns its path.
sub library
{
	my ($name, $source, @options) = @_;
	my $path = "$dir/$name.so";

	append_to_file("$dir/$name.c", $source);
	run_log([ 'gcc', '-shared', '-fPIC', '-o', $path, "$dir/$name.c", @options ])
	  or die "could not compile $name.c\n";
	return $path;
}

# The worker's pid, or '' while there is none, or while PostgreSQL restarts.
sub worker
{
	my ($node) = @_;
	my ($ok, $out) = $node->psql('postgres',
		"SELECT worker_pid FROM zk_session WHERE state = 'connected'");

	return defined $ok && $ok == 0 ? $out : '';
}

sub wait_other_worker
{
	my ($node, $before) = @_;

	poll_until(sub { my $now = worker($node); $now ne '' && $now ne $before }, 'another worker');
	return;
}

sub can_lock
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

done_testing();
