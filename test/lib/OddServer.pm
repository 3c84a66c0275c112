
=pod

=head1 NAME

OddServer - servers that are not quite ZooKeeper's, for TAP tests

=head1 SYNOPSIS

  my $odd = OddServer->new('odd_server.py', 'mute');
  my $lesser = OddServer->new('lesser_server.py', ($zk->ports)[0], 'refuse:15');
  $a->append_conf('postgresql.conf', "zklock.servers = '" . $odd->address . "'");
  $odd->stop;

=head1 DESCRIPTION

A program of this directory that prints the port of 127.0.0.1 that it listens
on, in a child process that ends with the test.

=cut

package OddServer;

use strict;
use warnings;

use File::Basename qw(dirname);
use IPC::Run;
use ZooKeeper;

=pod

=head1 METHODS

=over

=item OddServer->new($program, @arguments)

=item port(), address()

=item stop()

=back

=cut

sub new
{
	my ($class, $program, @arguments) = @_;
	my ($in, $port) = ('', '');
	my $run = IPC::Run::start(
		[ '/usr/bin/python3', dirname(__FILE__) . "/$program", @arguments ],
		'<', \$in, '>', \$port);

	poll_until(sub { $run->pump_nb; $port =~ /\n/ }, "$program to listen");
	chomp $port;
	return bless { run => $run, in => \$in, port => $port }, $class;
}

sub port { return $_[0]{port}; }

sub address { return "127.0.0.1:$_[0]{port}"; }

sub stop
{
	my ($self) = @_;

	${ $self->{in} } = undef;
	$self->{run}->finish;
	return;
}

1;
