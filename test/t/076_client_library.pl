# Copyright (c) 2026, zklock developers

# Encrypted connections and authentication by the ZooKeeper client library.
# Debian's was built without TLS and SASL: there the settings are refused, and
# nothing goes out in clear.  With one that was built with them
# (test/lib/client_library):
#
# - TLS, against ZooKeeper's own: what it is given is used, and what it does wrong is
#   held in check.
# - SASL: who is who for ZooKeeper's ACLs, a ZooKeeper that lets nobody else in, wrong
#   passwords, servers that do not know the password, and what becomes of locks
#   meanwhile, also those of an instance with several sessions: for that it needs a
#   test build.

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
use ZkProxy;
use ZkSession;
use ZkTls;
use ZooKeeper;

my $tls = ZkTls->new;
my $path = $tls->certificate('db1.example.org');
my $dir = PostgreSQL::Test::Utils::tempdir('sasl');

# The settings for a certificate.
sub files
{
	my ($path, $ca) = @_;

	return (
		'zklock.tls_ca' => $tls->certificate($ca // 'ca') . '.crt',
		'zklock.tls_cert' => "$path.crt",
		'zklock.tls_key' => "$path.key");
}

#
# Without
#

my %lacking;

$lacking{TLS} = { files($path) } unless library_has('zookeeper_init_ssl');
$lacking{SASL} = { 'zklock.sasl_user' => 'shop', 'zklock.sasl_password_file' => "$dir/password" }
  unless library_has('zookeeper_init_sasl');
if (%lacking)
{
	my $zk = ZooKeeper->new(name => 'refused');

	$zk->start;
	my $node = zk_cluster('refuses', $zk);
	settings_are_refused($node, $_, %{ $lacking{$_} }) for sort keys %lacking;
	$node->stop;
	note 'the rest needs a library with ' . join(' and ', sort keys %lacking) . ': see test/lib/client_library';
}

#
# With TLS
#

if (!$lacking{TLS})
{
	# ZooKeeper wants key and certificate in one file.
	my sub pem
	{
		my ($certificate) = @_;
		my $file = "$certificate.pem";

		unlink $file;
		append_to_file($file, slurp_file("$certificate.key") . slurp_file("$certificate.crt"));
		return $file;
	}

	my $secure_port = PostgreSQL::Test::Cluster::get_free_port();
	my $secure = "127.0.0.1:$secure_port";

	my sub zookeeper
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

	my $zk = zookeeper('tls_zk', $tls->certificate('zk1.example.org'), $secure_port);
	my ($a, $b) = zk_clusters($zk, [ 'a', 'b' ], 'zklock.session_timeout' => '12s');
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
		my $impostor = zookeeper('tls_impostor', $tls->certificate('zk1.example.org', 'other'), $port);

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
	retire($a, $b);
	$zk->stop;
}

#
# With SASL
#

if (!$lacking{SASL})
{
	die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};

	# The configuration of the servers and of the instances, as on the page.
	my ($page) = slurp_file("$ENV{TESTDIR}/doc/security.md") =~ /^## SASL\n(.*?)^## /ms
	  or die 'doc/security.md has no section SASL';
	my ($jaas) = $page =~ /^(    Server \{\n(?:    .*\n)+)/m
	  or die 'doc/security.md has no JAAS configuration';
	my %conf = $page =~ /^    ([\w.-]+)=(\S+)$/mg;
	my %settings = $page =~ /^    (zklock\.\w+) = '?(.*?)'?(?:\s+#.*)?$/mg;

	is_deeply(
		[ sort(keys %conf), sort(keys %settings) ],
		[
			qw(authProvider.1 enforce.auth.enabled enforce.auth.schemes fips-mode),
			qw(zklock.acl zklock.sasl_password_file zklock.sasl_user)
		],
		'what the page configures');

	my sub put_password
	{
		my ($name, $password) = @_;
		my $file = "$dir/$name";

		unlink $file;
		append_to_file($file, $password);
		chmod 0600, $file or die "$file: $!";
		return $file;
	}

	# The settings of a user whose password is in a file of his name.
	my sub user
	{
		my ($name) = @_;
		return (
			%settings,
			'zklock.sasl_user' => $name,
			'zklock.sasl_password_file' => "$dir/$name");
	}

	# A server as on the page, or one that lets in others, too.
	my sub zookeeper
	{
		my ($name, %options) = @_;
		my $server = ZooKeeper->new(
			name => $name,
			conf => { map { ($_ => $conf{$_}) } grep { !$options{open} || !/^enforce/ } keys %conf },
			jaas => $options{jaas} // $jaas);

		$server->start;
		return $server;
	}

	put_password(shop => "open sesame\nand what follows is of no interest\n");
	put_password(bank => "close sesame");

	my $zk = zookeeper('zk', open => 1);
	my ($a, $b, $bank, $none) = zk_clusters($zk, [qw(a b bank none)],
		'zklock.session_timeout' => '12s');
	for my $node ($a, $b, $bank)
	{
		edit_settings($node, user($node == $bank ? 'bank' : 'shop'));
		$node->restart;
		ok(wait_connected($node), $node->name . ' is connected');
	}

	# Who is who
	{
		my $holder = holder($a, 'x');
		my $waiter = waiter($b, 'x', 2);

		for my $case ([ $bank, 'zklock.sasl_user' ], [ $none, 'zklock.auth' ])
		{
			my ($node, $setting) = @$case;

			sql_error(
				$node,
				"SELECT zk_lock('x')",
				{
					sqlstate => '42501',
					message => 'ZooKeeper denied access to lock "x"',
					detail => 'The credentials of this server do not allow it to create znodes in "/zklock/x".',
					hint => "Check \"$setting\" and \"zklock.acl\", and the ACL of the znode.",
					context => 'while waiting for lock "x" in ZooKeeper'
				},
				'nobody else takes it: ' . $node->name);
		}
		hand_over($holder, $waiter, 'the same user does');
	}

	# An outage
	{
		my $session = session_of($a);
		my $holder = holder($a, 'x');
		my $waiter = waiter($b, 'x', 2);

		$zk->kill9;
		wait_state($a, 'suspended');
		$zk->start;
		ok(wait_connected($a), 'connected again');
		is(session_of($a), $session, '... to the same session');
		hand_over($holder, $waiter, 'the lock goes on');
	}

	# Wrong passwords, and files that cannot be used.  The session is that of before
	# if it is put right in time.
	{
		my $file = "$dir/shop";
		my $session = session_of($a);
		my $holder = holder($a, 'y');
		my $reconnect = sub { sql($a, 'SELECT pg_terminate_backend(worker_pid) FROM zk_session'); };
		my $refused = qr/^ZooKeeper refused the credentials of "zklock\.sasl_user"$/;

		put_password(shop => 'wrong');
		$reconnect->();
		ok(wait_last_error($a, $refused), 'a wrong password is refused');
		isnt(sql($a, 'SELECT state FROM zk_session')->{out}, 'connected', '... and there is no connection without it');
		like(slurp_file($a->logfile), qr/LOG:  (?:00000: )?ZooKeeper refused the credentials of "zklock\.sasl_user"/, '... and the log says so');
		put_password(shop => 'open sesame');
		ok(wait_connected($a), '... until it is right');
		is(session_of($a), $session, '... in the same session');
		$holder->run_ok('COMMIT');
		$holder->quit;

		chmod 0640, $file or die;
		$reconnect->();
		ok(wait_last_error($a, qr/^password file "\Q$file\E" has group or world access/), 'a password that others may read is not used');
		for my $case (
			[ "\nopen sesame\n", qr/^file "\Q$file\E" has no password in its first line$/ ],
			[ '', qr/^file "\Q$file\E" has no password in its first line$/ ],
			[ 'x' x 1001, qr/^the password in file "\Q$file\E" is longer than 1000 bytes$/ ])
		{
			put_password(shop => $case->[0]);
			ok(wait_last_error($a, $case->[1]), 'nor is one of ' . length($case->[0]) . ' bytes');
		}
		unlink $file;
		ok(wait_last_error($a, qr/^could not open file "\Q$file\E": No such file/), 'nor one that is not there');
		put_password(shop => 'open sesame');
		ok(wait_connected($a), '... until it is right');
		unlike(slurp_file($a->logfile), qr/sesame/, 'no password is in the log');
	}

	# An instance that is locked out gives its session up: else each try would prolong
	# it, and nobody get its locks.
	{
		my $no_pauses = no_pauses();

		edit_settings($a,
			'zklock.session_timeout' => '4s',
			'zklock.sasl_password_file' => put_password(alone => 'open sesame'));
		$a->reload;
		$a->poll_query_until('postgres', q{SELECT timeout = '4 s' AND state = 'connected' FROM zk_session});
		my $holder = holder($a, 'kept');
		my $waiter = waiter($b, 'kept', 2);

		put_password(alone => 'wrong');
		$zk->kill9;
		$zk->start;
		is($waiter->result->{message}, undef, 'the lock of an instance that is locked out goes to another one');
		is($holder->run('COMMIT')->{sqlstate}, '40001', '... and it cannot commit');
		$waiter->run_ok('COMMIT');
		$_->quit for ($holder, $waiter);
		put_password(alone => 'open sesame');
		ok(wait_connected($a), '... until the password is right');
		edit_settings($a, user('shop'), 'zklock.session_timeout' => '12s');
	}

	# Locked out after a crash
	{
		my $no_pauses = no_pauses();
		my $crashing = zk_cluster('crashing', $zk,
			user('shop'),
			'zklock.session_timeout' => '4s',
			'zklock.sasl_password_file' => put_password(crashing => 'open sesame'));

		wait_connected($crashing);
		my $holder = holder($crashing, 'm1');
		my $waiter = waiter($b, 'm1', 2);
		put_password(crashing => 'wrong');
		kill 'KILL', $holder->pid;
		is($waiter->result->{message}, undef, 'locked out after a crash, it gives up the session of before');
		$holder->kill_client;
		$waiter->quit;
		$crashing->stop('immediate');
	}

	# Settings
	{
		is(sql($a, "SELECT count(*) FROM pg_settings WHERE name LIKE 'zklock.sasl%'")->{out}, '0', 'pg_settings does not have them');
		is(sql($a, 'CREATE ROLE nobody; SET ROLE nobody; SHOW zklock.sasl_password_file')->{sqlstate}, '42501', '... and only superusers see them');

		edit_settings($a, 'zklock.sasl_password_file' => undef);
		$a->reload;
		wait_last_error($a, qr/^invalid value for parameter "zklock\.sasl_password_file": SASL needs /);
		is(sql($a, "SELECT zk_lock('x')")->{sqlstate}, 'F0000', 'both are needed');
		if (library_has('zookeeper_init_ssl'))
		{
			edit_settings($a, user('shop'),
				'zklock.tls_ca' => $tls->certificate('ca') . '.crt',
				'zklock.tls_cert' => "$path.crt",
				'zklock.tls_key' => "$path.key");
			$a->reload;
			ok(wait_last_error($a, qr/^invalid value for parameter "zklock\.sasl_user": The ZooKeeper client library cannot combine SASL with its TLS\.$/), 'not with TLS');
			edit_settings($a, map { ("zklock.tls_$_" => undef) } qw(ca cert key));
		}
		edit_settings($a, user('bank'), 'zklock.acl' => 'open');
		$a->reload;
		ok(wait_connected($a), 'connected as another user after a reload');
		is(sql($a, "SELECT zk_try_lock('z')")->{out}, 't', '... which takes locks');
		edit_settings($a, user('shop'));
		$a->reload;
	}

	# A ZooKeeper that does not know SASL
	{
		my $plain = ZooKeeper->new(name => 'plain');
		my $servers = 'zklock.servers';

		$plain->start;
		edit_settings($a, $servers => $plain->connstr);
		$a->reload;
		ok(wait_last_error($a, qr/^no SASL from the server: it has no JAAS configuration, /), 'a server that does not offer SASL is reported');
		isnt(sql($a, 'SELECT state FROM zk_session')->{out}, 'connected', '... and there is no connection without it');
		$a->stop('fast');
		$a->start;
		$plain->stop;
	}

	# Impostors, which know the user, but not the password: a ZooKeeper with another
	# one, and one that accepts any password, so that its proof is wrong.  It is the
	# right one here, whose proof is changed on the way.
	{
		my $proxy = ZkProxy->new;
		my $impostor = zookeeper('impostor', jaas => $jaas =~ s/open sesame/open barley/r);
		my $forger = '127.0.0.1:' . $proxy->link('forger', ($zk->ports)[0]);

		edit_settings($a, 'zklock.servers' => $impostor->connstr);
		$a->restart;
		ok(wait_last_error($a, qr/^ZooKeeper refused the credentials of "zklock\.sasl_user"$/), 'a server with another password refuses us');
		isnt(sql($a, 'SELECT state FROM zk_session')->{out}, 'connected', '... and there is no connection');
		$impostor->stop;

		edit_settings($a, 'zklock.servers' => $forger);
		$a->reload;
		ok(wait_connected($a), 'connected by way of a proxy');
		$proxy->forge('forger', 'rspauth=[0-9a-f]{8}', 'rspauth=00000000');
		$proxy->reset('forger');
		ok(wait_last_error($a, qr/^During SASL negotiation: server failed mutual authentication step /), 'a server that cannot prove that it knows the password is refused');
		isnt(sql($a, 'SELECT state FROM zk_session')->{out}, 'connected', '... and there is no connection');
		$proxy->forge('forger', 'rspauth=', 'rspauth=');
		ok(wait_connected($a), '... until it can');
	}

	# A ZooKeeper that lets in only who has authenticated
	{
		my $closed = zookeeper('closed');
		my $port = $closed->connstr;

		edit_settings($_, 'zklock.servers' => $port) for ($a, $none);
		$_->restart for ($a, $none);
		ok(wait_connected($a), 'a user is let in');
		is(sql($a, "SELECT zk_try_lock('x')")->{out}, 't', '... and takes locks');
		ok(wait_last_error($none, qr/^ZooKeeper wants other credentials: see its settings enforce\.auth\.schemes /), 'nobody else is');
		$none->stop;
		$a->stop;
		$closed->stop;
	}

	unlike(slurp_file($_->logfile), qr/PANIC|TRAP|was terminated by signal/, $_->name . ' has not crashed')
	  for ($a, $b, $bank, $none);
	$_->stop for ($b, $bank);
}

done_testing();
