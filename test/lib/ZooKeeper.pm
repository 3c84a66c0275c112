
=pod

=head1 NAME

ZooKeeper - a real ZooKeeper, of one server or an ensemble, for TAP tests

=head1 SYNOPSIS

  use PostgreSQL::Test::Utils;
  use ZooKeeper;

  my $zk = ZooKeeper->new(servers => 3);
  $zk->start;
  $zk->connstr;                     # "127.0.0.1:11001,127.0.0.1:11002,..."
  $zk->kill9($zk->leader);
  $zk->wait_ready;

  my $c = $zk->client;              # a foreign client, see below
  my $node = $c->lock('/zklock/a'); # a foreign contender that owns the lock
  poll_until(sub { $c->position($node) == 0 }, 'the lock is ours');
  $c->unlock($node);

=head1 DESCRIPTION

Servers are numbered from 0 and keep their ports for life, so that clients
find them again after a restart.  Data goes to a temporary directory, the logs
to the test's log directory.  No server outlives the test, however it ends.

Methods that take C<@i> act on these servers, or on all if none is named.

=cut

package ZooKeeper;

use strict;
use warnings;

use Exporter qw(import);
use File::Basename qw(basename dirname);
use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX ();
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(poll_until comes_to seed soak check_runs stop_process wait_stopped);

my @all;

# PostgreSQL's test modules end their servers in END blocks, which an
# unhandled signal would skip.
$SIG{INT} = $SIG{TERM} = $SIG{HUP} = sub { exit 1 };

# Those of PostgreSQL 17 and later would have a handler here, with which the end
# of a child interrupts select().
$SIG{CHLD} = 'DEFAULT';

=pod

=head1 FUNCTIONS

=over

=item poll_until(condition, what)

Call C<condition> until it returns true, and return that; die after
PG_TEST_TIMEOUT_DEFAULT (180) seconds.  C<what> names what we wait for.

=cut

sub poll_until
{
	my ($condition, $what) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;

	while (1)
	{
		my $result = $condition->();
		return $result if $result;
		die "timed out waiting for: $what\n" if time > $end;
		sleep 0.02;
	}
}

=pod

=item comes_to(sub { ... }, $expected, $name)

A test that the function returns this in the end: what another process does a
moment later.

=item seed()

Begin with the random numbers of ZKLOCK_TEST_SEED, which test/run sets but in a
soak, or of a new seed, and return it; the log has it.  A ZooKeeper that is made
begins with those of ZKLOCK_TEST_SEED, too.

=item soak($short, $full)

How long a test lasts that finds more the longer it lasts, or how often it does
something: C<$short>, or with ZKLOCK_TEST_SOAK=n in the environment n times
C<$full>.

=cut

sub comes_to
{
	my ($get, $expected, $name) = @_;
	my $found;

	eval {
		poll_until(
			sub { $found = $get->(); join('', explain $found) eq join('', explain $expected) },
			$name);
	};
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is_deeply($found, $expected, $name);
}

sub seed
{
	my $seed = $ENV{ZKLOCK_TEST_SEED} // (time ^ $$ << 8) & 0xFFFFFF;

	srand $seed;
	note "ZKLOCK_TEST_SEED=$seed";
	return $seed;
}

sub soak
{
	my ($short, $full) = @_;

	return $ENV{ZKLOCK_TEST_SOAK} ? $full * $ENV{ZKLOCK_TEST_SOAK} : $short;
}

=pod

=item check_runs(\$pid, $what, $log)

Die if a process that we have started has ended.  Its number may be another's
then, so it is forgotten.

=item stop_process($pid)

Have a process stand still, by SIGSTOP, and wait until it does.

=item wait_stopped($pid)

Wait until a process stands still.  One that has ended and has not been waited
for does, too.

=cut

sub check_runs
{
	my ($pid, $what, $log) = @_;

	return if waitpid($$pid, POSIX::WNOHANG) == 0;
	undef $$pid;
	die "$what has ended, see $log\n";
}

sub stop_process
{
	my ($pid) = @_;

	kill 'STOP', $pid;
	wait_stopped($pid);
	return;
}

sub wait_stopped
{
	my ($pid) = @_;

	poll_until(sub { _is_stopped($pid) }, "process $pid to be stopped");
	return;
}

sub _is_stopped { return slurp_file("/proc/$_[0]/status") =~ /^State:\s+[TZ]/m; }

=pod

=back

=head1 METHODS

=over

=item ZooKeeper->new(%options)

Make, but do not start, a ZooKeeper.  Options:

  servers        how many, 1 or 3 (default 1)
  name           in the names of log files (default "zk")
  tick           tickTime in ms: sessions expire to this exactness (default 500)
  conf           more lines for zoo.cfg, as a hash
  config         a function that makes zoo.cfg: it gets the number of a server,
                 its data directory, its port, and for each server its ports for
                 followers and for elections; the caller makes "myid"
  proxy          a ZkProxy through which the servers talk to each other: what
                 server I opens to server J is link "peer-I-J"
  netty          1: with Netty, which TLS needs
  jaas           the text of a JAAS configuration, which SASL needs
  counters       1: of one server, whose counters can be set (set_counter)
  root           the root of another Debian, whose ZooKeeper it is; it must have
                 the same /tmp, and we must be allowed to chroot
  containers     how often empty container nodes are collected, in ms (default
                 1000)

Sessions may be from 1 s to 60 s long.

=cut

sub new
{
	my ($class, %options) = @_;
	my $name = $options{name} // 'zk';
	my $self = bless {
		owner => $$,
		dir => PostgreSQL::Test::Utils::tempdir($name),
		servers => [],
	}, $class;
	my $n = $options{servers} // 1;
	my @peers;
	my $port = \&PostgreSQL::Test::Cluster::get_free_port;

	srand $ENV{ZKLOCK_TEST_SEED} if defined $ENV{ZKLOCK_TEST_SEED};
	my %conf = (
		tickTime => $options{tick} // 500,
		initLimit => 40,
		syncLimit => 10,
		minSessionTimeout => 1000,
		maxSessionTimeout => 60000,
		maxClientCnxns => 0,
		clientPortAddress => '127.0.0.1',
		'admin.enableServer' => 'false',
		'4lw.commands.whitelist' => '*',
		%{ $options{conf} // {} });
	if ($n > 1)
	{
		@peers = map { [ $port->(), $port->() ] } (0 .. $n - 1);
		$conf{"server.$_"} = join(':', '127.0.0.1', @{ $peers[$_] })
		  for (0 .. $n - 1);
	}
	$self->{proxy} = $options{proxy};
	$self->{root} = $options{root};
	$self->{control} = $port->() if $options{counters};
	$self->{netty} = $options{netty};
	$self->{containers} = $options{containers} // 1000;
	$conf{serverCnxnFactory} = 'org.apache.zookeeper.server.NettyServerCnxnFactory'
	  if $self->{netty};

	for my $i (0 .. $n - 1)
	{
		my $dir = "$self->{dir}/$i";
		my %mine = (%conf, dataDir => "$dir/data", clientPort => $port->());

		mkdir $_ or die "could not create $_: $!" for ($dir, "$dir/data");
		append_to_file("$dir/data/myid", "$i\n") unless $options{config};
		append_to_file(
			"$dir/zoo.cfg",
			$options{config}
			? $options{config}->($i, $mine{dataDir}, $mine{clientPort}, @peers)
			: join('', map { "$_=$mine{$_}\n" } sort keys %mine));
		append_to_file("$dir/jaas.conf", $options{jaas}) if $options{jaas};
		push @{ $self->{servers} },
		  {
			dir => $dir,
			java => [
				$self->_java_options($i, @peers),
				$options{jaas} ? ("-Djava.security.auth.login.config=$dir/jaas.conf") : ()
			],
			port => $mine{clientPort},
			log => sprintf('%s/%s_%s%d.log',
				$PostgreSQL::Test::Utils::log_path,
				basename($0, '.pl'), $name, $i),
		  };
	}
	push @all, $self;
	return $self;
}

# Servers tell each other their addresses when they elect a leader, and call
# back there.  So the configuration cannot send them through links, but Java
# can: it connects by way of a SOCKS server of each one's own.
sub _java_options
{
	my ($self, $i, @peers) = @_;
	my %links;

	return unless $self->{proxy};
	for my $j (grep { $_ != $i } (0 .. $#peers))
	{
		$links{$_} = "peer-$i-$j" for @{ $peers[$j] };
	}
	return ('-DsocksProxyHost=127.0.0.1', '-DsocksNonProxyHosts=',
		'-DsocksProxyPort=' . $self->{proxy}->socks(%links));
}

=pod

=item ports(), connstr()

The ports as a list; all servers as "host:port,...", as zklock.servers wants it.

=item connstr_through($proxy, $name)

The same by way of links "$name-0", "$name-1", ..., which are made on first use.

=item logfile($i), data_dir($i)

=cut

sub ports { return map { $_->{port} } @{ $_[0]{servers} }; }

sub connstr { return join(',', map { "127.0.0.1:$_" } $_[0]->ports); }

sub connstr_through
{
	my ($self, $proxy, $name) = @_;
	my @ports = $self->ports;

	$self->{through}{$name} //=
	  join(',', map { '127.0.0.1:' . $proxy->link("$name-$_", $ports[$_]) } (0 .. $#ports));
	return $self->{through}{$name};
}

sub logfile { return $_[0]{servers}[ $_[1] // 0 ]{log}; }

sub data_dir { return $_[0]{servers}[ $_[1] // 0 ]{dir} . '/data'; }

# The servers numbered @i, or all.
sub _servers
{
	my ($self, @i) = @_;
	return @i ? @{ $self->{servers} }[@i] : @{ $self->{servers} };
}

=pod

=item start(@i)

Start servers, and wait until they serve, if a majority of them is running.

=cut

sub start
{
	my ($self, @i) = @_;

	$self->_spawn($_) for $self->_servers(@i);

	my $running = grep { $_->{pid} } $self->_servers;
	$self->wait_ready(@i) if 2 * $running > $self->_servers;
	return;
}

sub _spawn
{
	my ($self, $server) = @_;
	die 'the ZooKeeper server is already running' if $server->{pid};

	my $classpath = '/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar';
	$classpath .= ":$_" for $self->{netty} ? glob('/usr/share/java/netty-*.jar') : ();
	my @main = ('org.apache.zookeeper.server.quorum.QuorumPeerMain', "$server->{dir}/zoo.cfg");

	if ($self->{control})
	{
		# a counter that is set is not in the digest of the tree
		unshift @main, '-Dzookeeper.digest.enabled=false';
		$classpath = _counter_server() . ":$classpath";
		$main[1] = 'org.apache.zookeeper.server.CounterServer';
		push @main, $self->{control};
	}

	# With pdeathsig the server ends with us, even if we are killed.
	my @command = (
		$self->{root} ? ('/usr/sbin/chroot', $self->{root}) : (),
		qw(setpriv --pdeathsig KILL --),
		qw(java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1),
		qw(-XX:-UsePerfData -Dorg.slf4j.simpleLogger.showDateTime=true),
		'-Dzookeeper.forceSync=no',
		"-Dznode.container.checkIntervalMs=$self->{containers}",
		@{ $server->{java} },
		'-cp', $classpath, @main);

	note "starting ZooKeeper on port $server->{port}";
	my $pid = fork // die "could not fork: $!";
	if ($pid == 0)
	{
		chdir $server->{dir};
		open STDIN, '<', '/dev/null';
		# PostgreSQL::Test::Utils has tied the file handles, hence dup2.
		open my $log, '>>', $server->{log} or POSIX::_exit(1);
		POSIX::dup2(fileno($log), $_) for (1, 2);
		exec @command or POSIX::_exit(1);
	}
	$server->{pid} = $pid;
	return;
}

=pod

=item stop(@i), kill9(@i)

End servers by SIGTERM or SIGKILL, and wait until they are gone.

=item restart(@i)

=item wipe(@i)

Remove the data of stopped servers.

=item save(), restore()

Copy the data of all servers, which do nothing meanwhile and may be running; and
have the servers, which are stopped, begin with that copy when they are started.

=item set_epoch($epoch)

Have an ensemble whose data has been removed begin with a higher epoch than
this one.

=item pause(@i), resume(@i)

Stop servers in mid-flight by SIGSTOP (a long garbage collection, a hung
machine), and let them go on.

=cut

sub stop { my ($self, @i) = @_; return $self->_end('TERM', @i); }

sub kill9 { my ($self, @i) = @_; return $self->_end('KILL', @i); }

sub _end
{
	my ($self, $signal, @i) = @_;
	my @servers = grep { $_->{pid} } $self->_servers(@i);

	kill $signal, map { $_->{pid} } @servers;
	kill 'CONT', map { $_->{pid} } @servers;
	waitpid(delete $_->{pid}, 0) for @servers;
	return;
}

sub wipe
{
	my ($self, @i) = @_;

	system_or_bail('rm', '-rf', "$_->{dir}/data/version-2") for $self->_servers(@i);
	return;
}

sub save
{
	my ($self) = @_;
	my @running = grep { $self->{servers}[$_]{pid} } (0 .. $#{ $self->{servers} });

	$self->pause(@running) if @running;
	for my $server ($self->_servers)
	{
		system_or_bail('rm', '-rf', "$server->{dir}/copy");
		system_or_bail('cp', '-a', "$server->{dir}/data/version-2", "$server->{dir}/copy");
	}
	$self->resume(@running) if @running;
	return;
}

sub restore
{
	my ($self) = @_;

	$self->wipe;
	system_or_bail('cp', '-a', "$_->{dir}/copy", "$_->{dir}/data/version-2") for $self->_servers;
	return;
}

sub set_epoch
{
	my ($self, $epoch) = @_;

	for my $server ($self->_servers)
	{
		my $dir = "$server->{dir}/data/version-2";

		mkdir $dir or die "could not create $dir: $!";
		append_to_file("$dir/acceptedEpoch", "$epoch\n");
	}
	return;
}

sub restart
{
	my ($self, @i) = @_;
	$self->stop(@i);
	$self->start(@i);
	return;
}

sub pause
{
	my ($self, @i) = @_;
	stop_process($_->{pid}) for $self->_servers(@i);
	return;
}

sub resume
{
	my ($self, @i) = @_;
	kill 'CONT', map { $_->{pid} } $self->_servers(@i);
	return;
}

=pod

=item cut_peers($i, $j)

Cut two servers off from each other, as in a network that drops all they send,
for quorum and election alike.  Needs the option proxy.

=item heal_peers()

The end of all such cuts.

=cut

sub cut_peers
{
	my ($self, $i, $j) = @_;
	$self->{proxy}->freeze("peer-$i-$j", "peer-$j-$i");
	return;
}

sub heal_peers
{
	my ($self) = @_;
	my $last = $#{ $self->{servers} };

	for my $i (0 .. $last)
	{
		$self->{proxy}->thaw(map { "peer-$i-$_" } grep { $_ != $i } (0 .. $last));
	}
	return;
}

=pod

=item session_ends(@i)

The lengths in bytes of all ends of sessions that are in the servers' logs of
transactions.  A server counts once what it has logged more than once: a
follower that fails to join its leader is sent the same transactions again.

=cut

sub session_ends
{
	my ($self, @i) = @_;
	my @ends;

	for my $server ($self->_servers(@i))
	{
		my %logged;

		for my $file (glob "$server->{dir}/data/version-2/log.*")
		{
			open my $log, '<:raw', $file or die "could not open $file: $!";

			# a header; of each entry the checksum, the length, a TxnHeader with
			# the zxid that ends in the type, the rest, and a byte; then zeros
			seek $log, 16, 0;
			while (read($log, my $head, 12) == 12)
			{
				my $length = unpack 'x8 N', $head or last;
				read($log, my $entry, $length + 1) == $length + 1 or last;
				my ($zxid, $type) = unpack 'x12 a8 x8 l>', $entry;

				$logged{$zxid} = $length if $type == -11;
			}
			close $log;
		}
		push @ends, values %logged;
	}
	return @ends;
}

=pod

=item fourlw($word, $i)

What server C<$i> (default 0) answers to a four-letter word ("mntr", "cons",
"dump", ...); undef if it does not within 5 s.

=cut

sub fourlw
{
	my ($self, $word, $i) = @_;
	my $socket = IO::Socket::INET->new(
		PeerAddr => '127.0.0.1',
		PeerPort => $self->{servers}[ $i // 0 ]{port},
		Timeout => 5) or return;
	my ($answer, $end) = ('', time + 5);

	print $socket $word;
	$socket->flush;
	while (1)
	{
		my $ready = '';
		vec($ready, fileno($socket), 1) = 1;
		return unless select($ready, undef, undef, $end - time) > 0;
		sysread($socket, $answer, 65536, length $answer) or last;
	}
	return $answer;
}

=pod

=item has_session($id)

Is there such a session, by what the server, or the leader, dumps?

=item last_change()

The zxid of the last change that the first server knows; the begin and the end of
a session are changes, too.

=cut

sub has_session
{
	my ($self, $id) = @_;
	my $i = $self->_servers > 1 ? $self->leader : 0;

	# connections are there for a moment longer than their session
	my ($sessions) = split /^Connections dump:/m, $self->fourlw('dump', $i);
	return $sessions =~ /\b\Q$id\E\b/;
}

sub last_change { return ($_[0]->fourlw('srvr') =~ /^Zxid: (\w+)/m)[0]; }

=pod

=item wait_watched($path, $session)

Wait until a node is watched, by the session with this number or any.  Whoever
watches a contender of another waits for it.

=cut

sub wait_watched
{
	my ($self, $path, $session) = @_;
	my $watcher = defined $session ? sprintf('0x%x', $session) : '\\S+';

	poll_until(
		sub { $self->fourlw('wchp') =~ /^\Q$path\E\n(?:\t\S+\n)*\t$watcher$/m },
		"a watch of $path");
	return;
}

=pod

=item mode($i)

"standalone", "leader" or "follower"; empty if the server is not serving.

=item leader(), followers()

Which servers lead and follow.

=item wait_ready(@i)

Wait until the servers serve: in an ensemble, until there is a leader and
these have joined it.

=cut

sub mode
{
	my ($self, $i) = @_;
	return (($self->fourlw('srvr', $i) // '') =~ /^Mode: (\w+)/m) ? $1 : '';
}

sub leader
{
	my ($self) = @_;
	my ($leader) = $self->_in_mode('leader');
	return $leader;
}

sub followers { return $_[0]->_in_mode('follower'); }

# A paused or ended server is not asked.
sub _in_mode
{
	my ($self, $mode) = @_;
	return grep {
		my $pid = $self->{servers}[$_]{pid};
		$pid
		  && !_is_stopped($pid)
		  && $self->mode($_) eq $mode
	} (0 .. $#{ $self->{servers} });
}

sub wait_ready
{
	my ($self, @i) = @_;
	@i = grep { $self->{servers}[$_]{pid} } (0 .. $#{ $self->{servers} })
	  unless @i;
	for my $i (@i)
	{
		poll_until(
			sub {
				my $server = $self->{servers}[$i];
				check_runs(\$server->{pid}, 'ZooKeeper', $server->{log});
				return $self->mode($i) ne '';
			},
			"ZooKeeper server $i to serve");
	}
	return;
}

=pod

=item client(%options)

A client (class ZooKeeper::Client) with a session of its own; options: timeout
(of the session, in seconds, default 10), servers (default: connstr).

=cut

sub client
{
	my ($self, %options) = @_;
	return ZooKeeper::Client->new(servers => $self->connstr, %options);
}

=pod

=item set_counter($path, $number)

Have the next sequential child of a node get this number; false if there is no
such node.  Needs the option counters.

=cut

sub set_counter
{
	my ($self, $path, $number) = @_;
	my $socket = IO::Socket::INET->new(
		PeerAddr => '127.0.0.1',
		PeerPort => $self->{control}) or die "could not connect: $!";

	print $socket "$number $path\n";
	$socket->flush;
	shutdown $socket, 1;
	return readline($socket) eq "ok\n";
}

# Where CounterServer.java has been compiled to.
sub _counter_server
{
	our $classes;

	require Foreign;
	$classes //= Foreign::_build(
		[
			'javac', '-J-XX:-UsePerfData', '-J-XX:TieredStopAtLevel=1', '-cp',
			'/usr/share/java/zookeeper.jar', '-d', '.',
			dirname(__FILE__) . '/CounterServer.java'
		]);
	return $classes;
}

=pod

=item session_clock($seconds)

A clock that nobody has to look at: returns a function that waits until a
session with this timeout has expired whose client was last heard of when
session_clock returned.

=cut

sub session_clock
{
	my ($self, $seconds) = @_;
	my $client = $self->client(timeout => $seconds);
	my $node = $client->create('/clock-', ephemeral => 1, sequence => 1);

	kill 'STOP', $client->{pid};
	return sub {
		my $observer = $self->client;

		poll_until(sub { !$observer->exists($node) }, 'a session to expire');
		kill 'KILL', $client->{pid};
		$_->disconnect for ($client, $observer);
	};
}

END
{
	my $status = $?;

	$_->{owner} == $$ && $_->kill9 for @all;
	$? = $status;
}

=pod

=back

=head1 ZooKeeper::Client

A foreign client: kazoo, in a child process.  Every method dies with
ZooKeeper's error ("NoNodeError ...") if the request fails.  Methods that only
read survive the loss of a connection; those that write do not, and die with
"ConnectionLoss" though they may have been done.

=cut

package ZooKeeper::Client;

use strict;
use warnings;

use File::Basename qw(dirname);
use IPC::Open2;
use JSON::PP;

my $program = dirname(__FILE__) . '/zkclient.py';

sub new
{
	my ($class, %options) = @_;
	my $self = bless {}, $class;

	# Debian's python3, for Debian's kazoo
	$self->{pid} = open2($self->{out}, $self->{in}, '/usr/bin/python3',
		$program, $options{servers}, $options{timeout} // 10);
	$self->{session} = $self->_call('session');
	return $self;
}

sub _call
{
	my ($self, $method, @args) = @_;

	local $SIG{PIPE} = 'IGNORE';
	my $json = JSON::PP->new->canonical->ascii->allow_nonref;
	print { $self->{in} } $json->encode([ $method, @args ]), "\n";
	$self->{in}->flush;

	my $ready = '';
	vec($ready, fileno($self->{out}), 1) = 1;
	select($ready, undef, undef, $PostgreSQL::Test::Utils::timeout_default) > 0
	  or die "no answer to $method: is ZooKeeper running?\n";
	my $line = readline($self->{out}) // die "the client has ended\n";
	my $answer = $json->decode($line);
	die "$answer->{error}\n" if defined $answer->{error};
	return $answer->{result};
}

=pod

=over

=item ls($path)

The children, sorted; as a list.

=item get($path)

A hash: data, and of the node's stat czxid, mzxid, version, ephemeralOwner,
numChildren.

=item exists($path)

=item create($path, data => ..., ephemeral => 1, sequence => 1, makepath => 1,
acl => 'creator')

Returns the path as created.  acl: "open" (default), "creator", "read" or
"no delete".  hex: data as hexadecimal digits.

=item create_all(\@paths, $data), delete_all(\@paths)

Many ephemeral nodes at once.

=item create_crowd($pattern, $first, $n, $data), delete_crowd($pattern, $first, $n)

Thousands of nodes in a moment: the pattern with a number for its %d, from
C<$first> on.  Those with data are ephemeral.

=item set($path, $data), set_hex($path, $digits), set_acl($path, $acl),
delete($path)

set_hex: data as hexadecimal digits.

=item get_acl($path)

A list of "user:rwcda", sorted.

=item add_auth($scheme, $credentials)

=item session()

The id of our session, as a number.

=item disconnect()

Close the session and end the child process.

=item create_in_session($id, $path)

Make an ephemeral sequential node in another client's session, which loses its
connection for a moment; returns its path.

=item kill_session($id)

End another client's session at once, as if it had expired; false if there is
no such session.

=cut

sub ls { return @{ $_[0]->_call('ls', $_[1]) }; }
sub get { return $_[0]->_call('get', $_[1]); }
sub exists { return $_[0]->_call('exists', $_[1]); }
sub create { my $self = shift; return $self->_call('create', shift, {@_}); }
sub create_all { return $_[0]->_call('create_all', $_[1], $_[2] // ''); }
sub create_crowd { my $self = shift; return $self->_call('create_crowd', @_); }
sub delete_crowd { my $self = shift; return $self->_call('delete_crowd', @_); }
sub delete_all { return $_[0]->_call('delete_all', $_[1]); }
sub set { return $_[0]->_call('set', $_[1], $_[2]); }
sub delete { return $_[0]->_call('delete', $_[1]); }
sub set_hex { return $_[0]->_call('set_hex', $_[1], $_[2]); }
sub set_acl { return $_[0]->_call('set_acl', $_[1], $_[2]); }
sub get_acl { return @{ $_[0]->_call('get_acl', $_[1]) }; }
sub add_auth { return $_[0]->_call('add_auth', $_[1], $_[2]); }
sub session { return $_[0]{session}; }
sub kill_session { return $_[0]->_call('kill_session', $_[1]); }
sub create_in_session { return $_[0]->_call('create_in_session', $_[1], $_[2]); }

=pod

=item enqueue($dir, $kind)

Join the queue of a lock directory, made if it is not there, as Curator would:
create C<_c_E<lt>uuidE<gt>E<lt>kindE<gt>E<lt>sequenceE<gt>>, kind being
"-lock-" (default), "-__READ__" or "-__WRIT__".  Returns the node's path.

=item enqueue_each(\@dirs, $kind)

The same for many directories, which have to be there; returns the paths.

=item contenders($dir)

All in the queue, in its order; as a list of names.

=item position($node)

How many contenders are ahead of it.

=item lock($dir, $kind)

enqueue, and wait until there is none.

=item unlock($node)

Leave the queue.

=item kazoo_lock($dir, $timeout), kazoo_unlock($dir)

kazoo's own lock recipe with extra_lock_patterns; false if not to be had in
time.

=item sweep($root)

Delete all lock directories that are empty, as the servers' collector does;
returns how many.

=cut

sub enqueue { return $_[0]->_call('enqueue', $_[1], $_[2] // '-lock-'); }
sub enqueue_each { return @{ $_[0]->_call('enqueue_each', $_[1], $_[2] // '-lock-') }; }
sub contenders { return @{ $_[0]->_call('contenders', $_[1]) }; }
sub position { return $_[0]->_call('position', $_[1]); }

sub lock
{
	my ($self, $dir, $kind) = @_;
	my $node = $self->enqueue($dir, $kind);

	ZooKeeper::poll_until(sub { $self->position($node) == 0 },
		"the lock in $dir");
	return $node;
}

sub unlock { return $_[0]->delete($_[1]); }

sub kazoo_lock { return $_[0]->_call('kazoo_lock', $_[1], $_[2]); }
sub kazoo_unlock { return $_[0]->_call('kazoo_unlock', $_[1]); }
sub sweep { return $_[0]->_call('sweep', $_[1]); }

sub disconnect
{
	my ($self) = @_;

	return unless $self->{pid};
	close $self->{in};
	waitpid(delete $self->{pid}, 0);
	return;
}

=pod

=back

=cut

1;
