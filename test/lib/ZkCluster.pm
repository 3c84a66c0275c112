
=pod

=head1 NAME

ZkCluster - PostgreSQL instances with zklock, for TAP tests

=head1 SYNOPSIS

  my $zk = ZooKeeper->new;
  $zk->start;
  my $a = zk_cluster('a', $zk);
  my $b = zk_cluster('b', $zk, 'zklock.session_timeout' => '10s');

  $a->safe_psql('postgres', "SELECT zk_lock('x')");
  wait_no_contenders($zk, 'x');

=cut

package ZkCluster;

use strict;
use warnings;

use Carp;
use Exporter qw(import);
use File::Basename qw(basename);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use ZkWire;
use ZooKeeper;

our @EXPORT = qw(zk_cluster zk_clusters no_pauses retire value lock_dir contender_bytes contenders wait_contenders
  wait_no_contenders all_contenders observe_through wait_accepting
  wait_connected wait_state wait_last_error worker_of session_of session_file
  stop_worker wait_next_worker next_worker end_session lose_session
  edit_settings alter_system members member_node lock_ephemerals told);

# by which test/lib/pauses knows the processes of this test
$ENV{ZKLOCK_TEST_PID} = $$;
my $no_pauses = 0;

# the client that looks, one for each ZooKeeper
my %observer;

# A psql for each statement would take a third of all tests' CPU time.  So what
# needs no psql is sent over a connection of our own: one statement, to a server
# that trusts us, with no settings in the environment.
sub _wire
{
	my ($node, $dbname, $sql) = @_;

	return if !defined $sql || $sql =~ /;\s*\S|\\|^\s*COPY\b/i || $dbname !~ /^\w+$/;
	return if grep { defined $ENV{$_} } qw(PGOPTIONS PGUSER PGPASSWORD PGSSLMODE PGCLIENTENCODING);
	return eval {
		ZkWire->new($node, $dbname, application_name => $ENV{PGAPPNAME} // 'psql');
	};
}

# The error of a result, as psql prints it.
sub _error
{
	my ($result) = @_;
	my @rest = map { $result->{$_} ? uc($_) . ":  $result->{$_}" : () } qw(detail hint context);

	return join "\n", "psql:<stdin>:1: ERROR:  $result->{message}", @rest;
}

{
	no warnings 'redefine';
	my $safe_psql = \&PostgreSQL::Test::Cluster::safe_psql;
	my $poll = \&PostgreSQL::Test::Cluster::poll_query_until;

	*PostgreSQL::Test::Cluster::safe_psql = sub {
		my ($node, $dbname, $sql, @options) = @_;
		my $wire = @options ? undef : _wire($node, $dbname, $sql);

		return $safe_psql->(@_) unless $wire;
		my $result = $wire->run($sql);
		croak 'error running SQL: ' . "'" . _error($result) . "'\nwith sql '$sql'"
		  if defined $result->{sqlstate};
		croak "connection to server was lost\nwith sql '$sql'" if $wire->gone;
		$wire->quit;
		return $result->{out} // '';
	};

	# A wait that times out fails, whether the caller looks at the result or not.  A psql
	# that cannot connect may end before it has been given the query.  Then IPC::Run
	# dies, where the query is to be asked again until the server is up.
	*PostgreSQL::Test::Cluster::poll_query_until = sub {
		my ($node, $dbname, $query, $expected) = @_;
		my $end = time + $PostgreSQL::Test::Utils::timeout_default;
		my $result;

		# a connection for each attempt: they wake the postmaster, too, which up to 15
		# may sleep for a minute where it has a worker to start
		while (my $wire = _wire($node, $dbname, $query))
		{
			$result = $wire->run($query);
			$wire->quit;
			return 1 if !defined $result->{sqlstate} && defined $result->{status} &&
			  ($result->{out} // '') eq ($expected // 't');
			croak 'timed out on ' . $node->name . ", waiting for: $query\nlast result: "
			  . ($result->{message} // $result->{out} // '')
			  if time > $end;
			sleep 0.05;
		}
		until (eval { $result = $poll->($node, $dbname, $query, $expected); 1 })
		{
			die $@ if $@ !~ /^ack Broken pipe/ || time > $end;
		}
		$result or croak 'timed out on ' . $node->name;
		return 1;
	};
}

# A new instance is a copy of a template, which takes less time than initdb; from
# PostgreSQL 17 on, its own test modules do so.
if ($ENV{INITDB_TEMPLATE})
{
	no warnings 'redefine';
	my $run = \&PostgreSQL::Test::Utils::system_or_bail;

	*PostgreSQL::Test::Utils::system_or_bail = sub {
		return $run->(@_) unless "@_" =~ /^initdb -D (\S+) -A trust -N$/;
		return $run->('cp', '-RPp', $ENV{INITDB_TEMPLATE}, $1);
	};
}

=pod

=head1 FUNCTIONS

=over

=item zk_cluster($name, $zk, %settings)

A running PostgreSQL::Test::Cluster with zklock preloaded and created in
database postgres.  Unlike PostgreSQL's tests, it restarts after a crash.

With the setting C<install_path> it is of another installation: that of
$ENV{ZKLOCK_TEST_INSTALL} has the test build of zklock, with mutations.  A test
file that has this name in it gets such an installation from C<test/run>.

=cut

sub zk_cluster
{
	my ($name, $zk, %settings) = @_;
	my $path = delete $settings{install_path};
	my $node = PostgreSQL::Test::Cluster->new($name,
		$path ? (install_path => $path) : ());

	%settings = (
		'shared_preload_libraries' => 'zklock',
		'zklock.servers' => $zk->connstr,
		'zklock.session_timeout' => '20s',
		'max_prepared_transactions' => 10,
		'restart_after_crash' => 'on',
		# from PostgreSQL 19 on, that of its tests has the kind of process, too
		'log_line_prefix' => '%m [%p] %q%a ',
		%settings);
	$node->init;
	$node->append_conf('postgresql.conf', "$_ = '$settings{$_}'")
	  for (sort keys %settings);
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION zklock');
	return $node;
}

=pod

=item zk_clusters($zk, \@names, %settings)

The same for several instances, which it returns in that order.  A setting that is
a function gets the name, and returns the value.

=cut

sub zk_clusters
{
	my ($zk, $names, %settings) = @_;

	return map {
		my $name = $_;
		my %of = map { $_ => ref $settings{$_} ? $settings{$_}->($name) : $settings{$_} }
		  keys %settings;

		zk_cluster($name, $zk, %of);
	} @$names;
}

=pod

=item no_pauses()

What follows is about sessions that a stop of all processes would end, or about how
soon something comes: with ZKLOCK_TEST_PAUSES, no process of this test stands still
until the test is over, or what this returns goes out of scope.

=cut

sub no_pauses
{
	my $file = join('.', "$ENV{TESTDATADIR}/no_pauses", basename($0, '.pl'), ++$no_pauses, $$);

	append_to_file($file, '') if $ENV{ZKLOCK_TEST_PAUSES};
	return unless defined wantarray;
	return bless(\$file, 'ZkCluster::NoPauses');
}

sub ZkCluster::NoPauses::DESTROY
{
	my ($self) = @_;

	unlink $$self if $$self =~ /\.$$\z/;
	return;
}

=pod

=item retire(@nodes)

Stop instances whose part of a test file is over, and keep their files and logs
under other names: a later part can have instances of the same names.

=item value($node, $sql, $dbname)

What a statement returns, in a session of its own; dies if it fails.

=item lock_dir($name, $root)

The lock directory of a name (characters, not bytes); root defaults to /zklock.

=cut

sub retire
{
	for my $node (@_)
	{
		my ($dir, $log) = ($node->basedir, $node->logfile);
		my $n = grep { -e "$log.$_" } 1 .. 99;

		$node->stop('fast', fail_ok => 1);
		$n++;
		rename $log, "$log.$n" or die "$log: $!";
		rename $dir, "$dir.$n" or die "$dir: $!";
		@$node{qw(_logfile _basedir)} = ("$log.$n", "$dir.$n");
	}
	return;
}

sub value { return $_[0]->safe_psql($_[2] // 'postgres', $_[1]); }

sub lock_dir
{
	my ($name, $root) = @_;

	utf8::encode($name);
	$name =~ s/([^A-Za-z0-9\-_.~:@=+,])/sprintf('%%%02X', ord $1)/ge;
	$name =~ s/\./%2E/g if $name =~ /^\.\.?$/;
	return ($root // '/zklock') . "/$name";
}

=pod

=item contender_bytes($name)

How much an exclusive contender for the lock takes of zklock.path_bytes, which a
test build has.

=cut

sub contender_bytes
{
	my ($name) = @_;

	return length(lock_dir($name) . '/_c_' . '0' x 36 . '-lock-' . '0' x 10) + 4;
}

=pod

=item contenders($zk, $name, $root)

The contenders for a lock as ZooKeeper has them: names of znodes in the order
of the queue.

=item wait_contenders($zk, $name, $n, $root)

Wait until there are C<$n>, and return them.

=item wait_no_contenders($zk, $name, $root)

=cut

sub contenders
{
	my ($zk, $name, $root) = @_;
	my $client = $observer{$zk} //= $zk->client;
	my @found = eval { $client->contenders(lock_dir($name, $root)) };

	die $@ if $@ and $@ !~ /^NoNodeError/;
	return @found;
}

sub wait_contenders
{
	my ($zk, $name, $n, $root) = @_;
	my @found;

	poll_until(
		sub { @found = contenders($zk, $name, $root); @found == $n },
		"$n contenders for \"$name\"");
	return @found;
}

sub wait_no_contenders
{
	my ($zk, $name, $root) = @_;
	wait_contenders($zk, $name, 0, $root);
	return;
}

=pod

=item observe_through($zk, @i)

From now on, see what these servers have (default: any of them).

=cut

sub observe_through
{
	my ($zk, @i) = @_;
	my @servers = split /,/, $zk->connstr;

	@servers = @servers[@i] if @i;
	$observer{$zk}->disconnect if $observer{$zk};
	$observer{$zk} = $zk->client(servers => join(',', @servers));
	return;
}

=pod

=item wait_accepting($node)

Wait until an instance that has crashed accepts connections again.

=cut

sub wait_accepting
{
	my ($node) = @_;
	my @ready = ($node->installed_command('pg_isready'),
		'-q', '-h', $node->host, '-p', $node->port);

	poll_until(sub { system(@ready) == 0 },
		$node->name . ' to accept connections');
	return;
}

=pod

=item wait_connected($node)

Wait until each session of an instance has a connection; true.

=item wait_state($node, $state)

Wait until each is in this state; true.

=item wait_last_error($node, $error)

Wait until zk_session.last_error matches; returns it.

=item worker_of($node)

The process id of its worker; waits until there is one.

=item session_of($node)

The id of its session, as zk_session has it.

=item session_file($node)

Where it notes its session, for after a crash.

=cut

sub wait_connected { return wait_state($_[0], 'connected'); }

sub wait_state
{
	my ($node, $state) = @_;

	$node->poll_query_until('postgres', "SELECT state = '$state' FROM zk_session");
	return 1;
}

sub wait_last_error
{
	my ($node, $error) = @_;
	my $found;

	poll_until(
		sub {
			$found = $node->safe_psql('postgres', 'SELECT last_error FROM zk_session');
			return $found =~ $error;
		},
		$node->name . " to have the error $error");
	return $found;
}

sub worker_of
{
	my ($node) = @_;
	my $pid;

	# there is none for a moment while one is being replaced
	poll_until(
		sub {
			$pid = $node->safe_psql('postgres', 'SELECT worker_pid FROM zk_session');
			return $pid ne '';
		},
		'a worker of ' . $node->name);
	return $pid;
}

sub session_of { return $_[0]->safe_psql('postgres', 'SELECT session_id FROM zk_session'); }

sub session_file { return $_[0]->data_dir . '/pgsql_tmp.zklock_session'; }

=pod

=item stop_worker($node)

Have its worker stand still, by SIGSTOP; its process id.

=item wait_next_worker($node, $before)

Wait until it has another worker than this one, connected or not.

=item next_worker($node, $act)

End its worker by SIGTERM, or call a function that has it replaced, and wait
until the next one is connected.

=item end_session($node, $client, $id)

End its session, or that one of several, by way of a foreign client, as if it had
expired; false if there is none.  The worker stands still meanwhile: one that
comes back for its connection at that very moment is told nothing, and notices
after 2/3 of the timeout.

=item lose_session($node, $client)

The same, as a test, and wait until there is another session.

=cut

sub stop_worker
{
	my $worker = worker_of($_[0]);

	stop_process($worker);
	return $worker;
}

sub wait_next_worker
{
	my ($node, $before) = @_;

	$node->poll_query_until('postgres',
		"SELECT worker_pid IS NOT NULL AND worker_pid <> $before FROM zk_session");
	return;
}

sub next_worker
{
	my ($node, $act) = @_;
	my $before = worker_of($node);

	$act ? $act->() : kill 'TERM', $before;
	wait_next_worker($node, $before);
	wait_connected($node);
	return;
}

sub end_session
{
	my ($node, $client, $id) = @_;
	my $worker = stop_worker($node);
	my $ended = $client->kill_session($id // session_of($node));
	kill 'CONT', $worker;
	return $ended;
}

sub lose_session
{
	my ($node, $client) = @_;
	my $old = session_of($node);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(end_session($node, $client), 'the session of ' . $node->name . ' is ended');
	$node->poll_query_until('postgres',
		"SELECT state = 'connected' AND session_id <> '$old' FROM zk_session");
	return;
}

=pod

=item edit_settings($node, %settings)

Put settings into postgresql.conf; those that are undef are taken away.

=cut

sub edit_settings
{
	my ($node, %settings) = @_;
	my $file = $node->data_dir . '/postgresql.conf';
	my @lines = split /^/, slurp_file($file);

	for my $name (sort keys %settings)
	{
		@lines = grep { !/^\Q$name\E\b/ } @lines;
		push @lines, "$name = '$settings{$name}'\n" if defined $settings{$name};
	}
	open my $out, '>', $file or die "$file: $!";
	print $out @lines;
	close $out or die "$file: $!";
	return;
}

=pod

=item alter_system($node, %settings)

Set them by ALTER SYSTEM, and wait until new sessions have them.

=item all_contenders($zk, $root)

The contenders for all locks, as paths.

=cut

sub alter_system
{
	my ($node, %settings) = @_;

	value($node, "ALTER SYSTEM SET $_ = '$settings{$_}'") for sort keys %settings;
	$node->reload;
	$node->poll_query_until('postgres', "SHOW $_", $settings{$_}) for sort keys %settings;
	return;
}

sub all_contenders
{
	my ($zk, $root) = @_;
	my $client = $observer{$zk} //= $zk->client;
	my @found;

	$root //= '/zklock';
	for my $dir (map { "$root/$_" } $client->ls($root))
	{
		# an idle directory may be collected meanwhile
		push @found, map { "$dir/$_" } eval { $client->contenders($dir) };
		die $@ if $@ and $@ !~ /^NoNodeError/;
	}
	return @found;
}

=pod

=item members($zk, $root)

The znodes by which instances tell of themselves below C<%clusters>.

=item member_node($n)

The name of such a znode, for a stranger to make.

=item told($zk, $what, $name, $root)

How many texts of instances, below %waits, tell that somebody has this lock and
waits ('keep'), or waits for it ('wait').

=item lock_ephemerals($zk, $i)

How many ephemeral nodes server C<$i> (default: 0) counts but for those; undef
if it does not answer.

=cut

sub members
{
	my ($zk, $root) = @_;
	my $client = $observer{$zk} //= $zk->client;
	my @found = eval { $client->ls(($root // '/zklock') . '/%clusters') };

	die $@ if $@ and $@ !~ /^NoNodeError/;
	return @found;
}

sub member_node { return sprintf('%08x-0000-4000-8000-000000000000-cluster', $_[0]); }

sub told
{
	my ($zk, $what, $name, $root) = @_;
	my $client = $observer{$zk} //= $zk->client;
	my $room = ($root // '/zklock') . '/%waits';
	my $path = lock_dir($name) =~ s/([^!-\$&-~])/sprintf '%%%02X', ord $1/ger;
	my $pattern = $what eq 'wait' ? qr/^wait \d+ [xs] \Q$path\E /m : qr/^keep [xs] \Q$path\E /m;
	my @texts = grep { /-\d{10}$/ } eval { $client->ls($room) };

	return scalar grep { (eval { $client->get("$room/$_")->{data} } // '') =~ $pattern } @texts;
}

sub lock_ephemerals
{
	my ($zk, $i) = @_;
	my ($n) = ($zk->fourlw('mntr', $i // 0) // '') =~ /^zk_ephemerals_count\t(\d+)/m;

	return undef unless defined $n;

	# each instance may have a chroot of its own
	my $client = $observer{$zk} //= $zk->client;
	my @members = map { members($zk, $_) } '/zklock', map { "/$_/zklock" } $client->ls('/');
	return $n - @members;
}

=pod

=back

=cut

1;
