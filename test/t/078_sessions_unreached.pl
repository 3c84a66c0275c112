
# A further session that cannot be opened, since ZooKeeper grants this host no
# more connections, or its name is not resolved: calls that need it fail in time,
# the first session and its locks go on, and names that were wanted in it are to
# be had where there is room.
# Needs a test build, in which two locks can be made to fill a session.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SlowCalls;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};

my $bytes = contender_bytes('x');
my $zk = ZooKeeper->new(conf => { maxClientCnxns => 2 });
$zk->start;
my $slow = SlowCalls->new;
my $a = $slow->preloaded(
	sub {
		zk_cluster(
			'a', $zk,
			'install_path' => $ENV{ZKLOCK_TEST_INSTALL},
			'zklock.session_timeout' => '4s',
			'zklock.path_bytes' => 2 * $bytes,
			'zklock.sessions' => 4);
	});
wait_connected($a);
my $other = $zk->client;

# The first session, and whose it is.
sub first { return value($a, 'SELECT session_id, worker_pid FROM zk_sessions LIMIT 1'); }

my $first = first();
my $full = ZkSession->new($a);
$full->run_ok("BEGIN; SELECT zk_lock_all('{p,q}')", 'the first session is full');

my %calls = map { ($_ => ZkSession->new($a)) }
  q{zk_lock('s')}, q{zk_try_lock('t')}, q{zk_lock_any('{u,v}')}, q{zk_try_lock_any('{w,x}')};
for my $call (sort keys %calls)
{
	$calls{$call}->run("SET statement_timeout = '30s'");
	$calls{$call}->send("SELECT $call");
}
$a->poll_query_until('postgres',
	q{SELECT bool_or(last_error ~ 'too many connections|refused') FROM zk_sessions WHERE state = 'connecting'});
is(value($a, q{SELECT count(*) FROM zk_sessions WHERE state = 'connected' AND last_error IS NOT NULL}),
	0, 'the error is not that of the session that is connected');
for my $call (sort keys %calls)
{
	my $result = $calls{$call}->result;

	is($result->{sqlstate}, '57P03', "there is no session for $call");
	like($result->{detail}, qr/^There was no session with "[^"]+" for 4000 ms: /, '... which says why');
	$calls{$call}->quit;
}

# The first session gets room: so does what was wanted in another one.
sub comes_to_first
{
	my ($lock) = @_;

	$full->run_ok('COMMIT', 'the holder in the first session commits');
	poll_until(sub { sql($a, "SET statement_timeout = '30s'; SELECT zk_try_lock('$lock')")->{out} =~ /t$/ },
		"lock $lock, which was wanted in another session");
	pass('what was wanted in another session is available in the first');
	is(first(), $first, 'that and its worker are the same all the time');
	return;
}

comes_to_first('s');

my %unresolved = (
	'cannot be resolved' => sub { $slow->fail('getaddrinfo', -2); },    # EAI_NONAME
	'takes long to resolve' => sub { $slow->hold('getaddrinfo'); });
for my $what (sort keys %unresolved)
{
	$a->poll_query_until('postgres', 'SELECT count(*) = 1 AND max(path_bytes) = 0 FROM zk_sessions');
	$full->run_ok("BEGIN; SELECT zk_lock_all('{p,q}')", 'it is full again');
	$unresolved{$what}->();
	is(sql($a, q{SET statement_timeout = '30s'; SELECT zk_lock('r')})->{sqlstate},
		'57P03', "the name of the server $what");
	comes_to_first('r');
	$slow->release('getaddrinfo');
}

$other->disconnect;
$full->run_ok("BEGIN; SELECT zk_lock_all('{p,q}')", 'it is full again');
is(sql($a, q{SELECT zk_try_lock('s')})->{out}, 't', 'another session is opened when it can be');
is(value($a, q{SELECT count(*) > 1 FROM zk_sessions WHERE state = 'connected'}), 't', '... beside the first');
$full->quit;

done_testing();
