
# Locks behind pgbouncer, in its three pool modes: what the documentation says
# of connection poolers, and what it warns of; prepared statements; cancel
# requests and clients that vanish.

use strict;
use warnings;

use Bouncer;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZkWire;
use ZooKeeper;
use version;

# Nothing in here waits for a session to expire.
my %settings = ('zklock.session_timeout' => '60s');

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my ($a, $b) = map { zk_cluster($_, $zk, %settings) } qw(a b);
my $bouncer = Bouncer->new($a);

$a->safe_psql('postgres', 'CREATE TABLE t (i int)');

# Sessions that see what is going on, past pgbouncer.
my ($at_a, $at_b) = map { ZkSession->new($_) } ($a, $b);

sub client { return ZkSession->new($bouncer, $_[0]); }

sub server_pid { return $_[0]->run_ok('SELECT pg_backend_pid()', 'the server connection'); }

# Run statements, and then, on the same server connection, ask for its pid: in a
# transaction that is open, or sent as one query.
sub run_pid
{
	my ($client, $sql) = @_;
	my $out = $client->run_ok(
		$sql . ($sql =~ /^BEGIN/ ? ';' : ' \;') . ' SELECT pg_backend_pid()', $sql);

	return $out =~ /(\d+)$/ ? $1 : die 'there is no pid';
}

# Can the other instance have the lock?
sub try_b { return $at_b->run("SELECT zk_try_lock('$_[0]')")->{out}; }

sub is_free
{
	my ($lock, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($at_b->run("SELECT zk_try_lock('$lock', '1 min')")->{out}, 't', "$name: the lock is free");
	wait_no_contenders($zk, $lock);
	return;
}

# Who holds a lock in the instance.
sub holds
{
	return $at_a->run("SELECT pid, scope FROM zk_locks WHERE granted AND name = '$_[0]'")->{out};
}

# Have a client wait for a lock, in this tier; the pid of the backend.
sub wait_for_lock
{
	my ($client, $lock, $tier, $statement) = @_;
	my $type = $tier == 1 ? 'Lock' : 'Extension';
	my $pid;

	$client->send($statement // "SELECT zk_lock('$lock')");
	poll_until(
		sub {
			die "the client does not wait: $client->{err}" if $client->done;
			$pid = $at_a->run('SELECT l.pid FROM zk_locks l JOIN pg_stat_activity s USING (pid)'
				  . " WHERE name = '$lock' AND NOT granted AND wait_event_type = '$type'")->{out};
		},
		"the client to wait in tier $tier");
	return $pid;
}

# A client in a transaction that this server connection of the pool serves.
sub occupant
{
	my ($mode, $pid) = @_;
	my ($found, @others);

	for (1 .. 2)
	{
		my $client = client($mode);
		my $is = $client->run('BEGIN; SELECT pg_backend_pid()')->{out};

		($found = $client, last) if $is == $pid;
		push @others, $client;
	}
	die "no client gets the server connection $pid" unless $found;
	for (@others)
	{
		$_->run('ROLLBACK');
		$_->quit;
	}
	return $found;
}

# Wait until a backend has ended.
sub wait_gone
{
	my ($pid) = @_;

	$a->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
	return;
}

# Whoever does not hold a lock is told so.
sub not_held
{
	my ($client, $lock, $name) = @_;
	my $result = $client->run("SELECT zk_unlock('$lock')");

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{out}, 'f', $name);
	is($result->{warnings}[0]{message}, "you do not hold lock \"$lock\"", '... with a WARNING');
	return;
}

{
	my %config = map { $_->{key} => $_->{value} } $bouncer->admin('SHOW CONFIG');

	is("$config{server_reset_query}, $config{server_reset_query_always}",
		'DISCARD ALL, 0', 'DISCARD ALL is the default, and for session pooling only');
}

#
# Transaction scope: the lock comes and goes with the transaction
#

for my $mode (qw(session transaction))
{
	my $lock = "x $mode";
	my ($first, $second) = map { client($mode) } 1 .. 2;

	# one after the other, in the pool and out of it
	my $pid = run_pid($first, "BEGIN; SELECT zk_lock('$lock'); INSERT INTO t VALUES (1)");
	is(holds($lock), "$pid|transaction", "$mode: a transaction holds the lock");
	is(try_b($lock), 'f', "$mode: the other instance does not get it");
	$second->run_ok('BEGIN');
	isnt(wait_for_lock($second, $lock, 1), $pid, "$mode: another client of the pool waits");
	$first->run_ok('COMMIT');
	is($second->result->{message}, undef, "$mode: until the first has committed");
	is($second->run_ok('SELECT count(*) FROM t'), 1, "$mode: and sees what it did");
	is(try_b($lock), 'f', "$mode: the other instance does not get it in between");
	is($second->run('SELECT 1/0')->{sqlstate}, '22012', "$mode: an error");
	$second->run_ok('ROLLBACK');
	is_free($lock, "$mode: COMMIT and ROLLBACK");
	not_held($first, $lock, "$mode: nothing is left in the server connection");
	$first->run_ok("SELECT zk_lock('$lock')");
	is_free($lock, "$mode: a statement that is a transaction");

	# permits, too
	$first->run_ok("BEGIN; SELECT zk_acquire('$lock permits', 1)");
	is($at_b->run("SELECT zk_try_acquire('$lock permits', 1)")->{out},
		'f', "$mode: a permit is held");
	$first->run_ok('COMMIT');
	is($at_b->run("SELECT zk_try_acquire('$lock permits', 1, '1 min')")->{out},
		't', "$mode: until COMMIT");

	$_->quit for ($first, $second);
	$bouncer->wait_clients($mode, 0);
	$a->safe_psql('postgres', 'TRUNCATE t');
}

# Waits without a snapshot
for my $case (
	[ 'session', '', "CALL zk_wait_lock('w', session => true)" ],
	[ 'session', 'BEGIN', "CALL zk_wait_lock_all('{w,v}')" ],
	[ 'transaction', 'BEGIN', "CALL zk_wait_lock('w')" ],
	[ 'transaction', '', "BEGIN \\; CALL zk_wait_lock_any('{w}') \\; COMMIT" ],
	[ 'statement', '', "DO \$\$ BEGIN CALL zk_wait_lock('w'); COMMIT; END \$\$" ])
{
	my ($mode, $begin, $statement) = @$case;
	my $client = client($mode);

	$at_b->run("BEGIN; SELECT zk_lock('w')");
	$client->run($begin) if $begin;
	my $pid = wait_for_lock($client, 'w', 2, $statement);
	is($at_a->run("SELECT backend_xmin FROM pg_stat_activity WHERE pid = $pid")->{out},
		'', "$mode: no snapshot: $statement");
	$at_b->run('COMMIT');
	my $result = $client->result;
	is($result->{message}, undef, "$mode: and then the lock");
	is_deeply($result->{warnings}, [], "$mode: no warning");
	$client->run_ok('COMMIT') if $begin;
	$client->quit;
	$bouncer->wait_clients($mode, 0);
	is_free('w', "$mode: $statement");
}

# ... and with the messages of the extended protocol, as one transaction
{
	my $client = ZkWire->new($bouncer, 'transaction');

	$at_b->run("BEGIN; SELECT zk_lock('w')");
	$client->send_with(['BEGIN'], [ 'CALL zk_wait_lock($1)', 'w' ], ['COMMIT']);
	poll_until(
		sub {
			return $at_a->run('SELECT backend_xmin IS NULL FROM zk_locks JOIN pg_stat_activity s USING (pid)'
				  . " WHERE name = 'w' AND NOT granted AND wait_event_type = 'Extension'")->{out} eq 't';
		},
		'the client to wait without a snapshot');
	$at_b->run('COMMIT');
	ZkWire::wait_any($PostgreSQL::Test::Utils::timeout_default, $client) or die 'no answer';
	is($client->result->{message}, undef, 'transaction, extended protocol: and then the lock');
	$client->vanish;
	$bouncer->wait_clients('transaction', 0);
	is_free('w', 'transaction, extended protocol');
}

# The next transaction is served by another server connection
{
	my $client = client('transaction');
	my $first = run_pid($client, "BEGIN; SELECT zk_lock('n')");
	$client->run_ok('COMMIT');
	my $occupant = occupant('transaction', $first);
	my $second = run_pid($client, "BEGIN; SELECT zk_lock('n')");
	isnt($second, $first, 'another server connection takes the lock');
	is(holds('n'), "$second|transaction", 'and holds it');
	is($occupant->run("SELECT zk_try_lock('n')")->{out}, 'f', 'the former one does not');
	is(try_b('n'), 'f', 'nor does the other instance');
	$client->run_ok('COMMIT');
	is_free('n', 'another server connection');
	$_->quit for ($client, $occupant);
	$bouncer->wait_clients('transaction', 0);
}

# Prepared statements, by the protocol: pgbouncer prepares them in whichever
# server connection is to run them
SKIP:
{
	my ($version, $minor) = `/usr/sbin/pgbouncer --version` =~ /^PgBouncer ((\d+\.\d+)\S*)/m
	  or die 'pgbouncer does not tell its version';
	skip "pgbouncer $version: no prepared statements in transaction mode before 1.21", 1
	  if version->parse("v$minor") < version->parse('v1.21');

	$bouncer->admin('SET max_prepared_statements = 100');
	my $client = ZkWire->new($bouncer, 'transaction');
	my $pid_of = sub { return $_[0]->run_prepared('pid')->{out}; };
	my %statement = (
		lock => 'SELECT zk_lock($1)',
		try => 'SELECT zk_try_lock($1, $2::interval)',
		fence => 'SELECT zk_fence($1) > 0',
		pid => 'SELECT pg_backend_pid()');

	for my $name (sort keys %statement)
	{
		is($client->prepare($name, $statement{$name})->{sqlstate}, undef, "prepared: $name");
	}
	$client->run('BEGIN');
	is($client->run_prepared('lock', 'p')->{sqlstate}, undef, 'prepared: the lock is taken');
	is($client->run_prepared('fence', 'p')->{out}, 't', '... and fenced');
	my $first = $pid_of->($client);
	is(holds('p'), "$first|transaction", '... by its server connection');
	is(try_b('p'), 'f', '... the other instance does not get it');
	$client->run('COMMIT');
	is_free('p', 'prepared');

	my $occupant = occupant('transaction', $first);
	$client->run('BEGIN');
	is($client->run_prepared('lock', 'p')->{sqlstate}, undef, 'prepared, another server connection: the lock is taken');
	is($client->run_prepared('fence', 'p')->{out}, 't', '... and fenced');
	my $second = $pid_of->($client);
	isnt($second, $first, '... where nobody has prepared it');
	is(holds('p'), "$second|transaction", '... which holds it');
	is($client->run('SELECT 1/0')->{sqlstate}, '22012', '... an error');
	$client->run('ROLLBACK');
	is_free('p', 'prepared, rolled back');
	$occupant->run_ok('COMMIT');

	# another client, whose statement of that name is another one
	my $other = ZkWire->new($bouncer, 'transaction');
	is($other->prepare('lock', 'SELECT zk_try_lock($1)')->{sqlstate}, undef, 'another client prepares');
	$client->run('BEGIN');
	is($client->run_prepared('try', 'p', '1 min')->{out}, 't', 'a try');
	is($other->run_prepared('lock', 'p')->{out}, 'f', '... excludes the other client');
	$client->run('COMMIT');
	is($other->run_prepared('lock', 'p')->{out}, 't', '... until COMMIT; a statement is a transaction');
	is_free('p', 'prepared, no BEGIN');

	# a wait that ends in an error
	my $holder = ZkSession->new($b);
	$holder->run_ok("BEGIN; SELECT zk_lock('p')");
	$client->run('BEGIN');
	$client->run("SET LOCAL lock_timeout = '10ms'");
	is($client->run_prepared('lock', 'p')->{sqlstate}, '55P03', 'prepared: lock_timeout');
	$client->run('ROLLBACK');
	$holder->run_ok('COMMIT');
	is($client->run_prepared('try', 'p', '1 min')->{out}, 't', '... and the statement is still prepared');
	is_free('p', 'prepared, after an error');

	# what drivers do under load
	my $script = PostgreSQL::Test::Utils::tempdir('pgbench') . '/script';
	$a->safe_psql('postgres', 'CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)');
	append_to_file($script, <<'EOC');
BEGIN;
SELECT zk_lock('p');
SELECT n FROM counter \gset
UPDATE counter SET n = :n + 1;
COMMIT;
EOC
	# a thread for each: pgbench waits for the end of a Parse
	command_ok(
		[
			$a->installed_command('pgbench'), '-n', '-M', 'prepared', '-c', '8',
			'-j', '8', '-t', '25', '-f', $script, $bouncer->connstr('transaction')
		],
		'pgbench, prepared');
	is($a->safe_psql('postgres', 'SELECT n FROM counter'), 200, '... no update is lost');
	is_free('p', 'pgbench');
	$_->vanish for ($client, $other);
	$_->quit for ($occupant, $holder);
	$bouncer->wait_clients('transaction', 0);
}

# In statement mode the transaction is a statement, or several that are sent
# as one; a latch holds it up
{
	my $latch = ZkSession->new($a);
	my $client = client('statement');
	my %statement = (
		'several statements' => "SELECT zk_lock('s') \\;"
		  . ' SELECT pg_advisory_xact_lock(14) \\; INSERT INTO t VALUES (1)',
		'one statement' => "DO \$\$ BEGIN PERFORM zk_lock('s');"
		  . ' PERFORM pg_advisory_xact_lock(14); INSERT INTO t VALUES (1); END $$');

	for my $how (sort keys %statement)
	{
		$latch->run_ok('SELECT pg_advisory_lock(14)', 'the latch');
		$client->send($statement{$how});
		poll_until(
			sub {
				die "the statement does not wait: $client->{err}" if $client->done;
				$at_a->run('SELECT count(*) FROM pg_locks'
					  . " WHERE locktype = 'advisory' AND NOT granted")->{out} == 1;
			},
			'the statement to reach the latch');
		like(holds('s'), qr/^\d+\|transaction$/, "statement: $how: the lock is held");
		is(try_b('s'), 'f', "statement: $how: the other instance does not get it");
		$latch->run_ok('SELECT pg_advisory_unlock(14)', 'the latch opens');
		is($client->result->{message}, undef, "statement: $how");
		is_free('s', "statement: $how");
	}
	is($a->safe_psql('postgres', 'SELECT count(*) FROM t'), 2, 'statement: all is done');
	is($client->run("SELECT zk_lock('s') \\; SELECT 1/0")->{sqlstate}, '22012', 'statement: an error');
	is_free('s', 'statement: an error');
	like($client->run('BEGIN')->{message} // '', qr/transaction blocks not allowed/,
		'statement: no transaction of several statements');
	$_->quit for ($client, $latch);
	$bouncer->wait_clients('statement', 0);
}

#
# Session scope in session mode: held over transactions, and given back when
# the client goes, while the server connection stays
#

for my $how ('quit', 'kill_client')
{
	my $client = client('session');
	my $pid = server_pid($client);

	$client->run_ok("SELECT zk_lock('y', session => true)");
	$client->run_ok('BEGIN; INSERT INTO t VALUES (2); COMMIT');
	is($client->run('SELECT 1/0')->{sqlstate}, '22012', 'an error');
	is(server_pid($client), $pid, 'one server connection serves a client');
	is(holds('y'), "$pid|session", 'session: it holds the lock over its transactions');
	is(try_b('y'), 'f', 'session: the other instance does not get it');
	my $waiter = client('session');
	wait_for_lock($waiter, 'y', 1);

	$client->$how;
	is($waiter->result->{message}, undef, "session, $how: another client gets it");
	is_free('y', "session, $how");
	my $next = client('session');
	is(server_pid($next), $pid, "session, $how: the server connection serves the next client");
	not_held($next, 'y', "session, $how: it has nothing");
	$_->quit for ($waiter, $next);
	$bouncer->wait_clients('session', 0);
}

# Nobody has to come for it
{
	my $client = client('session');
	my $pid = server_pid($client);
	$client->run_ok("SELECT zk_lock('y', session => true);"
		  . " SELECT zk_acquire('y2', 1, session => true)");
	$client->quit;
	is_free('y', 'session: without a next client');
	is($at_b->run("SELECT zk_try_acquire('y2', 1, '1 min')")->{out},
		't', 'session: nor for a permit');
	is($at_a->run("SELECT query FROM pg_stat_activity WHERE pid = $pid")->{out},
		'DISCARD ALL', 'session: by DISCARD ALL');
}

# A client that goes in the middle of a transaction: its server connection is
# closed
{
	my $client = client('session');
	my $pid = server_pid($client);
	$client->run_ok("SELECT zk_lock('y', session => true); BEGIN; SELECT zk_lock('y1')");
	$client->kill_client;
	is_free($_, 'session: gone in a transaction') for (qw(y y1));
	wait_gone($pid);
	$bouncer->wait_clients('session', 0);
}

# With another server_reset_query
for my $query ('SELECT pg_advisory_unlock_all()', 'SELECT zk_unlock_all()')
{
	$bouncer->admin("SET server_reset_query = '$query'");
	my $client = client('session');
	my $pid = server_pid($client);
	$client->run_ok("SELECT zk_lock('y', session => true)");
	$client->quit;
	$a->poll_query_until('postgres',
		"SELECT query = '$query' AND state = 'idle' FROM pg_stat_activity WHERE pid = $pid");
	if ($query =~ /zk_/)
	{
		is_free('y', "session: $query");
	}
	else
	{
		is(holds('y'), "$pid|session", "session: $query does not give it back");
		is(try_b('y'), 'f', '... the other instance does not get it');
		$at_a->run("SELECT pg_terminate_backend($pid)");
		is_free('y', '... until the server connection ends');
	}
}
$bouncer->admin("SET server_reset_query = 'DISCARD ALL'");

#
# Session scope in transaction mode, what the documentation warns of: the lock
# stays with the server connection
#

{
	my $client = client('transaction');
	my $pid = run_pid($client, "SELECT zk_lock('z', session => true)");
	is(holds('z'), "$pid|session", 'transaction: zk_locks shows the server connection that holds the lock');

	# served by the other server connection, its owner is not the holder
	my $other = occupant('transaction', $pid);
	isnt(server_pid($client), $pid, 'transaction: the client goes on elsewhere');
	is($client->run("SELECT zk_try_lock('z')")->{out},
		'f', 'transaction: where it does not get its own lock');
	not_held($client, 'z', 'transaction: nor gives it back');

	# and another client is
	$other->run_ok("SELECT zk_lock('z')", 'transaction: another client does not wait for it');
	$other->run_ok('COMMIT');
	is(holds('z'), "$pid|session", 'transaction: and does not end it');

	# the one who has asked for it goes
	$client->quit;
	$bouncer->wait_clients('transaction', 1);
	is(holds('z'), "$pid|session", 'transaction: it survives its client');
	is(try_b('z'), 'f', 'transaction: the other instance does not get it');

	# ends with the server connection
	$at_a->run("SELECT pg_terminate_backend($pid)");
	is_free('z', 'transaction: the server connection is terminated');
	wait_gone($pid);
	$other->quit;

	# or when a client gives it back that happens to be there
	$client = client('transaction');
	$pid = run_pid($client, "SELECT zk_lock('z', session => true)");
	$client->quit;
	$other = occupant('transaction', $pid);
	is($other->run("SELECT zk_unlock('z')")->{out}, 't', 'transaction: another client gives it back');
	$other->run_ok('ROLLBACK');
	is_free('z', 'transaction: given back by another client');
	$_->quit for ($client, $other);
	$bouncer->wait_clients('transaction', 0);
}

# If it is lost, the next client of the server connection cannot commit.  In
# session mode its client does, and DISCARD ALL acknowledges it.
{
	my ($client, $alone) = map { client($_) } qw(transaction session);
	my $pid = run_pid($client, "SELECT zk_lock('z', session => true)");
	my $alone_pid = server_pid($alone);
	$alone->run_ok("SELECT zk_lock('y', session => true)");
	$client->quit;
	my $other = occupant('transaction', $pid);

	ok(end_session($a, $foreign), 'the session with ZooKeeper has ended');
	poll_until(sub { $at_a->run('SELECT count(*) FROM zk_locks WHERE lost')->{out} == 2 },
		'the locks to be lost');

	$other->run_ok('SELECT 1');
	is($other->run('COMMIT')->{sqlstate}, '40001', 'transaction: lost, another client cannot commit');
	is($at_a->run("SELECT pg_terminate_backend($pid)")->{out},
		't', 'the server connection is terminated');
	wait_gone($pid);
	is($alone->run('SELECT 1')->{sqlstate}, '40001', 'session: lost, its client cannot commit');
	$alone->quit;
	my $next = client('session');
	is(server_pid($next), $alone_pid, 'session: the server connection serves the next client');
	$next->run_ok('SELECT 1', 'session: who is not concerned');
	is($at_a->run('SELECT count(*) FROM zk_locks')->{out}, 0, 'nothing is held');
	$_->quit for ($other, $next);
	$bouncer->wait_clients($_, 0) for (qw(session transaction));
}

#
# A cancel request ends a wait, though all server connections of the pool are
# taken
#

for my $mode (qw(session transaction))
{
	for my $tier (1, 2)
	{
		my $name = "$mode, tier $tier";
		my $holder = $tier == 1 ? client($mode) : ZkSession->new($b);
		my $other = $tier == 1 ? $holder : client($mode);
		my $waiter = client($mode);

		$other->run_ok('BEGIN; SELECT 1', "$name: a server connection is taken");
		$holder->run_ok("BEGIN; SELECT zk_lock('w')") if $tier == 2;
		$holder->run_ok("SELECT zk_lock('w')") if $tier == 1;
		my $pid = wait_for_lock($waiter, 'w', $tier);
		my @queue = wait_contenders($zk, 'w', $tier);

		# as Ctrl-C; psql reports the error, and ends if it is not interactive
		$waiter->{run}->signal('INT');
		is($waiter->result->{sqlstate}, '57014', "$name: a cancel request ends the wait");
		is(join(' ', wait_contenders($zk, 'w', 1)), $queue[0], "$name: which leaves nothing");
		$waiter->quit;
		my $next = client($mode);
		is(server_pid($next), $pid, "$name: the server connection goes on");
		not_held($next, 'w', "$name: with no lock");
		$holder->run_ok('COMMIT');
		is_free('w', "$name: canceled");
		$_->quit for ($holder, $other, $next);
		$bouncer->wait_clients($mode, 0);
	}
}

#
# Clients that vanish
#

for my $mode (qw(session transaction))
{
	# with the lock: the server connection is closed
	my $client = client($mode);
	my $pid = run_pid($client, "BEGIN; SELECT zk_lock('v')");
	$client->kill_client;
	is_free('v', "$mode: gone with the lock");
	wait_gone($pid);

	# while it waits: as soon as the backend finds out
	for my $tier (1, 2)
	{
		my $name = "$mode, tier $tier: gone while it waits";
		my $holder = ZkSession->new($tier == 1 ? $a : $b);
		$holder->run_ok("BEGIN; SELECT zk_lock('v')");
		my @queue = wait_contenders($zk, 'v', 1);

		$client = client($mode);
		$pid = wait_for_lock($client, 'v', $tier);
		$client->kill_client;
		wait_gone($pid);
		is(join(' ', wait_contenders($zk, 'v', 1)), $queue[0], "$name: nothing is left");
		$holder->quit;
	}
}

# pgbouncer itself
{
	my ($session, $transaction) = map { client($_) } qw(session transaction);

	$session->run_ok("SELECT zk_lock('u', session => true)");
	$transaction->run_ok("BEGIN; SELECT zk_lock('u2')");
	$bouncer->kill9;
	is_free($_, 'pgbouncer has died') for (qw(u u2));
	$_->quit for ($session, $transaction);
}

#
# Nothing is left
#

$_->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zk_locks') for ($a, $b);
poll_until(sub { !all_contenders($zk) }, 'the last contender to go');
$_->quit for ($at_a, $at_b);

for my $node ($a, $b)
{
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/,
		$node->name . ' has not crashed');
	$node->stop;
}

done_testing();
