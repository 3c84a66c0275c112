# Copyright (c) 2026, zklock developers

# Encrypted connections by the ZooKeeper client library.  Debian's was built
# without TLS: there the settings are refused, and nothing goes out in clear.
# With one that was built with it (test/lib/client_library), against ZooKeeper's
# own TLS: what it is given is used, and what it does wrong is held in check.

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkLibrary;
use ZkSession;
use ZkTls;
use ZooKeeper;

my $tls = ZkTls->new;
my ($zk, $a);

# The settings for a certificate.
sub files
{
	my ($path, $ca) = @_;

	return (
		'zklock.tls_ca' => $tls->certificate($ca // 'ca') . '.crt',
		'zklock.tls_cert' => "$path.crt",
		'zklock.tls_key' => "$path.key");
}

my $path = $tls->certificate('db1.example.org');

if (!library_has('zookeeper_init_ssl'))
{
	settings_are_refused('TLS', files($path));
	note 'the rest needs a library with TLS: see test/lib/client_library';
	done_testing();
	exit;
}

#
# With TLS
#

# ZooKeeper wants key and certificate in one file.
sub pem
{
	my ($certificate) = @_;
	my $file = "$certificate.pem";

	unlink $file;
	append_to_file($file, slurp_file("$certificate.key") . slurp_file("$certificate.crt"));
	return $file;
}

my $secure_port = PostgreSQL::Test::Cluster::get_free_port();
my $secure = "127.0.0.1:$secure_port";

sub zookeeper
{
	my ($name, $certificate, $port) = @_;
	append_to_file($tls->certificate('ca') . '.pem', slurp_file($tls->certificate('ca') . '.crt'))
	  unless -e $tls->certificate('ca') . '.pem';
	my $server = ZooKeeper->new(
		name => $name,
		netty => 1,
		conf => {
			secureClientPort => $port,
			secureClientPortAddress => '127.0.0.1',
			'ssl.keyStore.location' => pem($certificate),
			'ssl.trustStore.location' => $tls->certificate('ca') . '.pem',
			'ssl.clientAuth' => 'need'
		});

	$server->start;
	return $server;
}

$zk = zookeeper('zk', $tls->certificate('zk1.example.org'), $secure_port);
my $b;
($a, $b) = zk_clusters($zk, [ 'a', 'b' ], 'zklock.session_timeout' => '12s');
edit_settings($a, files($path), 'zklock.servers' => $secure);
$a->restart;
ok(wait_connected($a), 'connected');
is(sql($a, 'SELECT server FROM zk_session')->{out}, $secure, '... to the port for TLS');
{
	# why the page wants stunnel
	my $server = $tls->certificate('zk1.example.org');
	my $names = `openssl x509 -in '$server.crt' -noout -checkip 127.0.0.1`;

	like($names, qr/does NOT match/, '... although the certificate is that of another name, which the library does not check');
}
is(sql($a, "SELECT count(*) FROM pg_settings WHERE name LIKE 'zklock.tls%'")->{out}, '0', 'pg_settings does not have the files');
is(sql($a, 'CREATE ROLE nobody; SET ROLE nobody; SHOW zklock.tls_key')->{sqlstate}, '42501', '... and only superusers see them');

# A lock with an instance that has no TLS, through an outage.
{
	my $session = session_of($a);
	my $holder = holder($a, 'x');
	my $waiter = waiter($b, 'x', 2);

	$zk->kill9;
	$a->poll_query_until('postgres', "SELECT state = 'suspended' FROM zk_session");
	$zk->start;
	ok(wait_connected($a), 'connected again');
	is(session_of($a), $session, '... in the same session');
	hand_over($holder, $waiter, 'a lock goes to an instance without TLS');
}

# The end of a session, which the worker closes while it has no connection.
lose_session($a, $zk->client(timeout => 60));

# Many at a time, in flights whose answers come together.
for my $node ($a)
{
	my $script = PostgreSQL::Test::Utils::tempdir . '/locks.pgbench';
	append_to_file($script, "\\set n random(1, 30)\nBEGIN;\nSELECT zk_lock(:n::text);\nCOMMIT;\n");
	$node->command_ok(
		[ 'pgbench', '-n', '-c', 16, '-j', 2, '-t', 50, '-f', $script, $node->connstr('postgres') ],
		'many locks at a time');
	is(sql($node, "SELECT zk_lock_all(array_agg(n::text)) FROM generate_series(1, 300) n")->{message}, undef, 'and many together');
}

# Files that cannot be used
{
	my $other = $tls->certificate('db2.example.org');
	my $key = "$path.key";
	my $reconnect = sub { sql($a, 'SELECT pg_terminate_backend(worker_pid) FROM zk_session'); };

	chmod 0640, $key or die;
	$reconnect->();
	wait_last_error($a, qr/^private key file "\Q$key\E" has group or world access/);
	pass('a key that others may read is not used');
	chmod 0600, $key or die;
	ok(wait_connected($a), '... until it is right');

	for my $case (
		[ 'zklock.tls_ca', '/nowhere', qr/^could not open file "\/nowhere": No such file/ ],
		[ 'zklock.tls_cert', $key, qr/^file "\Q$key\E" has no "BEGIN CERTIFICATE"$/ ],
		[ 'zklock.tls_key', "$path.crt", qr/^file "\Q$path\E\.crt" has no "PRIVATE KEY"$|has group or world access/ ],
		[ 'zklock.tls_key', "$other.key", qr/private key/ ])
	{
		my ($name, $value, $error) = @$case;

		edit_settings($a, $name => $value);
		$a->reload;
		wait_last_error($a, $error);
		isnt(sql($a, 'SELECT state FROM zk_session')->{out}, 'connected', "$name = $value: refused");
		edit_settings($a, files($path));
		$a->reload;
		ok(wait_connected($a), '... until it is right');
	}
	edit_settings($a, 'zklock.tls_key' => undef);
	$a->reload;
	wait_last_error($a, qr/^invalid value for parameter "zklock.tls_key": TLS needs /);
	is(sql($a, "SELECT zk_lock('x')")->{sqlstate}, 'F0000', 'all three are needed');
	is(sql($a, "ALTER SYSTEM SET zklock.tls_key = '/a,b'")->{sqlstate}, '22023', 'a path has no comma');
	edit_settings($a, files($path));
	$a->reload;
	ok(wait_connected($a), '... and used');
}

# A server of another CA, even if the system trusts that CA
{
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $impostor = zookeeper('impostor', $tls->certificate('zk1.example.org', 'other'), $port);

	edit_settings($a, 'zklock.servers' => "127.0.0.1:$port");
	{
		local $ENV{SSL_CERT_FILE} = $tls->certificate('ca', 'other') . '.crt';
		$a->restart;
	}
	wait_last_error($a, qr/error in ssl connect/);
	isnt(sql($a, 'SELECT state FROM zk_session')->{out}, 'connected', 'a server of another CA is refused');
	$impostor->stop;
}

# A server that accepts connections and says nothing
{
	my $silent = IO::Socket::INET->new(Listen => 50, LocalAddr => '127.0.0.1') or die "$!";
	my $logged = -s $a->logfile;

	edit_settings($a, 'zklock.servers' => '127.0.0.1:' . $silent->sockport);
	$a->reload;
	$a->wait_for_log(qr/restarting the zklock worker, because ZooKeeper does not answer on any connection/, $logged);
	pass('a handshake that does not end costs a worker');
	edit_settings($a, 'zklock.servers' => '127.0.0.1:' . $silent->sockport . ",$secure");
	$a->reload;
	ok(wait_connected($a), '... and another server is found');

	# it is stopped in the middle of a handshake
	$silent = IO::Socket::INET->new(Listen => 50, LocalAddr => '127.0.0.1') or die "$!";
	edit_settings($a, 'zklock.servers' => '127.0.0.1:' . $silent->sockport);
	$a->reload;
	poll_until(sub { IO::Select->new($silent)->can_read(0) }, 'a connection');
	my $connection = $silent->accept;
	ok(sysread($connection, my $hello, 1), 'the handshake has begun');
	$a->stop('fast');
	pass('... and costs no shutdown');
}

unlike(slurp_file($_->logfile), qr/PANIC|TRAP|was terminated by signal/, $_->name . ' has not crashed')
  for ($a, $b);
$b->stop;

done_testing();
