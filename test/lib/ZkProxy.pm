
=pod

=head1 NAME

ZkProxy - networks that lose, delay and cut, for TAP tests

=head1 SYNOPSIS

  my $proxy = ZkProxy->new;
  my $zk = ZooKeeper->new(servers => 3, proxy => $proxy);
  my $a = zk_cluster('a', $zk,
      'zklock.servers' => $zk->connstr_through($proxy, 'a'));

  $proxy->freeze('a-0', 'a-1', 'a-2');   # a is cut off
  $proxy->thaw;
  $zk->cut_peers(0, 1);                  # servers 0 and 1 from each other
  $zk->heal_peers;

=head1 DESCRIPTION

A TCP proxy on 127.0.0.1, in a child process that ends with the test.  What
goes through it belongs to links, which have names.

Methods that take C<@names> act on these links, or on all if none is named.
They return when they have taken effect.

=cut

package ZkProxy;

use strict;
use warnings;

use File::Basename qw(dirname);
use IPC::Open2;
use ZooKeeper;

our @ISA = qw(ZooKeeper::Client);

my $program = dirname(__FILE__) . '/proxy.py';

=pod

=head1 METHODS

=over

=item ZkProxy->new

=cut

sub new
{
	my ($class) = @_;
	my $self = bless {}, $class;

	$self->{pid} = open2($self->{out}, $self->{in}, '/usr/bin/python3', $program);
	return $self;
}

=pod

=item link($name, $target)

Make a link to a port; returns the port to connect to instead.

=item socks(%links)

Make a SOCKS server, for a program that connects to several ports and can use
one; returns its port.  C<%links> names the link for each port.  Several ports,
and several programs, may share a link.

=cut

sub link { return $_[0]->_call('link', $_[1], 0 + $_[2]); }

sub socks { my ($self, %links) = @_; return $self->_call('socks', \%links); }

=pod

=item freeze(@names)

A black hole: nothing passes, not even the end of a connection.  Connections
stay; new ones are accepted, and get nothing.

=item refuse(@names)

Reset the present connections, and refuse new ones.

=item mute(@names)

What the servers send does not arrive; what they are sent does.

=item thaw(@names)

The end of freeze, refuse and mute.  What was held back goes on its way, as TCP
would send it again.

=item reset(@names)

Reset the present connections.

=item delay($ms, @names)

From now on, everything takes so long in each direction; 0: no delay.

=item forge($name, $old, $new)

From now on, replace in what the server sends what matches C<$old>, a regular
expression of Python.  The length must stay the same.

=item connections(@names)

How many there are.

=item count(@names)

Count the requests of ZooKeeper's clients, on connections that begin from now
on.

=item requests($name)

How many there were, by kind, as a hash: "connect", "ping", "create", "delete",
"children", "multi" and so on; a multi that only checks, as a heartbeat does, is
a "check".  What is counted may not have reached the server yet.

=item longest($name)

How long the longest one of each kind was, in bytes, as a hash.

=cut

sub freeze { my $self = shift; return $self->_call('freeze', @_); }
sub refuse { my $self = shift; return $self->_call('refuse', @_); }
sub mute { my $self = shift; return $self->_call('mute', @_); }
sub thaw { my $self = shift; return $self->_call('thaw', @_); }
sub reset { my $self = shift; return $self->_call('reset', @_); }
sub delay { my ($self, $ms, @names) = @_; return $self->_call('delay', 0 + $ms, @names); }
sub forge { my ($self, $name, $old, $new) = @_; return $self->_call('forge', $name, $old, $new); }
sub count { my $self = shift; return $self->_call('count', @_); }
sub longest { return $_[0]->_call('longest', $_[1]); }
sub requests { return $_[0]->_call('requests', $_[1]); }
sub connections { my $self = shift; return $self->_call('connections', @_); }

=pod

=back

=cut

1;
