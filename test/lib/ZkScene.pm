
=pod

=head1 NAME

ZkScene - sessions that wait for each other, and what becomes of them

=head1 SYNOPSIS

  my $scene = ZkScene->new($zk, 'two instances', one => $a, two => $b);
  $scene->does(one => "SELECT zk_lock('x')");
  $scene->does(two => "SELECT zk_lock('y')");
  $scene->waits(one => "SELECT zk_lock('y')", queue => { y => 2 });
  $scene->closes(two => "SELECT zk_lock('x')");
  $scene->ends;                     # one of them with 40P01, the other commits

=head1 DESCRIPTION

Each session is in a transaction; the transactions begin in the order in which
the sessions are named, so the last one is the youngest.

C<ends> waits until no session waits any more.  Whoever fails with 40P01 rolls
back, all others commit.  It tests how many fail, who may, the text of the
error, and that all others go on.  It notes how long after C<closes> the error
came; that is reported, and no test.

With ZKLOCK_TEST_DEADLOCK_CHECK=off in the environment the scenes themselves
are tested: with zklock.deadlock_check off, nobody goes on until lock_timeout,
so the scene closes a cycle.

=cut

package ZkScene;

use strict;
use warnings;

use List::Util qw(max);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
use ZkCluster;
use ZkWire;
use ZooKeeper;

my $check = ($ENV{ZKLOCK_TEST_DEADLOCK_CHECK} // 'on') ne 'off';

# how long a cycle must stay if nobody looks for it
my $stays = 3;

my (@latency, %victims);

sub now { return clock_gettime(CLOCK_MONOTONIC); }

=pod

=head1 METHODS

=over

=item ZkScene->new($zk, $title, name => $node, ...)

=item does($name, $sql)

Run a statement that does not wait.

=item waits($name, $sql, %where)

Run a statement that waits: tier => 1, for a heavyweight lock; or by default in
the second tier, for ZooKeeper.  With queue => { lock => n }, until there are so
many contenders for that lock, or nodes in C<lock/leases> of a semaphore.

=item goes_on($name)

Wait until the statement of a session has ended well.

=item gives_up($name, $sql)

Wait until the statement of a session has failed with 57014, and run another one.

=item closes($name, $sql)

The same, with which the cycle closes: returns at once.

=item limits(@names)

Give the waits of these, or of all, a lock_timeout, for C<ends(lasts =E<gt> 1)>.

=item closed()

The cycle has closed only now (by something other than a statement).

=item wire($name), pid($name)

=item ends(%expected)

  victims     how many fail with 40P01 (default 1); [ 1, 2 ]: from one to two
  among       names of those who may (default: all)
  members     names of those of whom the error tells (default: all who wait)
  groups      [ [ names ], [ names ] ]: several cycles, each with one victim
  either      the same: the error may tell of either of these
  first       name of the one who fails, if the order of the transactions tells
  after       name => SQL: what one who has failed runs, in place of ROLLBACK
  commits     name => SQL: what one who goes on runs, in place of COMMIT
  idle        names of those who do not wait: they commit once another one
              has ended
  loose       the members are no simple cycle; the order of the lines of the
              error is not looked at
  lasts       no search finds the cycle: none fails but by lock_timeout, and at
              least one does

Returns the results of those who failed, by name.

=cut

sub new
{
	my ($class, $zk, $title, @sessions) = @_;
	my $self = bless { zk => $zk, title => $title, names => [] }, $class;

	note "scene: $title";
	while (my ($name, $node) = splice(@sessions, 0, 2))
	{
		push @{ $self->{names} }, $name;
		$self->{node}{$name} = $node;
		$self->{wire}{$name} = ZkWire->new($node);
	}
	for my $name (@{ $self->{names} })
	{
		$self->does($name, "SET lock_timeout = '${stays}s'") unless $check;
		$self->does($name, 'BEGIN');
	}
	return $self;
}

sub wire { return $_[0]{wire}{ $_[1] }; }

sub pid { return $_[0]{wire}{ $_[1] }->pid; }

sub does
{
	my ($self, $name, $sql) = @_;
	my $result = $self->{wire}{$name}->run($sql);

	die "$self->{title}: $name: $sql: $result->{message}\n" if $result->{sqlstate};
	return $result->{out};
}

sub waits
{
	my ($self, $name, $sql, %where) = @_;
	my $wire = $self->{wire}{$name};
	my $node = $self->{node}{$name};
	my $type = ($where{tier} // 2) == 1 ? 'Lock' : 'Extension';
	my $watcher = $node->{zk_scene_watcher};

	$watcher = $node->{zk_scene_watcher} = ZkWire->new($node)
	  if !$watcher || $watcher->gone;
	note "$name: $sql";
	$self->{waits} //= now();
	$self->{sent}{$name} = 1;
	$wire->send($sql);
	poll_until(
		sub {
			my $is = $watcher->run('SELECT wait_event_type FROM pg_stat_activity'
				  . ' WHERE state = \'active\' AND pid = ' . $wire->pid)->{out};

			ZkWire::wait_any(0, $wire);
			die "$self->{title}: $name does not wait: "
			  . ($wire->result->{message} // 'it goes on') . "\n"
			  unless $wire->busy;
			return ($is // '') eq $type;
		},
		"$name to wait for $type");
	for my $lock (sort keys %{ $where{queue} // {} })
	{
		my $n = $where{queue}{$lock};
		my ($name, $below) = $lock =~ m{(.*)/(\w+)} or do
		{
			wait_contenders($self->{zk}, $lock, $n);
			next;
		};
		my $client = $self->{zk}{scene_client} //= $self->{zk}->client(timeout => 60);
		poll_until(
			sub {
				my @found = eval { $client->ls(lock_dir($name) . "/$below") };

				die $@ if $@ and $@ !~ /^NoNodeError/;
				return @found == $n;
			},
			"$n nodes in $lock");
	}
	return;
}

sub goes_on
{
	my ($self, $name) = @_;
	my $wire = $self->{wire}{$name};

	!$wire->busy || ZkWire::wait_any($PostgreSQL::Test::Utils::timeout_default, $wire)
	  or die "$self->{title}: $name waits forever\n";
	die "$self->{title}: $name: " . $wire->result->{message} . "\n"
	  if $wire->result->{sqlstate};
	delete $self->{sent}{$name};
	return $wire->result->{out};
}

sub gives_up
{
	my ($self, $name, $sql) = @_;
	my $wire = $self->{wire}{$name};

	!$wire->busy || ZkWire::wait_any($PostgreSQL::Test::Utils::timeout_default, $wire)
	  or die "$self->{title}: $name waits forever\n";
	my $state = $wire->result->{sqlstate} // '';
	die "$self->{title}: $name: $state\n" if $state ne '57014';
	delete $self->{sent}{$name};
	return $self->does($name, $sql);
}

sub closes
{
	my ($self, $name, $sql) = @_;

	note "$name: $sql";
	$self->{closed} = now();
	$self->{sent}{$name} = 1;
	$self->{wire}{$name}->send($sql);
	return;
}

sub limits
{
	my ($self, @names) = @_;

	$self->does($_, "SET LOCAL lock_timeout = '${stays}s'") for @names ? @names : @{ $self->{names} };
	return;
}

sub closed { $_[0]{closed} = now(); return; }

# Lines of an error: hashes of who waits, and for whom; none if a line is not as
# it should be.
sub _lines
{
	my ($detail) = @_;
	my $process = qr/process \d+ of instance \w+/i;
	my @lines;

	for (split /\n/, $detail // '')
	{
		my $of = sub { return $_[0] =~ /process (\d+ of instance \w+)/gi; };

		if (/^($process) waits for (?:exclusive|shared) lock "[^"]+" in ZooKeeper; blocked by ($process)\.$/)
		{
			push @lines, { who => $of->($1), for => [ $of->($2) ] };
		}
		elsif (/^Process (\d+) of instance (\w+) waits for process (\d+) of the same instance\.$/)
		{
			push @lines, { who => "$1 of instance $2", for => ["$3 of instance $2"] };
		}
		else { return; }
	}
	return @lines;
}

# The error that a member gets: what PostgreSQL would say, over instances.
sub _test_error
{
	my ($self, $name, $result, $loose, @groups) = @_;
	my @lines = _lines($result->{detail});
	my %told = map { ($_->{who} => 1) } @lines;
	my @members = map {
		join(', ', sort map { $self->pid($_) . ' of instance ' . $self->{node}{$_}->name } @$_)
	} @groups;
	my @wrong;

	push @wrong, 'the message' unless $result->{message} eq 'deadlock detected';
	push @wrong, 'the hint'
	  unless ($result->{hint} // '') eq 'See server log for query details.';
	push @wrong, 'a line' unless @lines;
	push @wrong, 'the members, which are ' . join(' or ', @members)
	  unless grep { $_ eq join(', ', sort keys %told) } @members;
	push @wrong, 'whom somebody waits for' if grep { !$told{$_} } map { @{ $_->{for} } } @lines;
	push @wrong, 'the order'
	  if !$loose && grep { "@{ $lines[ $_ - 1 ]{for} }" ne $lines[$_]{who} } (0 .. $#lines);
	push @wrong, 'the context'
	  unless ($result->{context} // '') =~ /^while waiting for (lock|.*semaphore) ".+" in ZooKeeper$/m;
	ok(!@wrong, "$self->{title}: the error names the members")
	  or diag("wrong: @wrong\n", explain($result));
	return;
}

sub ends
{
	my ($self, %expected) = @_;
	my $wires = $self->{wire};
	my $sent = $self->{sent};
	my @waiting = grep { $sent->{$_} } @{ $self->{names} };
	my @groups = @{ $expected{groups} // [ $expected{members} // \@waiting ] };
	my %members = map { map { ($_ => 1) } @$_ } @groups;
	my %among = map { ($_ => 1) } @{ $expected{among} // $self->{names} };
	my @idle = @{ $expected{idle} // [] };
	my $lasts = !$check || $expected{lasts};
	my (%failed, @wrong, $timed_out, $error);

	while (my @busy = grep { $sent->{$_} } @{ $self->{names} })
	{
		my %name = map { ($wires->{$_} => $_) } @busy;
		# the test may have seen some end
		my @ended = grep { !$_->busy } map { $wires->{$_} } @busy;

		@ended = ZkWire::wait_any($PostgreSQL::Test::Utils::timeout_default,
			map { $wires->{$_} } @busy) unless @ended;

		if (!@ended)
		{
			push @wrong, "@busy wait forever";
			last;
		}
		for my $wire (@ended)
		{
			my $name = $name{$wire};
			my $result = $wire->result;
			delete $sent->{$name};
			my $state = $result->{sqlstate} // '';
			my $then = $expected{commits}{$name} // 'COMMIT';

			if ($state eq '40P01')
			{
				$error //= now();
				$failed{$name} = { %$result, at => now() };
				$then = $expected{after}{$name} // 'ROLLBACK';
			}
			elsif ($lasts && ($state eq '55P03' || ($result->{out} // '') eq 'f'))
			{
				$timed_out = 1;
				$then = $expected{after}{$name} // 'ROLLBACK';
			}
			elsif ($state ne '')
			{
				push @wrong, "$name: $state: $result->{message}";
				$then = 'ROLLBACK';
			}
			elsif ($lasts && now() - $self->{waits} < $stays && $members{$name})
			{
				# whoever times out has let go before we hear of it
				push @wrong, "$name goes on";
			}
			$result = $wire->run($then);
			push @wrong, "$name: $then: $result->{message}" if $result->{sqlstate};
		}
		for my $name (splice @idle)
		{
			my $result = $wires->{$name}->run('COMMIT');
			push @wrong, "$name: COMMIT: $result->{message}" if $result->{sqlstate};
		}
	}
	$_->vanish for values %$wires;

	my @victims = sort keys %failed;
	my ($least, $most) = ref $expected{victims} ? @{ $expected{victims} }
	  : (($expected{lasts} ? 0 : $expected{victims} // scalar @groups) x 2);

	is(join('; ', @wrong), '', "$self->{title}: all others go on");
	ok($timed_out || !$expected{lasts} && ($check || $most == 0),
		"$self->{title}: the cycle stays until a timeout") if $lasts;
	return {} unless $check;
	ok(@victims >= $least && @victims <= $most,
		"$self->{title}: fails with 40P01: " . (join(', ', @victims) || 'nobody'))
	  or diag(explain(\%failed));
	my @innocent = grep { !$among{$_} } @victims;
	is("@innocent", '', "$self->{title}: nobody else does") if $expected{among};
	is("@victims", $expected{first}, "$self->{title}: it is the youngest") if $expected{first};
	for my $group (@groups)
	{
		my @of_it = grep { $failed{$_} } @$group;

		is(scalar @of_it, 1, "$self->{title}: one of " . join(', ', @$group)) if @groups > 1;
		$self->_test_error($_, $failed{$_}, $expected{loose}, @{ $expected{either} // [$group] })
		  for @of_it;
	}
	$victims{ $self->{node}{$_}->name }++ for @victims;
	if (defined $error && defined $self->{closed})
	{
		push @latency, [ $self->{title}, $error - $self->{closed} ];
		note sprintf('%s: %.3f s from the closing of the cycle', @{ $latency[-1] });
	}
	return \%failed;
}

=pod

=back

=head1 FUNCTIONS

=over

=item ZkScene::checks()

Is deadlock detection on?

=item ZkScene::victims()

How many have failed so far, by the name of the instance.

=item ZkScene::report($deadlock_timeout)

Note the times from the closing of the cycle to the error, and which of them
are longer than 2 x deadlock_timeout + 1 s.

=cut

sub checks { return $check; }

sub victims { return \%victims; }

sub report
{
	my ($timeout) = @_;
	my $bound = 2 * $timeout + 1;
	my @late = grep { $_->[1] > $bound } @latency;

	diag sprintf('%d cycles: the longest took %.3f s from its closing to the error; '
		  . '%d longer than %.1f s%s',
		scalar @latency, max(0, map { $_->[1] } @latency), scalar @late, $bound,
		join('', map { sprintf('; %s: %.3f s', @$_) } @late));
	return;
}

=pod

=back

=cut

1;
