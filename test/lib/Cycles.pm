
=pod

=head1 NAME

Cycles - was there a deadlock, by what clients have written down of their waits?

=head1 SYNOPSIS

  my $cycles = Cycles->new(\@records, permits => { s1 => 3 });
  for my $victim (grep { ($_->{sqlstate} // '') eq '40P01' } @records)
  {
      my $why = $cycles->explain($victim);
      print "nobody would have waited forever\n" if !$why;
      print "one victim was enough\n" if $why && $why->{vain};
  }
  print "$_->{text}\n" for $cycles->lasting(8);

=head1 DESCRIPTION

A record is what a client knows of one call: instance and client (who), locks,
mode (exclusive, shared, permit), asked (just before the call), entered (just
after its answer; undef if it did not get them), left (just after they were
certainly given back, or the call has failed), waited (just after the call has
failed, if left is later), sqlstate; any, if one of the locks is enough, and then
took, a list of the one that it got.  If the call has failed while its instance had no
worker: queued, until when its contender may have been in the queue.  All times are
of one clock.  (The holds in the history of make chaos are such records.)

A victim's record may tell more of the order in which victims were chosen, since
clients hear of it late: act (its place among those that were chosen by such
acts), failed (when it was chosen, of any clock).  Two victims are ordered by the
first of act, failed, and the end of the wait that both have.

So a record waits at most from C<asked> to C<entered>, C<waited> or C<left>; it holds
certainly from C<entered> until it begins to give back, and at most until
C<left>.  A client that waits gives nothing back: for members of a deadlock this
is exact.

A client is deadlocked at a moment if it waits for a lock one of whose holders
excludes it and is deadlocked; for a permit, if as many holders as there are
permits are deadlocked.  A reader waits for other readers if somebody waits to
write, or has given up and has a contender in the queue still.  A call for several locks keeps those that it is in front for from
others while it waits for the rest; one for any of several keeps none, and is
deadlocked if each of them is held by a deadlocked client.  A client is a member if it waits for
itself in the end, and no bystander, whose end would change nothing.

A victim is explained if it was a member of a deadlock at one moment of its
wait.  It has died in vain if each such deadlock had another victim before.

A deadlock in which a client waits for a permit, or for any of several locks, is not
looked for, and lasts until a timeout.

Of two calls for several locks that wait, the records do not tell which is in front
for a lock that both want.  So either may explain a victim; but a deadlock only
lasts for certain if each call keeps a lock from those that have asked later.  And
while another client of its instance holds the lock that a writer waits for, and is not
deadlocked, the writer waits for that client only: that there are holders in other
instances is found then.

=cut

package Cycles;

use strict;
use warnings;

use List::Util qw(max min sum);

=pod

=head1 METHODS

=over

=item Cycles->new(\@records, permits => \%permits)

=cut

sub new
{
	my ($class, $records, %options) = @_;
	my $self = bless { permits => {}, %options, at => {} }, $class;

	for my $r (grep { defined $_->{asked} && defined $_->{left} } @$records)
	{
		push @{ $self->{at}{$_} }, $r for (int($r->{asked}) .. int($r->{queued} // $r->{left}));
		push @{ $self->{records} }, $r;
	}
	return $self;
}

sub _who { return "$_[0]{instance} $_[0]{client}"; }

sub _wait_ends { return $_[0]{entered} // $_[0]{waited} // $_[0]{left}; }

# Was one victim chosen before another one, for certain?
sub _chosen_before
{
	my ($one, $other) = @_;
	my ($key) = grep { defined $one->{$_} && defined $other->{$_} } qw(act failed);

	return $one->{$key} < $other->{$key} if $key;
	return _wait_ends($one) < _wait_ends($other);
}

# What was so for all of a time: who waits with which record, which records hold a
# lock or keep it from others, and which ones are in the queue to write.  Waits of
# %$except are left out.
sub _span
{
	my ($self, $from, $to, $except) = @_;
	my (%waits, %keep, @writers);

	for my $r (@{ $self->{at}{ int $from } // [] })
	{
		next if $r->{asked} > $from;
		push @writers, $r
		  if $r->{mode} eq 'exclusive'
		  && !(defined $r->{entered} && $r->{entered} <= $from)
		  && ($r->{queued} // _wait_ends($r)) >= $to
		  && !$except->{$r};
		next if $r->{left} < $to;
		if (defined $r->{entered} && $r->{entered} <= $from)
		{
			push @{ $keep{$_} }, $r for @{ $r->{took} // $r->{locks} };
		}
		elsif (_wait_ends($r) >= $to && !$except->{$r})
		{
			$waits{ _who($r) } = $r;
			next if @{ $r->{locks} } == 1 || $r->{any};
			push @{ $keep{$_} }, $r for @{ $r->{locks} };
		}
	}
	return (\%waits, \%keep, \@writers);
}

# Does a record keep its locks from a wait for certain?
sub _keeps
{
	my ($r, $waits, $from) = @_;
	return ($waits->{ _who($r) } // 0) != $r || $r->{asked} < $from->{asked};
}

# Whom a wait is for, for certain or not: a list, for each lock, of lists of clients.
sub _blockers
{
	my ($r, $waits, $keep, $writers, $certain) = @_;
	my $who = _who($r);
	my @found;

	for my $lock (@{ $r->{locks} })
	{
		my $writer = grep {
			_who($_) ne $who && grep { $_ eq $lock } @{ $_->{locks} }
		} @$writers;

		push @found, {
			lock => $lock,
			who => [
				map { _who($_) } grep {
					_who($_) ne $who
					  && ($r->{mode} ne 'shared' || $_->{mode} ne 'shared' || $writer)
					  && (!$certain || _keeps($_, $waits, $r))
				} @{ $keep->{$lock} // [] } ]
		};
	}
	return @found;
}

# Do instances tell each other of a wait?
sub _is_told { return $_[0]{mode} ne 'permit' && !$_[0]{any}; }

# The clients that a deadlock holds up for all of a time: by name, whom each
# waits for.  If it has to be certain that it is ended: by waits that are told.
sub _deadlocked
{
	my ($self, $from, $to, $except, $certain) = @_;
	my ($waits, $keep, $writers) = $self->_span($from, $to, $except);
	my %blockers =
	  map { ($_ => [ _blockers($waits->{$_}, $waits, $keep, $writers, $certain) ]) }
	  grep { !$certain || _is_told($waits->{$_}) } keys %$waits;
	my $again = 1;

	while ($again)
	{
		$again = 0;
		for my $who (keys %blockers)
		{
			my $permit = $waits->{$who}{mode} eq 'permit';
			my $stays = grep {
				my %in = map { ($_ => 1) } grep { $blockers{$_} } @{ $_->{who} };
				keys %in >= ($permit ? $self->{permits}{ $_->{lock} } // 1 : 1)
			} @{ $blockers{$who} };

			next if $waits->{$who}{any} ? $stays == @{ $blockers{$who} } : $stays;
			delete $blockers{$who};
			$again = 1;
		}
	}
	return {
		map {
			my %for = map { ($_ => 1) } grep { $blockers{$_} } map { @{ $_->{who} } } @{ $blockers{$_} };
			($_ => [ sort keys %for ])
		} keys %blockers
	};
}

# The shortest way of a client to itself, or nothing.
sub _cycle
{
	my ($for, $who) = @_;
	my %from;
	my @look = ($who);

	while (defined(my $at = shift @look))
	{
		for my $next (@{ $for->{$at} // [] })
		{
			if ($next eq $who)
			{
				my @cycle = ($at);

				unshift @cycle, $from{ $cycle[0] } while $cycle[0] ne $who;
				return @cycle;
			}
			next if exists $from{$next};
			$from{$next} = $at;
			push @look, $next;
		}
	}
	return;
}

# When something began between two times, in order.
sub _beginnings
{
	my ($self, $from, $to) = @_;
	my %at = ($from => 1);

	for my $r (map { @{ $self->{at}{$_} // [] } } (int($from) .. int($to)))
	{
		$at{$_} = 1 for grep { defined && $_ >= $from && $_ <= $to } @$r{qw(asked entered)};
	}
	return sort { $a <=> $b } keys %at;
}

# The members of the deadlock of a record that lasted until a moment, and since
# when it was there.
sub _closed
{
	my ($self, $r, $to, @how) = @_;
	my $who = _who($r);

	return unless _cycle($self->_deadlocked($to, $to, @how), $who);
	for my $from ($self->_beginnings($r->{asked}, $to))
	{
		my @cycle = _cycle($self->_deadlocked($from, $to, @how), $who) or next;
		return { since => $from, at => $to, members => \@cycle };
	}
	return;
}

=pod

=item explain($record)

Was there a deadlock that this wait was a member of, and which?  A hash of
members (a list of "instance client"), since (when it closed), at (until when it
lasted at least); vain, if all such deadlocks had a victim before this one.
Nothing, if there was none.

=cut

sub explain
{
	my ($self, $r) = @_;
	my $end = _wait_ends($r);
	my @times = reverse $self->_beginnings($r->{asked}, $end);
	my %before = map { ($_ => 1) } grep {
		$_ != $r && ($_->{sqlstate} // '') eq '40P01' && _chosen_before($_, $r)
	} map { @{ $self->{at}{$_} // [] } } (int($r->{asked}) .. int($end));

	for my $except (\%before, {})
	{
		for my $at (@times)
		{
			my $why = $self->_closed($r, $at, $except) or next;

			$why->{vain} = 1 if $except != \%before;
			return $why;
		}
		last unless %before;
	}
	return;
}

# When a client holds what a writer of its own instance waits for, and is not
# deadlocked: times from and to.
sub _ahead
{
	my ($self, $writer) = @_;
	my %lock = map { ($_ => 1) } @{ $writer->{locks} };
	my @ahead;

	return if $writer->{mode} ne 'exclusive';
	for my $r (@{ $self->{records} })
	{
		next
		  if !defined $r->{entered}
		  || $r->{instance} ne $writer->{instance}
		  || $r->{client} eq $writer->{client}
		  || $r->{left} <= $writer->{asked}
		  || !grep { $lock{$_} } @{ $r->{took} // $r->{locks} };
		my $from = $r->{entered};

		for my $wait (
			sort { $a->{asked} <=> $b->{asked} }
			grep { _who($_) eq _who($r) && $_->{asked} >= $from && $_->{asked} < $r->{left} }
			@{ $self->{records} })
		{
			my $why = $self->_closed($wait, min(_wait_ends($wait), _wait_ends($writer)), {}, 1) or next;

			push @ahead, [ $from, $why->{since} ];
			$from = _wait_ends($wait);
		}
		push @ahead, [ $from, $r->{left} ];
	}
	return @ahead;
}

# The parts of a time in which no member waits for a client of its own instance that is
# not deadlocked.
sub _parts
{
	my ($self, $members, $from, $to) = @_;
	my @parts;

	for my $ahead (sort { $a->[0] <=> $b->[0] } map { $self->_ahead($_) } @$members)
	{
		last if $ahead->[0] >= $to;
		push @parts, [ $from, $ahead->[0] ] if $ahead->[0] > $from;
		$from = max($from, $ahead->[1]);
	}
	push @parts, [ $from, $to ] if $from < $to;
	return @parts;
}

=pod

=item lasting($seconds, $length)

Deadlocks that lasted longer: a list of hashes as C<explain> returns them, with
lasts, records (of the members), and text.  C<$length> is a function that takes
the members' records and two times, and returns how much of the time between
counts (default: all of it); it is called for each part of the time.

=cut

sub lasting
{
	my ($self, $seconds, $length) = @_;
	my %seen;
	my @found;

	$length //= sub { return $_[2] - $_[1]; };
	for my $r (@{ $self->{records} // [] })
	{
		my $end = _wait_ends($r);

		next if $end - $r->{asked} <= $seconds;
		my $why = $self->_closed($r, $end, {}, 1) or next;
		my ($waits) = $self->_span($why->{since}, $end, {});
		my @records = map { $waits->{$_} } @{ $why->{members} };

		# of one deadlock, the wait that ended first
		next if $seen{ join('; ', sort map { "$_->{instance} $_->{client} $_->{asked}" } @records) }++;
		$why->{records} = \@records;
		$why->{lasts} = sum(0, map { $length->(\@records, @$_) } $self->_parts(\@records, $why->{since}, $end));
		next if $why->{lasts} <= $seconds;
		$why->{text} = sprintf('%.1f s: %s', $why->{lasts},
			join('; ', map { _who($_) . ' for ' . join(',', @{ $_->{locks} }) } @records));
		push @found, $why;
	}
	return @found;
}

=pod

=back

=cut

1;
