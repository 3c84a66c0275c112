
# The library resolves names, or closes the session, and that takes long: who has a
# lock goes on, and the worker and the server can be stopped.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SlowCalls;
use Test::More;
use ZkCluster;
use ZkWire;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;
$zk->client->create('/elsewhere');
my $slow = SlowCalls->new;
my $a = $slow->preloaded(sub { zk_cluster('a', $zk, 'zklock.session_timeout' => '30s') });
wait_connected($a);
$a->safe_psql('postgres', 'CREATE TABLE t (i int)');

my $keeper = ZkWire->new($a);
my $taker = ZkWire->new($a);

# Have a lock taken that is not to be had yet.
sub ask
{
	my ($lock) = @_;

	$taker->send("SELECT zk_lock('$lock', session => true)");
	$a->poll_query_until('postgres', 'SELECT count(*) = 1 FROM zk_locks WHERE NOT granted');
	return;
}

# It ends without an error.
sub is_taken
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	poll_until(sub { ZkWire::wait_any(0, $taker) }, 'a call to end') if $taker->busy;
	is($taker->result->{message}, undef, $name);
	return;
}

sub commits
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($keeper->run('INSERT INTO t VALUES (1)')->{message}, undef, $name);
	return;
}

# Have the next worker resolve names, for long; returns its process id.
sub resolve
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

done_testing();
