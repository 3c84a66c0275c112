
=pod

=head1 NAME

ZkTls - certificates and stunnels as doc/security.md has them, for TAP tests

=head1 SYNOPSIS

  my $tls = ZkTls->new;
  my @doors = map { $tls->server($_, ($zk->ports)[0]) } ZkTls::hosts();
  my $client = $tls->client('db1.example.org', @doors);
  my $a = zk_cluster('a', $zk, 'zklock.servers' => $client->connstr);

  $_->kill9 for @doors;             # the network is cut
  $_->start for @doors;

=head1 DESCRIPTION

The certificates are made by the commands of the page.  The configurations are
the files of doc/stunnel, with paths and ports of the test in place of those in
the file; each must be there to be replaced.  A stunnel ends with the test,
however that ends, and writes its log to the test's log directory.

=cut

package ZkTls;

use strict;
use warnings;

use File::Basename qw(basename);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

=pod

=head1 METHODS

=over

=item ZkTls::hosts()

The names of the ZooKeeper servers in the configuration of the client.

=item ZkTls->new

Make two CAs with certificates of the same names: one that the configurations
trust, and another one.

=item certificate($name, $ca)

The path of a certificate without ".crt" and ".key"; C<$ca> is "ca" (default)
or "other".

=item expired($name)

Make a certificate of that name that has expired; returns its path likewise.

=item revoked($name, $usage)

Revoke the certificate of that name, and make another one for "clientAuth" or
"serverAuth"; returns the path of the revoked one likewise.

=item expire_crl(), renew_crl()

Make the list of revoked certificates anew: one that has expired, or as the page
does.

Stunnels read the list when they are started or restarted.

=cut

sub hosts { return map { "zk$_.example.org" } (1 .. 3); }

sub new
{
	my ($class) = @_;
	my $self = bless {
		doc => ($ENV{TESTDIR} // '.') . '/doc',
		dir => PostgreSQL::Test::Utils::tempdir('tls'),
		stunnels => 0,
	}, $class;
	my $page = slurp_file("$self->{doc}/security.md");
	my $commands = slurp_file("$self->{doc}/stunnel/certificates.sh");

	($self->{certificate}) = $commands =~ /^(certificate\(\).*?^\}\n)/ms
	  or die 'certificates.sh has no function to make a certificate';
	($self->{revoke}) = $page =~ /^<!-- name: revoke -->\n```sh\n(.*?)^```$/ms
	  or die 'doc/security.md has no commands to revoke a certificate';

	for my $ca (qw(ca other))
	{
		mkdir "$self->{dir}/$ca" or die "could not create $ca: $!";
		$self->_run_sh($ca, $commands);
	}
	return $self;
}

# Run a command in a directory; what it prints is of interest if it fails.
sub _run
{
	my ($dir, @command) = @_;
	my $words = join(' ', map { "'$_'" } @command);
	my $output = `cd '$dir' && $words 2>&1 </dev/null`;

	die "$words: $output" if $? != 0;
	return;
}

# The same for commands of the page, for one of the CAs.
sub _run_sh
{
	my ($self, $ca, $commands) = @_;
	my $script = "$self->{dir}/$ca.sh";

	unlink $script;
	append_to_file($script, $commands);
	_run("$self->{dir}/$ca", 'sh', '-e', $script);
	return;
}

sub certificate
{
	my ($self, $name, $ca) = @_;
	return "$self->{dir}/" . ($ca // 'ca') . "/$name";
}

sub expired
{
	my ($self, $name) = @_;
	my $dir = "$self->{dir}/ca";

	if (!-e "$dir/expired.cnf")
	{
		append_to_file("$dir/expired.cnf", <<"EOC");
[ca]
default_ca = trusted
[trusted]
new_certs_dir = .
database = index.txt
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
[any]
commonName = supplied
EOC
		append_to_file("$dir/index.txt", '');
	}
	_run($dir, qw(openssl ca -batch -notext -config expired.cnf -cert ca.crt -keyfile ca.key),
		qw(-startdate 20200101000000Z -enddate 20200102000000Z),
		'-in', "$name.csr", '-extfile', "$name.ext", '-out', "expired-$name.crt");
	_run($dir, 'cp', '-p', "$name.key", "expired-$name.key");
	return "$dir/expired-$name";
}

sub revoked
{
	my ($self, $name, $usage) = @_;
	my $dir = "$self->{dir}/ca";
	my $commands = $self->{revoke} =~ s/\bdb2\.example\.org\b/$name/r;

	_run($dir, 'cp', '-p', "$name.$_", "revoked-$name.$_") for qw(crt key);
	$self->_run_sh('ca', "$commands$self->{certificate}certificate $name $usage\n");
	return "$dir/revoked-$name";
}

sub expire_crl
{
	my ($self) = @_;

	_run("$self->{dir}/ca", qw(openssl ca -config ca.cnf -gencrl -out ca.crl),
		qw(-crl_lastupdate 20200101000000Z -crl_nextupdate 20200102000000Z));
	return;
}

sub renew_crl
{
	my ($self) = @_;
	my ($command) = $self->{revoke} =~ /^(.* -gencrl .*)$/m
	  or die 'doc/security.md has no command to renew the list';

	$self->_run_sh('ca', $command);
	return;
}

=pod

=item server($certificate, $port)

Start a stunnel in front of the ZooKeeper at this port.  C<$certificate> is a
name, or a path as certificate() returns it.

=item client($certificate, @doors)

Start a stunnel that reaches each of the hosts() through that one of C<@doors>:
stunnels, or ports.

=cut

sub server
{
	my ($self, $certificate, $port) = @_;

	return $self->_stunnel('server', $certificate,
		accept => { 2281 => PostgreSQL::Test::Cluster::get_free_port() },
		connect => { '127.0.0.1:2181' => $port });
}

sub client
{
	my ($self, $certificate, @doors) = @_;
	my %accept = map {
		("127.0.0.1:1218$_" => PostgreSQL::Test::Cluster::get_free_port())
	} (1 .. 3);

	return $self->_stunnel('client', $certificate, accept => \%accept,
		connect => _through(@doors));
}

sub _through
{
	my @ports = map { ref ? $_->ports : $_ } @_;
	my @hosts = hosts();

	return { map { ("$hosts[$_]:2281" => $ports[$_]) } (0 .. $#hosts) };
}

sub _stunnel
{
	my ($self, $kind, $certificate, %options) = @_;
	my $name = $kind . ++$self->{stunnels};
	my $stunnel = bless {
		%options,
		tls => $self,
		kind => $kind,
		certificate => $certificate,
		conf => "$self->{dir}/$name.conf",
		log => "$PostgreSQL::Test::Utils::log_path/"
		  . basename($0, '.pl') . "_$name.log",
	}, 'ZkTls::Stunnel';

	$stunnel->start;
	return $stunnel;
}

=pod

=back

=head1 METHODS OF A STUNNEL

=over

=item start(), stop(), kill9()

=item restart(certificate => ..., doors => [ ... ])

The same program with another certificate, or through other doors.

=item ports(), connstr()

Where it listens, as a list; as "host:port,...".

=item log()

What it has logged since it was started last, or since mark().

=item mark()

=back

=cut

package ZkTls::Stunnel;

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use POSIX ();
use Test::More;
use ZooKeeper;

# The configuration: the file of doc/stunnel, without its comments, with other
# values.
sub _configure
{
	my ($self) = @_;
	my $file = "$self->{tls}{doc}/stunnel/zookeeper-$self->{kind}.conf";
	my $text = slurp_file($file) =~ s/^;.*\n//mgr;
	my $certificate = $self->{certificate};
	my $own = $self->{kind} eq 'server' ? 'zookeeper' : 'client';
	my $replace = sub {
		my ($option, $old, $new) = @_;
		$text =~ s/^\Q$option = $old\E$/$option = $new/m
		  or die "$file: there is no \"$option = $old\"\n";
	};

	$certificate = $self->{tls}->certificate($certificate) unless $certificate =~ m{/};
	$replace->('cert', "/etc/stunnel/$own.crt", "$certificate.crt");
	$replace->('key', "/etc/stunnel/$own.key", "$certificate.key");
	$replace->('CAfile', '/etc/stunnel/zookeeper-ca.crt', $self->{tls}->certificate('ca') . '.crt');
	$replace->('CRLfile', '/etc/stunnel/zookeeper-ca.crl', $self->{tls}->certificate('ca') . '.crl');
	for my $option (qw(accept connect))
	{
		$replace->($option, $_, "127.0.0.1:$self->{$option}{$_}")
		  for sort keys %{ $self->{$option} };
	}

	# only root can become another user
	($text =~ s/^set[ug]id = stunnel4\n//mg) == 2
	  or die "$file: no setuid and setgid\n";

	unlink $self->{conf};
	append_to_file($self->{conf}, $text);
	return;
}

sub start
{
	my ($self) = @_;

	$self->_configure;
	$self->mark;
	my $pid = fork // die "could not fork: $!";
	if ($pid == 0)
	{
		chdir $self->{tls}{dir};
		open STDIN, '<', '/dev/null';
		# PostgreSQL::Test::Utils has tied the file handles, hence dup2.
		open my $log, '>>', $self->{log} or POSIX::_exit(1);
		POSIX::dup2(fileno($log), $_) for (1, 2);
		# With pdeathsig it ends with us, even if we are killed.
		exec qw(setpriv --pdeathsig KILL -- /usr/bin/stunnel4), $self->{conf}
		  or POSIX::_exit(1);
	}
	$self->{pid} = $pid;
	poll_until(
		sub {
			check_runs(\$self->{pid}, 'stunnel', $self->{log});
			return !grep { !_is_listening($_) } $self->ports;
		},
		'stunnel to listen');
	return;
}

# To connect to it would have it connect, too.
sub _is_listening
{
	my $address = sprintf(':%04X 00000000:0000 0A ', $_[0]);
	return index(slurp_file('/proc/net/tcp'), $address) >= 0;
}

sub _end
{
	my ($self, $signal) = @_;
	my $pid = delete $self->{pid} // return;

	kill $signal, $pid;
	waitpid $pid, 0;
	return;
}

sub stop { return $_[0]->_end('TERM'); }
sub kill9 { return $_[0]->_end('KILL'); }

sub restart
{
	my ($self, %options) = @_;

	$self->stop;
	$self->{certificate} = $options{certificate} if $options{certificate};
	$self->{connect} = ZkTls::_through(@{ $options{doors} }) if $options{doors};
	$self->start;
	return;
}

sub ports
{
	my ($self) = @_;
	return map { $self->{accept}{$_} } sort keys %{ $self->{accept} };
}

sub connstr { return join(',', map { "127.0.0.1:$_" } $_[0]->ports); }

sub log
{
	my ($self) = @_;
	return substr(slurp_file($self->{log}), $self->{mark});
}

sub mark { $_[0]{mark} = -s $_[0]{log} // 0; return; }

sub DESTROY { local ($?, $!); $_[0]->kill9 if $_[0]{pid}; return; }

1;
