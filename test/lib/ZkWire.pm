
=pod

=head1 NAME

ZkWire - sessions that speak PostgreSQL's protocol themselves, for tests that
drive many of them at a time

=head1 SYNOPSIS

  my @sessions = map { ZkWire->new($node) } (1 .. 100);

  $_->send("SELECT zk_try_lock('x', '1 s')") for @sessions;
  while (my @busy = grep { $_->busy } @sessions)
  {
      for my $session (ZkWire::wait_any(10, @busy))
      {
          my $result = $session->result;
          print $result->{sqlstate} // $result->{out}, "\n";
      }
  }

ZkSession.pm is easier to use, but runs a psql for each session.

=cut

package ZkWire;

use strict;
use warnings;

use IO::Socket::INET;
use IO::Socket::UNIX;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);

=pod

=head1 METHODS

=over

=item ZkWire->new($node, $dbname, %settings)

Connect; the server must trust us.  The settings are those of the session.

=item pid()

The process id of the backend.

=cut

sub new
{
	my ($class, $node, $dbname, %settings) = @_;
	my $self = bless {
		node => $node,
		in => '',
		busy => 1,
		current => {},
		socket => _connect($node->host, $node->port),
	}, $class;
	my %options = (
		user => scalar(getpwuid($>)),
		database => $dbname // 'postgres',
		client_min_messages => 'error',
		%settings);
	my $startup = pack('N', 196608)
	  . join('', map { "$_\0$options{$_}\0" } sort keys %options) . "\0";

	$self->_write(pack('N', 4 + length $startup) . $startup);
	wait_any($PostgreSQL::Test::Utils::timeout_default, $self)
	  or die 'no answer to the startup packet';
	my $result = $self->result;
	die "could not connect: $result->{message}" if $self->gone;
	return $self;
}

# A host is an address or the directory of a socket.
sub _connect
{
	my ($host, $port) = @_;
	my $socket =
	  $host =~ m{^/}
	  ? IO::Socket::UNIX->new(Peer => "$host/.s.PGSQL.$port")
	  : IO::Socket::INET->new(PeerAddr => $host, PeerPort => $port);

	return $socket // die "could not connect to $host, port $port: $!";
}

sub pid { return $_[0]{pid}; }

=pod

=item send($sql)

Begin to run one statement.

=item busy()

Has it not ended yet, as far as wait_any has seen?

=item gone()

Has the connection ended?

=item result()

What became of it, once it is not busy: a hash of out (the rows, as psql -At
prints them), status (of the transaction: "I", "T" or "E"), and after an error
sqlstate, message, and detail, hint and context if it has them.

=item run($sql)

send, wait, and result.

=item prepare($name, $sql), run_prepared($name, @parameters)

Prepare a statement, and run it, by messages of the protocol, as drivers do; for
each the result, as of run.

=item send_with(\@statement, ...)

Begin to run these together, as one transaction: each the text of one statement
and its parameters, none of which is part of any text.

=item quit()

End the session, as psql does.

=item vanish()

Just close the socket, whatever the backend is at.

=cut

sub send
{
	my ($self, $sql) = @_;

	$self->_send([ 'Q', "$sql\0" ]);
	return;
}

# Messages, each a type and what it has
sub _send
{
	my ($self, @messages) = @_;

	die 'the session is busy or gone' if $self->{busy} || $self->{gone};
	$self->{busy} = 1;
	$self->{current} = {};
	$self->_write(join('', map { $_->[0] . pack('N', 4 + length $_->[1]) . $_->[1] } @messages));
	return;
}

sub busy { return $_[0]{busy}; }

sub gone { return $_[0]{gone}; }

sub result { return $_[0]{current}; }

sub run
{
	my ($self, $sql) = @_;

	$self->send($sql);
	return $self->_wait($sql);
}

sub prepare
{
	my ($self, $name, $sql) = @_;

	# Parse, with no types of parameters, and Sync
	$self->_send([ 'P', "$name\0$sql\0" . pack('n', 0) ], [ 'S', '' ]);
	return $self->_wait($sql);
}

sub run_prepared
{
	my ($self, $name, @parameters) = @_;

	$self->_send(_execution($name, @parameters), [ 'S', '' ]);
	return $self->_wait("statement $name");
}

# Bind, of text, and Execute, of all rows
sub _execution
{
	my ($name, @parameters) = @_;
	my $values = join('', map { pack('N', length $_) . $_ } @parameters);

	return (
		[ 'B', "\0$name\0" . pack('n n', 0, scalar @parameters) . $values . pack('n', 0) ],
		[ 'E', "\0" . pack('N', 0) ]);
}

sub send_with
{
	my ($self, @statements) = @_;

	$self->_send(
		(
			map {
				my ($sql, @parameters) = @$_;
				([ 'P', "\0$sql\0" . pack('n', 0) ], _execution('', @parameters))
			} @statements
		),
		[ 'S', '' ]);
	return;
}

sub _wait
{
	my ($self, $what) = @_;

	wait_any($PostgreSQL::Test::Utils::timeout_default, $self)
	  or die "no answer to: $what";
	return $self->result;
}

sub quit
{
	my ($self) = @_;

	$self->_write('X' . pack('N', 4)) unless $self->{gone};
	$self->vanish;
	return;
}

sub vanish
{
	my ($self) = @_;

	close $self->{socket} if $self->{socket};
	@$self{qw(gone busy)} = (1, 0);
	return;
}

# Requests are short, so this does not block.  That the server has gone is
# seen when reading.
sub _write
{
	my ($self, $bytes) = @_;

	local $SIG{PIPE} = 'IGNORE';
	$self->{socket}->syswrite($bytes);
	return;
}

# Read what there is.
sub _read
{
	my ($self) = @_;
	my $n = $self->{socket}->sysread($self->{in}, 65536, length $self->{in});

	while (length $self->{in} >= 5)
	{
		my ($type, $length) = unpack('a N', $self->{in});
		last if length $self->{in} < 1 + $length;
		my $message = substr($self->{in}, 0, 1 + $length, '');
		$self->_message($type, substr($message, 5));
	}
	$self->vanish unless $n;
	return;
}

sub _message
{
	my ($self, $type, $body) = @_;
	my $current = $self->{current};

	if ($type eq 'D')
	{
		my ($n, $rest) = unpack('n a*', $body);
		my @values;
		while ($n-- > 0)
		{
			my $length = unpack('N', substr($rest, 0, 4, ''));
			push @values, $length == 0xFFFFFFFF ? '' : substr($rest, 0, $length, '');
		}
		$current->{out} .= "\n" if defined $current->{out};
		$current->{out} .= join('|', @values);
	}
	elsif ($type eq 'E')
	{
		my %field = map { substr($_, 0, 1) => substr($_, 1) } split /\0/, $body;
		@$current{qw(sqlstate message detail hint context)} = @field{qw(C M D H W)};
	}
	elsif ($type eq 'K')
	{
		$self->{pid} = unpack('N', $body);
	}
	elsif ($type eq 'R')
	{
		die 'the server does not trust us' if unpack('N', $body) != 0;
	}
	elsif ($type eq 'Z')
	{
		$current->{status} = $body;
		$self->{busy} = 0;
	}
	return;
}

=pod

=back

=head1 FUNCTIONS

=over

=item ZkWire::wait_any($seconds, @sessions)

Wait until some of these, which must be busy, are not any more, and return
them; an empty list after that time.

=cut

sub wait_any
{
	my ($seconds, @sessions) = @_;
	my $end = time + $seconds;

	while (1)
	{
		my $bits = '';
		vec($bits, fileno($_->{socket}), 1) = 1 for @sessions;
		my $left = $end - time;
		my $n = select(my $ready = $bits, undef, undef, $left > 0 ? $left : 0);
		if ($n > 0)
		{
			for my $session (@sessions)
			{
				$session->_read if vec($ready, fileno($session->{socket}), 1);
			}
			my @done = grep { !$_->{busy} } @sessions;
			return @done if @done;
		}
		return if $left <= 0;
	}
}

=pod

=back

=cut

1;
