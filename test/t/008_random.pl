
# Random operations in two instances: whatever they are and however they end,
# the answers are right, two instances never hold what excludes each other, and
# nothing is left in the end.
#
# ZKLOCK_TEST_SEED repeats what was done (in as far as that does not depend on
# who was faster).

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkWire;
use ZooKeeper;

my $operations = soak(3000, 10_000);
my $seed = seed();
my $sessions_each = 10;

# Few names, so that they are wanted by several sessions at most times.
my @locks = map { "l$_" } (1 .. 6);
my %permits = (s1 => 1, s2 => 2, s3 => 3);

my $zk = ZooKeeper->new;
$zk->start;
my %cluster = map {
	$_ => zk_cluster($_, $zk,
		'zklock.session_timeout' => '60s',
		'log_statement' => 'none',
		'deadlock_timeout' => '50ms')
} qw(a b);
$_->safe_psql('postgres', 'CREATE TABLE note (t text)') for values %cluster;

#
# What we know of a session
#
# in, failed: in a transaction block, which has failed; depth: savepoints in
# it; wrote: it has written; locks: what is held, by name: mode ("x", "s",
# "p"), and holds, the latest being the last: each with session (scope) and
# depth, undone the depth where it was undone, if it was.  vague: a call that
# was interrupted may have left one more hold, so the mode is not certain.

my (@sessions, %admin, @wrong, %count);
my $done = 0;

sub new_session
{
	my ($number, $name) = @_;
	return {
		number => $number,
		name => $name,
		random => ($seed * 2654435761 + $number * 40503) & 0xFFFFFFFF || 1,
	};
}

sub connect_session
{
	my ($s) = @_;

	$s->{wire} = ZkWire->new($cluster{ $s->{name} });
	@$s{qw(in failed depth wrote locks)} = (0, 0, 0, 0, {});
	@$s{qw(op cancel doomed)} = ();
	$s->{sure} = {};
	return;
}

sub wrong
{
	my ($s, $what) = @_;

	push @wrong,
	  sprintf('session %d of %s: %s; the last statements: %s',
		$s->{number}, $s->{name}, $what, join('; ', @{ $s->{log} }));
	return;
}

# A random number from 0 to n - 1.
sub random
{
	my ($s, $n) = @_;
	my $x = $s->{random};

	$x ^= ($x << 13) & 0xFFFFFFFF;
	$x ^= $x >> 17;
	$x ^= ($x << 5) & 0xFFFFFFFF;
	$s->{random} = $x;
	return $x % $n;
}

sub pick { my ($s, @of) = @_; return $of[ random($s, scalar @of) ]; }

# Pairs of something and its weight.
sub pick_weighted
{
	my ($s, @of) = @_;
	my ($sum, @what) = (0);

	while (my ($what, $weight) = splice(@of, 0, 2))
	{
		push @what, [ $what, $sum += $weight ];
	}
	my $at = random($s, $sum);
	return (grep { $at < $_->[1] } @what)[0][0];
}

sub forget_empty
{
	my ($locks) = @_;

	@{ $locks->{$_}{holds} } || $locks->{$_}{vague} || delete $locks->{$_}
	  for keys %$locks;
	return;
}

# The end of the transaction.
sub end_transaction
{
	my ($s) = @_;

	for my $lock (values %{ $s->{locks} })
	{
		@{ $lock->{holds} } =
		  grep { $_->{session} && !defined $_->{undone} } @{ $lock->{holds} };
		$_->{depth} = 0 for @{ $lock->{holds} };
	}
	forget_empty($s->{locks});
	@$s{qw(in failed depth wrote)} = (0, 0, 0, 0);
	return;
}

# A rollback of all savepoints from a depth on.
sub roll_back_to
{
	my ($locks, $depth) = @_;

	for my $lock (values %$locks)
	{
		@{ $lock->{holds} } =
		  grep { $_->{session} || $_->{depth} < $depth } @{ $lock->{holds} };
		for my $hold (@{ $lock->{holds} })
		{
			$hold->{depth} = $depth if $hold->{depth} > $depth;
			delete $hold->{undone}
			  if !$hold->{session} && defined $hold->{undone} && $hold->{undone} >= $depth;
		}
	}
	forget_empty($locks);
	return;
}

sub release_savepoint
{
	my ($s, $depth) = @_;

	for my $hold (map { @{ $_->{holds} } } values %{ $s->{locks} })
	{
		for my $field (qw(depth undone))
		{
			$hold->{$field} = $depth - 1
			  if defined $hold->{$field} && $hold->{$field} >= $depth;
		}
	}
	$s->{depth} = $depth - 1;
	return;
}

sub error
{
	my ($s) = @_;

	return unless $s->{in};
	if ($s->{depth} == 0)
	{
		end_transaction($s);
		$s->{in} = 1;
	}
	else
	{
		roll_back_to($s->{locks}, $s->{depth});
	}
	$s->{failed} = 1;
	return;
}

sub live { return grep { !defined $_->{undone} } @{ $_[0]{holds} }; }

# zk_unlock; returns its answer.
sub undo
{
	my ($s, $name) = @_;
	my $lock = $s->{locks}{$name} // { holds => [] };
	my ($latest) = (live($lock))[-1];

	return 'f' unless $latest;
	$latest->{undone} = $s->{depth};
	if (!$s->{wrote} && $s->{depth} == 0)
	{
		my @holds = @{ $lock->{holds} };

		pop @holds while @holds && defined $holds[-1]{undone};
		@{ $lock->{holds} } = @holds;
		forget_empty($s->{locks});
	}
	return 't';
}

sub take
{
	my ($s, $name, $mode, $session) = @_;
	my $lock = $s->{locks}{$name} //= { mode => $mode, holds => [] };

	return if !$s->{in} && !$session;
	push @{ $lock->{holds} }, { session => $session, depth => $s->{depth} };
	return;
}

# Another session holds what excludes this.
sub check_exclusion
{
	my ($s, $name, $mode) = @_;
	my @others = grep { $_ != $s && $_->{sure}{$name} } @sessions;

	@others = grep { $mode eq 'x' || $_->{sure}{$name} eq 'x' } @others
	  unless $mode eq 'p';
	wrong($s, "it got \"$name\" ($mode) while held by session"
		  . join('', map { " $_->{number}" } @others))
	  if @others > ($mode eq 'p' ? $permits{$name} - 1 : 0);
	$count{'checks of exclusion'}++;
	return;
}

#
# Operations: each is a hash of sql, what it may release (all, failing: what an
# error would, or the name of a lock), and then, a function that takes the
# result.  Those that count are operations in the issue's sense.
#

# A call that takes locks.
sub acquire_op
{
	my ($s) = @_;
	my $function = pick_weighted($s,
		zk_lock => 4, zk_try_lock => 4, zk_lock_all => 2, zk_acquire => 1,
		zk_try_acquire => 1);
	my $try = $function =~ /try/;
	my $semaphore = $function =~ /acquire/;
	my $session = pick_weighted($s, 0 => 3, 1 => 1);
	my $mode = $semaphore ? 'p' : pick($s, 'x', 's');
	my $timeout = pick_weighted($s,
		"'0'" => 2, "'" . (1 + random($s, 60)) . "ms'" => 5, 'NULL' => 2,
		"'1 hour'" => 1);
	my @names = pick($s, $semaphore ? sort keys %permits : @locks);

	push @names, map { pick($s, @locks) } (0 .. random($s, 4))
	  if $function eq 'zk_lock_all';
	my $sql = "SELECT $function("
	  . ( $function eq 'zk_lock_all'
		? "'{" . join(',', @names) . "}'"
		: "'$names[0]'")
	  . ($semaphore ? ", $permits{$names[0]}" : '')
	  . ", $timeout"
	  . ($mode eq 's' ? ', shared => true' : '')
	  . ($session ? ', session => true' : '') . ')';

	my %distinct = map { ($_ => 1) } @names;
	@names = sort keys %distinct;
	my $locks = $s->{locks};
	my $vague = grep { $locks->{$_} && $locks->{$_}{vague} } @names;
	my $refused = $mode eq 'x'
	  && grep { $locks->{$_} && $locks->{$_}{mode} eq 's' } @names;
	my $held = !grep { !$locks->{$_} || $locks->{$_}{vague} } @names;

	my $then = sub {
		my ($result) = @_;
		my $state = $result->{sqlstate};
		my $got = !defined $state && (!$try || $result->{out} eq 't');

		if (!defined $state)
		{
			wrong($s, "$sql says $result->{out}") if $try && $result->{out} !~ /^[tf]$/;
			wrong($s, "$sql should be refused") if $refused && !$vague;
			wrong($s, "$sql fails though it is held") if $held && !$got;
		}
		elsif ($state eq '55000')
		{
			wrong($s, "$sql is refused: $result->{message}") unless $refused || $vague;
		}
		elsif ($state eq '55P03')
		{
			wrong($s, "$sql times out") if $try || $held || $timeout =~ /NULL|hour/;
		}
		elsif ($state eq '57014')
		{
			wrong($s, "$sql is canceled") unless $s->{cancel};
			if ($session)
			{
				# it may have got it a moment before
				($locks->{$_} //= { mode => $mode, holds => [] })->{vague} = 1
				  for @names;
			}
		}
		elsif ($state ne '40P01')
		{
			wrong($s, "$sql fails: $state: $result->{message}");
		}
		if ($got)
		{
			for my $name (@names)
			{
				take($s, $name, $mode, $session);
				# in autocommit it is gone by now
				check_exclusion($s, $name,
					$locks->{$name}{vague} ? $mode : $locks->{$name}{mode})
				  if $s->{in} || $session;
			}
			forget_empty($locks);
		}
		$count{
				$got ? "$function: got"
			  : $state ? "$function: $state"
			  : "$function: no" }++;
	};
	return {
		sql => $sql, releases => 'failing', then => $then, counts => 1,
		checks => 1, waits => $timeout ne "'0'",
	};
}

sub unlock_op
{
	my ($s) = @_;
	my @held = sort keys %{ $s->{locks} };
	my $name = @held && random($s, 4) ? pick($s, @held) : pick($s, @locks, sort keys %permits);

	return {
		sql => "SELECT zk_unlock('$name')",
		releases => $name,
		counts => 1,
		then => sub {
			my ($result) = @_;
			my $lock = $s->{locks}{$name};
			my $vague = $lock && $lock->{vague};
			my $answer = undo($s, $name);

			return if defined $result->{sqlstate};
			$count{"zk_unlock: $result->{out}"}++;
			if ($result->{out} ne $answer && !$vague)
			{
				wrong($s, "zk_unlock('$name') says $result->{out}");
			}
			# now there is certainly none but what was undone
			if ($vague && $result->{out} eq 'f' && !$s->{in})
			{
				delete $s->{locks}{$name};
			}
		},
	};
}

sub unlock_all_op
{
	my ($s) = @_;
	return {
		sql => 'SELECT zk_unlock_all()',
		releases => 'all',
		counts => 1,
		then => sub {
			return if defined $_[0]{sqlstate};
			my $at_once = !$s->{wrote} && $s->{depth} == 0;

			$count{zk_unlock_all}++;
			for my $lock (values %{ $s->{locks} })
			{
				$_->{undone} //= $s->{depth} for grep { $_->{session} } @{ $lock->{holds} };
				if ($at_once)
				{
					my @holds = grep { !$_->{session} } @{ $lock->{holds} };

					pop @holds while @holds && defined $holds[-1]{undone};
					@{ $lock->{holds} } = @holds;
					# else its mode stays vague
					$lock->{vague} = 0 unless @holds;
				}
			}
			forget_empty($s->{locks});
		},
	};
}

# What zk_locks shows of the session.
sub look_op
{
	my ($s) = @_;
	return {
		sql => q{SELECT coalesce(string_agg(name || ' ' || left(mode, 1), ', ' ORDER BY name), '')
			FROM zk_locks WHERE pid = pg_backend_pid() AND granted AND NOT lost},
		releases => 'none',
		then => sub {
			my ($result) = @_;
			my %short = (e => 'x', s => 's', p => 'p');
			my $locks = $s->{locks};
			my %shown = map { /^(\S+) (.)$/ ? ($1 => $short{$2}) : () }
			  split /, /, $result->{out} // '';

			return if defined $result->{sqlstate};
			$count{'looks at zk_locks'}++;
			for my $name (sort keys %{ { %shown, %$locks } })
			{
				my ($is, $want) =
				  ($shown{$name} // 'nothing', $locks->{$name} ? $locks->{$name}{mode} : 'nothing');
				wrong($s, "zk_locks shows \"$name\" as $is, it is $want")
				  if $is ne $want && !($locks->{$name} && $locks->{$name}{vague});
			}
		},
	};
}

sub simple_op
{
	my ($sql, $releases, $then, %more) = @_;
	return {
		sql => $sql,
		releases => $releases,
		then => sub { $then->() unless defined $_[0]{sqlstate}; },
		%more
	};
}

sub rollback_to_op
{
	my ($s) = @_;
	my $depth = 1 + random($s, $s->{depth});

	return simple_op("ROLLBACK TO s$depth", 'all',
		sub {
			roll_back_to($s->{locks}, $depth);
			@$s{qw(depth failed)} = ($depth, 0);
			$count{'ROLLBACK TO'}++;
		},
		counts => 1);
}

sub terminate_op
{
	my ($s) = @_;
	return {
		sql => 'SELECT pg_terminate_backend(pg_backend_pid())',
		releases => 'all',
		counts => 1,
		then => sub {
			wrong($s, 'it cannot be terminated') unless ($_[0]{sqlstate} // '') eq '57P01';
			$count{'terminated at work'}++;
		},
	};
}

sub next_op
{
	my ($s) = @_;
	my $end = sub { end_transaction($s) };
	my $kind =
	    $s->{failed} ? pick_weighted($s, rollback => 3, rollback_to => $s->{depth} ? 6 : 0,
			commit => 1, acquire => 1, unlock => 1)
	  : $s->{in} ? pick_weighted($s, acquire => 120, unlock => 30, unlock_all => 3,
			look => 12, savepoint => 18, rollback_to => $s->{depth} ? 15 : 0,
			release => $s->{depth} ? 9 : 0, write => 9, error => 3, commit => 30,
			rollback => 9, advisory => 3, terminate => 1)
	  : pick_weighted($s, acquire => 75, unlock => 30, unlock_all => 6, look => 12,
			begin => 120, discard => 6, advisory => 3, terminate => 1);

	return acquire_op($s) if $kind eq 'acquire';
	return unlock_op($s) if $kind eq 'unlock';
	return unlock_all_op($s) if $kind eq 'unlock_all';
	return look_op($s) if $kind eq 'look';
	return rollback_to_op($s) if $kind eq 'rollback_to';
	return terminate_op($s) if $kind eq 'terminate';
	return simple_op('BEGIN', 'none', sub { $s->{in} = 1; }) if $kind eq 'begin';
	# in a failed transaction this is a rollback
	return simple_op('COMMIT', 'all', $end) if $kind eq 'commit';
	return simple_op('ROLLBACK', 'all', $end) if $kind eq 'rollback';
	return simple_op('SELECT 1/0', 'failing', sub { }, fails => '22012')
	  if $kind eq 'error';
	return simple_op('INSERT INTO note VALUES (1)', 'failing', sub { $s->{wrote} = 1; })
	  if $kind eq 'write';
	return simple_op('SELECT pg_advisory_unlock_all()', 'none', sub { })
	  if $kind eq 'advisory';
	return simple_op('RELEASE s' . $s->{depth}, 'none',
		sub { release_savepoint($s, $s->{depth}); })
	  if $kind eq 'release';
	return simple_op('SAVEPOINT s' . ($s->{depth} + 1), 'none', sub { $s->{depth}++; })
	  if $kind eq 'savepoint';
	return simple_op('DISCARD ALL', 'all',
		sub { $s->{locks} = {}; $count{'DISCARD ALL'}++; },
		counts => 1)
	  if $kind eq 'discard';
	die "no such kind: $kind";
}

# What the session holds for certain while an operation is under way.
sub sure_during
{
	my ($s, $op) = @_;
	my %sure;

	return {} if $op->{releases} eq 'all' || $s->{failed};
	while (my ($name, $lock) = each %{ $s->{locks} })
	{
		my @holds = @{ $lock->{holds} };

		@holds = grep {
			$s->{depth} == 0
			  ? $_->{session} && !defined $_->{undone}
			  : $_->{session} || $_->{depth} < $s->{depth}
		} @holds if $op->{releases} eq 'failing' && $s->{in};
		$sure{$name} = $lock->{mode}
		  if @holds && !$lock->{vague} && $op->{releases} ne $name;
	}
	return \%sure;
}

sub begin_op
{
	my ($s, $op) = @_;

	$s->{op} = $op;
	$s->{sure} = sure_during($s, $op);
	push @{ $s->{log} }, $op->{sql};
	shift @{ $s->{log} } if @{ $s->{log} } > 12;
	$done++ if $op->{counts};
	$s->{patience} = 5 + random($s, 100);
	$s->{wire}->send($op->{sql});
	return;
}

sub end_op
{
	my ($s) = @_;
	my ($op, $result) = ($s->{op}, $s->{wire}->result);
	my $state = $result->{sqlstate} // '';

	$s->{op} = undef;
	if ($s->{doomed} || $s->{wire}->gone)
	{
		$op->{then}->($result) if $op->{sql} =~ /pg_terminate_backend/;
		wrong($s, "the connection ended: $state")
		  unless $s->{doomed} || $state eq '57P01';
		$s->{wire}->vanish;
		$s->{sure} = {};
		$s->{gone} = 1;
		return;
	}
	if ($s->{failed} && $state eq '25P02')
	{
		$s->{cancel} = 0;
		return;
	}

	$op->{then}->($result);
	if ($state ne '')
	{
		wrong($s, "$op->{sql} fails: $state: $result->{message}")
		  unless $op->{checks} || $state eq ($op->{fails} // '');
		error($s);
	}
	my $status = !$s->{in} ? 'I' : $s->{failed} ? 'E' : 'T';
	wrong($s, "the status of the transaction is $result->{status}, not $status")
	  if $result->{status} ne $status;
	$s->{sure} = sure_during($s, { releases => 'none' });
	$s->{cancel} = 0;
	return;
}

# Cancel or terminate a session that waits.  The call has returned when this
# has, so that it cannot strike the next statement.  It has no effect if the
# statement has not begun yet.
sub interrupt
{
	my ($s) = @_;
	my $how = pick_weighted($s, cancel => 6, terminate => 1);
	my $pid = $s->{wire}->pid;

	$s->{cancel} = 1;
	$s->{patience} = 100;
	@$s{qw(doomed sure)} = (1, {}) if $how eq 'terminate';
	my $result = $admin{ $s->{name} }->run("SELECT pg_${how}_backend($pid)");
	die $result->{message} if defined $result->{sqlstate};
	$count{"$how while it waits"}++;
	$done++;
	return;
}

#
# Do it
#

my $number = 0;
for my $name (sort keys %cluster)
{
	$admin{$name} = ZkWire->new($cluster{$name});
	push @sessions, map { new_session(++$number, $name) } (1 .. $sessions_each);
}
connect_session($_) for @sessions;

my $progress = time;
while (1)
{
	for my $s (@sessions)
	{
		connect_session($s) if delete $s->{gone};
		begin_op($s, next_op($s)) if !$s->{op} && $done < $operations;
	}
	my @busy = grep { $_->{op} } @sessions or last;
	my %by_wire = map { ($_->{wire} => $_) } @busy;

	# if nothing happens, they wait for each other
	my @ended = ZkWire::wait_any(0.1, map { $_->{wire} } @busy);
	$progress = time if @ended;
	die "ZKLOCK_TEST_SEED=$seed; no answer to: "
	  . join('; ', map { "$_->{op}{sql} (session $_->{number} of $_->{name}, pid "
		  . $_->{wire}->pid . ($_->{cancel} ? ', interrupted)' : ')') } @busy)
	  if time > $progress + $PostgreSQL::Test::Utils::timeout_default;
	my @waiting = grep { $_->{op}{waits} && !$_->{doomed} && $_->{wire}->busy } @busy;
	for my $s (@waiting)
	{
		$s->{patience} -= @ended;
		interrupt($s)
		  if $s->{patience} < 0
		  || ($done >= $operations && !$s->{cancel})
		  || (!@ended && $s == $waiting[0]);
	}
	end_op($by_wire{$_}) for @ended;
}

note "$_: $count{$_}" for sort keys %count;
is(scalar(@wrong), 0, "$done operations, seed $seed")
  or diag("ZKLOCK_TEST_SEED=$seed; the first of them:\n",
	map { "$_\n" } @wrong[ 0 .. ($#wrong < 4 ? $#wrong : 4) ]);
for my $what ('zk_lock: got', 'zk_lock: 55P03', 'zk_lock: 57014',
	'zk_try_lock: got', 'zk_try_lock: no', 'zk_lock_all: got',
	'zk_lock_all: 55P03', 'zk_acquire: got', 'zk_acquire: 55P03',
	'zk_try_acquire: got', 'zk_try_acquire: no', 'zk_unlock: t',
	'ROLLBACK TO', 'DISCARD ALL', 'cancel while it waits',
	'terminate while it waits')
{
	cmp_ok($count{$what} // 0, '>', 0, "among them: $what");
}

#
# Nothing is left: some sessions end as they are, others give back what they
# hold and stay
#

my @staying;
for my $s (@sessions)
{
	if ($s->{gone} || $s->{number} % 3 == 0)
	{
		$s->{wire}->vanish;
		next;
	}
	$s->{wire}->run('ROLLBACK');
	$s->{wire}->run($s->{number} % 3 == 1 ? 'DISCARD ALL' : 'SELECT zk_unlock_all()');
	push @staying, $s;
}

for my $name (sort keys %cluster)
{
	my $node = $cluster{$name};

	for my $s (grep { $_->{name} eq $name } @staying)
	{
		is($s->{wire}->run('SELECT count(*) FROM zk_locks WHERE pid = pg_backend_pid()')->{out},
			0, "session $s->{number} of $name holds nothing");
	}
	ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zk_locks'),
		"$name: zk_locks is empty");
	ok( $node->poll_query_until('postgres',
			"SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'userlock'"),
		"$name: so is pg_locks");
	ok( $node->poll_query_until('postgres',
			'SELECT slots = 0 AND slot_users = 0 FROM zk_stat'),
		"$name: no slot is in use");
	is($node->safe_psql('postgres', 'SELECT sessions, reconnects FROM zk_session'),
		'1|0', "$name: it has had one session, and it never broke");
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/,
		"$name: it has not crashed");
}

# All ephemeral nodes but those of %clusters, wherever they are.
my $client = $zk->client;

sub ephemeral_below
{
	my ($path) = @_;
	my @children = eval { $client->ls($path) };
	my $node = eval { $client->get($path) };

	return (
		($node && $node->{ephemeralOwner} ? $path : ()),
		map { ephemeral_below("$path/$_") } grep { $_ ne '%clusters' } @children);
}
poll_until(sub { !ephemeral_below('/zklock') }, 'no contender to be left');
pass('no contender is left in ZooKeeper');

# and everything can be had
for my $name (sort keys %cluster)
{
	my @free = (
		(map { "zk_try_lock('$_')" } @locks),
		map { "zk_try_acquire('$_', $permits{$_})" } sort keys %permits);

	is($cluster{$name}->safe_psql('postgres', 'SELECT ' . join(', ', @free)),
		join('|', ('t') x @free), "$name: all is free");
	poll_until(sub { !ephemeral_below('/zklock') }, 'it to be given back');
}
$_->{wire}->vanish for @staying;
$_->stop for values %cluster;

done_testing();
