
=pod

=head1 NAME

ZkLibrary - what the ZooKeeper client library was built with, for TAP tests

=head1 SYNOPSIS

  use ZkLibrary;

  if (!library_has('zookeeper_init_ssl'))
  {
      settings_are_refused($node, 'TLS', 'zklock.tls_ca' => '/etc/ca.crt');
  }

=cut

package ZkLibrary;

use strict;
use warnings;

use Exporter qw(import);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;

our @EXPORT = qw(library_has settings_are_refused);

=pod

=head1 FUNCTIONS

=over

=item library_has($function)

Has the library that zklock uses this function?

=item settings_are_refused($node, $what, %settings)

Test that an instance refuses each of these settings, which need a library that
was built with C<$what>, and that there is no connection while it is there.

=back

=cut

sub library_has
{
	my ($function) = @_;
	my $pkglibdir = `pg_config --pkglibdir`;

	chomp $pkglibdir;
	my ($library) = `ldd $pkglibdir/zklock.so` =~ m{libzookeeper_mt\S* => (\S+)}
	  or die "zklock.so does not need libzookeeper_mt\n";
	return `nm -D --defined-only $library` =~ /\b$function\b/;
}

sub settings_are_refused
{
	my ($node, $what, %settings) = @_;
	my $problem = "The ZooKeeper client library of this server was built without $what.";

	for my $name (sort keys %settings)
	{
		my $logged = -s $node->logfile;

		is(sql($node, "ALTER SYSTEM SET $name = '$settings{$name}'")->{sqlstate}, '0A000', "ALTER SYSTEM refuses $name");
		edit_settings($node, $name => $settings{$name});
		$node->restart;
		sql_error(
			$node,
			"SELECT zk_lock('x')",
			{
				sqlstate => '0A000',
				message => "cannot use locks in ZooKeeper because of an invalid value for parameter \"$name\"",
				detail => $problem,
				hint => qr/^Correct the value where it is set/,
			},
			"with $name a lock call is refused");
		ok(wait_last_error($node, qr/^invalid value for parameter "$name": $problem$/), "zk_session names $name");
		is(sql($node, 'SELECT state FROM zk_session')->{out}, 'down', '... and there is no connection without it');
		like(substr(slurp_file($node->logfile), $logged), qr/WARNING:  (?:0A000: )?invalid value for parameter "$name"\n.*DETAIL:  $problem/,
			'... and the log has it at start');
		edit_settings($node, $name => undef);
		$node->reload;
		ok(wait_connected($node), '... until it is taken away');
		is(sql($node, "SELECT count(*) FROM pg_settings WHERE name = '$name'")->{out}, '0', '... and pg_settings does not have it');
	}
	return;
}

1;
