
=pod

=head1 NAME

Foreign - Curator, kazoo and go-zookeeper, for TAP tests

=head1 SYNOPSIS

  my $curator = Foreign->curator($zk);
  my $mutex = $curator->make('InterProcessMutex', lock_dir('x'));

  ok($mutex->acquire);
  ok(!Foreign->kazoo($zk)->make('CommonLock', lock_dir('x'))->acquire(0));

  $mutex->begin('acquire');         # does not wait
  ok(!$mutex->done);
  $mutex->end;                      # waits until it has ended
  $mutex->release;

=head1 DESCRIPTION

Each client is a child process with a ZooKeeper session of its own, which ends
with the test.  What its library logs is in the test's log directory.

=cut

package Foreign;

use strict;
use warnings;

use File::Basename qw(basename dirname);
use IPC::Open3;
use POSIX ();
use PostgreSQL::Test::Utils;
use ZooKeeper;

our @ISA = qw(ZooKeeper::Client);

my $lib = dirname(__FILE__);

# Debian's packages libcurator-recipes-java and libzookeeper-java, and what
# they need.
my $classpath = join(':',
	map { "/usr/share/java/$_.jar" }
	  qw(curator-recipes curator-framework curator-client
	  zookeeper-recipes-lock zookeeper zookeeper-jute guava
	  jackson-databind jackson-core jackson-annotations
	  netty-handler netty-transport netty-common netty-buffer
	  slf4j-api slf4j-simple));

# In a short test the JVM's better compiler only takes time from others.
my @jvm = qw(-XX:-UsePerfData -XX:+UseSerialGC -XX:TieredStopAtLevel=1);

# golang-go and golang-github-samuel-go-zookeeper-dev
my %go = (
	GO111MODULE => 'off',
	GOPATH => '/usr/share/gocode',
	GOFLAGS => '',
	CGO_ENABLED => 0);

my (%built, $clients);

=pod

=head1 METHODS

=over

=item Foreign->curator($zk, %options)

Curator's recipes and ZooKeeper's own WriteLock, in Java.  Kinds of locks:
InterProcessMutex, "revocable InterProcessMutex" (released once somebody asks
for it), ReadLock and WriteLock (of InterProcessReadWriteLock),
InterProcessSemaphoreV2 (option permits), InterProcessSemaphoreMutex,
"ZooKeeper's WriteLock", and LeaderSelector (option requeue).

=item Foreign->kazoo($zk, %options)

kazoo's Lock, ReadLock, WriteLock (option extra: extra_lock_patterns),
Semaphore (option permits), and CommonLock, CommonReadLock, CommonWriteLock,
which all others respect.

=item Foreign->go($zk, %options)

go-zookeeper's Lock; it can acquire without a timeout only.

The option timeout is that of the session, in seconds (default 60).

=cut

sub curator
{
	my ($class, $zk, %options) = @_;
	my $dir = $built{curator} //= _build(
		[
			'javac', map({ "-J$_" } @jvm), '-Xlint:all,-path',
			'-cp', $classpath, '-d', '.', "$lib/CuratorClient.java"
		]);

	return $class->_start('curator', $zk, \%options, 'java', '-Xmx256m', @jvm,
		'-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
		'-cp', "$dir:$classpath", 'CuratorClient');
}

sub kazoo
{
	my ($class, $zk, %options) = @_;

	# Debian's python3, for Debian's kazoo
	return $class->_start('kazoo', $zk, \%options, '/usr/bin/python3',
		"$lib/kazooclient.py");
}

sub go
{
	my ($class, $zk, %options) = @_;
	local %ENV = (%ENV, %go);
	my $dir = $built{go} //=
	  _build([ 'go', 'build', '-o', 'goclient', "$lib/goclient.go" ]);

	return $class->_start('go', $zk, \%options, "$dir/goclient");
}

# Run a compiler in a directory of its own, and return that.
sub _build
{
	my ($command) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir('build');
	local $ENV{GOCACHE} = "$dir/cache";
	my $pid = fork // die "could not fork: $!";

	if ($pid == 0)
	{
		POSIX::dup2(2, 1);
		chdir $dir and exec @$command;
		warn "could not run $command->[0]: $!\n";
		POSIX::_exit(1);
	}
	waitpid($pid, 0);
	die "$command->[0] failed\n" if $? != 0;
	return $dir;
}

sub _start
{
	my ($class, $name, $zk, $options, @command) = @_;
	my $self = bless { name => $name }, $class;
	my $log = sprintf('%s/%s_%s%d.log', $PostgreSQL::Test::Utils::log_path,
		basename($0, '.pl'), $name, ++$clients);

	open(my $err, '>', $log) or die "could not create $log: $!";
	# With pdeathsig it ends with us, even if we are killed.
	$self->{pid} = open3(
		$self->{in}, $self->{out}, '>&' . fileno($err),
		qw(setpriv --pdeathsig KILL --),
		@command, $zk->connstr, $options->{timeout} // 60);
	close $err;
	$self->{session} = $self->_call('session');
	return $self;
}

=pod

=item session(), disconnect()

As of ZooKeeper::Client.

=item make($kind, $dir, %options)

A lock, of the kinds and with the options above.

=item load($kind, $dir, %options)

What takes a lock in many threads: see C<run> below.  Options, besides those of
the lock: threads (how many), psql (a command, as a list), query (for psql, %d
in it being the thread's number).

=item revoke($node)

Curator's Revoker: ask the owner of this contender to release.

=back

=cut

sub make
{
	my ($self, $kind, $dir, %options) = @_;
	return $self->_actor('make', $kind, $dir, \%options);
}

sub load
{
	my ($self, $kind, $dir, %options) = @_;
	return $self->_actor('load', $kind, $dir, \%options);
}

sub _actor
{
	my ($self, @request) = @_;
	my ($method, $kind) = @request;
	return bless {
		client => $self,
		kind => "$self->{name} $kind",
		number => $self->_call(@request)
	  },
	  'Foreign::Lock';
}

sub revoke { return $_[0]->_call('revoke', $_[1]); }

=pod

=head1 LOCKS

Every operation dies with the library's error if it fails.

=over

=item begin($operation, @arguments), done(), end()

Begin an operation; has it ended; wait for that, and return its result.

=item acquire($timeout), release()

Was it to be had in time?  Timeout is in seconds, 0 tries, none waits for ever.

=item kind(), session()

Who it is, for the names of tests; the session of the client.

=item participants()

All in the queue, as the library sees them; as a list.

=item prove()

The token (czxid) of what has been acquired, once ZooKeeper's quorum has said
that it is there; dies if it is lost.

=item tidy()

Of kazoo's locks: after an acquire that has failed, delete what it may have left
behind.

=item revoked()

Has somebody asked for it?

=item run()

Of a load: until the query answers "f", each thread takes the lock, runs the
query, and releases it.  Returns how often each has had the lock.

=item start(), wait(), leads(), step_down(), requeue(), close()

Of a LeaderSelector: take part; wait until it has become the leader, once more
at each call; is it the leader; no longer be.

=back

=cut

package Foreign::Lock;

sub begin
{
	my ($self, @operation) = @_;
	$self->{client}->_call('begin', $self->{number}, @operation);
	return;
}

sub done { return $_[0]{client}->_call('done', $_[0]{number}); }
sub end { return $_[0]{client}->_call('end', $_[0]{number}); }

sub _run
{
	my ($self, @operation) = @_;
	$self->begin(@operation);
	return $self->end;
}

sub kind { return $_[0]{kind}; }
sub session { return $_[0]{client}->session; }
sub acquire { my $self = shift; return $self->_run('acquire', @_); }
sub release { return $_[0]->_run('release'); }
sub prove { return $_[0]->_run('prove'); }
sub tidy { return $_[0]->_run('tidy'); }
sub participants { return @{ $_[0]->_run('participants') }; }
sub revoked { return $_[0]->_run('revoked'); }
sub run { return @{ $_[0]->_run('run') }; }
sub start { return $_[0]->_run('start'); }
sub wait { return $_[0]->_run('wait'); }
sub leads { return $_[0]->_run('leads'); }
sub step_down { return $_[0]->_run('step_down'); }
sub requeue { return $_[0]->_run('requeue'); }
sub close { return $_[0]->_run('close'); }

1;
