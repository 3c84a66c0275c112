
# The test house itself: servers start, stop and come back, an ensemble finds
# a leader, the foreign client queues, owns and loses locks, the proxy loses and
# holds back what goes through it, and a chaos run ends what is its own.

use strict;
use warnings;

use FindBin;
use IO::Socket::INET;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
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

# The proxy
my $proxy = ZkProxy->new;
my $listener = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1');
my $port = $proxy->link('echo', $listener->sockport);

sub dial
{
	return IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port);
}

# What is read, '' at the end of the connection, undef for an error.
sub receive
{
	my ($socket) = @_;
	my $data;

	return defined sysread($socket, $data, 100) ? $data : undef;
}

# Nothing arrives, for as long as it takes a link that passes something.
my $control = $proxy->link('control', $listener->sockport);

sub is_silent
{
	my ($socket, $name) = @_;
	my $near = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $control);
	my $far = $listener->accept;
	my $ready = '';

	syswrite $near, 'x';
	receive($far);
	vec($ready, fileno($socket), 1) = 1;
	is(select($ready, undef, undef, 0), 0, $name);
	return;
}

my $near = dial();
my $far = $listener->accept;
syswrite $near, 'there';
is(receive($far), 'there', 'a link passes data');
syswrite $far, 'and back';
is(receive($near), 'and back', 'both ways');
$proxy->freeze('echo');
syswrite $near, 'late';
close $near;
is_silent($far, 'freeze: nothing passes');
$near = dial();
ok($near, 'freeze: new connections are accepted');
is_silent($listener, 'freeze: and get nowhere');
$proxy->thaw('echo');
is(receive($far), 'late', 'thaw: what was held back arrives');
is(receive($far), '', 'thaw: the end of the connection too');
my $new = $listener->accept;
syswrite $new, 'hello';
is(receive($near), 'hello', 'thaw: the new connection is made');
close $far;
poll_until(sub { $proxy->connections('echo') == 1 }, 'the closed connection to go');
$proxy->reset('echo');
is($proxy->connections('echo'), 0, 'reset: no connection is left');
ok(!defined receive($_) && $!{ECONNRESET}, 'reset: both ends notice it') for ($near, $new);
$near = dial();
$far = $listener->accept;
$proxy->refuse('echo');
ok(!defined receive($near), 'refuse: the present connection is reset');
ok(!dial() && $!{ECONNREFUSED}, 'refuse: a new one is refused');
$proxy->thaw('echo');
ok(dial(), 'thaw: new connections are accepted');
ok(!eval { $proxy->freeze('nothing'); 1 }, 'no such link');

# An ensemble
no_pauses();	# its servers give each other up sooner than that
my $three = ZooKeeper->new(
	servers => 3,
	name => 'three',
	conf => { syncLimit => 4 },
	proxy => $proxy);
$three->start;
my $leader = $three->leader;
ok(defined $leader, 'an ensemble has a leader');
is(scalar($three->followers), 2, 'and two followers');
my $t = ZooKeeper::Client->new(servers => $three->connstr_through($proxy, 't'));
$t->create('/x', ephemeral => 1);
$three->kill9($leader);
poll_until(sub { defined $three->leader }, 'a new leader');
isnt($three->leader, $leader, 'the ensemble survives its leader');
ok($t->exists('/x'), 'and so do sessions');
$three->start($leader);
is($three->mode($leader), 'follower', 'the old leader joins as a follower');
$proxy->freeze(map { "t-$_" } (0 .. 2));
$proxy->thaw(map { "t-$_" } (0 .. 2));
ok($t->exists('/x'), 'a client survives a cut');

# Requests are counted, those that come in one piece and those that do not.  A
# client that a busy machine has kept waiting connects again, and repeats what
# was not answered: then all is done once more.
my $counted = $three->connstr_through($proxy, 'counted');
my ($u, $requests);
poll_until(
	sub {
		$proxy->count("counted-$_") for (0 .. 2);
		$u = ZooKeeper::Client->new(servers => (split /,/, $counted)[0]);
		$u->create('/counted', ephemeral => 1);
		$u->set('/counted', 'x' x 300_000);
		$u->exists('/counted') for (1 .. 3);
		$requests = $proxy->requests('counted-0');
		return 1 if $requests->{connect} == 1;
		$u->disconnect;
		return 0;
	},
	'a client that connects once');
is_deeply([ @$requests{qw(create set exists)} ], [ 1, 1, 3 ], 'requests are counted');
is($proxy->requests('counted-1')->{connect}, undef, '... on each link');
$u->disconnect;
is($proxy->requests('counted-0')->{close}, 1, 'so is the end of the session');

# Peers are cut off from each other.
my ($one, $other) = $three->followers;
$leader = $three->leader;
$three->cut_peers($leader, $one);
poll_until(sub { $three->mode($one) eq '' }, 'a follower to give up its leader');
is_deeply([ $three->leader, $three->followers ],
	[ $leader, $other ], 'the others go on without it');
$three->heal_peers;
$three->wait_ready;
is(scalar($three->followers), 2, 'and it is back when they are healed');
$leader = $three->leader;
$three->cut_peers($leader, $_) for $three->followers;
poll_until(sub { my $now = $three->leader; defined $now && $now != $leader },
	'another leader');
pass('a leader cut off from all is replaced');
$three->heal_peers;
$three->wait_ready;
$three->pause($three->leader);
poll_until(sub { defined $three->leader }, 'a leader instead of the paused one');
pass('the ensemble survives a paused leader');
$three->resume;
$three->wait_ready;

# The end of a chaos run: what it has stopped goes on, and nothing else.  All test
# files have their servers in the same directory, and stop processes.

# A process in the data directory of an instance, that stands still.
sub stopped_in
{
	my ($dir) = @_;
	my $pid = fork // die "could not fork: $!";

	if ($pid == 0)
	{
		chdir $dir or POSIX::_exit(1);
		exec qw(setpriv --pdeathsig KILL -- sleep 600) or POSIX::_exit(1);
	}
	poll_until(sub { slurp_file("/proc/$pid/comm") eq "sleep\n" }, 'a process to begin');
	stop_process($pid);
	return $pid;
}

sub state_of { return (slurp_file("/proc/$_[0]/status") =~ /^State:\s+(\S)/m)[0]; }

my %dir = map { ($_ => PostgreSQL::Test::Utils::tempdir($_) . '/pgdata') } qw(own others);
my %pid;
for (keys %dir)
{
	mkdir $dir{$_} or die "could not create $dir{$_}: $!";
	$pid{$_} = stopped_in($dir{$_});
}
system_or_bail($^X, (map { "-I$_" } "$FindBin::RealBin/../chaos", @INC),
	'-e', <<'EOF', $dir{own});
BEGIN { $0 = '000_harness_end'; }
use Chaos;
sub Cluster::data_dir { return ${ $_[0] }; }
my $chaos = Chaos->new;
$chaos->{node}{a} = bless \$ARGV[0], 'Cluster';
EOF
poll_until(sub { state_of($pid{own}) eq 'S' }, 'a process to go on');
pass('a chaos run ends: what it has stopped goes on');
is(state_of($pid{others}), 'T', '... but nothing of another test');
kill 'KILL', values %pid;
waitpid($_, 0) for values %pid;

done_testing();
