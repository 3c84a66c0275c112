
# The test house itself: servers start, stop and come back, an ensemble finds
# a leader, and the foreign client queues, owns and loses locks.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;
is($zk->mode(0), 'standalone', 'a single server serves');
like($zk->fourlw('mntr'), qr/^zk_version\s+3\./m, 'four-letter words');

# Nodes
my $c = $zk->client;
is($c->create('/a/b', makepath => 1, data => 'x'), '/a/b', 'create');
is_deeply([ $c->ls('/a') ], ['b'], 'ls');
is($c->get('/a/b')->{data}, 'x', 'get');
$c->set('/a/b', 'y');
is($c->get('/a/b')->{version}, 1, 'set');
my $node = $c->create('/a/e', ephemeral => 1);
is($c->get($node)->{ephemeralOwner}, $c->session, 'ephemeral node is ours');
cmp_ok($c->get($node)->{czxid}, '>', $c->get('/a/b')->{czxid}, 'czxid');
$c->delete('/a/b');
ok(!$c->exists('/a/b'), 'delete and exists');
ok(!eval { $c->ls('/none'); 1 }, 'error dies');
like($@, qr/^NoNodeError/, 'with the name of the error');

# ACLs
$c->add_auth('digest', 'me:secret');
$c->create('/mine', acl => 'creator', data => 'z');
my $d = $zk->client;
ok(!eval { $d->get('/mine'); 1 }, 'creator ACL keeps others out');
like($@, qr/^NoAuthError/, 'with NoAuthError');

# Contenders
my $first = $c->lock('/locks/l');
like($first, qr{^/locks/l/_c_[0-9a-f-]{36}-lock-\d{10}$}, 'contender name');
my $second = $d->enqueue('/locks/l');
is($d->position($second), 1, 'second in the queue');
ok(!$zk->client->kazoo_lock('/locks/l', 0.1), "kazoo's recipe waits for it");
$c->unlock($first);
poll_until(sub { $d->position($second) == 0 }, 'the second contender to own');
pass('unlock passes the lock on');

# Sessions
ok($c->kill_session($d->session), 'kill_session');
ok(!$c->exists($second), 'its ephemeral nodes go at once');
ok(!$c->kill_session(4711), 'kill_session of none');
ok($c->kazoo_lock('/locks/l', 10), "kazoo's recipe gets the lock");
ok($c->kazoo_unlock('/locks/l'), 'and releases it');

# A restart: same port, sessions live on.
my @ports = $zk->ports;
$zk->restart;
is_deeply([ $zk->ports ], \@ports, 'ports stay');
is($c->get('/a/e')->{ephemeralOwner}, $c->session, 'session survives restart');
$zk->kill9;
ok(!defined $zk->fourlw('ruok'), 'kill9');
$zk->start;
ok($c->exists('/a/e'), 'session survives kill9');

# A paused server does not answer, and goes on later.
$zk->pause;
$zk->resume;
ok($c->exists('/a/e'), 'pause and resume');

# disconnect closes the session
my $e = $zk->client(timeout => 2);
$e->create('/a/f', ephemeral => 1);
$e->disconnect;
ok(!$c->exists('/a/f'), 'disconnect closes the session');
$zk->stop;

# An ensemble
my $three = ZooKeeper->new(servers => 3, name => 'three');
$three->start;
my $leader = $three->leader;
ok(defined $leader, 'an ensemble has a leader');
is(scalar($three->followers), 2, 'and two followers');
my $t = $three->client;
$t->create('/x', ephemeral => 1);
$three->kill9($leader);
poll_until(sub { defined $three->leader }, 'a new leader');
isnt($three->leader, $leader, 'the ensemble survives its leader');
ok($t->exists('/x'), 'and so do sessions');
$three->start($leader);
is($three->mode($leader), 'follower', 'the old leader joins as a follower');
$three->pause($three->leader);
poll_until(sub { defined $three->leader }, 'a leader instead of the paused one');
pass('the ensemble survives a paused leader');
$three->resume;
$three->wait_ready;

done_testing();
