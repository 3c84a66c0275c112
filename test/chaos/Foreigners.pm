
=pod

=head1 NAME

Foreigners - a client of another kind, kazoo or Curator, that stands in the
queues of ours and does sections of its own

=head1 SYNOPSIS

  my $kazoo = Foreigners->start(name => 'kazoo', zk => $zk, warehouse => $node,
      seed => $seed, timeout => 4, locks => { 'fx1' => 'CommonLock' },
      history => $file);
  $kazoo->tell('stop');
  $kazoo->poll;

=head1 DESCRIPTION

A process that does one section after another in the warehouse, as a service
with a database of its own would: it takes the lock, writes its token over an
older one (see Chaos.pm on locks f...), reads the last number, writes the next
one, asks ZooKeeper whether it holds the lock still, commits, and releases.

The history is that of Clients.pm, and holds are "foreign".  The instance is the
client's name.  The library's errors are no violation, and a section ends with
them.  C<sure> is when ZooKeeper was asked for the last time whether the lock is
held, if it said so: nothing is known of a later time, since these libraries do
not look at it in COMMIT, and the fence is what keeps two apart then.

=cut

package Foreigners;

use strict;
use warnings;

use Clients;
use Dice;
use Foreign;
use POSIX ();
use PostgreSQL::Test::Utils;
use Time::HiRes qw(clock_gettime sleep CLOCK_MONOTONIC);
use ZkCluster;
use ZkWire;

our @ISA = qw(Clients);

sub now { return clock_gettime(CLOCK_MONOTONIC); }

=pod

=head1 METHODS

=over

=item Foreigners->start(%options)

name (kazoo or curator), zk, warehouse, seed, timeout (of the session), locks
(name to a list of kinds of Foreign.pm, one that begins with C<shared > being
for readers), permits (of semaphores), history.

=item tell($what), poll()

As of Clients.pm.

=back

=cut

sub _main
{
	my ($self) = @_;
	my $k = 0;

	open($self->{record}, '>>', $self->{history})
	  or die "could not open $self->{history}: $!";
	# no operation takes longer, unless something hangs
	$PostgreSQL::Test::Utils::timeout_default = 60;
	while (!$self->_told(0))
	{
		my $dice = Dice->new($self->{seed}, $self->{name}, ++$k);

		if (!$self->_connected)
		{
			sleep 0.5;
			next;
		}
		$self->_hold("$self->{name}.$k", $dice);
		print { $self->{out} } "sections $self->{total}\n";
		$self->_told($dice->between(0.02, 0.3));
	}
	$self->_disconnect;
	close $self->{record} or die "could not write the history: $!";
	return;
}

# Have we been told to end?  Wait for that.
sub _told
{
	my ($self, $seconds) = @_;
	my $bits = '';

	vec($bits, fileno($self->{in}), 1) = 1;
	$self->{stop} = 1 if select($bits, undef, undef, $seconds) > 0;
	return $self->{stop};
}

sub _connected
{
	my ($self) = @_;
	my $kind = $self->{name};

	$self->{locker} //= eval { Foreign->$kind($self->{zk}, timeout => $self->{timeout}) };
	delete $self->{wire} if $self->{wire} && $self->{wire}->gone;
	$self->{wire} //= ZkWire->new($self->{warehouse});
	return $self->{locker};
}

sub _disconnect
{
	my ($self) = @_;
	my $locker = delete $self->{locker} or return;
	my $end = now() + 20;

	delete $self->{made};
	close $locker->{in};
	while (waitpid($locker->{pid}, POSIX::WNOHANG) == 0)
	{
		kill 'KILL', $locker->{pid} if now() > $end;
		sleep 0.02;
	}
	return;
}

sub _hold
{
	my ($self, $id, $dice) = @_;
	my $name = $dice->one_of(sort keys %{ $self->{locks} });
	my $kind = $dice->one_of(@{ $self->{locks}{$name} });
	my $mode = $self->{permits}{$name} ? 'permit' : $kind =~ s/^shared // ? 'shared' : 'exclusive';
	my $hold = {
		t => 'hold', hold => $id, instance => $self->{name}, client => 1, foreign => 1,
		pid => $self->{locker}{pid}, locks => [$name], mode => $mode, scope => 'foreign',
		call => "$self->{name} $kind", asked => now(), result => 'failed'
	};
	my ($lock, $got);
	my $odd = !eval {
		$lock = $self->{made}{"$kind $name"} //= $self->{locker}->make($kind, lock_dir($name),
			$self->{permits}{$name} ? (permits => $self->{permits}{$name}) : ());
		$got = $lock->acquire($dice->between(1, 4));
		1;
	};

	if ($got)
	{
		@$hold{qw(entered result)} = (now(), 'got');
		# nothing is certain any more if the section did not end well
		$odd = !$self->_section($id, $hold, $lock, $dice);
		eval { $lock->release; 1 } or $odd = 1;
	}
	elsif (!$odd)
	{
		$hold->{result} = 'no';
		# kazoo deletes its node, but does not insist
		eval { $lock->tidy; 1 } or $odd = 1 if $self->{name} eq 'kazoo';
	}
	$self->{made} = undef if $odd;
	$self->_disconnect if $odd;
	# what the session had left when it was not closed in time
	$hold->{left} = now() + ($odd ? 2 * $self->{timeout} : 0);
	$hold->{message} = $@ if $odd && $@;
	$self->_record($hold);
	return;
}

# True if it ended as was meant.
sub _section
{
	my ($self, $id, $hold, $lock, $dice) = @_;
	my $name = $hold->{locks}[0];
	my $wire = $self->{wire};
	my $section = {
		t => 'section', id => "$id.1", hold => $id, mode => $hold->{mode}, check => 'foreign',
		outcome => 'failed', n => {}, token => {}
	};
	my $ask = sub {
		my $result = $wire->run($_[0]);
		die "$result->{sqlstate} $result->{message}\n" if defined $result->{sqlstate};
		die "the connection has ended\n" if $wire->gone;
		return $result->{out};
	};

	my $good = eval {
		my $token = $lock->prove;

		$ask->('BEGIN');
		if ($name =~ /^f/ && $hold->{mode} eq 'exclusive')
		{
			$section->{token}{$name} = 0 + $token;
			$ask->("UPDATE fence SET token = $token WHERE lock = '$name' AND token <= $token RETURNING 1")
			  or die "there has been a later holder\n";
		}
		my $n = $section->{n}{$name} =
		  0 + $ask->("SELECT coalesce(max(n), 0) FROM section WHERE lock = '$name'");
		sleep $dice->between(0.005, 0.08);
		$ask->("INSERT INTO section VALUES ('$name', $n + 1, '$section->{id}', "
			  . ($section->{token}{$name} // 'NULL') . ', 0)')
		  if $hold->{mode} ne 'shared';

		my $sure = now();
		$lock->prove == $token or die "another node\n";
		@$section{qw(sure commit outcome)} = ($sure, now(), 'unknown');
		$ask->('COMMIT');
		$section->{outcome} = 'committed';
		1;
	};
	my $error = $@;

	$section->{end} = now();
	if (!$good)
	{
		$section->{message} = $error;
		eval { $ask->('ROLLBACK') } unless $wire->gone;
	}
	$self->_record($section);
	$self->{total}++;
	$@ = $error;
	return $good;
}

1;
