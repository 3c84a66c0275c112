
=pod

=head1 NAME

Chaos - instances, an ensemble, clients, and faults

=head1 SYNOPSIS

  my $chaos = Chaos->new(seed => 42);
  $chaos->start;
  my $history = $chaos->run(duration => 60, faults => [ Chaos::fault_kinds() ]);
  $chaos->stop($history);
  my $verdict = Checker::check($history);

=head1 DESCRIPTION

Three instances with zklock, an ensemble that they reach through proxies, and a
fourth instance, the warehouse, which suffers no faults.  What a section does is
told by what the name of its lock begins with:

=over

=item w

The section reads the highest number in the warehouse, through postgres_fdw,
and writes the next one.  Nothing but the lock keeps two apart: there are only
inserts, so no row is locked.

=item f

The same, fenced: first it writes its fencing token over an older one in the
warehouse, and fails if there is a newer one.

=item l

A counter in the instance itself, fenced by zk_fence.

=item s

A semaphore: the section only notes in the warehouse that it was there.

=item d

A lock that is taken beside one or more of these, ahead of it or behind it, and
guards nothing: with them there are deadlocks.

=back

And how it is used:

=over

=item wh

Many names, each used so seldom that its directory is collected in between; some
calls take dozens of them at once.

=item wm

Taken behind savepoints, too.

=item wc, fc, lc

Claimed, too: for a time of several transactions.

=item fx

Curator's InterProcessMutex and kazoo's locks stand in the queue as well
(Foreigners.pm); nobody reads.

=item fr

Curator's InterProcessReadWriteLock and kazoo's, and all of ours use
zklock.node_format = readwrite.  Other locks use either format, but fx.

=back

Some sections have a slow COMMIT: in the warehouse a deferred trigger sleeps.

Three sequences of faults run side by side: one for the servers of ZooKeeper, in
this process, one for the network between them and the instances, and one for the
instances, in processes of their own.  All follow from the seed alone; whom a
fault strikes may depend on who is the leader or the holder then.

Again and again all three rest together, so long that whoever waits for a free
lock must get it: see Checker.pm.

=cut

package Chaos;

use strict;
use warnings;

use Clients;
use Dice;
use Foreigners;
use IO::Handle;
use JSON::PP;
use List::Util qw(max min);
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(clock_gettime sleep CLOCK_MONOTONIC);
use ZkCluster;
use ZkProxy;
use ZkWire;
use ZooKeeper;

my $json = JSON::PP->new->canonical->allow_nonref;
my @all;

# Durations are in units of the session timeout: short ones are survived by a
# session, long ones are not.
my @short = (0.1, 0.6);
my @long = (1.2, 2);

# lane; weight; how long it lasts; what Checker.pm wants to know of it
my %faults = (
	'kill-leader' => { lane => 'servers', weight => 3, lasts => [ 0.1, 1 ] },
	'kill-follower' => { lane => 'servers', weight => 3, lasts => [ 0.1, 1 ] },
	'lose-quorum' => { lane => 'servers', weight => 2, lasts => [ 0.1, 1.5 ] },
	'restart-zookeeper' => { lane => 'servers', weight => 1, lasts => [ 0, 0 ] },
	'pause-server-short' => { lane => 'servers', weight => 2, lasts => \@short },
	'pause-server-long' => { lane => 'servers', weight => 3, lasts => \@long },
	'cut-follower' => { lane => 'servers', weight => 4, lasts => [ 0.5, 2 ] },
	'freeze-links-short' => { lane => 'links', weight => 3, lasts => \@short },
	'freeze-links-long' => { lane => 'links', weight => 4, lasts => \@long },
	'freeze-one-link' => { lane => 'links', weight => 3, lasts => [ 0.2, 2 ] },
	'reset-links' => { lane => 'links', weight => 7, lasts => [ 0.1, 1 ] },
	'slow-links' => { lane => 'links', weight => 2, lasts => [ 0.3, 1 ] },
	'terminate-worker' => { lane => 'instances', weight => 3, lasts => [ 0, 0 ] },
	'kill-worker' => { lane => 'instances', weight => 2, lasts => [ 0, 0 ], ends => 1, crash => 1 },
	'kill-backend' => { lane => 'instances', weight => 2, lasts => [ 0, 0 ], ends => 1, crash => 1 },
	'restart-fast' => { lane => 'instances', weight => 2, lasts => [ 0, 0 ], ends => 1 },
	'restart-immediate' =>
	  { lane => 'instances', weight => 2, lasts => [ 0, 0 ], ends => 1, crash => 1 },
	'restart-smart' => { lane => 'instances', weight => 1, lasts => [ 0, 0 ], ends => 1 },
	'stop-backend' => { lane => 'instances', weight => 3, lasts => \@long, stops => 1 },
	'stop-worker' => { lane => 'instances', weight => 3, lasts => \@long },
	'stop-instance' => { lane => 'instances', weight => 4, lasts => \@long, stops => 1 },
	'kill-session' => { lane => 'instances', weight => 4, lasts => [ 0, 0 ] },
	'reload' => { lane => 'instances', weight => 2, lasts => [ 0, 0 ] },
	'change-auth' => { lane => 'instances', weight => 2, lasts => \@short },
	'cancel-backends' => { lane => 'instances', weight => 6, lasts => [ 0.1, 0.4 ], harmless => 1 },
	'collect-directories' =>
	  { lane => 'instances', weight => 5, lasts => [ 0.1, 0.4 ], harmless => 1 },
	'other-library' => { lane => 'instances', weight => 3, lasts => [ 0, 0 ], ends => 1, other => 1 },
);

sub fault_kinds { return grep { !$faults{$_}{other} } sort keys %faults; }

my %permits = (s1 => 3, s2 => 2);

# Who else stands in the queues, and how.
my %foreign = (
	kazoo => {
		fx1 => ['CommonLock'], fx2 => ['CommonLock'],
		fr1 => [ 'CommonWriteLock', 'shared CommonReadLock' ]
	},
	curator => {
		fx1 => ['InterProcessMutex'], fx2 => ['InterProcessMutex'],
		fr1 => [ 'WriteLock', 'shared ReadLock' ],
		s1 => ['InterProcessSemaphoreV2']
	});

# How an instance hands its locks on and keeps them: nothing of that may matter.
sub handoff_settings
{
	my ($dice) = @_;

	return (
		'zklock.retain_time' => $dice->one_of('-1', '-1', '0', '50ms', '10s'),
		'zklock.handoff_quantum' => $dice->one_of('0', '10ms', '10ms', '100ms'));
}

=pod

=head1 FUNCTIONS

=over

=item fault_kinds()

All but "other-library".

=item showing($mutation)

Options for C<run> with which this mutation does its harm soon.

=back

=cut

sub showing
{
	my ($mutation) = @_;
	my $locks = { map { ("w$_" => 1) } (1 .. 16) };
	my $claimed = { map { ("wc$_" => 1) } (1 .. 12) };
	my $seldom = { map { ("w$_" => 1) } (1 .. 40) };
	my %how = (
		none => {},
		# holders that are idle for long, and are cut off
		commit_check_off => {
			locks => $locks, quiet => 0, faults => ['freeze-links-long'], gap => [ 0.1, 0.3 ], long => 0.3
		},
		# slow commits
		release_before_commit => { locks => $locks, quiet => 0, faults => [], slow => 0.5 },
		# a run like any other
		lost_wakeup => {},
		# locks that all instances want all the time
		requeued_owns => { locks => $locks, quiet => 0, faults => [] },
		# connections that are lost between a request and its answer
		recovered_create_owns => {
			locks => $locks, quiet => 0, faults => ['reset-links'], gap => [ 0.02, 0.05 ],
			long => 0.5, long_lasts => [ 0.1, 0.4 ]
		},
		# nothing but two instances that want the same locks
		gap_owns => { locks => $locks, quiet => 0, faults => [] },
		# readers of all instances, and writers among them, whom no number tells of
		reader_precedes => {
			locks => $locks, quiet => 0, faults => [], shared => 0.6, medium => 0.7, duration => 30
		},
		# claims that end while transactions use them, and those who want their locks
		claim_users_forgotten => {
			locks => { map { ("wc$_" => 1) } (1 .. 6) }, quiet => 0, faults => [], claims => 0.5,
			long => 0.9, long_lasts => [ 0.4, 1 ]
		},
		# claims that are used late
		claim_ends_late => {
			locks => $claimed, quiet => 0, faults => [], claims => 0.5, duration => 20
		},
		# directories that begin anew while a number of the old one is remembered
		collected_owns => {
			locks => $seldom, quiet => 0, faults => ['collect-directories'], gap => [ 0.02, 0.05 ]
		},
		reconnected_owns => {
			locks => $seldom, quiet => 0, faults => [ 'collect-directories', 'reset-links' ],
			gap => [ 0.02, 0.05 ]
		});

	# what is to be seen is in these locks, and others would only wait beside them
	my $how = $how{$mutation} // die "no such mutation: $mutation\n";
	return (($how->{locks} ? (beside => 0, besides => 0) : ()), %$how);
}

sub now { return clock_gettime(CLOCK_MONOTONIC); }

=pod

=head1 METHODS

=over

=item Chaos->new(%options)

seed; instances (names, default a, b, c), servers (of ZooKeeper, default 3),
clients (of each instance, default 12), timeout (of the session, in seconds,
default 4), acl (zklock.acl), install_path (of the test build), other_path (of a
test build of another version), say (called with lines for people).

The fault "other-library", which needs other_path, restarts one instance after the
other, in their order, with the library of other_path, then one after the other
with that of install_path, and so on.

=item start()

Start all the servers.

=cut

sub new
{
	my ($class, %options) = @_;
	my $self = bless {
		seed => 1, instances => [qw(a b c)], servers => 3, clients => 12, timeout => 4, acl => 'open',
		say => sub { }, runs => 0, owner => $$, %options
	}, $class;

	$self->{dir} = "$PostgreSQL::Test::Utils::tmp_check/chaos";
	mkdir $self->{dir};
	push @all, $self;
	return $self;
}

sub start
{
	my ($self) = @_;

	opendir(my $dh, '/dev/shm') or die "could not open /dev/shm: $!";
	$self->{shm_before} = { map { ($_ => 1) } readdir $dh };
	closedir $dh;

	# each for one process
	$self->{links} = ZkProxy->new;
	my $zk = $self->{zk} = ZooKeeper->new(servers => $self->{servers},
		$self->{servers} > 1 ? (proxy => ZkProxy->new) : ());
	$zk->start;
	$self->_start_warehouse;
	for my $name (@{ $self->{instances} })
	{
		my $node = $self->{node}{$name} = zk_cluster(
			$name, $zk,
			install_path => $self->{install_path},
			'zklock.servers' => $zk->connstr_through($self->{links}, $name),
			'zklock.session_timeout' => int(1000 * $self->{timeout}) . 'ms',
			handoff_settings(Dice->new($self->{seed}, 'handoffs', $name)),
			# or a lost wake-up would go unnoticed
			'zklock.look_again' => 'off',
			'zklock.auth' => 'chaos:secret', 'zklock.acl' => $self->{acl},
			'max_connections' => $self->{clients} + 20,
			'deadlock_timeout' => '100ms',
			'log_statement' => 'none');
		$self->_prepare($node);
		$self->_note_shared_memory($node);
	}
	my ($any) = values %{ $self->{node} };
	my $settings = $any->safe_psql('postgres',
		"SELECT name FROM pg_settings WHERE name LIKE 'zklock.%'");
	$self->{has} = { map { ($_ => 1) } split /\n/, $settings };
	return;
}

sub _start_warehouse
{
	my ($self) = @_;
	my $node = $self->{warehouse} = PostgreSQL::Test::Cluster->new('warehouse');

	$node->init;
	$node->append_conf('postgresql.conf', join("\n",
		'log_statement = none',
		'max_connections = ' . (20 + @{ $self->{instances} } * ($self->{clients} + 20))));
	$node->start;
	# An index makes the highest number cheap to find; it is not unique.
	$node->safe_psql('postgres', q{
		CREATE TABLE section (
			lock text, n bigint, id text, token bigint, slow integer);
		CREATE INDEX ON section (lock, n);
		CREATE TABLE fence (lock text PRIMARY KEY, token bigint);
		CREATE FUNCTION commit_slowly() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM pg_sleep(NEW.slow / 1000.0);
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER commit_slowly AFTER INSERT ON section
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.slow > 0)
			EXECUTE FUNCTION commit_slowly();
	});
	return;
}

sub _prepare
{
	my ($self, $node) = @_;
	my ($host, $port) = ($self->{warehouse}->host, $self->{warehouse}->port);

	$node->safe_psql('postgres', qq{
		CREATE EXTENSION postgres_fdw;
		CREATE SERVER warehouse FOREIGN DATA WRAPPER postgres_fdw
			OPTIONS (host '$host', port '$port', dbname 'postgres');
		CREATE USER MAPPING FOR CURRENT_USER SERVER warehouse;
		CREATE SCHEMA warehouse;
		IMPORT FOREIGN SCHEMA public LIMIT TO (section, fence)
			FROM SERVER warehouse INTO warehouse;
	} . q{
		CREATE TABLE section (lock text, n bigint, id text, token bigint);
		CREATE TABLE counter (lock text PRIMARY KEY, n bigint);

		-- the number of the last section
		CREATE FUNCTION chaos_number(what text) RETURNS bigint LANGUAGE plpgsql AS $$
		DECLARE
			last bigint;
		BEGIN
			IF what LIKE 'l%' THEN
				SELECT c.n INTO last FROM counter c WHERE c.lock = what;
			ELSE
				SELECT max(s.n) INTO last FROM warehouse.section s WHERE s.lock = what;
			END IF;
			RETURN coalesce(last, 0);
		END $$;

		CREATE FUNCTION chaos_peek(what text) RETURNS text LANGUAGE sql AS
			'SELECT chaos_number(what) || '':''';

		CREATE FUNCTION chaos_look(what text, with_token boolean)
		RETURNS text LANGUAGE plpgsql AS $$
		DECLARE
			mine bigint;
		BEGIN
			IF what LIKE 'l%' THEN
				mine := zk_fence(what);
			ELSIF what LIKE 'f%' THEN
				mine := zk_fencing_token(what);
				UPDATE warehouse.fence f SET token = mine
				 WHERE f.lock = what AND f.token <= mine;
				IF NOT FOUND THEN
					RAISE EXCEPTION 'there has been a later holder'
						USING ERRCODE = 'serialization_failure';
				END IF;
			ELSIF with_token THEN
				mine := zk_fencing_token(what);
			END IF;
			RETURN chaos_number(what) || ':' || coalesce(mine::text, '');
		END $$;

		CREATE FUNCTION chaos_write(what text, seen bigint, id text, token bigint, slow integer)
		RETURNS void LANGUAGE plpgsql AS $$
		BEGIN
			IF what LIKE 'l%' THEN
				UPDATE counter c SET n = seen + 1 WHERE c.lock = what;
			ELSE
				INSERT INTO warehouse.section VALUES (what, seen + 1, id, token, slow);
			END IF;
			INSERT INTO section VALUES (what, seen + 1, id, token);
		END $$;

		CREATE FUNCTION chaos_section(what text, id text, with_token boolean, slow integer)
		RETURNS text LANGUAGE plpgsql AS $$
		DECLARE
			seen text := chaos_look(what, with_token);
		BEGIN
			PERFORM chaos_write(what, split_part(seen, ':', 1)::bigint, id,
				nullif(split_part(seen, ':', 2), '')::bigint, slow);
			RETURN seen;
		END $$;
	});
	return;
}

=pod

=item run(%options)

Let the clients work while faults happen, then wait until all have their
answers; returns the history as Checker.pm wants it, and C<{samples}>: lines of
the workers' memory and of ZooKeeper's znodes over time, and C<{left}>: what is
left behind.  Options: duration (seconds), transactions (end after so many, if
that is given), faults (kinds), gap (lowest and highest pause between faults, in
seconds), mutation (in test builds), locks (name to weight), long and
medium (the chance that a section takes so long), long_lasts and medium_lasts
(from and to how long, in session timeouts), beside (how many locks there are that are taken
beside others, in any order), besides (the chance of that), slow (the chance that its COMMIT is slow),
shared (the chance that it only reads), claims (the chance of a claim, for locks that are claimed), drain (how long to wait for answers at the end, default 60), quiet (how long all faults pause
together, again and again; seconds, default 4 session timeouts + 6 s; 0: never),
foreign (names of foreign clients, default all, or none unless acl is open), until (ends the run if it
returns true; called again and again).

=cut

sub run
{
	my ($self, %options) = @_;
	my %run = (
		duration => 60, faults => [ fault_kinds() ], gap => [ 0.3, 4 ], mutation => 'none',
		locks => {
			w1 => 2, w2 => 2, (map { ("w$_" => 1) } (3 .. 8)),
			(map { ("wm$_" => 1) } (1 .. 3)), (map { ("wh$_" => 0.02) } (1 .. 200)),
			(map { ($_ => 0.3) } qw(wc1 wc2 fc1 fc2 lc1)),
			f1 => 2, f2 => 1, f3 => 1, fx1 => 1, fx2 => 1, fr1 => 2, l1 => 2, l2 => 1,
			s1 => 2, s2 => 1
		},
		foreign => $self->{acl} eq 'open' ? [ sort keys %foreign ] : [], quiet => 4 * $self->{timeout} + 6,
		long => 0.004, long_lasts => [ 0.3, 1.5 ],
		beside => 6, besides => 0.25, medium => 0.35, medium_lasts => [ 0.02, 0.15 ], slow => 0.2, shared => 0.15,
		claims => 0.4, drain => 60, until => sub { 0 }, %options);
	my $file = sprintf('%s/run%d', $self->{dir}, ++$self->{runs});

	# no two runs have a lock in common
	$run{locks} = { map { ("$_.$self->{runs}" => $run{locks}{$_}) } keys %{ $run{locks} } };
	my %permits = map { ("$_.$self->{runs}" => $permits{$_}) } keys %permits;
	$run{file} = $file;
	$self->{run} = \%run;
	$self->_empty;
	$self->_mutate($run{mutation});
	@$self{qw(faults samples)} = ([], []);

	my %files;
	for my $name (@{ $self->{instances} })
	{
		$files{$name} = "$file-$name.history";
		$self->{at_work}{$name} = Clients->start(
			name => $name, node => $self->{node}{$name}, seed => $self->{seed},
			clients => $self->{clients}, locks => $run{locks}, history => $files{$name},
			permits => \%permits,
			beside => [ map { "d$_.$self->{runs}" } (1 .. $run{beside}) ],
			(map { ($_ => $run{$_}) } qw(long medium slow shared besides)),
			claims => $self->{has}{'zklock.max_claims'} ? $run{claims} : 0,
			(map { my $list = $run{$_}; ($_ => [ map { $_ * $self->{timeout} } @$list ]) }
				qw(long_lasts medium_lasts)),
			pause_lasts => [ map { $_ * $self->{timeout} } @long ],
			checks => $self->{has}{'zklock.commit_check'},
			pauses => $self->{has}{'zklock.stop_before_commit'});
	}
	for my $name (@{ $run{foreign} })
	{
		my %locks = map { ("$_.$self->{runs}" => $foreign{$name}{$_}) }
		  grep { $run{locks}{"$_.$self->{runs}"} } keys %{ $foreign{$name} };

		next unless %locks;
		$files{$name} = "$file-$name.history";
		$self->{at_work}{$name} = Foreigners->start(
			name => $name, zk => $self->{zk}, warehouse => $self->{warehouse},
			seed => $self->{seed}, timeout => $self->{timeout}, locks => \%locks,
			permits => \%permits, history => $files{$name});
	}
	my $stalls = $self->_watch_machine("$file-stalls.faults");
	$run{start} = now();
	$run{lanes} = [ grep { $self->_schedule($_) } qw(servers instances links) ];
	$run{quiet_file} = "$file-quiet";
	# half a stretch of faults first, so that short runs have some quiet, too
	$run{faults_last} = 1.75 * $run{quiet};
	$run{next_quiet} = $run{start} + $run{faults_last} / 2;
	my @lanes = map { $self->_start_lane($_, "$file-$_.faults") } qw(instances links);
	$self->_server_faults;
	$self->_end_lane($_) for @lanes;
	$run{faults_end} = now();

	my @left = $self->_drain;
	kill 'KILL', $stalls;
	waitpid($stalls, 0);
	my $history = {
		start => $run{start}, end => now(), faults_end => $run{faults_end},
		timeout => $self->{timeout}, permits => \%permits,
		faults => [
			sort { $a->{begin} <=> $b->{begin} } @{ $self->{faults} },
			map { _read_lines("$file-$_.faults") } qw(instances links stalls)
		],
		samples => $self->{samples},
		instances => $self->{instances},
	};
	my %list = (hold => 'holds', section => 'sections', act => 'acts', late => 'late');
	for my $record (map { _read_lines($_) } sort values %files)
	{
		push @{ $history->{ $list{ delete $record->{t} } } }, $record;
	}
	$self->_mutate('none');
	$self->_collect($history);
	$history->{diverged} = $self->_diverged;
	$history->{left} = [ @left, $self->_left ];
	delete $self->{at_work};
	return $history;
}

sub _read_lines
{
	my ($file) = @_;
	return map { $json->decode($_) } split /\n/, -e $file ? slurp_file($file) : '';
}

sub _empty
{
	my ($self) = @_;
	my @locks = sort keys %{ $self->{run}{locks} };
	my $list = join(', ', map { "('$_', 0)" } @locks);

	$self->{warehouse}->safe_psql('postgres',
		"TRUNCATE section, fence; INSERT INTO fence VALUES $list");
	$_->safe_psql('postgres', "TRUNCATE section, counter; INSERT INTO counter VALUES $list")
	  for values %{ $self->{node} };
	return;
}

sub _mutate
{
	my ($self, $mutation) = @_;

	return if ($self->{mutation} // 'none') eq $mutation;
	die "this build has no mutations\n" unless $self->{has}{'zklock.mutation'};
	for my $node (values %{ $self->{node} })
	{
		$node->append_conf('postgresql.conf', "zklock.mutation = $mutation");
		$node->reload;
		$node->poll_query_until('postgres',
			"SELECT current_setting('zklock.mutation') = '$mutation'");
	}
	$self->{mutation} = $mutation;
	return;
}

=pod

=item has_same_numbers()

Are there two sections in the warehouse that have overlapped?

=cut

sub has_same_numbers
{
	my ($self) = @_;
	my $wire = $self->{look} //= ZkWire->new($self->{warehouse});

	return $wire->run(q{SELECT EXISTS (
		SELECT FROM section WHERE lock !~ '^s' GROUP BY lock, n HAVING count(*) > 1)})->{out} eq 't';
}

=pod

=item instance_faults()

Those that the instances have had so far in this run, as in the history.

=cut

sub instance_faults { return _read_lines("$_[0]{run}{file}-instances.faults"); }

#
# While it runs
#

# Let time pass; false once the run is over.
sub _pass
{
	my ($self, $seconds) = @_;
	my $end = now() + $seconds;
	my $run = $self->{run};

	while (1)
	{
		$_->poll for values %{ $self->{at_work} };
		$self->_sample if now() >= ($self->{next_sample} // 0);
		$run->{over} = 1
		  if now() >= $run->{start} + $run->{duration}
		  || ($run->{transactions} && $self->_sections >= $run->{transactions})
		  || $run->{until}->($self);
		return 0 if $run->{over};
		my $left = $end - now();
		return 1 if $left <= 0;
		sleep min($left, 0.1);
	}
}

sub _sections
{
	my ($self) = @_;
	my $total = 0;

	$total += $_->{sections} for values %{ $self->{at_work} };
	return $total;
}

# The memory of the workers.
sub _sample
{
	my ($self) = @_;
	my $processes = _processes();
	my %sample = (at => now(), sections => $self->_sections);

	$self->{next_sample} = now() + 2;
	for my $name (@{ $self->{instances} })
	{
		my $worker = $self->_worker($name, $processes) or next;
		my ($rss) = (_slurp("/proc/$worker->{pid}/status") // '') =~ /^RssAnon:\s+(\d+)/m
		  or next;
		$sample{rss}{$name} = [ $worker->{pid}, 0 + $rss ];
	}
	push @{ $self->{samples} }, \%sample;
	if (now() >= ($self->{next_word} // 0))
	{
		$self->{say}->(sprintf('%4d s: %d sections, %d faults on servers',
			now() - $self->{run}{start}, $sample{sections}, scalar @{ $self->{faults} }));
		$self->{next_word} = now() + 30;
	}
	return;
}

# What may be gone a moment later.
sub _slurp
{
	my ($file) = @_;
	open(my $f, '<', $file) or return;
	local $/;
	return scalar <$f>;
}

# All processes: pid to parent and title.
sub _processes
{
	my %found;

	for my $dir (glob '/proc/[0-9]*')
	{
		my $stat = _slurp("$dir/stat") // next;
		my ($pid, $ppid) = $stat =~ /^(\d+) \(.*\) \S (\d+)/s or next;
		$found{$pid} = { pid => $pid, ppid => $ppid };
	}
	return \%found;
}

sub _postmaster
{
	my ($self, $name) = @_;
	my ($pid) = (_slurp($self->{node}{$name}->data_dir . '/postmaster.pid') // '') =~ /^(\d+)/;
	return $pid;
}

# The children of the postmaster whose titles match.
sub _children
{
	my ($self, $name, $title, $processes) = @_;
	my $postmaster = $self->_postmaster($name) // return;

	$processes //= _processes();
	return grep {
		$_->{ppid} == $postmaster
		  && ($_->{title} = (_slurp("/proc/$_->{pid}/cmdline") // '') =~ s/\0/ /gr) =~ $title
	} sort { $a->{pid} <=> $b->{pid} } values %$processes;
}

sub _worker
{
	my ($self, $name, $processes) = @_;
	my ($worker) = $self->_children($name, qr/zklock worker/, $processes);
	return $worker;
}

#
# Faults
#

# The faults of a lane, one after the other, as the seed says: each is a hash of
# kind, gap (before it), lasts, instance, and dice (for what is to be chosen on
# the spot).
sub _schedule
{
	my ($self, $lane) = @_;
	my $run = $self->{run};
	my %weight = map { ($_ => $faults{$_}{weight}) }
	  grep { $faults{$_}{lane} eq $lane } @{ $run->{faults} };
	my $i = 0;

	return unless %weight;
	return sub {
		my $dice = Dice->new($self->{seed}, $lane, ++$i);
		my $gap = $dice->between(@{ $run->{gap} });
		my $kind = $dice->weighted(%weight);

		return {
			kind => $kind, gap => $gap, dice => $dice,
			lasts => $self->{timeout} * $dice->between(@{ $faults{$kind}{lasts} }),
			instance => $dice->one_of(@{ $self->{instances} })
		};
	};
}

# A fault for the history.
sub _happened
{
	my ($self, $fault, $begin, $what, %more) = @_;
	my $kind = $faults{ $fault->{kind} };
	my %record = (
		kind => $fault->{kind}, begin => $begin, end => now(), what => $what,
		(map { ($_ => 1) } grep { $kind->{$_} } qw(ends crash stops harmless)),
		($kind->{lane} ne 'servers' ? (instances => [ $fault->{instance} ]) : ()),
		%more);
	return \%record;
}

sub _server_faults
{
	my ($self) = @_;
	my $next = $self->_schedule('servers');
	my $settled = 0;

	if (!$next)
	{
		1 while $self->_pass(1);
		return;
	}
	while (1)
	{
		my $fault = $next->();

		# ZooKeeper 3.8.0 loses transactions for good if a server ends while it
		# has caught up, but not yet written what it has got (ZOOKEEPER-4785).
		$self->_pass(max($fault->{gap}, $settled - now())) or last;
		$self->_quiet('servers', sub { $self->_pass($_[0]) }) or last;
		my $begun = $self->_begin_server_fault($fault);
		$self->_pass($fault->{lasts});
		$begun->{undo}->();
		$settled = now() + 1.5;
		push @{ $self->{faults} }, $self->_happened($fault, $begun->{begin}, $begun->{what});
	}
	return;
}

# When it is time for that, rest together with the other lanes, from when the
# last of them has come to rest.  $rest lets time pass, and returns false if all
# is over; so do we.
sub _quiet
{
	my ($self, $lane, $rest) = @_;
	my $run = $self->{run};

	while ($run->{quiet} && now() >= $run->{next_quiet})
	{
		my $file = $run->{quiet_file} . ++$self->{quiets};

		append_to_file("$file-$lane", now() . "\n");
		my @since;
		until ((@since = map { _slurp("$file-$_") || () } @{ $run->{lanes} }) == @{ $run->{lanes} })
		{
			$rest->(0.1) or return 0;
		}
		my $end = max(@since) + $run->{quiet};
		$rest->($end - now()) or return 0;
		$run->{next_quiet} = $end + $run->{faults_last};
	}
	return 1;
}

# What the machine does to all of us: a process that only sleeps, and notes when
# it was late.
sub _watch_machine
{
	my ($self, $file) = @_;
	my ($nap, $late) = (0.05, 0.3);
	my $parent = $$;

	my $pid = fork // die "could not fork: $!";
	return $pid if $pid != 0;
	$SIG{$_} = 'DEFAULT' for qw(TERM INT HUP);
	open(my $record, '>>', $file) or POSIX::_exit(1);
	while (getppid() == $parent)
	{
		my $begin = now();

		sleep $nap;
		my $end = now();
		next if $end - $begin - $nap < $late;
		my %stall = (kind => 'stall', what => 'the machine', begin => $begin, end => $end);
		syswrite($record, $json->encode(\%stall) . "\n");
	}
	POSIX::_exit(0);
}

# The leader, or any server if there is none just now.
sub _leader
{
	my ($self, $dice) = @_;
	my $any = $dice->below($self->{servers});

	return 0 if $self->{servers} == 1;
	for (1 .. 20)
	{
		my $leader = $self->{zk}->leader;
		return $leader if defined $leader;
		sleep 0.1;
	}
	return $any;
}

# Returns a hash of begin, what (in words), and undo.
sub _begin_server_fault
{
	my ($self, $fault) = @_;
	my ($zk, $kind, $dice) = ($self->{zk}, @$fault{qw(kind dice)});
	my $all = $self->{servers} - 1;
	my $begin = now();
	my %fault;

	if ($kind =~ /^(kill-(leader|follower)|lose-quorum|restart-zookeeper)$/)
	{
		my $leader = $self->_leader($dice);
		my @others = grep { $_ != $leader } (0 .. $all);
		my $other = @others ? $dice->one_of(@others) : $leader;
		my @who =
		    $kind eq 'kill-leader' ? ($leader)
		  : $kind eq 'kill-follower' ? ($other)
		  : $kind eq 'lose-quorum' ? ($leader, $other)
		  : (0 .. $all);
		my %once = map { ($_ => 1) } @who;
		@who = sort keys %once;

		$begin = now();
		if ($dice->chance(0.7)) { $zk->kill9(@who); } else { $zk->stop(@who); }
		%fault = (what => 'server ' . join(', ', @who), undo => sub {
			$zk->start(@who);
			$zk->wait_ready;
		});
	}
	elsif ($kind =~ /^pause-server/)
	{
		my $who = $dice->chance(0.5) ? $self->_leader($dice) : $dice->below($self->{servers});

		$begin = now();
		$zk->pause($who);
		%fault = (what => "server $who", undo => sub {
			$zk->resume($who);
			$zk->wait_ready;
		});
	}
	elsif ($kind eq 'cut-follower')
	{
		my $leader = $self->_leader($dice);
		my ($follower, $other) = grep { $_ != $leader } (0 .. $all);
		($follower, $other) = ($other, $follower) if $dice->chance(0.5);
		my @from = ($leader, $dice->chance(0.4) ? $other : ());

		$begin = now();
		$zk->cut_peers($follower, $_) for @from;
		%fault = (what => "server $follower from " . join(', ', @from), undo => sub {
			$zk->heal_peers;
			$zk->wait_ready;
		});
	}
	else
	{
		die "no such fault: $kind\n";
	}
	return { begin => $begin, %fault };
}

#
# Faults of links and of instances, in a process for each of the two
#

sub _start_lane
{
	my ($self, $lane, $file) = @_;
	my $next = $self->_schedule($lane) or return;

	pipe(my $in, my $to) or die "could not make a pipe: $!";
	my $pid = fork // die "could not fork: $!";
	if ($pid == 0)
	{
		close $to;
		$SIG{$_} = 'DEFAULT' for qw(TERM INT HUP);
		$self->{told} = $in;
		eval { $self->_faults_of_lane($lane, $next, $file); 1 }
		  or print STDERR "faults of $lane: $@";
		POSIX::_exit($@ ? 1 : 0);
	}
	close $in;
	return { name => $lane, pid => $pid, to => $to };
}

sub _end_lane
{
	my ($self, $lane) = @_;

	# not the end of the pipe: processes that were forked later have it, too
	syswrite($lane->{to}, "end\n");
	waitpid($lane->{pid}, 0);
	close $lane->{to};
	die "the faults of $lane->{name} have failed\n" if $? != 0;
	return;
}

# Let time pass; false once we are told to end.
sub _rest
{
	my ($self, $seconds) = @_;
	my $bits = '';

	vec($bits, fileno($self->{told}), 1) = 1;
	return select($bits, undef, undef, $seconds > 0 ? $seconds : 0) == 0;
}

sub _faults_of_lane
{
	my ($self, $lane, $next, $file) = @_;

	open(my $record, '>>', $file) or die "could not open $file: $!";
	while (1)
	{
		my $fault = $next->();

		$self->_rest($fault->{gap}) or last;
		$self->_quiet($lane, sub { $self->_rest($_[0]) }) or last;
		my $begin = now();
		my ($what, %more) =
		  $lane eq 'links' ? $self->_link_fault($fault) : $self->_instance_fault($fault);
		syswrite($record,
			$json->encode($self->_happened($fault, $begin, "instance $fault->{instance}$what", %more))
			  . "\n");
	}
	return;
}

sub _link_fault
{
	my ($self, $fault) = @_;
	my ($kind, $instance, $dice, $lasts) = @$fault{qw(kind instance dice lasts)};
	my $proxy = $self->{links};
	my @links = map { "$instance-$_" } (0 .. $self->{servers} - 1);

	if ($kind =~ /^freeze-/)
	{
		@links = ((grep({ $proxy->connections($_) } @links), @links)[0])
		  if $kind eq 'freeze-one-link';
		$proxy->freeze(@links);
		$self->_rest($lasts);
		$proxy->thaw(@links);
		return @links == 1 ? ", $links[0]" : '';
	}
	if ($kind eq 'slow-links')
	{
		my $ms = 10 + $dice->below(150);

		$proxy->delay($ms, @links);
		$self->_rest($lasts);
		$proxy->delay(0, @links);
		return ", $ms ms";
	}
	if ($kind eq 'reset-links')
	{
		# Again and again, and between requests and their answers: these take
		# long ahead of a reset, and behind it things are found out at once.
		my $ms = 30 + $dice->below(200);
		my $end = now() + $lasts;

		while (now() < $end)
		{
			$proxy->delay($ms, @links);
			$self->_rest(2 * $ms / 1000 + $dice->between(0, 0.3));
			$proxy->reset(@links);
			$proxy->delay(0, @links);
			$self->_rest($dice->between(0.1, 0.4)) or last;
		}
		return ", $ms ms";
	}
	die "no such fault: $kind\n";
}

# Have a connection of our own, once the instance accepts one.
sub _connect
{
	my ($self, $name) = @_;
	my $node = $self->{node}{$name};

	poll_until(
		sub {
			$self->{wire}{$name} = eval { ZkWire->new($node) };
			return $self->{wire}{$name};
		},
		"instance $name to accept connections");
	return;
}

sub _ask
{
	my ($self, $name, $sql) = @_;
	my $result;

	$self->_connect($name) if !$self->{wire}{$name} || $self->{wire}{$name}->gone;
	$result = $self->{wire}{$name}->run($sql);
	die "$sql in $name: $result->{message}\n" if defined $result->{sqlstate};
	return $result->{out} // '';
}

sub _pg_ctl
{
	my ($self, $name, @arguments) = @_;
	my $node = $self->{node}{$name};

	local %ENV = $node->_get_env(PGAPPNAME => undef);
	return system_log($node->installed_command('pg_ctl'), '-w', '-D', $node->data_dir,
		'-l', $node->logfile, @arguments) == 0;
}

sub _stop_for
{
	my ($self, $seconds, @pids) = @_;

	kill 'STOP', @pids;
	$self->_rest($seconds);
	kill 'CONT', @pids;
	return;
}

sub _instance_fault
{
	my ($self, $fault) = @_;
	my ($kind, $name, $dice, $lasts) = @$fault{qw(kind instance dice lasts)};
	my $node = $self->{node}{$name};
	my $worker = $kind =~ /worker/ ? $self->_worker($name) : undef;

	return $self->_other_library($fault) if $kind eq 'other-library';
	$self->_connect($name) unless $self->{wire}{$name};

	return ', no worker' if $kind =~ /worker/ && !$worker;
	if ($kind eq 'terminate-worker')
	{
		kill 'TERM', $worker->{pid};
		poll_until(
			sub {
				my $now = $self->_worker($name);
				return $now && $now->{pid} != $worker->{pid};
			},
			"a new worker in $name");
		return '';
	}
	if ($kind eq 'kill-worker' || $kind eq 'kill-backend')
	{
		my $victim = $worker ? $worker->{pid} : $self->_victim($name, $dice);

		return ', no backend' unless $victim;
		kill 'KILL', $victim;
		my $wire = $self->{wire}{$name};
		$wire->{busy} = 1;
		ZkWire::wait_any(30, $wire);
		die "instance $name does not restart after a crash\n" unless $wire->gone;
		$self->_connect($name);
		$self->_note_shared_memory($node);
		return ", pid $victim";
	}
	if ($kind =~ /^restart-(\w+)/)
	{
		my ($mode, $text) = ($1, '');

		$self->{wire}{$name}->vanish;
		# Smart shutdown waits for the clients to disconnect, and they do
		# once they have their answers.
		$self->{at_work}{$name}->tell('quiesce') if $mode eq 'smart';
		if (!$self->_pg_ctl($name, '-t', $mode eq 'smart' ? 60 : 120, '-m', $mode, 'restart'))
		{
			die "could not restart $name\n" if $mode ne 'smart';
			$text = ', smart did not end in 60 s';
			$self->_pg_ctl($name, '-t', 120, '-m', 'fast', 'restart')
			  or die "could not restart $name\n";
		}
		$self->{at_work}{$name}->tell('resume');
		$self->_connect($name);
		$self->_note_shared_memory($node);
		return $text;
	}
	if ($kind eq 'stop-worker')
	{
		$self->_stop_for($lasts, $worker->{pid});
		return '';
	}
	if ($kind eq 'stop-backend')
	{
		my $victim = $self->_victim($name, $dice) or return ', no backend';
		$self->_stop_for($lasts, $victim);
		return ", pid $victim", pid => 0 + $victim;
	}
	if ($kind eq 'stop-instance')
	{
		my $postmaster = $self->_postmaster($name);

		# it has no more children then
		kill 'STOP', $postmaster;
		$self->_stop_for($lasts, $postmaster, map { $_->{pid} } $self->_children($name, qr/./));
		return '';
	}
	if ($kind eq 'kill-session')
	{
		my $session = $self->_ask($name, 'SELECT session_id FROM zk_session');

		return ', no session' unless $session =~ /^0x/;
		my $killed = eval { $self->_client->kill_session($session) };

		return ", $session, not done" if defined $killed && !$killed;
		my $closed = now();
		# until the instance has heard of it
		my $end = now() + 60;
		1
		  while $self->_ask($name, "SELECT session_id = '$session' FROM zk_session") eq 't'
		  && now() < $end
		  && $self->_rest(0.01);
		return ", $session", closes => $closed;
	}
	if ($kind eq 'change-auth')
	{
		# back again, since nobody else may use what has another creator
		my $auth = 'chaos' . $dice->below(1000) . ':secret';

		for my $value ($auth, 'chaos:secret')
		{
			$node->append_conf('postgresql.conf', "zklock.auth = '$value'");
			kill 'HUP', $self->_postmaster($name);
			$self->_rest($lasts) if $value eq $auth;
		}
		return ", $auth", $self->{acl} eq 'creator' ? (denies => 1) : ();
	}
	if ($kind eq 'cancel-backends')
	{
		my $end = now() + $lasts;
		my @canceled;

		do
		{
			my $victim = $self->_victim($name, $dice, $dice->chance(0.5));

			push @canceled, 0 + $victim
			  if $victim && $self->_ask($name, "SELECT pg_cancel_backend($victim)") eq 't';
			$self->_rest($dice->between(0.05, 0.3));
		} while (now() < $end);
		return ', pids ' . join(' ', @canceled), cancels => \@canceled;
	}
	if ($kind eq 'collect-directories')
	{
		my $end = now() + $lasts;
		my $collected = 0;

		do
		{
			$collected += eval { $self->_client->sweep('/zklock') } // 0;
			$self->_rest(0.05);
		} while (now() < $end);
		return ", $collected collected";
	}
	if ($kind eq 'reload')
	{
		# the same servers in another order, one of them missing now and then
		my @servers = split /,/, $self->{zk}->connstr_through($self->{links}, $name);

		push @servers, shift @servers for (0 .. $dice->below(scalar @servers));
		pop @servers if @servers > 1 && $dice->chance(0.3);
		my %settings = ('zklock.servers' => join(',', @servers), handoff_settings($dice));

		$node->append_conf('postgresql.conf', "$_ = '$settings{$_}'") for sort keys %settings;
		kill 'HUP', $self->_postmaster($name);
		return join(', ', '', map { "$_ $settings{$_}" } sort keys %settings);
	}
	die "no such fault: $kind\n";
}

# The next step of a rolling upgrade of all instances, or of the way back.  The
# postmaster finds its libraries from where it is itself; a restart later on
# starts the same one.
sub _other_library
{
	my ($self, $fault) = @_;
	my @instances = @{ $self->{instances} };
	my $step = $self->{steps}++;
	my $name = $fault->{instance} = $instances[ $step % @instances ];
	my $path = $self->{ int($step / @instances) % 2 ? 'install_path' : 'other_path' };

	$self->_pg_ctl($name, '-t', 120, '-m', 'fast', '-p', "$path/bin/postgres", 'restart')
	  or die "could not restart $name\n";
	$self->_connect($name);
	$self->_note_shared_memory($self->{node}{$name});
	my ($library) = _slurp('/proc/' . $self->_postmaster($name) . '/maps') =~ m{(/\S+/zklock\.so)$}m;
	return ", $library", library => $library;
}

# A foreign client, for the lane of the instances.
sub _client
{
	my ($self) = @_;
	return $self->{killer} //= $self->{zk}->client(timeout => 60);
}

# A backend that holds a lock (or one that waits), or else any of a client.
sub _victim
{
	my ($self, $name, $dice, $waits) = @_;
	my $order = $waits ? 'granted' : 'granted DESC';
	my @holders = split /\n/,
	  $self->_ask($name, "SELECT pid FROM zk_locks WHERE pid IS NOT NULL ORDER BY $order, state_change LIMIT 3");
	my $own = $self->{wire}{$name}->pid;

	@holders = map { $_->{pid} } $self->_children($name, qr/\[local\]/) unless @holders;
	@holders = grep { $_ != $own } @holders;
	return @holders ? $dice->one_of(@holders) : undef;
}

#
# The end
#

# Everybody gets an answer, now that nothing is in the way.
sub _drain
{
	my ($self) = @_;
	my @clients = values %{ $self->{at_work} };
	my $end = now() + $self->{run}{drain};

	$_->tell('stop') for @clients;
	while (grep { $_->poll; !$_->{ended} } @clients)
	{
		last if now() > $end;
		sleep 0.05;
	}
	my @late = grep { !$_->{ended} } @clients or return;
	$self->{say}->('clients without an answer in ' . join(', ', map { $_->{name} } @late));
	$self->_look_around;
	$_->tell('abandon') for @late;
	while (grep { $_->poll; !$_->{ended} } @late)
	{
		sleep 0.05;
	}
	# their backends may wait for ever
	$_->psql('postgres',
		q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'chaos'})
	  for values %{ $self->{node} };
	return;
}

# Do ZooKeeper's servers have the same contenders?  If not, and it stays so, they
# have lost something, and nothing that was held or waited for means anything.
# Returns what some have and others have not.
sub _diverged
{
	my ($self) = @_;
	my $end = now() + 10;

	while (1)
	{
		my %servers;
		for my $i (0 .. $self->{servers} - 1)
		{
			my $dump = $self->{zk}->fourlw('dump', $i) // '';
			push @{ $servers{$_} }, $i for $dump =~ m{^\s+(/zklock/\S+)}gm;
		}
		my @some = grep { @{ $servers{$_} } < $self->{servers} } sort keys %servers;
		return [ map { "$_ is on server " . join(', ', @{ $servers{$_} }) . ' only' } @some ]
		  if !@some || now() > $end;
		sleep 0.2;
	}
}

# For who has to find out why somebody waits.
sub _look_around
{
	my ($self) = @_;

	for my $name (@{ $self->{instances} })
	{
		for my $query (
			'SELECT * FROM zk_session',
			'SELECT pid, name, mode, scope, granted, lost, state_change, token FROM zk_locks ORDER BY 2, 3, 5',
			q{SELECT pid, state, wait_event_type, wait_event, state_change, left(query, 100)
				FROM pg_stat_activity WHERE datname IS NOT NULL},
			q{SELECT n.name, q.* FROM (SELECT DISTINCT name FROM zk_locks) n,
				LATERAL zk_queue(n.name) q ORDER BY 1, 2})
		{
			my ($out, $err) = ('', '');
			$self->{node}{$name}->psql('postgres', $query, stdout => \$out, stderr => \$err,
				timeout => 20, timed_out => \my $timed_out, on_error_stop => 0);
			print "$name: $query\n$out\n$err\n";
		}
	}
	return;
}

# What the databases have.
sub _collect
{
	my ($self, $history) = @_;
	my $rows = sub {
		my ($node, $query) = @_;
		return map { [ split /\|/, $_, -1 ] } split /\n/, $node->safe_psql('postgres', $query);
	};

	for my $store ('warehouse', @{ $self->{instances} })
	{
		my $node = $store eq 'warehouse' ? $self->{warehouse} : $self->{node}{$store};

		$history->{rows}{$store} = [
			map {
				{
					lock => $_->[0], n => 0 + $_->[1], id => $_->[2],
					token => $_->[3] eq '' ? undef : 0 + $_->[3]
				}
			} $rows->($node, 'SELECT lock, n, id, token FROM section') ];
		$history->{counters}{$store} = {
			map { @$_ } $rows->($node, $store eq 'warehouse'
				? 'SELECT lock, max(n) FROM section GROUP BY lock'
				: 'SELECT lock, n FROM counter') };
	}
	return;
}

# What should be gone: in the slots and in ZooKeeper.
sub _left
{
	my ($self) = @_;
	my @left;

	for my $name (@{ $self->{instances} })
	{
		my $query = q{SELECT
			(SELECT count(*) FROM zk_locks) || ' in zk_locks, '
			|| (SELECT slots || ' slots, ' || slot_users || ' slot_users' FROM zk_stat)
			|| ', ' || (SELECT count(*) FROM pg_locks WHERE locktype = 'userlock')
			|| ' user locks'};
		$query .= q{ || (SELECT ', ' || count(*) || ' claims' FROM zk_claims)}
		  if $self->{has}{'zklock.max_claims'};
		my $found;
		my $end = now() + 30;
		while (1)
		{
			$found = $self->{node}{$name}->safe_psql('postgres', $query);
			last if $found !~ /[1-9]/ || now() > $end;
			sleep 0.1;
		}
		push @left, "instance $name: $found" if $found =~ /[1-9]/;

		my $log = slurp_file($self->{node}{$name}->logfile, $self->{log_at}{$name} // 0);
		push @left, "log of instance $name: $1"
		  while $log =~ /^(.*(?:PANIC|TRAP|terminated by signal (?!9\b)\d).*)$/mg;
		$self->{log_at}{$name} = -s $self->{node}{$name}->logfile;
	}

	my @contenders;
	my $end = now() + 30;
	while (1)
	{
		# who is not the creator sees them by "dump" only, below
		@contenders = $self->{acl} eq 'open' ? eval { all_contenders($self->{zk}) } : ();
		last if (!@contenders && !$@) || now() > $end;
		sleep 0.1;
	}
	push @left, "contender $_" for @contenders;
	push @left, "no answer of ZooKeeper: $@" if $@;

	# permits, too
	my @nodes;
	while (1)
	{
		@nodes = ($self->{zk}->fourlw('dump') // '') =~ m{^\s+(/zklock/(?!%clusters/)\S+)}gm;
		last if !@nodes || now() > $end;
		sleep 0.1;
	}
	push @left, map { "node $_" } grep { my $node = $_; !grep { $_ eq $node } @contenders } @nodes;
	return @left;
}

=pod

=item stop($history)

Stop all servers, and add to C<{left}> what they leave behind: processes and
shared memory.

=back

=cut

sub stop
{
	my ($self, $history) = @_;
	my @nodes = (values %{ $self->{node} }, $self->{warehouse});

	for my $node (@nodes)
	{
		# they have been restarted behind the back of PostgreSQL::Test::Cluster
		$node->_update_pid(1);
		$node->stop;
	}
	$self->{zk}->stop;
	return unless $history;

	my @left;
	for my $node (values %{ $self->{node} })
	{
		my $dir = $node->data_dir;
		push @left, "process " . s{/proc/(\d+)/cwd}{$1}r . " of instance " . $node->name
		  for grep { (readlink($_) // '') eq $dir } glob '/proc/[0-9]*/cwd';
	}

	# "key id" of System V shared memory, as in postmaster.pid
	my %ids = map { ($_ => 1) } _read_lines("$self->{dir}/shared_memory");
	for my $line (split /\n/, _slurp('/proc/sysvipc/shm') // '')
	{
		my (undef, $id) = split ' ', $line;
		push @left, "shared memory $id" if $ids{ $id // '' };
	}

	# Others may have servers on this machine, and start and stop them now; what
	# is left of ours stays.
	my $end = now() + 10;
	my @files = $self->_unused_shared_memory;
	while (@files && now() < $end)
	{
		my %before = map { ($_ => 1) } @files;

		sleep 0.2;
		@files = grep { $before{$_} } $self->_unused_shared_memory;
	}
	push @left, map { "/dev/shm/$_" } @files;
	push @{ $history->{left} }, @left;
	return;
}

# PostgreSQL's files in /dev/shm that nobody uses and that are new.
sub _unused_shared_memory
{
	my ($self) = @_;

	opendir(my $dh, '/dev/shm') or die "could not open /dev/shm: $!";
	return grep {
		my $file = $_;
		(stat "/dev/shm/$file") && (stat _)[4] == $>
		  && !grep { (_slurp($_) // '') =~ m{/dev/shm/\Q$file\E$}m } glob '/proc/[0-9]*/maps';
	} grep { /^PostgreSQL/ && !$self->{shm_before}{$_} } readdir $dh;
}

# Remember the shared memory of a postmaster's.
sub _note_shared_memory
{
	my ($self, $node) = @_;
	my @lines = split /\n/, _slurp($node->data_dir . '/postmaster.pid') // '';
	my (undef, $id) = split ' ', $lines[6] // '';

	append_to_file("$self->{dir}/shared_memory", "$id\n") if defined $id;
	return;
}

# What has been stopped of our servers must go on, or it could not be ended.  Other
# test files have theirs beside them, and stop processes of their own.
sub _go_on
{
	my ($self) = @_;
	my %ours = map { ($_->data_dir => 1) } grep { $_ } values %{ $self->{node} }, $self->{warehouse};

	for my $cwd (glob '/proc/[0-9]*/cwd')
	{
		my ($pid) = $cwd =~ m{/(\d+)/};
		kill 'CONT', $pid if $ours{ readlink($cwd) // '' };
	}
	return;
}

END
{
	my $status = $?;

	$_->{owner} == $$ && $_->_go_on for @all;
	$? = $status;
}

1;
