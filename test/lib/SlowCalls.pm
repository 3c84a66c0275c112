
=pod

=head1 NAME

SlowCalls - system and library calls of the worker that take long, for TAP tests

=head1 SYNOPSIS

  my $slow = SlowCalls->new;
  my $a = $slow->preloaded(sub { zk_cluster('a', $zk) });

  $slow->hold('getaddrinfo');        # whoever resolves a name waits ...
  $slow->wait_held('getaddrinfo', $worker);
  $slow->release('getaddrinfo');     # ... until here

=head1 DESCRIPTION

Servers that are started with C<slow_calls.c> preloaded.  It acts in their
workers only, and in all of them.

=cut

package SlowCalls;

use strict;
use warnings;

use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use ZooKeeper;

my $source = dirname(__FILE__) . '/slow_calls.c';

=pod

=head1 METHODS

=over

=item SlowCalls->new

=cut

sub new
{
	my ($class) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();

	system('gcc', '-shared', '-fPIC', '-o', "$dir/slow_calls.so", $source, '-ldl') == 0
	  or die "could not compile $source\n";
	return bless { dir => $dir }, $class;
}

=pod

=item preloaded(function)

Call the function, which starts servers, and return what it returns.

=cut

sub preloaded
{
	my ($self, $function) = @_;

	local $ENV{LD_PRELOAD} = "$self->{dir}/slow_calls.so";
	local $ENV{SLOW_CALLS} = $self->{dir};
	return $function->();
}

=pod

=item delay_scan($ms)

From now on, a scan for deadlocks that is logged (DEBUG2) takes so much longer,
without the processor; 0: no scan does.

=item hold($function), release($function)

From now on, getaddrinfo() or zookeeper_close() waits; or does not.

=item wait_held($function, $pid)

Wait until a worker waits there.

=item handles($pid)

How many handles of the library a worker has begun to make.

=cut

sub delay_scan { $_[0]->_write('scan', $_[1]); return; }

sub hold { $_[0]->_write($_[1], 0); return; }

sub release
{
	my ($self, $function) = @_;

	unlink map { "$self->{dir}/$function$_" } '', '.held';
	return;
}

sub wait_held
{
	my ($self, $function, $pid) = @_;
	my $file = "$self->{dir}/$function.held";

	poll_until(sub { -s $file && slurp_file($file) =~ /^$pid$/m }, "process $pid to be in $function()");
	return;
}

sub handles
{
	my ($self, $pid) = @_;

	return scalar grep { $_ == $pid } split /\n/, slurp_file("$self->{dir}/zookeeper_init2");
}

sub _write
{
	my ($self, $name, $text) = @_;
	my $file = "$self->{dir}/$name";

	append_to_file("$file.new", "$text\n");
	rename "$file.new", $file or die "could not rename $file.new: $!\n";
	return;
}

=pod

=back

=cut

1;
