
# The client library can get into states in which it reaches no server any
# more, though there is one.  Then another worker does.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;

# An address where nobody listens, beside the server's: the library may try
# only the former when it has lost its connection (ZOOKEEPER-2466).
my $dead = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
my $two = zk_cluster('two', $zk,
	'zklock.servers' => "$dead," . $zk->connstr,
	'zklock.session_timeout' => '4s');
my $one = zk_cluster('one', $zk, 'zklock.session_timeout' => '4s');

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
done_testing();
