
# The counter of a lock directory comes to its end: 2147483647 is given again
# and again, so that nobody knows who is first.  Before that, from 2000000000 on,
# no instance owns the lock until the directory has started over: it leaves, and
# comes again, until nobody else is there.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $late = 2_000_000_000;
my $last = 2_147_483_647;
my $clients = 8;
my $times = 40;

my $zk = ZooKeeper->new(counters => 1);
$zk->start;
my $foreign = $zk->client(timeout => 60);

my $referee = PostgreSQL::Test::Cluster->new('referee');
$referee->init;
$referee->append_conf('postgresql.conf', "log_statement = none\n");
$referee->start;
$referee->safe_psql('postgres', q{
	CREATE TABLE note (id bigserial PRIMARY KEY, part int, pid text, leaves bool);
	CREATE TABLE counter (n bigint);
	INSERT INTO counter VALUES (0);
});

# A section reads the counter of the referee, and writes what it has read plus
# one: two at a time would lose one.
my $connstr = $referee->connstr('postgres') =~ s/'/''/gr;
my %cluster;
for my $name ('a', 'b')
{
	my $node = zk_cluster($name, $zk,
		'zklock.session_timeout' => '30s',
		'zklock.handoff_quantum' => '5ms',
		'log_statement' => 'none',
		'deadlock_timeout' => '1h');

	$node->safe_psql('postgres', qq{
		CREATE EXTENSION dblink;
		CREATE FUNCTION critical_section(part int) RETURNS void
		LANGUAGE plpgsql AS \$\$
		DECLARE
			me text := '$name ' || pg_backend_pid();
			counter bigint;
		BEGIN
			IF dblink_get_connections() IS NULL THEN
				PERFORM dblink_connect('referee', '$connstr');
			END IF;
			PERFORM dblink_exec('referee', format(
				'INSERT INTO note (part, pid, leaves) VALUES (%s, %L, false)', part, me));
			SELECT n FROM dblink('referee', 'SELECT n FROM counter') AS t(n bigint)
				INTO counter;
			PERFORM dblink_exec('referee', format(
				'UPDATE counter SET n = %s; INSERT INTO note (part, pid, leaves) VALUES (%s, %L, true)',
				counter + 1, part, me));
		END \$\$;
	});
	$cluster{$name} = $node;
}
my ($a, $b) = @cluster{ 'a', 'b' };

my $script = PostgreSQL::Test::Utils::tempdir . '/section.pgbench';
append_to_file($script, q{BEGIN;
SELECT zk_lock('mutex');
SELECT critical_section(:part);
COMMIT;
});

my $renewed = qr/the queue of "\S+" has started over/;
my $nearly = qr/the sequence numbers of "\S+" in ZooKeeper are nearly used up/;

# How often has a directory started over?
sub renewals
{
	my $n = 0;

	$n += () = slurp_file($_->logfile) =~ /$renewed/g for ($a, $b);
	return $n;
}

sub notes
{
	my ($part) = @_;
	return $referee->safe_psql('postgres',
		"SELECT count(*) FROM note WHERE part = $part AND leaves");
}

# $clients backends of both instances, each of which does so many sections.
sub start_sections
{
	my ($part, $n) = @_;
	my @benches;

	for my $node ($a, $b)
	{
		my %bench = (name => $node->name, out => '', err => '', n => $n);

		local %ENV = $node->_get_env();
		$bench{run} = IPC::Run::start(
			[
				$node->installed_command('pgbench'), '-n', '-c', $clients, '-j', 1,
				'-D', "part=$part", '-t', $n, '-f', $script,
				$node->connstr('postgres')
			],
			'<', \undef, '>', \$bench{out}, '2>', \$bench{err});
		push @benches, \%bench;
	}
	return @benches;
}

sub running
{
	# pump_nb dies if the process has ended meanwhile
	return grep { eval { $_->{run}->pump_nb }; $_->{run}->pumpable } @_;
}

sub end_sections
{
	my ($part, @benches) = @_;
	my $total = 0;

	poll_until(sub { !running(@benches) }, 'the sections to end');
	for my $bench (@benches)
	{
		my $done = $bench->{run}->finish ? 1 : 0;

		is($bench->{err} =~ /(.*error.*)/ ? $1 : '', '', "part $part, instance $bench->{name}: no error");
		ok($done, "part $part, instance $bench->{name}: all have had their turns");
		$total += $clients * $bench->{n};
	}
	is(notes($part), $total, "part $part: every section was done");
	is( $referee->safe_psql('postgres', qq{
			SELECT count(*) FROM (
				SELECT leaves, pid, lag(leaves, 1, true) OVER w AS before,
					lag(pid) OVER w AS before_pid
				FROM note WHERE part = $part WINDOW w AS (ORDER BY id)) n
			WHERE CASE WHEN leaves THEN before OR pid <> before_pid ELSE NOT before END}),
		0, "part $part: no two sections overlap");
	is( $referee->safe_psql('postgres',
			'SELECT n - (SELECT count(*) FROM note WHERE leaves) FROM counter'),
		0, "part $part: no change of the counter is lost");
	wait_no_contenders($zk, 'mutex');
	return;
}

sub number_of { return $_[0] =~ /(?<=-lock-|__)(-?\d{10})$/ ? $1 + 0 : die $_[0]; }

# Part 1: the counter comes to its end again and again while it is in use, or
# near it, as if nobody had cared.
my @benches = start_sections(1, $times);
my $crossed = 0;
while (running(@benches))
{
	my $before = renewals();
	my $done = notes(1);

	next unless $zk->set_counter(lock_dir('mutex'), $crossed % 2 ? $late - 6 : $last - 30);
	poll_until(sub { renewals() > $before || !running(@benches) },
		'the directory to start over');
	poll_until(sub { notes(1) > $done + 10 || !running(@benches) }, 'sections');
	$crossed++ if renewals() > $before;
}
cmp_ok($crossed, '>', 0, "part 1: the counter has come to its end $crossed times");
end_sections(1, @benches);

# Part 2: other clients are in the directory when it does.
my $first = $foreign->lock(lock_dir('mutex'));
ok($zk->set_counter(lock_dir('mutex'), $late + 5), 'part 2: a late counter');
my $second = $foreign->enqueue(lock_dir('mutex'));
is(number_of($second), $late + 5, 'part 2: another client is given a late number');
my %log = map { $_ => -s $cluster{$_}->logfile } keys %cluster;
@benches = start_sections(2, 3);
$cluster{$_}->wait_for_log($nearly, $log{$_}) for sort keys %cluster;
is(notes(2), 0, 'part 2: nobody has the lock but the first');
$foreign->unlock($first);
# the second owns it now; our contenders come again and again
is($foreign->position($second), 0, 'part 2: the other client has the lock');
ok($zk->set_counter(lock_dir('mutex'), $late + 100), 'part 2: the counter goes on');
my $third = $foreign->enqueue(lock_dir('mutex'));
is(notes(2), 0, 'part 2: and nobody else');
$foreign->unlock($second);
is( sql($a, "SELECT zk_try_lock('mutex', session => true)")->{out},
	'f', 'part 2: who tries does not get it');
sql_error(
	$a,
	"SET lock_timeout = '200ms'; SELECT zk_lock('mutex')",
	{ sqlstate => '55P03', message => qr/lock timeout/ },
	'part 2: lock_timeout ends the wait');
is(notes(2), 0, 'part 2: nobody takes the lock from the last of them');
next_worker($b);
$foreign->unlock($third);
end_sections(2, @benches);
# by one of them, or ZooKeeper has collected it
my $holder = holder($a, 'mutex');
cmp_ok(number_of(wait_contenders($zk, 'mutex', 1)), '<', $late, 'part 2: numbers are small again');
$holder->run('COMMIT');
$holder->quit;

# Part 3: the numbers have no order any more.
$first = $foreign->lock(lock_dir('mutex'));
$zk->set_counter(lock_dir('mutex'), $last);
$second = $foreign->enqueue(lock_dir('mutex'));
is(number_of($second), $last, 'part 3: another client has the last number');
my %refused = (
	sqlstate => '55000',
	message => qr/^the sequence numbers of "mutex" in ZooKeeper are used up$/,
	detail => qr{counter of the directory "/zklock/mutex" has ended},
	hint => qr/delete/);
sql_error($a, "SELECT zk_lock('mutex')", \%refused, 'part 3: refused');
sql_error($b, "SELECT zk_try_lock('mutex')", \%refused, 'part 3: who tries is, too');
sql_error($b, "SELECT zk_lock_all(ARRAY['x', 'mutex'])", \%refused, 'part 3: and several locks');
is(scalar contenders($zk, 'mutex'), 2, 'part 3: nothing of ours is left');
$foreign->unlock($_) for ($first, $second);
is(sql($_, "SELECT zk_lock('mutex')")->{message}, undef,
	'part 3: when they are gone, all is well in ' . $_->name)
  for ($a, $b);

# Part 4: several locks, shared locks, semaphores.
sub crossing
{
	my ($what, $dir, @queries) = @_;
	my $node = $foreign->lock($dir);
	my $renewals = renewals();

	ok($zk->set_counter($dir, $late), "part 4, $what: a late counter");
	my @waiters = map { waiter($_ % 2 ? $b : $a, undef, 2, $queries[$_]) } (0 .. $#queries);
	$foreign->unlock($node);
	is($_->result->{message}, undef, "part 4, $what: granted") for @waiters;
	cmp_ok(renewals(), '>', $renewals, "part 4, $what: the directory has started over");
	return @waiters;
}

sub finish
{
	$_->run('COMMIT') for @_;
	$_->quit for @_;
	return;
}

my @s = crossing('several locks', lock_dir('y'), "SELECT zk_lock_all(ARRAY['x', 'y', 'z'])");
is($a->safe_psql('postgres', 'SELECT count(*) FROM zk_locks'), 3, 'all three');
finish(@s);

@s = crossing('shared', lock_dir('s'), ("SELECT zk_lock('s', shared => true)") x 2);
is($_->safe_psql('postgres', 'SELECT count(*) FROM zk_locks'), 1, $_->name . ' shares') for ($a, $b);
# one who shares and has an old number goes first
$zk->set_counter(lock_dir('s'), $late);
my $late_reader = waiter($b, undef, 1, "SELECT zk_lock('s')");
finish($s[1]);
$late_reader->wait_waiting(2);
finish($s[0]);
is($late_reader->result->{message}, undef, 'who is late follows who shares');
finish($late_reader);

@s = crossing('semaphore', lock_dir('sem') . '/locks', "SELECT zk_acquire('sem', 2)");
ok($zk->set_counter(lock_dir('sem') . '/leases', $last), 'the last lease');
my $permit = ZkSession->new($b);
$permit->run_ok("BEGIN; SELECT zk_acquire('sem', 2)", 'a permit without order');
is(sql($a, "SELECT zk_try_acquire('sem', 2)")->{out}, 'f', 'and no more than there are');
my $third_permit = waiter($b, undef, 2, "SELECT zk_acquire('sem', 2)");
finish(@s);
is($third_permit->result->{message}, undef, 'who waits gets the next');
is(sql($a, "SELECT zk_try_acquire('sem', 2)")->{out}, 'f', 'and no more than there are');
finish($permit, $third_permit);

for my $node ($a, $b)
{
	comes_to(sub { value($node, 'SELECT count(*) FROM zk_locks') }, '0', $node->name . ': no lock is left');
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/, $node->name . ' has not crashed');
}
comes_to(sub { [ all_contenders($zk) ] }, [], 'no contender is left');
$_->stop for ($a, $b, $referee);

done_testing();
