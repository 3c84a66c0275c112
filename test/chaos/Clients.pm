
=pod

=head1 NAME

Clients - many clients of one instance, that do critical sections and write down
what has become of each

=head1 SYNOPSIS

  my $clients = Clients->start(name => 'a', node => $node, seed => $seed,
      clients => 8, locks => \%weight, history => $file);
  $clients->tell('quiesce');        # finish, disconnect, and wait
  $clients->tell('resume');
  $clients->tell('stop');           # finish and end
  $clients->poll;                   # hear what they say
  $clients->{ended} or $clients->tell('abandon');

=head1 DESCRIPTION

The clients of an instance are one process, so that they go on while the rest of
the harness waits for servers, and what they know is not in a database.

What each client does, one section after another, depends on the seed, the
instance, and the number of the client and of the section alone.

The history has a line of JSON for each hold (of a lock, or of several taken
together), for each section, that is, each transaction under a hold, and for what
is done with claims.  All times are of CLOCK_MONOTONIC.  A time at which something is certainly there is
taken behind the answer, one at which it is certainly still there ahead of the
request.

=over

=item hold

hold (an id), instance, client, pid, locks, mode (exclusive, shared, permit), scope,
call, foreign (see Foreigners.pm); asked; entered (undef: not
got), waited (the answer, if it was an error), left (certainly not held any more);
result: "got", "no" (not in time), "failed", "died" (the connection has ended),
"hangs"; sqlstate, message, detail; claim (the hold that is that claim, of a
transaction that makes or uses it).  A claim is a hold of its own, with the scope
"claim" and a client that does nothing else, from zk_claim's answer on; ttl is
the one that it begins with

=item section

id, hold, mode, check (zklock.commit_check), and by lock what was read: n, token; pause (it was to
stop behind the commit check, for so long); commit (asked), end;
keeps, kept (which locks were to be there after ROLLBACK TO a savepoint, and
which were); sure (see Foreigners.pm);
outcome: "committed", "rolled back" (as was meant), "failed" (by an error),
"died" (the connection has ended ahead of COMMIT), "unknown" (in COMMIT),
"hangs"; sqlstate, message

=item act

claim, what ("renew", "end"), ttl and least (of a renewal, at most and at least),
in (the hold of the transaction that it is part of); asked, answered, result ("t", "f"; undef: not
known), sqlstate, message

=item late

instance, asked, answered, name, seconds: a claim in zk_claims that is not in
use, and that was to end so long ago

=back

=cut

package Clients::Wire;

use strict;
use warnings;

use IO::Socket::UNIX;
use ZkWire;

our @ISA = qw(ZkWire);

# As ZkWire->new, but does not wait; false if nobody listens.
sub connect
{
	my ($class, $path, $user) = @_;
	my $self = bless {
		in => '',
		busy => 1,
		current => {},
		socket => IO::Socket::UNIX->new(Peer => $path) || return,
	}, $class;
	my %options = (
		user => $user,
		database => 'postgres',
		application_name => 'chaos',
		client_min_messages => 'error');
	my $startup = pack('N', 196608)
	  . join('', map { "$_\0$options{$_}\0" } sort keys %options) . "\0";

	$self->_write(pack('N', 4 + length $startup) . $startup);
	return $self;
}

sub fd { return fileno($_[0]{socket}); }

package Clients;

use strict;
use warnings;

use Dice;
use IO::Handle;
use JSON::PP;
use List::Util qw(max min);
use POSIX ();
use PostgreSQL::Test::Utils;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my $json = JSON::PP->new->canonical->allow_nonref;

# The claim that was to end first, and has not.
my $overdue = 'SELECT name, extract(epoch FROM clock_timestamp() - expires_at) FROM zk_claims'
  . ' WHERE users = 0 AND expires_at < clock_timestamp() ORDER BY expires_at LIMIT 1';

sub now { return clock_gettime(CLOCK_MONOTONIC); }

=pod

=head1 METHODS

=over

=item Clients->start(%options)

name (of the instance), node, seed, clients (how many), locks (name to weight;
what a name begins with tells what kind of data it guards, and how it is used: see
Chaos.pm), permits (of semaphores), beside (names of locks that are taken beside
the others, one after the other in any order),
history (file to append to), long and medium (the chance that a section
takes so long), long_lasts and medium_lasts (lowest and highest number of
seconds), slow (the chance of a slow
COMMIT), shared (the chance of a reader), claims (the chance of a claim, for locks
that are claimed), checks (whether there is zklock.commit_check), pauses (whether the
build can pause a COMMIT), pause_lasts.

=item tell($what)

=item poll()

Read what the process reports: C<{sections}> is how many it has ended,
C<{ended}> whether it has no more to do.

=cut

sub start
{
	my ($class, %o) = @_;

	pipe(my $in, my $to) or die "could not make a pipe: $!";
	pipe(my $from, my $out) or die "could not make a pipe: $!";
	my $pid = fork // die "could not fork: $!";
	if ($pid == 0)
	{
		close $_ for ($to, $from);
		$out->autoflush;
		$SIG{$_} = 'DEFAULT' for qw(TERM INT HUP);
		my $self = bless { %o, in => $in, out => $out, total => 0 }, $class;
		eval { $self->_main; 1 } or print STDERR "clients of $o{name}: $@";
		POSIX::_exit($@ ? 1 : 0);
	}
	close $_ for ($in, $out);
	$_->autoflush for ($to, $from);
	$from->blocking(0);
	return bless {
		pid => $pid, to => $to, from => $from, name => $o{name},
		heard => '', sections => 0
	}, $class;
}

sub tell
{
	my ($self, $what) = @_;
	syswrite($self->{to}, "$what\n");
	return;
}

sub poll
{
	my ($self) = @_;

	return if $self->{ended};
	while (1)
	{
		my $n = sysread($self->{from}, $self->{heard}, 65536, length $self->{heard});
		last unless defined $n;
		next if $n > 0;
		waitpid($self->{pid}, 0);
		die "the clients of $self->{name} have failed\n" if $? != 0;
		$self->{ended} = 1;
		last;
	}
	while ($self->{heard} =~ s/^(\w+) ?(.*)\n//)
	{
		$self->{$1} = $2;
	}
	return;
}

=pod

=back

=cut

#
# In the process of the clients
#

sub _main
{
	my ($self) = @_;

	open($self->{record}, '>>', $self->{history})
	  or die "could not open $self->{history}: $!";
	$self->{user} = getpwuid($>);
	$self->{path} = $self->{node}->host . '/.s.PGSQL.' . $self->{node}->port;
	# number 0 looks at the claims, if there are any
	$self->{list} = [
		map { { number => $_, k => 0, wake => 0 } } (($self->{claims} ? 0 : 1) .. $self->{clients})
	];

	my $report = 0;
	while (1)
	{
		my $now = now();
		my ($wake, $busy) = ($now + 0.5, 0);

		for my $c (@{ $self->{list} })
		{
			$self->_step($c, $now) if !$c->{busy} && $c->{wake} <= $now;
			$busy++ if $c->{plan};
			$wake = $c->{wake} if !$c->{busy} && $c->{wake} < $wake;
			if ($c->{cont} && $c->{cont} <= $now)
			{
				# it may not have stopped yet
				kill 'CONT', $c->{wire}->pid if $c->{wire} && $c->{wire}->pid;
				$c->{cont} = $now + 0.2;
			}
			$wake = $c->{cont} if $c->{cont} && $c->{cont} < $wake;
		}
		if ($now > $report)
		{
			print { $self->{out} } "sections $self->{total}\nquiet "
			  . ($self->{quiesce} && !grep({ $_->{wire} } @{ $self->{list} }) ? 1 : 0)
			  . "\n";
			$report = $now + 0.2;
		}
		last if $self->{stop} && !$busy;
		$self->_wait($wake - now());
		last if $self->{abandon};
	}
	for my $c (grep { $_->{plan} } @{ $self->{list} })
	{
		$self->_end_act($c);
		$self->_end_section($c, 'hangs');
		$self->_end_hold($c, 'hangs');
	}
	$self->_end_claim($_) for @{ $self->{list} };
	close $self->{record} or die "could not write the history: $!";
	print { $self->{out} } "sections $self->{total}\n";
	return;
}

# Wait for answers and for what we are told.
sub _wait
{
	my ($self, $seconds) = @_;
	my @busy = grep { $_->{busy} } @{ $self->{list} };
	my $bits = '';

	vec($bits, fileno($self->{in}), 1) = 1;
	vec($bits, $_->{wire}->fd, 1) = 1 for @busy;
	return unless select(my $ready = $bits, undef, undef, $seconds > 0 ? $seconds : 0) > 0;

	if (vec($ready, fileno($self->{in}), 1))
	{
		# with nobody to report to, end
		my $told;
		sysread($self->{in}, $told, 4096) or $told = "abandon\n";
		for (split /\n/, $told)
		{
			if ($_ eq 'resume') { $self->{quiesce} = 0; }
			else { $self->{$_} = 1; }
		}
	}
	for my $c (grep { vec($ready, $_->{wire}->fd, 1) } @busy)
	{
		$c->{wire}->_read;
		next if $c->{wire}->busy;
		$c->{busy} = 0;
		$self->_answer($c, now());
	}
	return;
}

# Nothing is under way: begin the next thing.
sub _step
{
	my ($self, $c, $now) = @_;

	if (!$c->{plan})
	{
		if ($self->{quiesce} || $self->{stop})
		{
			if ($c->{wire})
			{
				$c->{wire}->vanish;
				delete $c->{wire};
			}
			$c->{wake} = $now + 0.1;
			return;
		}
		if (!$c->{wire})
		{
			if ($c->{wire} = Clients::Wire->connect($self->{path}, $self->{user}))
			{
				$c->{busy} = $c->{connecting} = 1;
			}
			$c->{wake} = $now + 0.05;
			return;
		}
		$self->_plan($c);
	}

	my $step = shift @{ $c->{steps} };
	if (!$step)
	{
		$self->_end_hold($c, 'got');
		return;
	}
	if (defined $step->{think})
	{
		$c->{wake} = $now + $step->{think};
		return;
	}
	$c->{step} = $step;
	if ($step->{vanish})
	{
		$c->{wire}->vanish;
		$self->_answer($c, $now);
		return;
	}
	my $sql = ref $step->{sql} ? $step->{sql}->() : $step->{sql};
	if ($step->{is} eq 'enter')
	{
		$c->{hold}{asked} = now();
	}
	elsif ($step->{is} eq 'beside')
	{
		$c->{wanted} = {
			t => 'hold', hold => "$c->{hold}{hold}.$step->{lock}", call => 'zk_lock',
			locks => [ $step->{lock} ], mode => $step->{mode}, asked => now(),
			map { ($_ => $c->{hold}{$_}) } qw(instance client pid scope)
		};
	}
	elsif ($step->{is} eq 'act')
	{
		$c->{act} = {
			t => 'act', claim => $c->{claim}{hold}, what => $step->{what}, asked => now(),
			($c->{hold} ? (in => $c->{hold}{hold}) : ())
		};
		@{ $c->{act} }{qw(least ttl)} =
		  $step->{ttl} ? ($step->{ttl}) x 2 : @{ $c->{claim} }{qw(least longest)};
	}
	elsif ($step->{is} eq 'watch')
	{
		$c->{asked} = now();
	}
	elsif ($step->{is} eq 'second')
	{
		$c->{second} = {
			%{ $c->{hold} }, hold => "$c->{hold}{hold}.second", locks => [ $step->{lock} ],
			mode => 'exclusive', call => 'zk_try_lock', asked => now()
		};
		delete $c->{second}{entered};
	}
	elsif ($step->{is} eq 'commit')
	{
		$c->{section}{commit} = now();
		if ($step->{pause})
		{
			$c->{cont} = now() + $step->{pause};
			$c->{section}{pause} = $step->{pause};
		}
	}
	elsif ($step->{id})
	{
		$c->{section} = {
			t => 'section', id => $step->{id}, hold => $c->{hold}{hold},
			mode => $c->{hold}{mode}, check => $step->{check}
		};
	}
	$c->{wire}->send($sql);
	$c->{busy} = 1;
	# a client that vanishes does not wait for the answer
	if ($step->{then_vanish})
	{
		$c->{busy} = 0;
		$c->{wire}->vanish;
		$self->_answer($c, now());
	}
	return;
}

# An answer has come, or the connection has ended.
sub _answer
{
	my ($self, $c, $now) = @_;
	my ($wire, $step) = @$c{qw(wire step)};
	my $result = $wire->result;
	my $state = $result->{sqlstate};

	delete @$c{qw(cont)};
	if (delete $c->{connecting})
	{
		if ($wire->gone)
		{
			delete $c->{wire};
			$c->{wake} = $now + 0.05;
		}
		return;
	}
	if ($wire->gone)
	{
		my $is = $step->{is} // '';
		my @error = ($state, $result->{message});
		@error = ('vanished') if $step->{vanish} || $step->{then_vanish};
		$self->_end_act($c, undef, @error);
		$self->_end_section($c, $is eq 'commit' ? 'unknown' : 'died', @error);
		$self->_end_hold($c, 'died', @error);
		delete $c->{wire};
		return;
	}
	if (defined $state)
	{
		# a cancel that was meant for what came before
		if ($step->{is} eq 'recover' && $state eq '57014')
		{
			unshift @{ $c->{steps} }, $step;
			return;
		}
		# the claims of an instance that is being stopped, say
		if ($step->{is} eq 'watch')
		{
			$self->_end_hold($c);
			return;
		}
		my $why = $state eq '55P03' ? 'no' : 'failed';
		my @waited = qw(waited sqlstate message detail);

		$self->_end_act($c, undef, $state, $result->{message});
		$c->{claim}{over} = 1 if $c->{claim} && $step->{uses} && _has_ended($result);

		@{ $c->{second} }{@waited} = ($now, @$result{qw(sqlstate message detail)}) if $c->{second};
		if ($step->{is} eq 'enter')
		{
			@{ $c->{hold} }{ 'result', @waited } =
			  ($why, $now, @$result{qw(sqlstate message detail)});
		}
		elsif ($step->{is} eq 'beside')
		{
			@{ $c->{wanted} }{ 'result', @waited } =
			  ($why, $now, @$result{qw(sqlstate message detail)});
			push @{ $c->{beside} }, delete $c->{wanted};
		}
		else
		{
			# the end of the connection does not tell
			my $ended = $step->{is} eq 'commit' && $state =~ /^57P0[123]$/;

			$self->_end_section($c, $ended ? 'unknown' : 'failed', $state, $result->{message});
			@{ $c->{hold} }{qw(sqlstate message)} = ($state, $result->{message}) if $c->{hold};
		}
		# not even that goes well: there is no going on
		if ($step->{is} eq 'recover')
		{
			$wire->vanish;
			$self->_end_hold($c, 'died', $state, $result->{message});
			delete $c->{wire};
			return;
		}
		$c->{steps} = [
			$result->{status} ne 'I' ? { is => 'recover', sql => 'ROLLBACK' } : (),
			$c->{hold} && $c->{hold}{scope} eq 'session'
			? { is => 'recover', sql => 'SELECT zk_unlock_all()' }
			: ()
		];
		return;
	}

	if ($step->{is} eq 'enter')
	{
		if (($result->{out} // '') eq ($step->{claims} ? '' : 'f') && !$step->{uses})
		{
			$c->{hold}{result} = 'no';
			$c->{steps} = $result->{status} ne 'I'
			  ? [ { is => 'recover', sql => 'ROLLBACK' } ] : [];
		}
		else
		{
			$c->{hold}{entered} = $now;
			@{ $c->{claim} }{qw(entered token)} = ($now, $result->{out}) if $step->{claims};
		}
	}
	elsif ($step->{is} eq 'beside')
	{
		$c->{wanted}{entered} = $now;
		push @{ $c->{beside} }, delete $c->{wanted};
	}
	elsif ($step->{is} eq 'act')
	{
		$self->_end_act($c, $result->{out});
	}
	elsif ($step->{is} eq 'watch')
	{
		my ($name, $seconds) = split /\|/, $result->{out} // '';

		$self->_record({
				t => 'late', instance => $self->{name}, asked => $c->{asked}, answered => $now,
				name => $name, seconds => 0 + $seconds
			}) if $name;
	}
	elsif ($step->{is} eq 'second')
	{
		if ($result->{out} eq 't') { $c->{second}{entered} = $now; }
		else { $self->_end_second($c, 'no'); }
	}
	elsif ($step->{is} eq 'back')
	{
		$self->_end_second($c, 'got');
		$c->{section}{keeps} = $c->{hold}{locks};
		$c->{section}{kept} = [ split /\n/, $result->{out} // '' ];
	}
	elsif ($step->{is} eq 'look')
	{
		# "n:token" for each lock
		my @locks = @{ $c->{hold}{locks} };
		for my $seen (split /\|/, $result->{out})
		{
			my ($n, $token) = split /:/, $seen;
			my $lock = shift @locks;
			$c->{section}{n}{$lock} = 0 + $n;
			$c->{section}{token}{$lock} = 0 + $token if $token;
		}
	}
	elsif ($step->{is} eq 'commit')
	{
		$self->_end_section($c, 'committed');
	}
	elsif ($step->{is} eq 'rollback')
	{
		$self->_end_section($c, 'rolled back');
	}
	return;
}

sub _end_section
{
	my ($self, $c, $outcome, $state, $message) = @_;
	my $section = delete $c->{section} or return;

	@$section{qw(end outcome)} = (now(), $outcome);
	@$section{qw(sqlstate message)} = ($state, $message) if defined $state;
	$self->_record($section);
	$self->{total}++;
	$self->_note_outcome($c->{claim}, $section) if $c->{claim};
	return;
}

# A transaction that makes, uses or ends a claim is over.
sub _note_outcome
{
	my ($self, $claim, $section) = @_;
	my $done = $section->{outcome} =~ /^(?:committed|unknown)$/;

	if (!$claim->{made})
	{
		@$claim{qw(made until)} = (1, $section->{end} + $claim->{ttl}) if $done;
	}
	elsif ($claim->{ending})
	{
		$claim->{over} = 1 if $section->{outcome} eq 'committed';
		delete $claim->{ending};
	}
	$claim->{used} = $section->{end};
	return;
}

# Does this error of zk_use_claim() say that there is no such claim any more?
sub _has_ended
{
	my ($result) = @_;
	return $result->{sqlstate} eq '40001'
	  ? $result->{message} eq 'the claim has ended'
	  : $result->{sqlstate} eq '55000';
}

# A claim has been renewed or ended, or nobody knows.
sub _end_act
{
	my ($self, $c, $result, $state, $message) = @_;
	my $act = delete $c->{act} or return;
	my $claim = $c->{claim};

	@$act{qw(answered result)} = (now(), $result);
	@$act{qw(sqlstate message)} = ($state, $message) if defined $state;
	$self->_record($act);
	if (defined $result && $result eq 'f')
	{
		$claim->{over} = 1;
	}
	elsif ($act->{what} eq 'renew')
	{
		if (defined $result)
		{
			@$claim{qw(least longest)} = @$act{qw(least ttl)};
		}
		elsif (($state // '') ne '57P03')
		{
			$claim->{least} = min($claim->{least}, $act->{least});
			$claim->{longest} = max($claim->{longest}, $act->{ttl});
		}
		$claim->{until} = max($claim->{until}, $act->{answered} + $act->{ttl});
	}
	elsif (defined $result)
	{
		$claim->{ $act->{in} ? 'ending' : 'over' } = 1;
	}
	$claim->{over} = 1 if defined $state && $state eq '55000';
	return;
}

# The client does no more with its claim.
sub _end_claim
{
	my ($self, $c) = @_;
	my $claim = delete $c->{claim} or return;

	return unless $claim->{made};
	my $end = $claim->{over} ? min(now(), $claim->{until}) : $claim->{until};
	$self->_record({
			t => 'hold', hold => $claim->{hold}, instance => $self->{name},
			client => "claim $claim->{hold}", pid => $claim->{pid}, locks => $claim->{locks},
			mode => 'exclusive', scope => 'claim', call => 'claim', ttl => $claim->{ttl},
			asked => $claim->{entered}, entered => $claim->{entered},
			left => max($end, $claim->{used}), result => 'got'
		});
	return;
}

# The lock taken behind a savepoint.
sub _end_second
{
	my ($self, $c, $result) = @_;
	my $hold = delete $c->{second} or return;

	@$hold{qw(left result)} = (now(), $result);
	$self->_record($hold);
	return;
}

# The locks beside it.
sub _end_beside
{
	my ($self, $c, @how) = @_;

	push @{ $c->{beside} }, delete $c->{wanted} if $c->{wanted};
	for my $hold (@{ delete $c->{beside} // [] })
	{
		$hold->{left} = now();
		@$hold{qw(result sqlstate message)} = @how unless $hold->{result};
		$self->_record($hold);
	}
	return;
}

sub _end_hold
{
	my ($self, $c, $result, $state, $message) = @_;
	my $hold = delete $c->{hold};

	$self->_end_beside($c, $result, $state, $message);
	# an error came ahead of it, or nothing is to be held
	if (!$hold || !defined $hold->{asked})
	{
		delete @$c{qw(plan steps)};
		return;
	}

	@{ $c->{second} }{qw(sqlstate message)} = ($state, $message)
	  if $c->{second} && defined $state && !defined $c->{second}{sqlstate};
	$self->_end_second($c, $result eq 'got' ? 'failed' : $result);
	$hold->{left} = now();
	$hold->{result} = $result if $result ne 'got' || !$hold->{result};
	@$hold{qw(sqlstate message)} = ($state, $message)
	  if defined $state && !defined $hold->{sqlstate};
	$self->_record($hold);
	delete @$c{qw(plan steps)};
	return;
}

sub _record
{
	my ($self, $what) = @_;
	# at once: we may be killed
	syswrite($self->{record}, $json->encode($what) . "\n")
	  or die "could not write the history: $!";
	return;
}

# What the client does next.
sub _plan
{
	my ($self, $c) = @_;

	if ($c->{number} == 0)
	{
		@$c{qw(plan steps)} = (1, [ { think => 0.2 }, { is => 'watch', sql => $overdue } ]);
		return;
	}
	return if $c->{claim} && $self->_go_on_with_claim($c);

	my $k = ++$c->{k};
	my $id = "$self->{name}$c->{number}.$k";
	my $dice = Dice->new($self->{seed}, 'client', $id);
	my %locks = %{ $self->{locks} };
	my @locks = ($dice->weighted(%locks));

	if ($locks[0] =~ /^[wfl]c/ && $dice->chance($self->{claims}))
	{
		$self->_plan_claim($c, $dice, $id, $locks[0]);
		$self->_go_on_with_claim($c);
		return;
	}

	my $call = $dice->weighted(zk_lock => 78, zk_try_lock => 14, zk_lock_all => 8);
	my $mode = $dice->chance($self->{shared}) ? 'shared' : 'exclusive';
	my $scope = $dice->chance(0.12) ? 'session' : 'transaction';

	# Who holds what others want behind a savepoint waits for nothing more, so
	# that there is no deadlock; foreign clients know no readers beside a mutex.
	my $plain = qr/^([wfl]c?\d|wh)/;
	$call = 'zk_lock' if $call eq 'zk_lock_all' && $locks[0] !~ $plain;
	$mode = 'exclusive' if $locks[0] =~ /^fx/;
	if ($call eq 'zk_lock_all')
	{
		my %others = map { ($_ => $locks{$_}) } grep { /$plain/ && $_ ne $locks[0] } keys %locks;
		my @many = grep { /^wh/ } sort keys %others;

		if (@many >= 40 && $dice->chance(0.15))
		{
			push @locks, splice(@many, $dice->below(scalar @many), 1)
			  for (1 .. 11 + $dice->below(20));
		}
		else { push @locks, $dice->weighted(%others) if %others; }
	}
	my $timeout = _timeout($dice, $call eq 'zk_try_lock');
	my $format = $locks[0] =~ /^fr/ || ($locks[0] !~ /^fx/ && $dice->chance(0.3))
	  ? 'readwrite' : 'mutex';

	my $permits = $self->{permits}{ $locks[0] };
	if ($permits)
	{
		$mode = 'permit';
		$call =~ s/lock/acquire/;
	}
	my $enter = 'SET ' . ($scope eq 'session' ? '' : 'LOCAL ')
	  . "zklock.node_format = $format; SELECT $call("
	  . ($call eq 'zk_lock_all' ? "'{" . join(',', @locks) . "}'" : "'$locks[0]'")
	  . ($permits ? ", $permits" : '')
	  . (defined $timeout ? sprintf(", timeout => '%.3f s'", $timeout) : '')
	  . ($mode eq 'shared' ? ', shared => true' : '')
	  . ($scope eq 'session' ? ', session => true' : '') . ')';
	my ($ahead, $behind) = $scope eq 'transaction' ? $self->_beside($dice) : ([], []);

	# another lock behind a savepoint
	my @second;
	my @seconds = grep { /^wm/ } sort keys %locks;
	if (@seconds && $scope eq 'transaction' && $locks[0] !~ /^wm/ && $dice->chance(0.1))
	{
		my $lock = $dice->one_of(@seconds);
		@second = (
			{ is => 'second', lock => $lock,
				sql => "SAVEPOINT s; SELECT zk_try_lock('$lock', timeout => '0.25 s')" },
			{ think => $dice->chance(0.3) ? $dice->between(@{ $self->{medium_lasts} }) : 0 },
			{ is => 'back', sql => 'ROLLBACK TO s;'
				  . ' SELECT DISTINCT name FROM zk_locks WHERE pid = pg_backend_pid()'
				  . q{ AND name !~ '^d'} });
	}

	my $transactions = $scope eq 'session' ? 1 + $dice->below(3) : 1;
	my @steps;
	push @steps, { is => 'enter', sql => $enter } if $scope eq 'session';
	for my $t (1 .. $transactions)
	{
		push @steps, $self->_transaction(
			$c, $dice,
			id => "$id.$t", locks => \@locks, mode => $mode, second => \@second,
			enter => $scope eq 'session'
			? [] : [ @$ahead, { is => 'enter', sql => $enter }, @$behind ]);
		last if $steps[-1]{vanish} || $steps[-1]{then_vanish};
	}
	if ($scope eq 'session')
	{
		push @steps, { is => 'unlock',
			sql => 'SELECT ' . join(', ', map { "zk_unlock('$_')" } @locks) };
	}
	$self->_begin($c, \@steps,
		hold => $id, locks => \@locks, mode => $mode, scope => $scope, call => $call);
	return;
}

# How long a call waits at most, in seconds; undef: without an end.
sub _timeout
{
	my ($dice, $try) = @_;
	return $try
	  ? ($dice->chance(0.5) ? 0 : $dice->between(0.1, 1.5))
	  : $dice->chance(0.5) ? $dice->between(0.2, 3) : undef;
}

# Locks ahead of another one and behind it, in any order: there are deadlocks.
sub _beside
{
	my ($self, $dice) = @_;
	my @names = @{ $self->{beside} // [] };
	my (@ahead, @behind);

	return (\@ahead, \@behind) unless @names && $dice->chance($self->{besides});
	for (1 .. 1 + $dice->below(3))
	{
		my $lock = splice(@names, $dice->below(scalar @names), 1);
		my $shared = $dice->chance(0.3);
		my $step = {
			is => 'beside', lock => $lock, mode => $shared ? 'shared' : 'exclusive',
			sql => "SELECT zk_lock('$lock'"
			  . ($dice->chance(0.3) ? sprintf(", timeout => '%.3f s'", $dice->between(0.2, 3)) : '')
			  . ($shared ? ', shared => true' : '') . ')' };
		push @{ $dice->chance(0.5) ? \@ahead : \@behind }, $step;
	}
	return (\@ahead, \@behind);
}

# The steps of a transaction with these steps for its locks (%t: see _plan).
sub _transaction
{
	my ($self, $c, $dice, %t) = @_;
	my ($section, @locks) = ($t{id}, @{ $t{locks} });
	my $check = $self->{checks} && $dice->chance(0.1) ? 'quorum' : 'lease';
	my @steps = @{ $t{enter} };
	my $begin = 'BEGIN; '
	  . ($check eq 'quorum' ? 'SET LOCAL zklock.commit_check = quorum; ' : '');

	if (@steps)
	{
		my ($sql, $first) = ($steps[0]{sql}, $begin);

		$steps[0] = { %{ $steps[0] }, sql => ref $sql ? sub { return $first . $sql->() } : $first . $sql };
		$begin = '';
	}

	# a pause between reading and writing, in the session or in the client
	my ($sleep, $think) = (0, 0);
	my $seconds =
	    $dice->chance($self->{long}) ? $dice->between(@{ $self->{long_lasts} })
	  : $dice->chance($self->{medium}) ? $dice->between(@{ $self->{medium_lasts} })
	  : 0;
	if ($dice->chance(0.3)) { $sleep = $seconds; } else { $think = $seconds; }
	my $slow = $dice->chance($self->{slow}) ? 2 + $dice->below(18) : 0;
	my $token = $dice->chance(0.3) && $t{mode} ne 'permit' ? 'true' : 'false';
	my $look = join(', ', map { "chaos_look('$_', $token)" } @locks);

	if ($t{mode} eq 'shared')
	{
		$look = join(', ', map { "chaos_peek('$_')" } @locks);
		push @steps, { is => 'look', id => $section, check => $check, sql => "${begin}SELECT $look" };
		push @steps, { think => $think } if $think;
		push @steps, { is => 'sleep', sql => "SELECT pg_sleep($sleep)" } if $sleep;
	}
	elsif ($think || $sleep)
	{
		push @steps, { is => 'look', id => $section, check => $check, sql => "${begin}SELECT $look" };
		push @steps, splice @{ $t{second} };
		push @steps, { think => $think } if $think;
		push @steps, { is => 'sleep', sql => "SELECT pg_sleep($sleep)" } if $sleep;
		push @steps, {
			is => 'write',
			sql => sub {
				return 'SELECT ' . join(', ', map {
					sprintf("chaos_write('%s', %d, '%s', %s, %d)", $_,
						$c->{section}{n}{$_}, $section,
						$c->{section}{token}{$_} // 'NULL', $slow)
				} @locks);
			} };
	}
	else
	{
		push @steps, {
			is => 'look', id => $section, check => $check,
			sql => "${begin}SELECT " . join(', ',
				map { "chaos_section('$_', '$section', $token, $slow)" } @locks) };
	}
	push @steps, splice @{ $t{second} };
	push @steps, @{ $t{then} // [] };

	my $end = $dice->weighted(commit => 94, rollback => 5, vanish => 1);
	if ($end eq 'rollback')
	{
		push @steps, { is => 'rollback', sql => 'ROLLBACK' };
	}
	elsif ($end eq 'vanish')
	{
		push @steps, $dice->chance(0.5)
		  ? { is => 'vanish', vanish => 1 }
		  : { is => 'commit', sql => 'COMMIT', then_vanish => 1 };
	}
	else
	{
		# Only what is fenced stands a pause behind the commit check.
		my $guarded = !grep { /^[ws]/ } @locks;
		my $pause = $dice->chance(0.004) && $self->{pauses} && $guarded
		  && $t{mode} eq 'exclusive' ? $dice->between(@{ $self->{pause_lasts} }) : 0;
		push @steps, { is => 'set', sql => 'SET LOCAL zklock.stop_before_commit = on' }
		  if $pause;
		push @steps, { is => 'commit', sql => 'COMMIT', pause => $pause };
	}
	return @steps;
}

# Do these steps, under that hold if there is one.
sub _begin
{
	my ($self, $c, $steps, %hold) = @_;

	@$c{qw(plan steps)} = (1, $steps);
	$c->{hold} = {
		t => 'hold', instance => $self->{name}, client => $c->{number},
		pid => 0 + $c->{wire}->pid, %hold
	} if %hold;
	return;
}

# A claim: the transaction that makes it, others that use it, renewals, and an
# end.  Of these parts each has its own connection, if the one before has ended.
sub _plan_claim
{
	my ($self, $c, $dice, $id, $lock) = @_;
	my $ttl = $dice->one_of(1, 1, 2, 4);
	my $try = $dice->chance(0.5);
	my $timeout = _timeout($dice, $try);
	my $call = $try ? 'zk_try_claim' : 'zk_claim';
	my $claim = $c->{claim} = {
		hold => $id, locks => [$lock], ttl => $ttl, least => $ttl, longest => $ttl, pid => 0 + $c->{wire}->pid
	};
	my $with_token = sub {
		my ($before, $after) = @_;
		return sub { return "SELECT $before('$claim->{token}'$after)" };
	};
	my $renewal = sub {
		my $other = $dice->chance(0.3) ? $dice->one_of(1, 2, 4) : 0;
		return {
			is => 'act', what => 'renew', ttl => $other,
			sql => $with_token->('zk_renew_claim', $other ? ", '$other s'" : '')
		};
	};
	my %end = (is => 'act', what => 'end', sql => $with_token->('zk_end_claim', ''));
	my %enter = (
		is => 'enter', claims => 1,
		sql => "SELECT $call('$lock', '$ttl s'"
		  . (defined $timeout ? sprintf(", timeout => '%.3f s'", $timeout) : '') . ')');
	my $transactions = 2 + $dice->below(3);
	my @parts;

	for my $t (1 .. $transactions)
	{
		my ($ahead, $behind) = $self->_beside($dice);
		my $ends = $t == $transactions && $dice->chance(0.3);
		my @steps = $self->_transaction(
			$c, $dice,
			id => "$id.$t.1", locks => [$lock], mode => 'exclusive', second => [],
			enter => [ @$ahead, {%enter}, @$behind ],
			then => [ $t > 1 && $dice->chance(0.2) ? $renewal->() : (), $ends ? {%end} : () ]);

		push @parts, { steps => \@steps, hold => "$id.$t", call => $call };
		$call = 'zk_use_claim';
		%enter = (is => 'enter', uses => 1, sql => $with_token->('zk_use_claim', ''));
		last if $ends;

		# now and then for longer than the ttl
		push @parts, {
			steps => [
				{ think => $ttl * ($dice->chance(0.1) ? $dice->between(1.05, 1.3) : $dice->between(0.02, 0.5)) },
				$dice->chance(0.5) ? $renewal->() : ()
			]
		};
	}
	push @parts, { steps => [ {%end} ] } if $dice->chance(0.6);
	$claim->{parts} = \@parts;
	return;
}

# Begin the next part of the client's claim; false if there is none.
sub _go_on_with_claim
{
	my ($self, $c) = @_;
	my $claim = $c->{claim};
	my $part;

	# the first one may have failed
	$part = shift @{ $claim->{parts} } if !$claim->{over} && ($claim->{made} || !$claim->{begun}++);
	if (!$part)
	{
		$self->_end_claim($c);
		return 0;
	}
	$self->_begin($c, $part->{steps}, $part->{hold}
		? (hold => $part->{hold}, claim => $claim->{hold}, locks => $claim->{locks},
			mode => 'exclusive', scope => 'transaction', call => $part->{call})
		: ());
	return 1;
}

1;
