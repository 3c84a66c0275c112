
=pod

=head1 NAME

Bouncer - a pgbouncer in front of an instance

=head1 SYNOPSIS

  my $bouncer = Bouncer->new($a);
  my $client = ZkSession->new($bouncer, 'transaction');

=head1 DESCRIPTION

Its databases are named as their pool modes, and each has two server connections,
or as many as the option C<pool_size> says.  To ZkSession and ZkWire it is a node.
Its log is named after the test file and the instance.

=cut

# Copyright (c) 2026, zklock developers

package Bouncer;

use strict;
use warnings;

use File::Basename qw(basename);
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX ();
use Test::More;
use ZooKeeper;

my @all;

sub new
{
	my ($class, $node, %options) = @_;
	my $size = $options{pool_size} // 2;
	my $dir = PostgreSQL::Test::Utils::tempdir('pgbouncer');
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $user = getpwuid($<);
	my $self = bless {
		owner => $$,
		node => $node,
		port => $port,
		log => sprintf("%s/%s_%s_pgbouncer.log", $PostgreSQL::Test::Utils::log_path,
			basename($0, '.pl'), $node->name),
	}, $class;
	my $server = "host=${\$node->host} port=${\$node->port} dbname=postgres";
	my $databases = join "\n",
	  map { "$_ = $server pool_mode=$_ pool_size=$size" } qw(session transaction statement);

	# server_reset_query is what it is by default
	append_to_file("$dir/users.txt", qq("$user" ""\n));
	append_to_file("$dir/pgbouncer.ini", <<"EOC");
[databases]
$databases

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $port
unix_socket_dir =
auth_type = trust
auth_file = $dir/users.txt
admin_users = $user
# ZkWire's
ignore_startup_parameters = client_min_messages
EOC

	note "starting pgbouncer on port $port";
	my $pid = fork // die "could not fork: $!";
	if ($pid == 0)
	{
		chdir $dir;
		open STDIN, '<', '/dev/null';
		# PostgreSQL::Test::Utils has tied the file handles, hence dup2.
		open my $log, '>>', $self->{log} or POSIX::_exit(1);
		POSIX::dup2(fileno($log), $_) for (1, 2);
		# With pdeathsig it ends with us, even if we are killed.
		exec qw(setpriv --pdeathsig KILL -- /usr/sbin/pgbouncer),
		  "$dir/pgbouncer.ini"
		  or POSIX::_exit(1);
	}
	$self->{pid} = $pid;
	push @all, $self;
	ZooKeeper::poll_until(
		sub {
			ZooKeeper::check_runs(\$self->{pid}, 'pgbouncer', $self->{log});
			return eval { $self->admin('SHOW VERSION'); 1 };
		},
		'pgbouncer to serve');
	return $self;
}

sub name { return 'pgbouncer'; }

sub host { return '127.0.0.1'; }

sub port { return $_[0]{port}; }

sub connstr { return "host=127.0.0.1 port=$_[0]{port} dbname='$_[1]'"; }

sub _get_env { return $_[0]{node}->_get_env; }

sub installed_command { return $_[0]{node}->installed_command($_[1]); }

# Ask the administration console; the rows, as hashes.
sub admin
{
	my ($self, $command) = @_;
	my ($out, $err) = ('', '');

	local %ENV = $self->_get_env;
	IPC::Run::run(
		[
			$self->installed_command('psql'), '-XAq', '-P', 'footer=off',
			'-d', $self->connstr('pgbouncer'), '-c', $command
		],
		'>', \$out, '2>', \$err) or die "$command: $err";
	my ($head, @rows) = map { [ split /\|/, $_, -1 ] } split /\n/, $out;
	return map { my %row; @row{@$head} = @$_; \%row } @rows;
}

# Wait until there are so many clients in this pool mode.
sub wait_clients
{
	my ($self, $mode, $n) = @_;

	ZooKeeper::poll_until(
		sub { $n == grep { $_->{database} eq $mode } $self->admin('SHOW CLIENTS') },
		"$n clients of the pool");
	return;
}

# End it, so that its connections break.
sub kill9
{
	my ($self) = @_;

	return unless $self->{pid};
	kill 'KILL', $self->{pid};
	waitpid(delete $self->{pid}, 0);
	return;
}

END
{
	my $status = $?;

	$_->{owner} == $$ && $_->kill9 for @all;
	$? = $status;
}

1;
