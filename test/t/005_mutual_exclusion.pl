
# Mutual exclusion of two instances under load, while workers and ZooKeeper are
# restarted.
#
# - The worker of an instance is terminated again and again, while 32 clients of both
#   hold locks and wait for them: no lock is lost, no client has an error, and nobody
#   has what somebody else holds.  All clients are driven from here, so what they
#   hold is known without a clock: a lock is held from when its grant has been read
#   until COMMIT is sent.  Each time takes a second, in which there is no worker.
# - 32 clients of each instance and one lock: no two critical sections overlap.  The
#   referee is a third instance, where each section notes that it has begun and that
#   it is about to end, at once and visibly for all: the ids of these notes put them
#   in order without any clock.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use ZkCluster;
use ZkWire;
use ZooKeeper;

my $clients = 32;
my $kills = soak(3, 10);
my $locks = 5;
my $keepers = 4;

my $zk = ZooKeeper->new;
$zk->start;

my %cluster = map {
	$_ => zk_cluster($_, $zk,
		'zklock.session_timeout' => '30s',
		'log_statement' => 'none')
} qw(a b);

#
# Workers that are terminated
#

for my $node (values %cluster)
{
	$node->safe_psql('postgres', 'CREATE TABLE t (i int)');
	wait_connected($node);
}

my (@errors, %holders, %commits);
my ($longest, $ending) = (0, 0);

# Run a statement whose answer is not waited for here; $then gets it.
sub begin
{
	my ($client, $sql, $then) = @_;

	@$client{qw(sql then asked)} = ($sql, $then, time);
	$client->{wire}->send($sql);
	return;
}

sub answered
{
	my ($client) = @_;
	my $result = $client->{wire}->result;

	if ($result->{message} || $client->{wire}->gone)
	{
		push @errors,
		  "$client->{cluster}: $client->{sql}: " . ($result->{message} // 'disconnected');
		$client->{then} = undef;
		return;
	}
	$client->{then}->($client, $result);
	return;
}

# A writer excludes all others, a reader writers.
sub has_got
{
	my ($client, $lock, $shared) = @_;
	my $others = $holders{$lock} //= {};

	push @errors, "$lock is held by two"
	  if grep { !$shared || !$_ } values %$others;
	$others->{$client} = $shared;
	return;
}

sub commit
{
	my ($client, $lock, $then) = @_;

	delete $holders{$lock}{$client};
	begin($client, 'COMMIT',
		sub { $commits{ $client->{cluster} }++; $then->($client) if $then; });
	return;
}

# One transaction after the other; idle in each for some turns of our loop.
sub cycle
{
	my ($client) = @_;

	return $client->{then} = undef if $ending;
	my $lock = 'l' . int(rand($locks));
	my $shared = rand() < 0.3 ? 1 : 0;
	begin(
		$client,
		"BEGIN; SELECT zk_lock('$lock', shared => " . ($shared ? 'true' : 'false') . '); INSERT INTO t VALUES (1)',
		sub {
			my $turns = int(rand(4));
			my $took = time - $client->{asked};
			$longest = $took if $took > $longest;
			has_got($client, $lock, $shared);
			my $idle;
			$idle = sub {
				return commit($client, $lock, \&cycle) if $turns-- <= 0;
				begin($client, 'SELECT pg_sleep(0.002)', $idle);
			};
			$idle->();
		});
	return;
}

my @clients = map {
	my $name = $_ <= 20 ? 'a' : 'b';
	{ cluster => $name, wire => ZkWire->new($cluster{$name}) }
} (1 .. 32);

# The first four hold a lock all the time; the last two of each instance wait
# for it.
my @keeping = @clients[ 0 .. $keepers - 1 ];
my @kept_waiting = @clients[ 18, 19, 30, 31 ];
my @cycling = @clients[ 4 .. 17, 20 .. 29 ];

for my $n (0 .. $keepers - 1)
{
	my $result = $keeping[$n]{wire}->run("BEGIN; SELECT zk_lock('keep$n'); INSERT INTO t VALUES (0)");
	die $result->{message} if $result->{message};
	has_got($keeping[$n], "keep$n", 0);
	begin($kept_waiting[$n], "BEGIN; SELECT zk_lock('keep$n')",
		sub { has_got($kept_waiting[$n], "keep$n", 0); $kept_waiting[$n]{then} = undef; });
}
cycle($_) for @cycling;

# One turn: whoever has an answer goes on.
sub turn
{
	my @busy = grep { $_->{then} } @_;
	my %of = map { $_->{wire} => $_ } @busy;

	die "no answer to: $busy[0]{sql}"
	  if @busy && !ZkWire::wait_any($PostgreSQL::Test::Utils::timeout_default, map { $_->{wire} } @busy);
	answered($of{$_}) for grep { !$_->busy } map { $_->{wire} } @busy;
	return scalar @busy;
}

# Terminate a worker that has the session, in a moment of its life that is
# different each time, as soon as there is one.
my $killer = { cluster => 'a', wire => ZkWire->new($cluster{a}) };
my ($killed, $last, $killed_at) = (0, 0, time);

sub hunt
{
	if ($killed == $kills)
	{
		$ending = 1;
		return $killer->{then} = undef;
	}
	die 'no worker comes after the one that was terminated'
	  if time - $killed_at > $PostgreSQL::Test::Utils::timeout_default;
	begin(
		$killer,
		'SELECT pg_sleep(random() * 0.1), worker_pid FROM zk_session'
		  . " WHERE state = 'connected' AND worker_pid <> $last",
		sub {
			my ($pid) = ($_[1]{out} // '') =~ /(\d+)$/ or return hunt();
			begin($killer, "SELECT pg_terminate_backend($pid)",
				sub { $killed++; ($last, $killed_at) = ($pid, time); hunt(); });
		});
	return;
}

my $session = session_of($cluster{a});
my $start = time;
hunt();
1 while turn(@clients, $killer) && !$ending;
my $seconds = time - $start;

# All those who hold commit, and those who wait have their turn.
commit($_->[0], $_->[1], sub { $_[0]{then} = undef }) for map { [ $keeping[$_], "keep$_" ] } 0 .. $keepers - 1;
1 while turn(@clients);
commit($_->[0], $_->[1], sub { $_[0]{then} = undef }) for map { [ $kept_waiting[$_], "keep$_" ] } 0 .. $keepers - 1;
1 while turn(@clients);

note sprintf('%d workers terminated in %.0f s; %d commits in a, %d in b; the longest wait for a lock took %.1f s',
	$killed, $seconds, $commits{a}, $commits{b}, $longest);
is($killed, $kills, "$kills workers were terminated");
is_deeply(\@errors, [], 'no client had an error, and no lock two owners');
cmp_ok($commits{$_} // 0, '>', $kills, "clients of $_ have had locks") for qw(a b);
for my $name (qw(a b))
{
	is(value($cluster{$name}, 'SELECT count(*) FROM t'), $commits{$name} - @kept_waiting / 2,
		"$name: what was committed is there");
	is(value($cluster{$name}, 'SELECT sessions, session_id IS NOT NULL FROM zk_session'),
		'1|t', "$name has kept its session");
	is(value($cluster{$name}, 'SELECT lost, failed FROM zk_stat'), '0|0', "$name has lost no lock");
	is(value($cluster{$name}, 'SELECT count(*) FROM zk_locks'), 0, "$name: no lock is left");
	unlike(slurp_file($cluster{$name}->logfile), qr/PANIC|TRAP|was terminated by signal/, "$name has not crashed");
}
is(session_of($cluster{a}), $session, 'it is still the same session');
poll_until(sub { !all_contenders($zk) }, 'all contenders to be gone');
$_->{wire}->vanish for (@clients, $killer);

#
# One lock, and a referee
#

my $referee = PostgreSQL::Test::Cluster->new('referee');
$referee->init;
$referee->append_conf('postgresql.conf', "log_statement = none\n");
$referee->start;
$referee->safe_psql('postgres', q{
	CREATE TABLE note (
		id bigserial PRIMARY KEY,
		part int, instance text, section bigint, token bigint, leaves bool);
	CREATE TABLE counter (n bigint);
	INSERT INTO counter VALUES (0);
});

my $connstr = $referee->connstr('postgres') =~ s/'/''/gr;
for my $name ('a', 'b')
{
	my $node = $cluster{$name};

	alter_system($node, 'deadlock_timeout' => '1h');

	# A section reads the counter of the referee, and writes what it has read
	# plus one: two at a time would lose one.
	$node->safe_psql('postgres', qq{
		CREATE EXTENSION dblink;
		CREATE TABLE section (id bigserial PRIMARY KEY, part int);
		CREATE FUNCTION note(part int, section bigint, token bigint, leaves bool)
		RETURNS void LANGUAGE plpgsql AS \$\$
		BEGIN
			IF dblink_get_connections() IS NULL THEN
				PERFORM dblink_connect('referee', '$connstr');
			END IF;
			PERFORM dblink_exec('referee',
				format('INSERT INTO note (part, instance, section, token, leaves)'
					' VALUES (%s, %L, %s, %L, %L)',
					part, '$name', section, token, leaves));
		END \$\$;
		CREATE FUNCTION critical_section(part int)
		RETURNS void LANGUAGE plpgsql AS \$\$
		DECLARE
			my_section bigint;
			my_token bigint;
			counter bigint;
		BEGIN
			INSERT INTO section (part) VALUES (part) RETURNING id INTO my_section;
			IF my_section % 4 = 0 THEN
				my_token := zk_fencing_token('mutex');
			END IF;
			PERFORM note(part, my_section, my_token, false);
			SELECT n FROM dblink('referee', 'SELECT n FROM counter') AS t(n bigint)
				INTO counter;
			PERFORM dblink_exec('referee',
				format('UPDATE counter SET n = %s', counter + 1));
			PERFORM note(part, my_section, my_token, true);
		END \$\$;
	});
}

my $script = PostgreSQL::Test::Utils::tempdir . '/section.pgbench';
append_to_file($script, q{BEGIN;
SELECT zk_lock('mutex');
SELECT critical_section(:part);
COMMIT;
});

sub start_clients
{
	my ($name, $part) = @_;
	my $node = $cluster{$name};
	my %bench = (out => '', err => '');

	local %ENV = $node->_get_env();
	$bench{run} = IPC::Run::start(
		[
			$node->installed_command('pgbench'), '-n', '-c', $clients, '-j', 1,
			'-D', "part=$part", '-T', 3600, '-f', $script,
			$node->connstr('postgres')
		],
		'<', \undef, '>', \$bench{out}, '2>', \$bench{err});
	return \%bench;
}

sub sections
{
	my ($part) = @_;
	my %sections = (a => 0, b => 0);

	my $rows = $referee->safe_psql('postgres',
		"SELECT instance, count(*) FROM note WHERE part = $part AND leaves GROUP BY 1");

	$sections{$1} = $2 while $rows =~ /^(\w)\|(\d+)$/mg;
	return \%sections;
}

# Run both instances until there were so many sections, each of @disturb has been
# called, and both have got the lock since then.
sub run_part
{
	my ($part, $sections, @disturb) = @_;
	my %bench = map { $_ => start_clients($_, $part) } sort keys %cluster;

	poll_until(
		sub {
			my $now = sections($part);
			$_->{run}->pump_nb for values %bench;
			return $now->{a} + $now->{b} >= $sections;
		},
		"$sections sections");
	for my $disturb (@disturb, undef)
	{
		my $before = sections($part);

		poll_until(
			sub {
				my $now = sections($part);

				# pump_nb dies if the process has ended
				$_->{run}->pump_nb for values %bench;
				return $now->{a} > $before->{a} && $now->{b} > $before->{b};
			},
			'sections in both instances');
		$disturb->() if $disturb;
	}
	# by its own timer pgbench ends when each client has ended its transaction
	$_->{run}->signal('ALRM') for values %bench;

	for my $name (sort keys %bench)
	{
		my $bench = $bench{$name};
		my ($done) = $bench->{run}->finish ? 1 : 0;

		is($bench->{err} =~ /(.*error.*)/ ? $1 : '', '', "part $part, instance $name: no error");
		ok($done, "part $part, instance $name: pgbench ends well");
		$bench{$name}{commits} =
		  $bench->{out} =~ /^number of transactions actually processed: (\d+)/m ? $1 : -1;
	}
	# the last contender goes with the last commit
	wait_no_contenders($zk, 'mutex');
	check_part($part, map { $bench{$_}{commits} } sort keys %bench);
	return;
}

# What the referee has seen.
sub check_part
{
	my ($part, @commits) = @_;
	my $total = $commits[0] + $commits[1];
	my $query = sub { $referee->safe_psql('postgres', $_[0]); };

	note "part $part: $commits[0] sections in a, $commits[1] in b";
	cmp_ok($commits[0], '>', 0, "part $part: instance a has had the lock");
	cmp_ok($commits[1], '>', 0, "part $part: so has instance b");

	# in and out, in and out
	is( $query->(qq{
			SELECT count(*) FROM (
				SELECT leaves, instance, section,
					lag(leaves, 1, true) OVER w AS before,
					lag(instance) OVER w AS before_cluster,
					lag(section) OVER w AS before_section
				FROM note WHERE part = $part WINDOW w AS (ORDER BY id)) n
			WHERE CASE WHEN leaves
				THEN before OR (instance, section) <> (before_cluster, before_section)
				ELSE NOT before END}),
		0, "part $part: no two sections overlap");
	is($query->("SELECT count(*) FROM note WHERE part = $part AND NOT leaves"),
		$total, "part $part: every section was begun by a commit");
	is($query->("SELECT count(*) FROM note WHERE part = $part AND leaves"),
		$total, "part $part: and ended");
	is($query->('SELECT n FROM counter'),
		$query->('SELECT count(*) FROM note WHERE leaves'),
		"part $part: no change of the counter is lost");
	for my $name (sort keys %cluster)
	{
		is($cluster{$name}->safe_psql('postgres',
				"SELECT count(*) FROM section WHERE part = $part"),
			shift @commits, "part $part, instance $name: commits are there");
		is($cluster{$name}->safe_psql('postgres', 'SELECT count(*) FROM zk_locks'),
			0, "part $part, instance $name: no lock is left");
	}

	# the token grows with every change of the owning instance, never shrinks,
	# and one token has one owner
	is( $query->(qq{
			SELECT count(*) FROM (
				SELECT token, instance, lag(token) OVER w AS before,
					lag(instance) OVER w AS before_cluster
				FROM note WHERE part = $part AND token IS NOT NULL AND NOT leaves
				WINDOW w AS (ORDER BY id)) n
			WHERE token < before OR token = before AND instance <> before_cluster}),
		0, "part $part: fencing tokens grow");
	cmp_ok(
		$query->("SELECT count(DISTINCT token) FROM note WHERE part = $part"),
		'>', 1, "part $part: and there are some");
	return;
}

run_part(1, soak(200, 1000));

# Workers and ZooKeeper restart, in turn.
run_part(2, 0, (
		sub { next_worker($cluster{a}); },
		sub { next_worker($cluster{b}); },
		sub { $zk->stop; $zk->start; },
		sub { next_worker($cluster{a}); },
		sub { next_worker($cluster{b}); },
		sub { $zk->kill9; $zk->start; }) x soak(1, 3));
for my $name (sort keys %cluster)
{
	is($cluster{$name}->safe_psql('postgres', 'SELECT sessions FROM zk_session'),
		1, "instance $name has kept its session");
	unlike(slurp_file($cluster{$name}->logfile), qr/PANIC|TRAP|was terminated by signal/,
		"instance $name has not crashed");
}
$_->stop for (values %cluster, $referee);

done_testing();
