
# Interop under load: 8 threads of Curator, 8 of kazoo, and 8 backends in each
# of two instances, on one lock.  No two critical sections overlap, nobody
# starves, nothing is left behind.
#
# Critical sections are calls of section() in the referee, a third instance: it
# tries to lock there what the caller claims to hold, so that it sees each
# overlap, and no clock is needed; it is the same for all, so that hold times
# are equal; and it tells when to stop.
#
# Fair shares: ZooKeeper's queue is first come, first served among contenders,
# and everyone queues again at once, so one contender gets as many turns as
# another.  A thread of Curator or kazoo is a contender.  An instance is one, for
# all of its backends: how long it may keep the lock for them in a turn is
# zklock.handoff_quantum.  There are 8 + 8 + 2 contenders.
#
# - With a quantum of 0 a turn is one transaction.  The fair share of a thread
#   and of an instance is 1/18 of all sections, that of a backend 1/8 of what
#   its instance has.
# - With a quantum that lasts for a section of each of its backends, the fair
#   share of everybody is 1/32.
#
# Each must get at least half of that.

use strict;
use warnings;

use Foreign;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZkWire;
use ZooKeeper;

my $each = 8;

my $zk = ZooKeeper->new;
$zk->start;
my $observer = $zk->client(timeout => 60);

my $referee = PostgreSQL::Test::Cluster->new('referee');
$referee->init;
$referee->append_conf('postgresql.conf', "log_statement = none\n");
$referee->start;
$referee->safe_psql('postgres', q{
	CREATE TABLE part (part int, hold float, permits int, stop bool);
	CREATE TABLE section (
		id bigserial PRIMARY KEY,
		part int, client text, mode text, overlap bool, together bigint);
	CREATE TABLE counter (n bigint);
	INSERT INTO counter VALUES (0);

	-- A section of a client that holds the lock in this mode.  False: it shall
	-- be its last.
	CREATE FUNCTION section(client text, mode text)
	RETURNS boolean LANGUAGE plpgsql AS $$
	#variable_conflict use_variable
	DECLARE
		now part;
		found bool;
		before bigint;
	BEGIN
		SELECT * INTO now FROM part;
		IF mode = 'shared' THEN
			found := pg_try_advisory_xact_lock_shared(0);
		ELSIF mode = 'exclusive' THEN
			found := pg_try_advisory_xact_lock(0);
			SELECT n INTO before FROM counter;
		ELSE
			FOR i IN 1 .. now.permits LOOP
				found := pg_try_advisory_xact_lock(i);
				EXIT WHEN found;
			END LOOP;
		END IF;
		INSERT INTO section (part, client, mode, overlap, together)
			SELECT now.part, client, mode, NOT found, count(*)
			FROM pg_locks WHERE locktype = 'advisory';
		PERFORM pg_sleep(now.hold);
		-- two at a time would lose one
		IF mode = 'exclusive' THEN
			UPDATE counter SET n = before + 1;
		END IF;
		RETURN (SELECT NOT stop FROM part);
	END $$;
});

my %cluster;
my $connstr = $referee->connstr('postgres') =~ s/'/''/gr;
for my $name ('a', 'b')
{
	my $node = zk_cluster($name, $zk,
		'zklock.session_timeout' => '60s',
		'log_statement' => 'none',
		'deadlock_timeout' => '1h');

	$node->safe_psql('postgres', qq{
		CREATE EXTENSION dblink;
		CREATE TABLE section (part int, client text);
		CREATE PROCEDURE work(part int, client text, mode text, take text)
		LANGUAGE plpgsql AS \$\$
		DECLARE
			again bool := true;
		BEGIN
			PERFORM dblink_connect('referee', '$connstr');
			WHILE again LOOP
				EXECUTE take;
				SELECT t.again INTO again FROM dblink('referee',
					format('SELECT section(%L, %L)', client, mode)) AS t(again bool);
				INSERT INTO section VALUES (part, client);
				COMMIT;
			END LOOP;
			PERFORM dblink_disconnect('referee');
		END \$\$;
	});
	$cluster{$name} = $node;
}

my %client = map { $_ => Foreign->$_($zk) } qw(curator kazoo);
my @psql = (
	$referee->installed_command('psql'),
	'-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $referee->connstr('postgres'));

sub set_quantum
{
	my ($quantum) = @_;

	alter_system($_, 'zklock.handoff_quantum' => $quantum) for values %cluster;
	return;
}

# Run a part until there have been so many sections.  %part: name; lock; hold, how
# long a section takes, in seconds; permits, for a semaphore; gate, the kind of contender that
# keeps everybody from the lock until all are there; groups, hashes of:
#   client     curator, kazoo, a or b
#   mode       as for section()
#   number     of threads or backends
#   kind, options of a foreign client's lock
#   take       how a backend takes it
# Returns how many sections each client has had, as it has counted them itself.
my $parts = 0;

sub run_part
{
	my ($enough, %part) = @_;
	my $name = $part{name};
	my $id = ++$parts;
	my $dir = lock_dir($part{lock}) . ($part{permits} ? '/locks' : '');
	my $gate = $observer->lock($dir, $part{gate});
	my $contenders = 1;
	my (@loads, @sessions, %sections, %waiting);

	$referee->safe_psql('postgres', 'TRUNCATE part; INSERT INTO part VALUES'
		  . " ($id, $part{hold}, " . ($part{permits} // 0) . ', false)');
	for my $group (@{ $part{groups} })
	{
		my ($client, $mode, $number) = @$group{qw(client mode number)};

		$sections{"$client $mode $_"} = 0 for (1 .. $number);
		if ($cluster{$client})
		{
			$contenders++ unless $waiting{$client};
			$waiting{$client} += $number;
			for my $i (1 .. $number)
			{
				push @sessions, ZkSession->new($cluster{$client});
				$sessions[-1]->send("CALL work($id, '$client $mode $i', '$mode',"
					  . " \$\$SELECT $group->{take}\$\$)");
			}
		}
		else
		{
			my $load = $client{$client}->load($group->{kind},
				lock_dir($part{lock}), %{ $group->{options} // {} },
				threads => $number,
				psql => \@psql,
				query => "SELECT section('$client $mode %d', '$mode')");

			$contenders += $number;
			push @loads, [ $load, "$client $mode" ];
			$load->begin('run');
		}
	}

	# all at once
	poll_until(sub { $observer->contenders($dir) >= $contenders },
		"$contenders contenders");
	for my $client (keys %waiting)
	{
		$cluster{$client}->poll_query_until('postgres',
			"SELECT count(*) = $waiting{$client} FROM zk_locks WHERE NOT granted");
	}
	$observer->unlock($gate);
	my $watcher = ZkWire->new($referee);
	poll_until(
		sub { $watcher->run("SELECT count(*) FROM section WHERE part = $id")->{out} >= $enough },
		"$enough sections");
	$watcher->run('UPDATE part SET stop = true');
	$watcher->vanish;

	for my $load (@loads)
	{
		my ($run, $who) = @$load;
		my $i = 0;

		$sections{ "$who " . ++$i } = $_ for @{ $run->end };
	}
	for my $session (@sessions)
	{
		is($session->result->{message}, undef, "$name: a backend ends well");
		$session->quit;
	}
	for my $client (keys %waiting)
	{
		my $rows = $cluster{$client}->safe_psql('postgres',
			"SELECT client, count(*) FROM section WHERE part = $id GROUP BY 1");

		$sections{$1} = $2 while $rows =~ /^(.*)\|(\d+)$/mg;
	}
	check_part($name, $id, \%sections);
	return \%sections;
}

# What the referee has seen, and what is left.
sub check_part
{
	my ($name, $id, $sections) = @_;
	my $query = sub { return $referee->safe_psql('postgres', $_[0]); };
	my $rows = $query->(
		"SELECT client, count(*) FROM section WHERE part = $id GROUP BY 1");
	my %seen = map { $_ => 0 } keys %$sections;

	is($query->("SELECT count(*) FROM section WHERE part = $id AND overlap"),
		0, "$name: no two sections overlap");
	is($query->('SELECT n FROM counter'),
		$query->("SELECT count(*) FROM section WHERE mode = 'exclusive'"),
		"$name: no change of the counter is lost");
	$seen{$1} = $2 while $rows =~ /^(.*)\|(\d+)$/mg;
	is_deeply(\%seen, $sections, "$name: each section was one of a holder");
	is(scalar(grep { $_ == 0 } values %seen), 0, "$name: everybody has had some");

	my %group;
	push @{ $group{ s/ \d+$//r } }, $seen{$_} for sort keys %seen;
	note "$name: $_: " . join(' ', @{ $group{$_} }) for sort keys %group;

	# "dump" lists the ephemeral nodes of all sessions, with those that stay
	my @left;
	poll_until(
		sub {
			@left = ($zk->fourlw('dump') =~ m{^\s+(/zklock/(?!%clusters/).*)$}mg);
			return !@left;
		},
		"no node to be left: @left");
	for my $cluster (sort keys %cluster)
	{
		is($cluster{$cluster}->safe_psql('postgres', 'SELECT count(*) FROM zk_locks'),
			0, "$name: no lock is left in instance $cluster");
	}
	return;
}

sub sum
{
	my $sum = 0;
	$sum += $_ for @_;
	return $sum;
}

# Has each of them at least half of its share of all these sections?
sub is_fair
{
	my ($name, $all, $shares, %sections) = @_;
	my $half = int($all / $shares / 2);
	my @starved = grep { $sections{$_} < $half } sort keys %sections;

	is_deeply([ map { "$_ had $sections{$_} of $all" } @starved ],
		[], "$name has half of its share at least: $half");
	return;
}

# The groups on one exclusive lock
my @exclusive = (
	{ client => 'curator', kind => 'InterProcessMutex' },
	{ client => 'kazoo', kind => 'CommonLock' },
	{ client => 'a', take => q{zk_lock('load')} },
	{ client => 'b', take => q{zk_lock('load')} });
@$_{qw(mode number)} = ('exclusive', $each) for @exclusive;

{
	set_quantum('0');
	my %sections = %{
		run_part(
			soak(4, 12) * $each * (2 * $each + 2),
			name => 'no quantum',
			lock => 'load',
			hold => 0.002,
			groups => \@exclusive)
	};
	my $all = sum(values %sections);
	my %contender = map { $_ => $sections{$_} } grep { !/^[ab] / } keys %sections;

	for my $cluster ('a', 'b')
	{
		my %backend = map { $_ => $sections{$_} } grep { /^$cluster / } keys %sections;

		$contender{$cluster} = sum(values %backend);
		is_fair("no quantum: each backend in $cluster",
			$contender{$cluster}, $each, %backend);
	}
	is_fair('no quantum: each contender', $all, 2 * $each + 2, %contender);
}

{
	set_quantum('200ms');
	my %sections = %{
		run_part(
			soak(8, 24) * 4 * $each,
			name => 'quantum',
			lock => 'load',
			hold => 0.005,
			groups => \@exclusive)
	};
	is_fair('quantum: each client', sum(values %sections), 4 * $each, %sections);
}

# Readers and writers of all kinds: Curator's InterProcessReadWriteLock, and
# what zklock.node_format = 'readwrite' makes of ours
{
	for my $node (values %cluster)
	{
		$node->safe_psql('postgres',
			"ALTER DATABASE postgres SET zklock.node_format = 'readwrite'");
	}
	set_quantum('10ms');
	run_part(
		soak(8, 30) * 4 * $each,
		name => 'readers and writers',
		lock => 'rw',
		hold => 0.005,
		gate => '-__WRIT__',
		groups => [
			map({
				{
					client => 'curator',
					kind => $_ eq 'shared' ? 'ReadLock' : 'WriteLock',
					mode => $_,
					number => $each / 2
				},
				{
					client => 'kazoo',
					kind => $_ eq 'shared' ? 'CommonReadLock' : 'CommonWriteLock',
					mode => $_,
					number => $each / 2
				},
				{
					client => 'a',
					take => "zk_lock('rw', shared => '$_' = 'shared')",
					mode => $_,
					number => $each / 2
				},
				{
					client => 'b',
					take => "zk_lock('rw', shared => '$_' = 'shared')",
					mode => $_,
					number => $each / 2
				}
			} ('shared', 'exclusive'))
		]);
	cmp_ok(
		$referee->safe_psql('postgres',
			"SELECT max(together) FROM section WHERE mode = 'shared'"),
		'>', 1, 'readers hold it together');
}

# Curator's InterProcessSemaphoreV2 and ours
{
	my $permits = 3;

	run_part(
		soak(12, 60) * 3 * $each,
		name => 'semaphore',
		lock => 'semaphore',
		hold => 0.005,
		permits => $permits,
		groups => [
			{
				client => 'curator',
				kind => 'InterProcessSemaphoreV2',
				options => { permits => $permits },
				mode => 'permit',
				number => $each
			},
			map({
				{
					client => $_,
					take => "zk_acquire('semaphore', $permits)",
					mode => 'permit',
					number => $each
				}
			} ('a', 'b'))
		]);
	is( $referee->safe_psql('postgres',
			"SELECT max(together) FROM section WHERE mode = 'permit'"),
		$permits, 'all permits are used at once');
}

done_testing();
