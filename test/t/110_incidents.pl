
# Copyright (c) 2026, zklock developers

# doc/operations.md: each incident of the page is caused on real servers.  The
# queries of its section, as they are printed and as a role that may run them by
# what the page says, show it; what the section says to do ends it; and its last
# query shows that.  Then all other queries of the page, while there is something
# to be seen.
#
# Some incidents need servers of another kind, and are caused in other tests,
# which read the page, too: %elsewhere.

use strict;
use warnings;

use Bouncer;
use DocPage;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my %elsewhere = (
	'alone' => '102_exclusion', 'waiters' => '102_exclusion',
	'together' => '102_exclusion', 'left' => '102_exclusion',
	'clock check' => '085_clock');

my $top = $ENV{TESTDIR} // '.';
my $page = DocPage->new("$top/doc/operations.md", {}, run => 'a');
my %asked;

# A member of pg_monitor runs what the page has, but for these.
my %role = (
	'dead do' => 'signaler', 'commit do' => 'operator',
	'setting check' => 'superuser');

sub create_roles
{
	my ($node) = @_;

	$node->safe_psql('postgres', q{
		CREATE ROLE application LOGIN;
		CREATE ROLE monitor IN ROLE pg_monitor;
		CREATE ROLE signaler IN ROLE pg_signal_backend;
		CREATE ROLE operator IN ROLE pg_monitor, pg_signal_backend;
		CREATE ROLE superuser SUPERUSER});
	return;
}

# What comes of that text, or of the block of that name.
sub as_role { return sql($_[0], "SET SESSION AUTHORIZATION $_[1];\n$_[2]", $_[3]); }
sub pasted { return as_role($_[0], $role{ $_[1] } // 'monitor', $page->named($_[1]), $_[2]); }

my $zk = ZooKeeper->new;
$zk->start;
my $client = $zk->client(timeout => 60);
my ($a, $b) = zk_clusters($zk, [qw(a b)], 'zklock.session_timeout' => '12s');

# What a block of the page shows in an instance.
sub ask
{
	my ($node, $name, $dbname) = @_;
	my $result = pasted($node, $name, $dbname);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{message}, undef, "$name: pasted");
	$asked{$name} = 1;
	return $result->{out};
}

sub shows
{
	my ($node, $name, $what, $why) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like(ask($node, $name), $what, "$name: $why");
	return;
}

# Ask until that is what the page shows.
sub until_shows
{
	my ($node, $name, $what) = @_;

	$asked{$name} = 1;
	poll_until(sub { (pasted($node, $name)->{out} // '') =~ $what }, "$name: $what");
	return;
}

# Is this in the log of an instance, and in the page?
sub logged
{
	my ($node, $message, $at) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->wait_for_log(qr/\Q$message\E/, $at);
	like(slurp_file("$top/doc/operations.md"), qr/\Q$message\E/, "the page has \"$message\"");
	return;
}

sub fails
{
	my ($node, $sql, $sqlstate, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql($node, $sql)->{sqlstate}, $sqlstate, $name // $sql);
	return;
}

# Add a line to the configuration, which prevails over those before.
sub configure
{
	my ($node, $line) = @_;

	$node->append_conf('postgresql.conf', $line);
	next_worker($node, sub { $node->reload });
	return;
}

# The same for zklock.servers, with which the worker goes on.
sub connect_to
{
	my ($node, $servers) = @_;

	$node->append_conf('postgresql.conf', "zklock.servers = '$servers'");
	$node->reload;
	$node->poll_query_until('postgres',
		"SELECT servers = '$servers' AND state = 'connected' FROM zk_session");
	return;
}

my $connected = qr/^connected\|/m;

# Nobody listens there: the worker of this one restarts until the end.
my $lonely = zk_cluster('lonely', $zk,
	'zklock.servers' => '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port(),
	'zklock.session_timeout' => '2s');

create_roles($_) for ($a, $b, $lonely);

#
# ZooKeeper is down
#

my $log = -s $a->logfile;
$zk->stop;
until_shows($a, 'down check', qr/^(suspended|connecting)\|[^\n]*refused/m);
logged($a, 'lost the connection to ZooKeeper', $log);
like(slurp_file($a->logfile, $log),
	qr/DETAIL:  Locks and places in queues are kept if the session is resumed within its timeout of 12000 ms\./,
	'the log says until when locks are kept');
fails($a, "SELECT zk_lock('stock/17')", '57P03');
$zk->start;
wait_connected($_) for ($a, $b);
# a's lock goes a moment after its statement
shows($a, 'down over', qr/^connected\|[^\n]*\nt$/, 'connected, and locks are available');
until_shows($b, 'down over', qr/^connected\|[^\n]*\nt$/);

#
# ZooKeeper's disk is full: as far as the server knows, it may write no more
#

my $server = $zk->{servers}[0];
system_or_bail('prlimit', "--pid=$server->{pid}", '--fsize=1');
sql($a, "SELECT zk_try_lock('write', '1 s')");
poll_until(sub { waitpid($server->{pid}, POSIX::WNOHANG) == $server->{pid} }, 'the server to end');
delete $server->{pid};
until_shows($a, 'down check', qr/^(suspended|connecting)\|.*refused/m);
$zk->start;
wait_connected($_) for ($a, $b);
shows($a, 'down over', $connected, 'with room it runs');

#
# A dead application holds a lock, on another server
#

{
	my $holder = holder($a, 'stock/17', 'postgres', 'application');
	my $waiter = waiter($b, 'stock/17', 2);
	my ($host, $port) = ($a->host, $a->port);

	$holder->{run}->signal('STOP');
	shows($b, 'dead check', qr/^1\|a\|[^|]+\|$port\|$holder->{pid}\|exclusive\|/, 'who, and where');
	shows($a, 'dead there', qr/^$holder->{pid}\|[^|]*\|transaction\|idle in transaction\|/, 'what it does');
	is(ask($a, 'dead do'), 1, 'it is ended');
	is($waiter->result->{message}, undef, 'and the next one has the lock');
	until_shows($b, 'dead check', qr/^1\|b\|/);
	$holder->{run}->signal('CONT');
	$_->quit for ($holder, $waiter);
}

#
# COMMIT hangs
#

{
	my $holder = holder($a, 'stock/17', 'postgres', 'application');

	$zk->pause;
	$a->poll_query_until('postgres', q{SELECT lease = '0' FROM zk_session});
	$holder->send('COMMIT');
	until_shows($a, 'commit check', qr/^$holder->{pid}\|[^\n]*\|Extension\|\w+\|COMMIT/m);
	shows($a, 'down check', qr/^\w+\|00:00:00\|/m, 'the lease has run out');
	is(ask($a, 'commit do'), "$holder->{pid}|t", 'it is canceled');
	is($holder->result->{sqlstate}, '57014', '... and fails');
	unlike(ask($a, 'commit check'), qr/\|COMMIT$/m, 'none hangs');
	$zk->resume;
	wait_connected($_) for ($a, $b);
	$holder->quit;
}

#
# A lock was lost
#

{
	my $holder = ZkSession->new($a);

	$holder->run_ok("SELECT zk_lock('kept', session => true); BEGIN; SELECT zk_lock('stock/17')");
	$log = -s $a->logfile;
	lose_session($a, $client);
	shows($a, 'lost check', qr/^kept\|$holder->{pid}\|session\|/m, 'it is found');
	logged($a, 'lost the lock', $log);
	is($holder->run('COMMIT')->{sqlstate}, '40001', 'nothing is committed');
	is($holder->run('SELECT 1')->{sqlstate}, '40001', 'nor anything else in this session');
	$holder->run_ok("SELECT zk_unlock('kept')");
	$holder->run_ok("SELECT zk_lock('kept', session => true)", 'acknowledged, and taken again');
	unlike(ask($a, 'lost check'), qr/^kept\|/m, 'it is not, any more');
	$holder->quit;
}

#
# Deadlocks
#

{
	my ($one, $two) = (holder($a, 'x'), holder($b, 'y'));

	$one->send("SELECT zk_lock('y')");
	$one->wait_waiting(2);
	$two->send("SELECT zk_lock('x')");
	# the error releases the victim's locks, so both calls end
	my ($ended_one, $ended_two) = ($one->result, $two->result);
	my ($victim, $other) = defined $ended_one->{sqlstate} ? ($one, $two) : ($two, $one);
	is_deeply([ sort map { $_ // '' } ($ended_one->{sqlstate}, $ended_two->{sqlstate}) ], [ '', '40P01' ],
		'one fails, and the other one goes on');
	$victim->run_ok('ROLLBACK');
	$other->run_ok('COMMIT');
	until_shows($a, 'deadlock check', qr/^\d+\|[^\n]*\|a\|$one->{pid}\|exclusive\|y\|.*\n\d+\|[^\n]*\|b\|$two->{pid}\|exclusive\|x\||^\d+\|[^\n]*\|b\|$two->{pid}\|exclusive\|x\|.*\n\d+\|[^\n]*\|a\|$one->{pid}\|exclusive\|y\|/);
	is($victim->{node}->safe_psql('postgres', 'SELECT deadlocks FROM zk_stat'), 1, 'it is counted');
	$_->quit for ($one, $two);
}

#
# ZooKeeper denies access
#

# the directory is b's: that of before has gone, and this one is kept by a holder
configure($b, "zklock.auth = 'shop:secret'\nzklock.acl = creator");
poll_until(sub { !$client->exists(lock_dir('stock/17')) }, 'the directory to be removed');
my $theirs = holder($b, 'stock/17');
fails($a, "SELECT zk_lock('stock/17')", '42501', 'a directory of others is denied');
until_shows($a, 'denied check', qr/this server may not read it/);
shows($a, 'denied check', qr/^zklock\.acl\|open$/m, 'how it is set here');
$theirs->run_ok('COMMIT');
$theirs->quit;
configure($a, "zklock.auth = 'shop:secret'\nzklock.acl = creator");
is(sql($_, "SELECT zk_try_lock('stock/17')")->{out}, 't', 'with one secret both have it') for ($a, $b);
configure($_, "zklock.acl = open") for ($a, $b);

#
# ZooKeeper refuses a request
#

$log = -s $a->logfile;
$client->create('/zklock/odd', ephemeral => 1);
fails($a, "SELECT zk_lock('odd')", '58000', 'a directory that is ephemeral');
logged($a, 'ZooKeeper refused a contender for', $log);
logged($a, 'no children for ephemerals', $log);
shows($a, 'down check', $connected, 'the connection is well');
$client->delete('/zklock/odd');
is(sql($a, "SELECT zk_try_lock('odd')")->{out}, 't', 'without it, locks are available');

#
# A setting is wrong
#

$a->append_conf('postgresql.conf', "zklock.node_format = nonsense");
$a->restart;
fails($a, "SELECT zk_lock('stock/17')", 'F0000', 'a wrong value is not replaced');
shows($a, 'setting check', qr/^zklock\.servers\|.*postgresql\.conf\|\d+$/m, 'where all are set');
$a->append_conf('postgresql.conf', "zklock.node_format = mutex");
$a->reload;
$a->poll_query_until('postgres', q{SHOW zklock.node_format}, 'mutex');
wait_connected($a);
shows($a, 'down over', qr/^connected\|\nt$/, 'corrected, it is right');

$a->append_conf('postgresql.conf', "zklock.servers = '" . $zk->connstr . "/nowhere'");
$a->reload;
poll_until(sub { (sql($a, "SELECT zk_try_lock('stock/17')")->{sqlstate} // '') eq 'F0000' },
	'the chroot that does not exist to be missed');
$client->create('/nowhere');
wait_connected($a);
shows($a, 'down over', qr/^connected\|\nt$/, 'made, it does');
connect_to($a, $zk->connstr);

#
# A call does not fit the state
#

{
	my $plain = PostgreSQL::Test::Cluster->new('plain');

	$plain->init;
	$plain->start;
	create_roles($plain);
	is_deeply([ map { $_->{message} } @{ sql($plain, 'CREATE EXTENSION zklock')->{warnings} } ],
		['zklock must be loaded via "shared_preload_libraries"'], 'not preloaded');
	fails($plain, "SELECT zk_lock('stock/17')", '55000', 'nothing works');
	shows($plain, 'state check', qr/^\nzklock\|/, 'and why');
	$plain->append_conf('postgresql.conf', "shared_preload_libraries = 'zklock'\nzklock.servers = '" . $zk->connstr . "'");
	$plain->restart;
	wait_connected($plain);
	shows($plain, 'state check', qr/^zklock\nzklock\|/, 'loaded');
	is(sql($plain, "SELECT zk_try_lock('stock/17')")->{out}, 't', 'it works');
	$plain->stop;

	fails($a, "BEGIN; SELECT zk_lock('x', shared => true); SELECT zk_lock('x')", '55000', 'shared, then exclusive');
	fails($a, "BEGIN; SELECT zk_lock('x'); SELECT zk_acquire('x', 2)", '55000', 'a lock, then a semaphore');
}

#
# Servers do not share their locks
#

{
	my ($take, $try) = map { $_->{text} } grep { $_->{kind} eq 'sql' && $_->{run} =~ /smoke/ }
	  DocPage->new("$top/README.md", {})->blocks;
	my $first = ZkSession->new($a);
	my $other = ZooKeeper->new(name => 'other');

	$first->run_ok($take, 'the first server has the lock');
	is(sql($b, $try)->{out}, 'f', 'the second one shares it');
	is(ask($a, 'fleet check'), ask($b, 'fleet check'), 'both are in one fleet');
	my ($fleet) = split /\|/, ask($a, 'fleet check');
	like($fleet, qr/^[0-9a-f-]{36}$/, 'which has an identity');
	shows($_, 'fleet members', qr/^a\|.*^b\|/ms, 'and both members') for ($a, $b);

	$b->safe_psql('postgres', q{ALTER DATABASE postgres SET zklock.root = '/other'});
	is(sql($b, $try)->{out}, 't', 'another root is another lock');
	shows($b, 'fleet check', qr{^\Q$fleet\E\|/other\|}, 'and is seen');
	$b->safe_psql('postgres', 'ALTER DATABASE postgres RESET zklock.root');

	$other->start;
	connect_to($b, $other->connstr);
	is(sql($b, $try)->{out}, 't', 'another ZooKeeper, too');
	like(ask($b, 'fleet check'), qr/^(?!\Q$fleet\E)[0-9a-f-]{36}\|/, 'and is seen');
	unlike(ask($b, 'fleet members'), qr/^a\|/m, 'b is alone there');

	connect_to($b, $zk->connstr);
	is(sql($b, $try)->{out}, 'f', 'with one ZooKeeper they share it again');
	$first->quit;
	$other->stop;
}

#
# Slots or the session are full
#

{
	my $full = zk_cluster('full', $zk,
		'install_path' => $ENV{ZKLOCK_TEST_INSTALL},
		'zklock.max_locks' => 3,
		'zklock.max_claims' => 1,
		'zklock.path_bytes' => contender_bytes('x' x 200) + contender_bytes('y'));
	my $holder = ZkSession->new($full);

	wait_connected($full);
	create_roles($full);
	$holder->run_ok('BEGIN');
	$holder->run_ok("SELECT zk_lock('$_')") for qw(1 2 3);
	shows($full, 'full check', qr/^3\|3\|3\|0\|1\n\d+\|\d+\npostgres\|[^|]+\|t\|3$/, 'what is in use');
	is($holder->run("SELECT zk_lock('4')")->{sqlstate}, '53200', 'out of slots');
	$holder->run_ok('ROLLBACK');
	until_shows($full, 'full check', qr/^[0-2]\|3\|/);

	$holder->run_ok("BEGIN; SELECT zk_lock('@{['x' x 200]}'), zk_lock('y')");
	my $bytes = contender_bytes('x' x 200) + contender_bytes('y');
	until_shows($full, 'full check', qr/^$bytes\|$bytes$/m);
	my $error = $holder->run("SELECT zk_lock('z')");
	is("$error->{sqlstate} $error->{message}", '53200 no room for lock "z" in the ZooKeeper session', 'a full session');
	$holder->run_ok('ROLLBACK');
	$holder->run_ok("SELECT zk_claim('c', '1 min')");
	is($holder->run("SELECT zk_claim('d', '1 min')")->{sqlstate}, '53200', 'out of claims');
	$holder->quit;
	$full->stop;
}

#
# An upgrade has failed
#

{
	my $dir = PostgreSQL::Test::Utils::tempdir('library');
	my $library = slurp_file(`pg_config --pkglibdir` =~ s/\n//r . '/zklock.so');
	my $major = int($a->safe_psql('postgres', 'SHOW server_version_num') / 100);

	# the library as one of the next major version would be
	ok($library =~ s/\Q${\pack('l4', $major, 100, 32, 64)}\E/pack('l4', $major + 100, 100, 32, 64)/e,
		'the library says for which version it is');
	append_to_file("$dir/zklock.so", $library);
	$a->stop;
	$log = -s $a->logfile;
	$a->append_conf('postgresql.conf', "dynamic_library_path = '$dir'");
	is($a->start(fail_ok => 1), 0, 'with the library of another version the server does not start');
	logged($a, 'incompatible library', $log);
	$a->append_conf('postgresql.conf', "dynamic_library_path = '/nonexistent'");
	is($a->start(fail_ok => 1), 0, 'nor without one');
	logged($a, 'could not access file "zklock": No such file or directory', $log);
	$a->append_conf('postgresql.conf', "dynamic_library_path = '\$libdir'");
	$a->start;
	wait_connected($a);
	shows($a, 'state check', qr/^zklock\nzklock\|(.*)\|\1$/, 'what is loaded, and what is created');
	shows($a, 'fleet members', qr/^a\|/m, 'and the versions of all');
}

#
# A lock that nobody frees
#

{
	my $session = session_of($a);

	# retained
	alter_system($a, 'zklock.retain_time' => '10min');
	$a->safe_psql('postgres', "SELECT zk_lock('stock/17')");
	shows($b, 'kept check', qr/^1\|[^|]*\bretain=yes\|a\|/, 'a retained lock');
	is(ask($a, 'kept there'), '', '... which nobody holds');
	$b->safe_psql('postgres', "SELECT zk_lock('stock/17')");
	alter_system($a, 'zklock.retain_time' => '0');

	# an unlock that is deferred
	my $holder = holder($a, 'stock/17');
	$holder->run_ok("CREATE TEMP TABLE changed (); SELECT zk_unlock('stock/17')");
	shows($a, 'kept there', qr/^$holder->{pid}\|transaction\|t\|f\|.*\|idle in transaction\|.*zk_unlock/m, 'an unlock that is deferred');
	$holder->run_ok('COMMIT');
	until_shows($a, 'kept check', qr/^$/);
	$holder->quit;

	# a session in a pool
	my $bouncer = Bouncer->new($a, pool_size => 1);
	my $pooled = ZkSession->new($bouncer, 'transaction');
	$pooled->run_ok("SELECT zk_lock('stock/17', session => true)");
	$pooled->quit;
	shows($a, 'kept there', qr/^\d+\|session\|t\|f\|.*\|idle\|/m, 'a session in a pool');
	{
		local $role{'dead do'} = 'superuser';
		is(ask($a, 'dead do'), 1, '... is ended');
	}
	until_shows($a, 'kept check', qr/^$/);

	# a claim
	my $claimant = ZkSession->new($a);
	$claimant->run_ok("SELECT zk_claim('stock/17', '1 hour')");
	$claimant->quit;
	shows($a, 'kept there', qr/^\|claim\|t\|f\|.*\nstock\/17\|.*\|0$/, 'a claim');
	is($b->safe_psql('postgres', "SELECT zk_cancel_holders('stock/17')"), 1, '... is ended');
	until_shows($b, 'kept check', qr/^$/);

	# a server that has crashed
	$holder = holder($a, 'stock/17');
	$a->stop('immediate');
	shows($b, 'kept check', qr/^1\|.*\|a\|.*\|0x/, 'a server that is down');
	$a->start;
	is(sql($b, "SELECT zk_try_lock('stock/17', '10 s')")->{out}, 't', 'a crash: another server gets the lock');
	until_shows($b, 'kept check', qr/^$/);
	$holder->{gone} = 1;
	wait_connected($a);
	logged($a, $_) for ('ending ZooKeeper session', 'from before the crash');

	# another client
	my $node = $client->lock(lock_dir('stock/17'));
	shows($b, 'kept check', qr/^1\|[^|]*\|\|\|\|/, 'another client');
	$client->unlock($node);

	# a znode that is not ephemeral
	$log = -s $b->logfile;
	$client->create(lock_dir('stock/17') . '/_c_stray-lock-', sequence => 1);
	$b->safe_psql('postgres', "SELECT zk_lock('stock/17')");
	logged($b, 'ignoring znode', $log);
	$client->delete(lock_dir('stock/17') . "/$_") for grep { /stray/ } $client->ls(lock_dir('stock/17'));
}

#
# Too many new names
#

{
	my $before = ask($a, 'names check');

	$a->safe_psql('postgres', q{SELECT zk_try_lock('new/' || n) FROM generate_series(1, 20) n});
	cmp_ok(ask($a, 'names check'), '>=', $before + 20, 'new names are counted');
}

#
# VACUUM is held back
#

{
	my $holder = holder($a, 'stock/17');
	my $waiter = waiter($b, 'stock/17', 2);

	shows($b, 'vacuum check', qr/^$waiter->{pid}\|\d+\|[^|]*\|stock\/17\|/m, 'a wait with a snapshot');
	$b->safe_psql('postgres', "SELECT pg_cancel_backend($waiter->{pid})");
	is($waiter->result->{sqlstate}, '57014', 'canceled');
	$waiter->run_ok('ROLLBACK; BEGIN');
	$waiter->send("CALL zk_wait_lock('stock/17')");
	$waiter->wait_waiting(2);
	unlike(ask($b, 'vacuum check'), qr/\|stock\/17\|/, 'a wait without one');
	$holder->run_ok('COMMIT');
	is($waiter->result->{message}, undef, 'which gets the lock');
	$_->quit for ($holder, $waiter);
}

#
# ZooKeeper's data has been lost: tokens start over
#

{
	my $fence = "BEGIN; SELECT zk_lock('payout'); SELECT zk_fence('payout'); COMMIT";
	my $ahead = "UPDATE zk_fences SET token = token + (1::bigint << 40)";

	$a->safe_psql('postgres', $fence);
	$zk->stop;
	$zk->wipe;
	# a new one's tokens would soon be as high as these
	$a->safe_psql('postgres', $ahead);
	$zk->start;
	wait_connected($_) for ($a, $b);
	my $error = sql($a, $fence);
	is("$error->{sqlstate} $error->{message}", '40001 lock "payout" has had a later holder', 'tokens have started over');
	is(ask($a, 'data over') =~ s/\n//gr, 'f', '... as the page shows');
	cmp_ok(ask($a, 'epoch of tokens'), '>', 0, 'the highest epoch is found');
	shows($a, 'down check', $connected, 'the instance knows of it');
	is(sql($a, $page->named('data delete') =~ s/'2026-03-01 03:00\+00'/now()/r)->{message}, undef, 'the old tokens are deleted');
	is(sql($a, $fence)->{message}, undef, 'and the lock is fenced again');
	is(ask($a, 'data over') =~ s/\n//gr, 't', 'tokens grow');
}

#
# The worker restarts again and again
#

{
	my $restarting = 'restarting the zklock worker, because ZooKeeper could not be reached for';

	poll_until(sub { (() = slurp_file($lonely->logfile) =~ /$restarting/g) >= 2 }, 'two restarts');
	logged($lonely, 'background worker "zklock worker"');
	logged($lonely, 'exited with exit code 1');
	until_shows($lonely, 'worker check', qr/^\d+\|00:00:\d\d\./);
	until_shows($lonely, 'down check', qr/^(down|connecting)\|.*refused/);
	connect_to($lonely, $zk->connstr);
	my $worker = worker_of($lonely);
	is(sql($lonely, "SELECT zk_try_lock('stock/17')")->{out}, 't', 'locks are available');
	shows($lonely, 'worker check', qr/^$worker\|/, 'and the worker is the same one');
	$lonely->stop;
}

#
# All other queries, in both instances: a holds a lock, and b waits for it
#

{
	my @queries = map { $_->{text} } grep { !defined $_->{name} && $_->{run} !~ /^no\b/ } $page->blocks('sql');
	my $holder = holder($a, 'stock/17');
	my $waiter = waiter($b, 'stock/17', 2);
	my %found;

	cmp_ok(scalar(@queries), '>', 5, 'the page has more queries');
	for my $node ($b, $a)
	{
		for my $query (@queries)
		{
			my $result = as_role($node, 'operator', $query);

			is($result->{message}, undef, $node->name . ": $query");
			$found{ $node->name } .= "$result->{out}\n";
		}
	}
	like($found{b}, qr/^stock\/17\|exclusive\|a\|/m, 'b shows that it waits for a');
	like($found{a}, qr/^stock\/17\|\d+\|idle in transaction\|/m, 'a shows what the holder is doing');
	$holder->run_ok('COMMIT');
	is($waiter->result->{message}, undef, 'and the waiter has the lock');
	$_->quit for ($holder, $waiter);
}

# No block with a name is left out.
$asked{$_} = 1 for ('data delete');
for my $test (values %elsewhere)
{
	like(slurp_file("$top/test/t/$test.pl"), qr/operations\.md/, "$test has the page");
}
is_deeply([ sort grep { !$asked{$_} && !$elsewhere{$_} } map { $_->{name} // () } $page->blocks('sql') ],
	[], 'each named block was run');

for my $node ($a, $b, $lonely)
{
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/, $node->name . ' has not crashed');
}
$_->stop for ($a, $b);

done_testing();
