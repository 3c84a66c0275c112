
=pod

=head1 NAME

ZkSession - sessions that wait while the test goes on, and errors in parts

=head1 SYNOPSIS

  my $s = ZkSession->new($node);
  $s->run("BEGIN");
  $s->send("SELECT zk_lock('x')");      # does not wait
  $s->wait_waiting(2);                  # it waits in the second tier
  ok(!$s->done);
  is($s->result->{sqlstate}, '57014');  # waits until the statement has ended

  my $r = sql($node, "SELECT zk_lock('')");
  is($r->{sqlstate}, '22023');

A result is a hash: out (the rows, as psql -At prints them), warnings (a list
of messages), and of the first error, if there was one: sqlstate, message,
detail, hint, context.

=cut

package ZkSession;

use strict;
use warnings;

use Exporter qw(import);
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use ZooKeeper;

our @EXPORT = qw(sql sql_error error_is $lock_lost holder waiter hand_over);

=pod

=head1 METHODS

=over

=item ZkSession->new($node, $dbname, $user)

=cut

sub new
{
	my ($class, $node, $dbname, $user) = @_;
	my $self = bless { node => $node, in => '', out => '', err => '', sent => 0 },
	  $class;

	local %ENV = $node->_get_env($user ? (PGUSER => $user) : ());
	$self->{run} = IPC::Run::start(
		[
			$node->installed_command('psql'), '-XAtq', '-v',
			'VERBOSITY=verbose', '-d', $node->connstr($dbname // 'postgres'),
			'-f', '-'
		],
		'<', \$self->{in}, '>', \$self->{out}, '2>', \$self->{err});
	my $result = $self->run('SELECT pg_backend_pid()');
	$self->{pid} = $result->{out};
	die "could not connect: $result->{stderr}" unless $self->{pid};
	return $self;
}

=pod

=item pid()

The process id of the backend.

=cut

sub pid { return $_[0]{pid}; }

=pod

=item send($sql)

Begin to run statements.

=item done()

Have they ended, or the connection?

=item result()

Wait for that, and return the result.

=item run($sql)

send, and result.

=item run_ok($sql, $name)

run, a test that there was no error; returns the rows.

=cut

sub send
{
	my ($self, $sql) = @_;
	my $n = ++$self->{sent};

	die 'the session is busy' if $self->{busy};
	note $self->{node}->name . ": $sql";
	$self->{busy} = 1;
	$self->{in} .= "$sql\n;\n\\echo 'ended $n.'\n\\warn 'ended $n.'\n";
	$self->_pump;
	return;
}

sub _pump
{
	my ($self) = @_;
	local $SIG{PIPE} = 'IGNORE';

	$self->{gone} = 1
	  if !$self->{gone}
	  && (!$self->{run}->pumpable || !eval { $self->{run}->pump_nb; 1 });
	return;
}

sub done
{
	my ($self) = @_;
	my $n = $self->{sent};

	$self->_pump;
	return $self->{gone}
	  || ($self->{out} =~ /^ended $n\.$/m && $self->{err} =~ /^ended $n\.$/m);
}

sub result
{
	my ($self) = @_;
	my $n = $self->{sent};

	die 'nothing was sent' unless $self->{busy};
	poll_until(sub { $self->done }, "the end of what was sent: $self->{err}");
	$self->{busy} = 0;

	my ($out, $err) = @$self{qw(out err)};
	$self->{out} = $self->{err} = '';
	s/^ended $n\.\n//m for ($out, $err);
	return _parse($out, $err);
}

sub run
{
	my ($self, $sql) = @_;

	$self->send($sql);
	return $self->result;
}

sub run_ok
{
	my ($self, $sql, $name) = @_;
	my $result = $self->run($sql);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{message}, undef, $name // $sql);
	return $result->{out};
}

=pod

=item wait_waiting($tier)

Wait until the backend waits: in the first tier, behind another backend, or in
the second, for ZooKeeper; without an argument, in either.

=cut

sub wait_waiting
{
	my ($self, $tier) = @_;
	my $type = !defined $tier ? qr/^(Lock|Extension)$/ : $tier == 1 ? qr/^Lock$/ : qr/^Extension$/;
	my $watcher = $self->{node}{zk_watcher} //= ZkSession->new($self->{node});

	poll_until(
		sub {
			my $result = $watcher->run(
				'SELECT wait_event_type FROM pg_stat_activity'
				  . " WHERE pid = $self->{pid} AND state = 'active'");
			die "the session does not wait: $self->{err}" if $self->done;
			return $result->{out} =~ $type;
		},
		'the session to wait in ' . (defined $tier ? "tier $tier" : 'either tier'));
	return;
}

=pod

=item wait_event($event)

Wait until the backend waits for this.

=item kill_client()

End psql by SIGKILL: a client that vanishes.

=item quit()

End psql, and wait for the end of the backend.

=cut

sub wait_event
{
	my ($self, $event) = @_;

	$self->{node}->poll_query_until('postgres',
		"SELECT wait_event = '$event' FROM pg_stat_activity WHERE pid = $self->{pid}");
	return;
}

sub kill_client
{
	my ($self) = @_;

	$self->{run}->signal('KILL');
	eval { $self->{run}->finish };
	$self->{gone} = 1;
	$self->{busy} = 0;
	return;
}

sub quit
{
	my ($self) = @_;

	if (!$self->{gone})
	{
		$self->{in} .= "\\q\n";
		local $SIG{PIPE} = 'IGNORE';
		eval { $self->{run}->finish };
	}
	$self->{gone} = 1;
	return;
}

=pod

=back

=head1 FUNCTIONS

=over

=item sql($node, $sql, $dbname)

Run statements in a session of their own, and return the result.

=item error_is($result, \%expected, $name)

A test that there was this error.  Expected are sqlstate, message, detail and
hint, as strings or regular expressions; what is not named must not be there.

=item sql_error($node, $sql, \%expected, $name, $dbname)

sql, and error_is.

=cut

sub sql
{
	my ($node, $sql, $dbname) = @_;
	my ($out, $err) = ('', '');

	$node->psql(
		$dbname // 'postgres', $sql,
		stdout => \$out,
		stderr => \$err,
		on_error_stop => 0,
		extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	return _parse($out, $err);
}

sub error_is
{
	my ($result, $expected, $name) = @_;
	my $right = 1;

	for my $part (qw(sqlstate message detail hint))
	{
		my ($is, $want) = ($result->{$part}, $expected->{$part});
		$right &&=
			!defined $want ? !defined $is
		  : !defined $is ? 0
		  : ref $want ? $is =~ $want
		  : $is eq $want;
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($right, $name)
	  or diag(explain({ is => $result, expected => $expected }));
	return $right;
}

sub sql_error
{
	my ($node, $sql, $expected, $name, $dbname) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return error_is(sql($node, $sql, $dbname), $expected, $name // $sql);
}

=pod

=item $lock_lost

What to expect of a COMMIT whose lock has been lost, for error_is.

=cut

our $lock_lost = {
	sqlstate => '40001',
	message => qr/^could not commit because lock "\w+" has been lost$/,
	detail => qr/./,
	hint => qr/^Retry the transaction/
};

my %part = (DETAIL => 'detail', HINT => 'hint', CONTEXT => 'context');

sub _parse
{
	my ($out, $err) = @_;
	my %result = (out => $out, stderr => $err, warnings => []);
	my ($message, $where) = ({}, undef);

	$result{out} =~ s/\n\z//;
	for (split /\n/, $err)
	{
		s/^psql:\S+ //;
		if (/^(WARNING|ERROR|FATAL|PANIC|NOTICE):  (\w{5}): (.*)/)
		{
			$message = { severity => $1, sqlstate => $2, message => $3 };
			$where = \$message->{message};
			push @{ $result{warnings} }, $message if $1 eq 'WARNING';
			next if $1 eq 'WARNING' || $1 eq 'NOTICE';
			next if defined $result{sqlstate};
			%result = (%result, sqlstate => $2, message => $3);
			$message = \%result;
			$where = \$result{message};
		}
		elsif (/^([A-Z]+):  (.*)/)
		{
			$where = $part{$1} ? \$message->{ $part{$1} } : \my $other;
			$$where = $2;
		}
		elsif ($where)
		{
			$$where .= "\n$_";
		}
	}
	return \%result;
}

=pod

=item holder($node, $lock, $dbname)

A session that holds a lock, in a transaction.

=cut

sub holder
{
	my ($node, $lock, $dbname, $user) = @_;
	my $session = ZkSession->new($node, $dbname, $user);
	my $result = $session->run("BEGIN; SELECT zk_lock('$lock');");

	die "could not take the lock: $result->{message}" if $result->{message};
	return $session;
}

=pod

=item waiter($node, $lock, $tier, $statement)

A session that waits for a lock, in a transaction; tier as in wait_waiting.

=cut

sub waiter
{
	my ($node, $lock, $tier, $statement) = @_;
	my $session = ZkSession->new($node);

	$session->run('BEGIN');
	$session->send($statement // "SELECT zk_lock('$lock')");
	$session->wait_waiting($tier);
	return $session;
}

=pod

=item hand_over($holder, $waiter, $name)

Test that the waiter gets the lock when the holder commits; end both.

=cut

sub hand_over
{
	my ($holder, $waiter, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$holder->run_ok('COMMIT');
	is($waiter->result->{message}, undef, $name);
	$waiter->run_ok('COMMIT');
	$_->quit for ($holder, $waiter);
	return;
}

=pod

=back

=cut

1;
