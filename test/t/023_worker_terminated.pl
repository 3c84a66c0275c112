
# The worker of an instance is terminated again and again, while 32 clients of
# two instances hold locks and wait for them: no lock is lost, no client has an
# error, and nobody has what somebody else holds.
#
# All clients are driven from here, so what they hold is known without a clock:
# a lock is held from when its grant has been read until COMMIT is sent.
#
# Each time takes a second, in which there is no worker.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use ZkCluster;
use ZkWire;
use ZooKeeper;

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
$_->stop for values %cluster;

done_testing();
