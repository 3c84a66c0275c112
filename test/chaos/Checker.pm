
=pod

=head1 NAME

Checker - what a history of critical sections proves

=head1 SYNOPSIS

  my $verdict = Checker::check($history);
  print "$_->{kind}: $_->{text}\n" for @{ $verdict->{violations} };

=head1 DESCRIPTION

Nothing is done here but to look at a history, which is a hash of

=over

=item holds, sections, acts, late

As Clients.pm writes them.

=item faults

Hashes of kind, begin, end; instances (names; all if not there); and if they are
so: ends (connections of these instances may end), stops (processes of these
instances stand still), pid (only this one), closes (when the session had been
closed from outside, of which the instance has not heard until the end); cancels
(statements of these pids); harmless (no reason for anybody to wait).  Stalls of
the machine are faults that concern everybody, and excuse three times their length
at most.

=item rows, counters

What is in the databases: by store, a list of hashes lock, n, id, token; and by
store and lock, the counter.  The store "warehouse" has what sections under
locks w... and f... have written; a store by the name of an instance has what is
local to it: the sections under locks l..., and copies of the others.

=item permits

By semaphore (s...), how many it has.

=item timeout

Of the sessions, in seconds.

=back

Only what has been committed counts, and that is to be seen in the stores: a
client whose connection ended in COMMIT does not know.

The proof is in the data.  Under a lock a section reads the number n of the
section before it, and writes n + 1: if two have the same number, they have
overlapped, whatever the clocks say.  Beside that there is the time: a section
that was committed has held its lock at least from the answer to zk_lock until
COMMIT was asked for, since the lock is checked in COMMIT.  Another client's
section has held it until it asked ZooKeeper for the last time whether it does.
Sections under a semaphore have numbers that mean nothing; of those, the time
tells whether there were too many at once.

B<Nobody waits for a free lock.>  A lock is free while nobody holds it (of a
semaphore: while there is a permit left).  Who waits for several at once holds
none of them, but may keep those from others for as long as one of them is held,
or kept by such a one in turn.  A fault excuses that nobody is served while it
lasts, and for the session timeout + 3 s after it, and only if it concerns the
servers, or an instance that has wanted the lock, or had it, not long before or
after.  Apart from that, a lock may be free with waiters for 8 s, and whatever
happens, for 90 s.  So that this means anything, each lock must have been
undisturbed for a tenth of the run, if that took a minute.

B<A victim needs a deadlock, and no deadlock lasts.>  Who fails with 40P01 because of
other instances was a member of a deadlock (Cycles.pm), and, if no fault was
near, the only victim of it.  A deadlock lasts for 8 s at most, apart from faults of
the instances of its members, or of all.  Whom PostgreSQL's own detector has chosen,
within an instance, is its own matter.

B<A claim> is held from the answer to zk_claim until the last COMMIT of a
transaction that used it, as one hold, whatever lies between.  What was asked for
after it had certainly ended is refused: after the answer that it has been ended,
or had ended, or a ttl after the answer to its last renewal.  Ahead of a ttl after
the last renewal was asked for nobody is told that it has ended, unless by a fault
of the servers or of its instance, with the time to recover.  Apart from those
times one that is not in use is in zk_claims for 1 s beyond its end at most.

There are three things that a check of the lease cannot see.  These are no
violations, but "holes", and are listed as that:

=over

=item *

a pause behind the check, in the middle of COMMIT (rule 7 of the design): one of
two sections was stopped while it was in COMMIT, and they have the same number
under a lock without a fence (w...), or the other one is a reader, who writes no
token, and so is not kept apart by a fence either;

=item *

the session being closed from outside, that is, by who is not its owner: a
section was in COMMIT when its instance could not have heard of that yet, and, if
numbers are the same, the lock is not fenced; with zklock.commit_check = quorum,
COMMIT was asked for ahead of that;

=item *

a cancel while postgres_fdw waits for the other side of COMMIT: the section
fails, and its lock is given back, but the other side commits, if it is not
fenced even behind a later section.

=back

=cut

package Checker;

use strict;
use warnings;

use Cycles;
use List::Util qw(max min);

# Errors that faults may bring about.  A holder's statement that is canceled
# since its lock is lost fails with 40001, or, ahead of its execution, with 57014;
# nobody else is canceled.
my %expected = map { ($_ => 1) } qw(40001 55P03 57P03 57P01 57P02);

# Of an instance whose credentials were changed, ZooKeeper may want none.
my %denied = (42501 => 1);

# How long a lock may be free while somebody waits for it: faults, and the time
# to recover from them (with the session timeout), apart; and in any case.
my ($patience, $recovers, $bound) = (8, 3, 90);

# How long after its last hold or wait an instance may have a contender in the
# queue: the highest zklock.retain_time, with -1 included, and the time to let
# go.
my $keeps = 12;

# How long a claim may stay after its end, while nobody uses it.
my $stranded = 1;

# What part of a run each lock must have been undisturbed, and of what a run.
my ($least, $worth) = (0.1, 60);

sub check
{
	my ($history) = @_;
	my $self = bless {
		%$history,
		violations => [], holes => [],
		hold => { map { ($_->{hold} => $_) } @{ $history->{holds} } },
		section => { map { ($_->{id} => $_) } @{ $history->{sections} } },
	}, __PACKAGE__;

	$self->_outcomes;
	$self->_same_numbers;
	$self->_overlaps;
	$self->_permits;
	$self->_stale_reads;
	$self->_tokens;
	$self->_counters;
	$self->_answers;
	$self->_savepoints;
	$self->_claims;
	$self->_stranded_claims;
	$self->_free_with_waiters;
	$self->_deadlocks;
	return {
		violations => $self->{violations},
		holes => $self->{holes},
		gaps => $self->{gaps},
		undisturbed => $self->{undisturbed},
		waited => $self->{waited},
		half => $self->{half},
		late => $self->{longest_late},
		deadlocks => $self->{deadlocks},
		committed => $self->{committed_by_lock},
		recovery => $self->_recovery,
		after_crash => $self->_after_crash,
	};
}

sub _violation
{
	my ($self, $kind, $lock, $at, $text, @ids) = @_;
	push @{ $self->{violations} },
	  { kind => $kind, lock => $lock, at => $at, text => $text, ids => \@ids };
	return;
}

# Who it was and when, for people.
sub _who
{
	my ($self, $id) = @_;
	my $s = $self->{section}{$id} or return $id;
	my $h = $self->{hold}{ $s->{hold} };
	my $t = sub { defined $_[0] ? sprintf('%.3f', $_[0] - ($self->{start} // 0)) : '?' };

	return sprintf('%s (%s, pid %s, entered %s, COMMIT asked %s, ended %s, %s)',
		$id, "$h->{scope} $h->{mode}", $h->{pid} // '?', $t->($h->{entered}),
		$t->($s->{commit}), $t->($s->{end}), $s->{outcome});
}

sub _is_semaphore { return $_[0] =~ /^s/; }

sub _store
{
	my ($lock, $instance) = @_;
	return $lock =~ /^l/ ? $instance : 'warehouse';
}

# Which sections were committed, for each lock.  What clients were told must
# agree with what is there.
sub _outcomes
{
	my ($self) = @_;
	my %there;

	for my $store (keys %{ $self->{rows} })
	{
		for my $row (@{ $self->{rows}{$store} })
		{
			$there{$store}{ $row->{lock} }{ $row->{id} }++;
			$self->_violation('no such section', $row->{lock}, undef,
				"$store has $row->{id}, which no client knows")
			  unless $self->{section}{ $row->{id} };
		}
	}
	$self->{half} = 0;
	for my $s (@{ $self->{sections} })
	{
		my $h = $self->{hold}{ $s->{hold} };
		for my $lock (@{ $h->{locks} })
		{
			if ($h->{mode} eq 'shared')
			{
				$s->{done}{$lock} = $s->{outcome} eq 'committed';
				next;
			}
			my $store = _store($lock, $h->{instance});
			my $here = $there{$store}{$lock}{ $s->{id} };
			my $copy = $h->{foreign} ? $here : $there{ $h->{instance} }{$lock}{ $s->{id} };

			$s->{done}{$lock} = $here ? 1 : 0;
			$self->{committed_by_lock}{$lock}++ if $here;
			if ($s->{outcome} eq 'committed' && !($here && $copy))
			{
				$self->_violation('lost commit', $lock, $s->{end},
					'the client has heard that it is committed, and it is not in '
					  . ($here ? $h->{instance} : $store) . ': '
					  . $self->_who($s->{id}),
					$s->{id});
			}
			elsif ($here && !$copy && defined $s->{commit} && ($s->{sqlstate} // '') eq '57014')
			{
				$self->{half}++;
			}
			elsif ($s->{outcome} =~ /^(failed|rolled back|died)$/ && ($here || $copy))
			{
				$self->_violation('committed in spite of an error', $lock, $s->{end},
					$self->_who($s->{id}) . ': ' . ($s->{sqlstate} // ''), $s->{id});
			}
			elsif ($copy && !$here)
			{
				$self->_violation('committed on one side', $lock, $s->{end},
					"in $h->{instance}, not in the $store: " . $self->_who($s->{id}),
					$s->{id});
			}
			elsif ($here && !$copy)
			{
				# postgres_fdw commits there first: a crash in between, or, above,
				# a cancel
				$self->{half}++;
			}
		}
	}
	return;
}

# Why this section cannot have known better: it was stopped in the middle of
# COMMIT, or its session was closed behind its back, or it was canceled, or its
# connection terminated by a shutdown, while the other side went on.
sub _excuse
{
	my ($self, $what, $id) = @_;
	my $s = $self->{section}{$id} or return;
	my $h = $self->{hold}{ $s->{hold} };

	return unless defined $s->{commit};
	return { kind => 'stop_before_commit' } if $what eq 'stops' && $s->{pause};
	for my $f (grep { $_->{$what} } @{ $self->{faults} })
	{
		next unless grep { $_ eq $h->{instance} } @{ $f->{instances} };
		next if $f->{pid} && $f->{pid} != $h->{pid};
		# what ZooKeeper has answered it before that is true
		next if $what eq 'closes' && ($s->{check} // '') eq 'quorum' && $f->{closes} < $s->{commit};
		next if $what eq 'cancels' && !_is_canceled($f, $h, $s);
		next if $what eq 'ends' && ($s->{sqlstate} // '') ne '57P01';
		return $f if $f->{begin} < $s->{end} && $f->{end} > $s->{commit};
	}
	return;
}

# Was it this fault that canceled a statement of this hold?
sub _is_canceled
{
	my ($fault, $hold, $what) = @_;

	return ($what->{sqlstate} // '') eq '57014'
	  && grep { $_ == $hold->{pid} } @{ $fault->{cancels} // [] };
}

# An overlap, or the like: a violation, unless there is an excuse.
sub _wrong
{
	my ($self, $kind, $lock, $at, $text, $excuses, @ids) = @_;

	for my $what (@$excuses)
	{
		my ($fault) = map { $self->_excuse($what, $_) } @ids or next;
		push @{ $self->{holes} },
		  { lock => $lock, at => $at, ids => \@ids, text => "$kind: $text; $fault->{kind}" };
		$self->{in_hole}{$_} = 1 for @ids;
		return;
	}
	$self->_violation($kind, $lock, $at, $text, @ids);
	return;
}

sub _same_numbers
{
	my ($self) = @_;

	for my $store (sort keys %{ $self->{rows} })
	{
		my %ids;
		for my $row (@{ $self->{rows}{$store} })
		{
			next if _store($row->{lock}, $store) ne $store || _is_semaphore($row->{lock});
			push @{ $ids{ $row->{lock} }{ $row->{n} } }, $row->{id};
		}
		for my $lock (sort keys %ids)
		{
			for my $n (sort { $a <=> $b } keys %{ $ids{$lock} })
			{
				my @ids = @{ $ids{$lock}{$n} };
				next if @ids == 1;
				my $at = min(grep { defined } map {
					$self->{section}{$_} ? $self->{section}{$_}{commit} : undef } @ids);
				my $text = "number $n of $lock in $store: "
				  . join('; ', map { $self->_who($_) } @ids);

				$self->_wrong('same number', $lock, $at, $text,
					$lock =~ /^w/ ? [ 'stops', 'closes', 'cancels', 'ends' ] : [], @ids);
			}
		}
	}
	return;
}

# How long each hold has certainly lasted, if anything was committed under it.
sub _certain
{
	my ($self, $lock) = @_;
	my %last;

	for my $s (@{ $self->{sections} })
	{
		next unless exists $s->{done}{$lock} && $s->{done}{$lock} && defined $s->{commit};
		my $hold = $self->{hold}{ $s->{hold} }{claim} // $s->{hold};
		$last{$hold} = $s if !$last{$hold} || $last{$hold}{commit} < $s->{commit};
	}
	return sort { $a->{from} <=> $b->{from} } map {
		my $h = $self->{hold}{$_};
		{
			from => $h->{entered}, to => $last{$_}{sure} // $last{$_}{commit},
			id => $last{$_}{id},
			mode => $h->{mode}, hold => $_
		}
	} keys %last;
}

sub _locks
{
	my ($self) = @_;
	my %locks = map { map { ($_ => 1) } @{ $_->{locks} } } @{ $self->{holds} };
	return sort keys %locks;
}

sub _overlaps
{
	my ($self) = @_;

	for my $lock (grep { !_is_semaphore($_) } $self->_locks)
	{
		my ($any, $exclusive);
		for my $i ($self->_certain($lock))
		{
			my $before = $i->{mode} eq 'exclusive' ? $any : $exclusive;
			$self->_wrong('overlap', $lock, $i->{from},
				sprintf('%s of %.3f s: ', $lock,
					min($before->{to}, $i->{to}) - $i->{from})
				  . join('; ', map { $self->_who($_->{id}) } ($before, $i)),
				['closes'], $before->{id}, $i->{id})
			  if $before && $before->{to} > $i->{from};
			$any = $i if !$any || $any->{to} < $i->{to};
			$exclusive = $i
			  if $i->{mode} eq 'exclusive' && (!$exclusive || $exclusive->{to} < $i->{to});
		}
	}
	return;
}

# Never more holders of a semaphore than it has permits.
sub _permits
{
	my ($self) = @_;

	for my $lock (grep { _is_semaphore($_) } $self->_locks)
	{
		my $permits = $self->{permits}{$lock};
		my @in;
		for my $i ($self->_certain($lock))
		{
			@in = grep { $_->{to} > $i->{from} } @in;
			push @in, $i;
			$self->_wrong('too many permits', $lock, $i->{from},
				scalar(@in) . " holders of $lock, which has $permits permits: "
				  . join('; ', map { $self->_who($_->{id}) } @in),
				['closes'], map { $_->{id} } @in)
			  if @in > $permits;
		}
	}
	return;
}

# A reader has seen n sections: who wrote number n + 1 or a later one came when
# the reader was through.
sub _stale_reads
{
	my ($self) = @_;
	my %writers;

	for my $store (keys %{ $self->{rows} })
	{
		for my $row (@{ $self->{rows}{$store} })
		{
			next if _store($row->{lock}, $store) ne $store || _is_semaphore($row->{lock});
			my $s = $self->{section}{ $row->{id} } or next;
			push @{ $writers{$store}{ $row->{lock} } },
			  [ $row->{n}, $self->{hold}{ $s->{hold} }{entered}, $row->{id} ];
		}
	}
	# the earliest entry of number n or later
	for my $by_lock (values %writers)
	{
		for my $list (values %$by_lock)
		{
			my $first;
			@$list = sort { $a->[0] <=> $b->[0] } @$list;
			for my $w (reverse @$list)
			{
				$first = $w if !$first || $w->[1] < $first->[1];
				$w->[3] = $first;
			}
		}
	}
	for my $s (@{ $self->{sections} })
	{
		my $h = $self->{hold}{ $s->{hold} };
		next if $h->{mode} ne 'shared' || $s->{outcome} ne 'committed';
		for my $lock (@{ $h->{locks} })
		{
			my $list = $writers{ _store($lock, $h->{instance}) }{$lock} or next;
			my $n = $s->{n}{$lock};

			# the first with a higher number
			my ($low, $high) = (0, scalar @$list);
			while ($low < $high)
			{
				my $mid = int(($low + $high) / 2);
				if ($list->[$mid][0] > $n) { $high = $mid; } else { $low = $mid + 1; }
			}
			my $w = $low < @$list ? $list->[$low][3] : next;
			my $to = $s->{sure} // $s->{commit};
			$self->_wrong('stale read', $lock, $to,
				"$lock: " . $self->_who($s->{id}) . " has seen number $n; " . $self->_who($w->[2]),
				[ 'closes', 'stops', 'cancels', 'ends' ], $s->{id}, $w->[2])
			  if $w->[1] < $to;
		}
	}
	return;
}

# Tokens never go back: in the order of the numbers in a store, and over all
# instances in the order of time.  One token belongs to one instance.
sub _tokens
{
	my ($self) = @_;

	for my $store (sort keys %{ $self->{rows} })
	{
		my %last;
		for my $row (sort { $a->{n} <=> $b->{n} } @{ $self->{rows}{$store} })
		{
			my $lock = $row->{lock};
			next
			  if _store($lock, $store) ne $store
			  || _is_semaphore($lock)
			  || !defined $row->{token}
			  || $self->{in_hole}{ $row->{id} };
			my $last = $last{$lock};
			$self->_violation('token went back', $lock, undef,
				"$lock in $store: $last->{token} of " . $self->_who($last->{id})
				  . ", then $row->{token} of " . $self->_who($row->{id}),
				$last->{id}, $row->{id})
			  if $last && $row->{token} < $last->{token};
			$last{$lock} = $row;
		}
	}

	for my $lock (grep { !_is_semaphore($_) } $self->_locks)
	{
		my ($last, %instance);
		for my $i (grep { $_->{mode} eq 'exclusive' } $self->_certain($lock))
		{
			my $token = $self->{section}{ $i->{id} }{token}{$lock} // next;
			my $instance = $self->{hold}{ $i->{hold} }{instance};
			next if $self->{in_hole}{ $i->{id} };

			$self->_violation('token of two instances', $lock, $i->{from},
				"$lock: $token of " . $self->_who($i->{id}), $i->{id})
			  if ($instance{$token} //= $instance) ne $instance;
			$self->_violation('token went back', $lock, $i->{from},
				"$lock: $last->{token} of " . $self->_who($last->{id})
				  . ", then $token of " . $self->_who($i->{id}),
				$last->{id}, $i->{id})
			  if $last && $token < $last->{token};
			$last = { token => $token, id => $i->{id} };
		}
	}
	return;
}

# The counter equals the number of commits; a hole may have cost one.
sub _counters
{
	my ($self) = @_;

	for my $store (sort keys %{ $self->{rows} })
	{
		my %count;
		$count{ $_->{lock} }++ for @{ $self->{rows}{$store} };
		for my $lock (sort keys %count)
		{
			next if _store($lock, $store) ne $store || _is_semaphore($lock);
			my $counter = $self->{counters}{$store}{$lock} // 0;
			my $holes = grep { $_->{lock} eq $lock } @{ $self->{holes} };

			$self->_violation('counter', $lock, undef,
				"$lock in $store: the counter is $counter, there are $count{$lock} commits")
			  if $counter != $count{$lock} && !($holes && $counter < $count{$lock});
		}
	}
	return;
}

# Everybody who was not killed got an answer, and one that makes sense.
sub _answers
{
	my ($self) = @_;
	my %odd;

	for my $h (@{ $self->{holds} })
	{
		my $state = $h->{sqlstate} // '';

		if ($h->{result} eq 'hangs')
		{
			$self->_violation('no answer', join(',', @{ $h->{locks} }), $h->{asked},
				"$h->{hold} (pid $h->{pid}, $h->{mode} $h->{scope}, "
				  . (defined $h->{entered} ? 'holds' : 'waits') . ')', $h->{hold});
			next;
		}
		if ($h->{result} eq 'died')
		{
			next if $state eq 'vanished';
			my ($cause) = grep {
				$_->{ends}
				  && grep({ $_ eq $h->{instance} } @{ $_->{instances} })
				  && $_->{begin} - 0.5 < $h->{left}
				  && $_->{end} + 3 > ($h->{asked} // $h->{left})
			} @{ $self->{faults} };
			$self->_violation('connection lost', join(',', @{ $h->{locks} }), $h->{left},
				"$h->{hold} (pid $h->{pid}): $state " . ($h->{message} // ''), $h->{hold})
			  unless $cause;
			next if $state eq '';
		}
		next if $state eq '57014' && $self->_may_be_canceled($h);
		# see _deadlocks
		next if $state eq '40P01';
		# a token of before
		next if $state eq '55000' && $h->{claim} && $self->_is_restarted($h->{claim}, $h->{left});
		next if $state eq '' || $expected{$state};
		next if $denied{$state} && grep { $_->{denies} } @{ $self->{faults} };
		$odd{"$state: " . ($h->{message} // '')}++;
	}
	for my $act (grep { defined $_->{sqlstate} } @{ $self->{acts} })
	{
		my $state = $act->{sqlstate};

		next if $state !~ /^\w{5}$/ || $expected{$state} || $state eq '57014';
		next if $denied{$state} && grep { $_->{denies} } @{ $self->{faults} };
		next if $state eq '55000' && $self->_is_restarted(@$act{qw(claim answered)});
		$odd{"$state: " . ($act->{message} // '')}++;
	}
	$self->_violation('unexpected error', undef, undef, "$_ ($odd{$_} times)")
	  for sort keys %odd;
	return;
}

# Has the instance of a claim been started again since?
sub _is_restarted
{
	my ($self, $claim, $to) = @_;
	my $hold = $self->{hold}{$claim} or return 0;

	return grep {
		$_->{kind} =~ /^(?:restart-|other-library$)/
		  && $_->{instances}
		  && $_->{instances}[0] eq $hold->{instance}
		  && $_->{end} > $hold->{entered}
		  && $_->{begin} < $to
	} @{ $self->{faults} };
}

# By somebody else, or since the lock was lost.
sub _may_be_canceled
{
	my ($self, $h) = @_;
	my $recovers = $self->{timeout} + $recovers;

	for my $f (grep { $_->{begin} < $h->{left} } @{ $self->{faults} })
	{
		return 1 if _is_canceled($f, $h, $h) && $f->{end} + 3 > $h->{asked};
		return 1
		  if !$f->{harmless}
		  && $f->{kind} ne 'stall'
		  && defined $h->{entered}
		  && $f->{end} + $recovers > $h->{entered}
		  && (!$f->{instances} || grep { $_ eq $h->{instance} } @{ $f->{instances} });
	}
	return 0;
}

# Back to a savepoint: what was taken behind it is given back, and nothing
# else.  "keeps" is what must be there, "kept" what the section has found.
sub _savepoints
{
	my ($self) = @_;

	for my $s (grep { $_->{kept} } @{ $self->{sections} })
	{
		my ($keeps, $kept) = map { join(',', sort @$_) } @$s{qw(keeps kept)};
		$self->_violation('savepoint', $s->{keeps}[0], $s->{commit} // $s->{end},
			"after ROLLBACK TO there must be $keeps, and there is $kept: " . $self->_who($s->{id}),
			$s->{id})
		  if $keeps ne $kept;
	}
	return;
}

# What has been done with each claim, by its one client: nothing after its end, and
# there is no end without a reason.
sub _claims
{
	my ($self) = @_;
	my (%done, %section);

	$section{ $_->{hold} } = $_ for @{ $self->{sections} };
	push @{ $done{ $_->{claim} } }, $_ for grep { defined $_->{asked} && $_->{claim} } @{ $self->{holds} };
	push @{ $done{ $_->{claim} } }, $_ for @{ $self->{acts} };
	for my $claim (grep { $_->{scope} eq 'claim' } @{ $self->{holds} })
	{
		my @done = sort { $a->{asked} <=> $b->{asked} } @{ $done{ $claim->{hold} } };

		$self->_one_claim($claim, \%section, @done);
	}
	return;
}

# It has lived at $lives, ends at $from or later, and has certainly ended at $to:
# undef, if that is not known.
sub _one_claim
{
	my ($self, $claim, $section, $first, @done) = @_;
	my $faults = $self->_disturbed_instance($claim->{instance});
	my $made = $section->{ $first->{hold} } or return;
	my ($lives, $from, $to);

	($lives, $from, $to) =
	  ($made->{commit}, $made->{commit} + $claim->{ttl}, $made->{end} + $claim->{ttl})
	  if $made->{outcome} eq 'committed';
	for my $e (@done)
	{
		my $what = $e->{what} // 'use';
		my $answered = $e->{answered} // $e->{entered} // $e->{waited};
		my $done = $what eq 'use' ? defined $e->{entered} : ($e->{result} // '') eq 't';
		my $ended = $what eq 'use'
		  ? !$done && ($e->{message} // '') eq 'the claim has ended' : ($e->{result} // '') eq 'f';
		my $who = sub {
			return "$claim->{hold} of $claim->{locks}[0] ($what asked at "
			  . sprintf('%.3f', $e->{asked} - $self->{start}) . ", $_[0])";
		};

		if ($done && defined $to && $e->{asked} > $to)
		{
			$self->_violation('claim used after its end', $claim->{locks}[0], $e->{asked},
				$who->(sprintf('it ended at %.3f or before', $to - $self->{start})),
				$e->{hold} // $claim->{hold});
		}
		if ($ended)
		{
			my $since = $answered - ($lives // $answered);

			$self->_violation('claim ended early', $claim->{locks}[0], $answered,
				$who->(sprintf('learned at %.3f, when it was to end at %.3f',
						map { $_ - $self->{start} } ($answered, $from))),
				$claim->{hold})
			  if defined $from && $answered < $from && _outside($lives, $answered, $faults) == $since;
			($from, $to) = (undef, min($answered, $to // $answered));
		}
		if ($what eq 'renew' && $done)
		{
			($lives, $from, $to) = ($e->{asked}, $e->{asked} + $e->{least}, $answered + $e->{ttl});
		}
		elsif ($what eq 'renew' && !$ended && ($e->{sqlstate} // '') ne '57P03')
		{
			$from = min($from, $e->{asked} + $e->{least}) if defined $from;
			$to = max($to, $answered + $e->{ttl}) if defined $to;
		}
		elsif ($what eq 'end')
		{
			my $in = $e->{in} && $section->{ $e->{in} };

			undef $from if !$in || $in->{outcome} =~ /^(?:committed|unknown)$/;
			$to = $answered if $done && !$in;
			$to = $in->{end} if $done && $in && $in->{outcome} eq 'committed';
		}
	}
	return;
}

# Claims that are seen beyond their end, while nobody uses them.
sub _stranded_claims
{
	my ($self) = @_;

	$self->{longest_late} = 0;
	for my $late (@{ $self->{late} })
	{
		my $seconds = _outside($late->{asked} - $late->{seconds}, $late->{asked},
			$self->_disturbed_instance($late->{instance}));

		$self->{longest_late} = max($self->{longest_late}, $seconds);
		$self->_violation('claim stranded', $late->{name}, $late->{asked},
			sprintf('of %s in %s, since %.2f s, as of %.3f',
				@$late{qw(name instance)}, $seconds, $late->{asked} - $self->{start}))
		  if $seconds > $stranded;
	}
	return;
}

# Who fails with 40P01 was a member of a deadlock, and no deadlock lasts.
sub _deadlocks
{
	my ($self) = @_;
	my $cycles = Cycles->new($self->{holds}, permits => $self->{permits} // {});
	my $disturbed = sub {
		my %instances = map { ($_ => 1) } @_;
		return $self->_with_recovery(
			grep { !$_->{instances} || grep { $instances{$_} } @{ $_->{instances} } } @{ $self->{faults} });
	};

	$self->{deadlocks} = [];
	for my $h (@{ $self->{holds} })
	{
		# that it failed with something else, or PostgreSQL's own
		next if ($h->{sqlstate} // '') ne '40P01' || defined $h->{entered};
		next if ($h->{detail} // '') !~ /in ZooKeeper/;

		my $why = $cycles->explain($h);
		my $who = "$h->{hold} (pid $h->{pid}, $h->{mode}, waited from "
		  . sprintf('%.3f to %.3f)', map { $_ - $self->{start} } $h->{asked}, $h->{waited} // $h->{left});

		if (!$why)
		{
			$self->_violation('victim without a deadlock', $h->{locks}[0], $h->{left},
				"$who: $h->{detail}", $h->{hold});
			next;
		}
		my $end = $h->{waited} // $h->{left};
		my $faults = $disturbed->(map { s/ .*//r } @{ $why->{members} });
		next if _outside($why->{since}, $end, $faults) < $end - $why->{since};
		if ($why->{vain})
		{
			$self->_violation('needless victim', $h->{locks}[0], $h->{left},
				"$who: " . join(', ', @{ $why->{members} }) . ": $h->{detail}", $h->{hold});
		}
		else { push @{ $self->{deadlocks} }, $end - $why->{since}; }
	}
	for my $d ($cycles->lasting($patience,
		sub {
			my ($records, $from, $to) = @_;
			return _outside($from, $to, $disturbed->(map { $_->{instance} } @$records));
		}))
	{
		$self->_violation('deadlock lasts', $d->{records}[0]{locks}[0], $d->{since},
			sprintf('from %.3f, %s', $d->{since} - $self->{start}, $d->{text}),
			map { $_->{hold} } @{ $d->{records} });
	}
	return;
}

# While a lock is free nobody waits for it, but for the time to get it.
sub _free_with_waiters
{
	my ($self) = @_;
	my $run = $self->{faults_end} - $self->{start};

	for my $h (grep { defined $_->{asked} } @{ $self->{holds} })
	{
		push @{ $self->{users}{$_} }, $h for @{ $h->{locks} };
	}
	for my $lock (sort keys %{ $self->{users} })
	{
		my $disturbed = $self->_disturbed($lock);
		my ($longest, $at, $quiet) = (0);

		for my $gap ($self->_gaps($lock, $disturbed))
		{
			# most are short, and need no closer look
			next if _outside(@$gap, $disturbed) <= $longest && $gap->[1] - $gap->[0] <= $bound;
			for my $part ($self->_free_parts($lock, @$gap))
			{
				my $length = _outside(@$part, $disturbed);

				($longest, $at) = ($length, $part->[0]) if $length > $longest;
				$self->_violation('free with waiters', $lock, $part->[0],
					sprintf('%s, for %.1f s, whatever happened', $lock, $part->[1] - $part->[0]))
				  if $part->[1] - $part->[0] > $bound && $length <= $patience;
			}
		}
		$self->{gaps}{$lock} = $longest;
		$self->_violation('free with waiters', $lock, $at,
			sprintf('%s, for %.1f s without a fault from %.3f', $lock, $longest, $at - $self->{start}))
		  if $longest > $patience;

		next if $run <= 0;
		$self->{undisturbed}{locks}{$lock} =
		  _outside(@$self{qw(start faults_end)}, $disturbed) / $run;
		$self->_violation('hardly undisturbed', $lock, undef,
			sprintf('%s: %.1f %% of the time', $lock, 100 * $self->{undisturbed}{locks}{$lock}))
		  if $run >= $worth && $self->{undisturbed}{locks}{$lock} < $least;
	}
	for my $instance (@{ $self->{instances} })
	{
		next if $run <= 0;
		$self->{undisturbed}{instances}{$instance} =
		  _outside(@$self{qw(start faults_end)}, $self->_disturbed_instance($instance)) / $run;
	}
	return;
}

# From when to when these faults excuse waiting; sorted, and none in another.
sub _with_recovery
{
	my ($self, @faults) = @_;
	my @found;

	for my $i (
		sort { $a->[0] <=> $b->[0] }
		map {
			my $after = $self->{timeout} + $recovers;
			$after = min($after, 2 * ($_->{end} - $_->{begin})) if $_->{kind} eq 'stall';
			[ $_->{begin}, $_->{end} + $after ]
		}
		grep { !$_->{harmless} } @faults)
	{
		if (@found && $found[-1][1] >= $i->[0])
		{
			$found[-1][1] = max($found[-1][1], $i->[1]);
		}
		else { push @found, $i; }
	}
	return \@found;
}

# The same for what an instance does by itself.
sub _disturbed_instance
{
	my ($self, $instance) = @_;

	return $self->{disturbed}{$instance} //= $self->_with_recovery(
		grep { !$_->{instances} || grep({ $_ eq $instance } @{ $_->{instances} }) } @{ $self->{faults} });
}

# The same for a lock: of the faults of instances, only those count of instances
# that may have been in its queue at that time.
sub _disturbed
{
	my ($self, $lock) = @_;
	my %wanted;

	for my $h (@{ $self->{users}{$lock} })
	{
		push @{ $wanted{ $h->{instance} } }, [ $h->{asked}, $h->{left} + $keeps ];
	}
	return $self->_with_recovery(
		grep {
			my $f = $_;
			!$f->{instances} || grep {
				grep {
					$_->[0] < $f->{end} + $self->{timeout} + $recovers && $_->[1] > $f->{begin}
				} @{ $wanted{$_} // [] }
			} @{ $f->{instances} }
		} @{ $self->{faults} });
}

# When a lock is free, nobody gets it, and somebody waits, be it for others, too.
sub _gaps
{
	my ($self, $lock, $disturbed) = @_;
	my $capacity = $self->{permits}{$lock} // 1;
	my (@changes, @gaps, $since, $waited);
	my ($held, $waiting) = (0, 0);

	# (time, change of holders, change of waiters)
	for my $h (@{ $self->{users}{$lock} })
	{
		push @changes, [ $h->{asked}, 0, 1 ], [ $h->{entered} // $h->{left}, 0, -1 ];
		push @changes, [ $h->{entered}, 1, 0 ], [ $h->{left}, -1, 0 ] if defined $h->{entered};
	}
	for my $c (sort { $a->[0] <=> $b->[0] || $b->[1] <=> $a->[1] } @changes)
	{
		$held += $c->[1];
		$waiting += $c->[2];

		# permits may be left while one after the other is taken
		if ($c->[1] > 0 && defined $since)
		{
			push @gaps, [ $since, $c->[0] ];
			undef $since;
		}
		if ($held < $capacity && $waiting > 0)
		{
			$since //= $c->[0];
		}
		elsif (defined $since)
		{
			push @gaps, [ $since, $c->[0] ];
			undef $since;
		}
		if ($waiting > 0)
		{
			$waited //= $c->[0];
		}
		elsif (defined $waited)
		{
			$self->{waited}{$lock} += _outside($waited, $c->[0], $disturbed);
			undef $waited;
		}
	}
	return @gaps;
}

# Of such a time, the parts in which the lock was not kept by one who waits for
# several, one of which is held or kept: nobody waits for himself.
sub _free_parts
{
	my ($self, $lock, $from, $to) = @_;
	my (%locks, %callers, %held, @free);
	my @look = ($lock);
	my %cut = ($from => 1, $to => 1);

	# all locks that are in question, who holds them, and who waits for several
	while (defined(my $l = shift @look))
	{
		next if $locks{$l}++;
		for my $h (@{ $self->{users}{$l} })
		{
			next if $h->{asked} >= $to || $h->{left} <= $from;
			my @times = @$h{qw(entered left)};

			if (defined $h->{entered} && $h->{entered} < $to)
			{
				push @{ $held{$l} }, $h;
				$cut{$_} = 1 for grep { $_ > $from && $_ < $to } @times;
			}
			next if @{ $h->{locks} } == 1 || (defined $h->{entered} && $h->{entered} <= $from);
			$callers{ $h->{hold} } = $h;
			push @look, @{ $h->{locks} };
			$cut{$_} = 1 for grep { $_ > $from && $_ < $to } ($h->{asked}, $times[0] // $times[1]);
		}
	}

	my @cuts = sort { $a <=> $b } keys %cut;
	for my $i (1 .. $#cuts)
	{
		my ($begin, $end) = @cuts[ $i - 1, $i ];
		my $there = sub { return $_[0] <= $begin && $_[1] >= $end; };
		my @waiting = grep { $there->($_->{asked}, $_->{entered} // $_->{left}) } values %callers;
		my %taken = map {
			my $l = $_;
			(grep { $there->(@$_{qw(entered left)}) } @{ $held{$l} }) ? ($l => 1) : ()
		} keys %held;

		while (my @more = grep { grep { $taken{$_} } @{ $_->{locks} } } @waiting)
		{
			my $n = keys %taken;
			$taken{$_} = 1 for map { @{ $_->{locks} } } @more;
			last if keys %taken == $n;
		}
		next if $taken{$lock} && !$self->{permits}{$lock};
		if (@free && $free[-1][1] == $begin) { $free[-1][1] = $end; }
		else { push @free, [ $begin, $end ]; }
	}
	return @free;
}

# The length of an interval outside of others, which are sorted.
sub _outside
{
	my ($from, $to, $others) = @_;
	my $total = 0;

	for my $o (@$others)
	{
		next if $o->[1] <= $from;
		last if $o->[0] >= $to;
		$total += $o->[0] - $from if $o->[0] > $from;
		$from = $o->[1];
	}
	return $total + ($to > $from ? $to - $from : 0);
}

# From the end of each fault to the first new grant, in every instance that it
# concerns: by kind, a list of seconds.  If another fault comes in between, it
# is not counted.
sub _recovery
{
	my ($self) = @_;
	my (%entered, %seconds);

	push @{ $entered{ $_->{instance} } }, $_->{entered}
	  for grep { defined $_->{entered} } @{ $self->{holds} };
	@$_ = sort { $a <=> $b } @$_ for values %entered;
	for my $f (@{ $self->{faults} })
	{
		next if $f->{harmless} || $f->{kind} eq 'stall';
		for my $instance (@{ $f->{instances} // [ sort keys %entered ] })
		{
			my ($first) = grep { $_ > $f->{end} } @{ $entered{$instance} };
			next unless defined $first;
			next
			  if grep { $_ != $f && !$_->{harmless} && $_->{begin} < $first && $_->{end} > $f->{end} }
			  @{ $self->{faults} };
			push @{ $seconds{ $f->{kind} } }, $first - $f->{end};
		}
	}
	return \%seconds;
}

# From the moment a crashed instance accepts connections to the next grant, to
# anybody, of each lock that it had held.
sub _after_crash
{
	my ($self) = @_;
	my (@seconds, %entered);

	for my $h (grep { defined $_->{entered} } @{ $self->{holds} })
	{
		push @{ $entered{$_} }, $h->{entered} for @{ $h->{locks} };
	}
	@$_ = sort { $a <=> $b } @$_ for values %entered;
	for my $f (grep { $_->{crash} } @{ $self->{faults} })
	{
		my %held;
		for my $h (@{ $self->{holds} })
		{
			next
			  if $h->{instance} ne $f->{instances}[0]
			  || !defined $h->{entered}
			  || $h->{entered} > $f->{begin}
			  || $h->{left} < $f->{begin};
			$held{$_} = 1 for @{ $h->{locks} };
		}
		for my $lock (sort keys %held)
		{
			my ($first) = grep { $_ > $f->{begin} } @{ $entered{$lock} };
			next unless defined $first;
			next if grep { $_ != $f && $_->{begin} < $first && $_->{end} > $f->{end} - 1 }
			  @{ $self->{faults} };
			push @seconds, max(0, $first - $f->{end});
		}
	}
	return \@seconds;
}

1;
