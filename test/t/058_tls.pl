# Copyright (c) 2026, zklock developers

# Encrypted connections by stunnel, as doc/security.md has them: its commands
# make the certificates, and its files are the configurations.  Three stunnels
# stand before one ZooKeeper, as before an ensemble, and one beside each of two
# instances.
#
# They are cut off, by an end of the connections and in silence, and restarted
# under load; those that have no business are refused: certificates that have
# expired, are revoked, of another CA or for another purpose, a server by another
# name.

use strict;
use warnings;

use IO::Socket::INET;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZkTls;
use ZooKeeper;

my $restarts = soak(3, 10);

my $zk = ZooKeeper->new;
my $tls = ZkTls->new;
$zk->start;
my $port = ($zk->ports)[0];
my @doors = map { $tls->server($_, $port) } ZkTls::hosts();
my %client = map { ($_->[0] => $tls->client("$_->[1].example.org", @doors)) } ([ a => 'db1' ], [ b => 'db2' ]);

my ($a, $b) = zk_clusters($zk, [ 'a', 'b' ],
	'zklock.servers' => sub { $client{ $_[0] }->connstr });

sub restart_all { $_->restart for @_; return; }

#
# Nobody else gets in, and nothing is told in clear
#

# What ZooKeeper answers to "ruok" through a door, or nothing.
sub ask
{
	my ($door, @options) = @_;
	my ($answer, $complaint) = ('', '');
	my ($door_port) = $door->ports;

	IPC::Run::run(
		[
			qw(openssl s_client -quiet -verify_return_error -verify_hostname zk1.example.org),
			'-connect', "127.0.0.1:$door_port", '-CAfile', $tls->certificate('ca') . '.crt',
			@options
		],
		'<', \'ruok', '>', \$answer, '2>', \$complaint,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	note $complaint;
	return $answer;
}

sub credentials
{
	my $path = $tls->certificate(@_);
	return ('-cert', "$path.crt", '-key', "$path.key");
}

for my $ca (qw(ca other))
{
	for my $key (glob($tls->certificate('*', $ca) . '.key'))
	{
		is(sprintf('%o', (stat $key)[2] & 07777), '600', "$key is for its owner only");
	}
}
is(ask($doors[0], credentials('db1.example.org')), 'imok', 'with a certificate ZooKeeper answers');
is(ask($doors[0], credentials('db1.example.org'), '-tls1_2'), '', '... but not by an old version of TLS');
is(ask($doors[0]), '', 'without a certificate it does not');
is(ask($doors[0], credentials('db1.example.org', 'other')), '', '... nor with one of another CA');
is(ask($doors[0], credentials('zk2.example.org')), '', '... nor with one of a server');
{
	my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => ($doors[0]->ports)[0])
	  or die "could not connect: $!";

	print $socket 'ruok';
	shutdown $socket, 1;
	unlike(join('', readline $socket), qr/imok/, '... nor without TLS');
}

#
# A lock over two instances
#

ok(wait_connected($_), $_->name . ' is connected') for ($a, $b);
for my $node ($a, $b)
{
	my $server = sql($node, 'SELECT server FROM zk_session')->{out};

	ok((grep { $server eq $_ } split /,/, $client{ $node->name }->connstr),
		$node->name . ' is connected to its own stunnel');
}
{
	my $holder = holder($a, 'both');
	my $waiter = waiter($b, 'both', 2);

	wait_contenders($zk, 'both', 2);
	hand_over($holder, $waiter, 'a lock goes from one instance to the other');
	wait_no_contenders($zk, 'both');
}

#
# The connections are cut, and come back within the session timeout
#

for my $case ([ 'those of ZooKeeper', [@doors], [ $a, $b ] ],
	[ 'that of an instance', [ $client{a} ], [$a] ])
{
	my ($which, $stunnels, $nodes) = @$case;
	my %session = map { ($_->name => session_of($_)) } ($a, $b);
	my $holder = holder($a, 'kept');
	my $waiter = waiter($b, 'kept', 2);

	wait_contenders($zk, 'kept', 2);
	$_->kill9 for @$stunnels;
	wait_state($_, 'suspended') for @$nodes;
	$_->start for @$stunnels;
	ok(wait_connected($_), "$which killed and started: " . $_->name . ' is connected again')
	  for @$nodes;
	is(session_of($_), $session{ $_->name }, '... in the same session') for ($a, $b);
	wait_contenders($zk, 'kept', 2);
	ok(!$waiter->done, '... and the waiter waits');
	hand_over($holder, $waiter, '... and the waiter is next');
}

#
# They come back too late
#

{
	my $holder = holder($a, 'gone');
	my $waiter = waiter($b, 'gone', 2);

	$client{a}->stop;
	wait_state($a, 'suspended');
	is($waiter->result->{message}, undef, 'who is cut off for long loses its locks to others');
	$holder->send('COMMIT');
	$client{a}->start;
	error_is($holder->result, $lock_lost, '... and cannot commit');
	$waiter->run_ok('COMMIT');
	ok(wait_connected($a), '... but begins another session');
	$_->quit for ($holder, $waiter);
}

#
# A network that is slow, and one that loses everything without a word, between
# the two stunnels
#

{
	my $proxy = ZkProxy->new;
	my @ports = map { $proxy->link("door-$_", ($doors[$_]->ports)[0]) } (0 .. $#doors);

	$client{a}->restart(doors => \@ports);
	ok(wait_connected($a), 'connected through a proxy');
	$proxy->delay(100);
	{
		my $holder = holder($a, 'slow');
		my $waiter = waiter($b, 'slow', 2);

		wait_contenders($zk, 'slow', 2);
		hand_over($holder, $waiter, 'a lock goes over a slow network');
	}
	$proxy->delay(0);

	my $holder = holder($a, 'silent');
	my $waiter = waiter($b, 'silent', 2);

	wait_contenders($zk, 'silent', 2);
	$proxy->freeze;
	wait_state($a, 'suspended');
	is($waiter->result->{message}, undef, 'who is cut off in silence loses its locks to others');
	$holder->send('COMMIT');
	$proxy->thaw;
	error_is($holder->result, $lock_lost, '... and cannot commit');
	$waiter->run_ok('COMMIT');
	ok(wait_connected($a), '... but begins another session');
	$_->quit for ($holder, $waiter);

	$client{a}->restart(doors => \@doors);
	ok(wait_connected($a), 'connected without the proxy');
}

#
# Who is refused
#

{
	my $db2 = $tls->certificate('db2.example.org');
	my ($revoked_client, $revoked_server) = map { $tls->revoked(@$_) }
	  ([ 'db2.example.org', 'clientAuth' ], [ 'zk1.example.org', 'serverAuth' ]);
	my @foreign = map { $tls->server($_, $port) }
	  ($tls->certificate('zk1.example.org', 'other'), $tls->expired('zk1.example.org'));
	my $caller = ZkSession->new($b);

	# A door to no ZooKeeper, one whose list has expired, and one whose
	# certificate is revoked; all have the list with the revoked ones.
	my $port_of_none = PostgreSQL::Test::Cluster::get_free_port();
	my $deserted = $tls->server('zk1.example.org', $port_of_none);
	my $revoked = $tls->server($revoked_server, $port);
	$tls->expire_crl;
	my $outdated = $tls->server('zk1.example.org', $port);
	$tls->renew_crl;
	restart_all(@doors);

	# A port that does not answer: connections that nobody accepts fill it.
	my $full = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die "$!";
	my @filling = map {
		IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $full->sockport, Blocking => 0)
		  // die "could not connect: $!"
	} (1 .. 10);

	my $refused = sub {
		my ($name, $certificate, $through, $who_tells, $reason) = @_;
		my $told = sub {
			return join('', map { $_->log } $who_tells eq 'server' ? @$through : $client{b});
		};

		$_->mark for grep { ref } @$through;
		$client{b}->restart(certificate => $certificate, doors => $through);
		poll_until(sub { $told->() =~ $reason }, "$name to be refused: $reason");
		$b->poll_query_until('postgres',
			"SELECT state <> 'connected' AND last_error IS NOT NULL FROM zk_session");
		pass("refused: $name");
	};

	$client{b}->stop;
	wait_state($b, 'suspended');
	$caller->send("SELECT zk_lock('x')");
	$refused->('a client whose certificate has expired',
		$tls->expired('db2.example.org'), \@doors, 'server', qr/certificate has expired/);
	$refused->('a client whose certificate is of another CA',
		$tls->certificate('db2.example.org', 'other'),
		\@doors, 'server', qr/unable to get local issuer certificate/);
	$refused->("a client that has a server's certificate",
		$tls->certificate('zk2.example.org'), \@doors, 'server', qr/unsuitable certificate purpose/);
	$refused->('a server whose certificate has expired',
		$db2, [ ($foreign[1]) x 3 ], 'client', qr/certificate has expired/);
	$refused->('a server whose certificate is of another CA',
		$db2, [ ($foreign[0]) x 3 ], 'client', qr/unable to get local issuer certificate/);
	$refused->('a client whose certificate is revoked',
		$revoked_client, \@doors, 'server', qr/certificate revoked/);
	$refused->('a server whose certificate is revoked',
		$db2, [ ($revoked) x 3 ], 'client', qr/certificate revoked/);
	$refused->('a client, by a list that has expired',
		$db2, [ ($outdated) x 3 ], 'server', qr/CRL has expired/);
	$tls->expire_crl;
	$refused->('a server, by a list that has expired', $db2, \@doors, 'client', qr/CRL has expired/);
	$tls->renew_crl;
	$refused->('nobody, but there is no other stunnel',
		$db2, [ ($port_of_none) x 3 ], 'client', qr/Connection refused/);
	$refused->('nobody, but the other machine does not answer',
		$db2, [ ($full->sockport) x 3 ], 'client', qr/TIMEOUTconnect exceeded/);
	$refused->('nobody, but there is no ZooKeeper',
		$db2, [ ($deserted) x 3 ], 'server', qr/Connection refused/);
	$refused->('a server by another name',
		$db2, [ @doors[ 1, 2, 0 ] ], 'client', qr/Subject checks failed/);

	# what PostgreSQL tells
	my $servers = $client{b}->connstr;
	my $error = qr/Socket \[?127\.0\.0\.1:\d+\]? zk retcode=-4, errno=\d+\(.*\): failed while receiving a server response|server \[?127\.0\.0\.1:\d+\]? has closed the connection instead of resuming session/;
	wait_last_error($b, $error);
	error_is(
		$caller->result,
		{
			sqlstate => '57P03',
			message => 'could not reach ZooKeeper for lock "x"',
			detail => qr/^There was no session with "\Q$servers\E" for 20000 ms: (Socket|server) .*: /,
			hint => qr/zk_session shows the state/,
		},
		'a lock call fails, with servers and reason');
	# which does not repeat itself within a minute
	like(slurp_file($b->logfile), qr/LOG:  ZooKeeper client: ($error)/, 'the log has it');

	$client{b}->restart(doors => \@doors);
	ok(wait_connected($b), 'with what is right it is connected again');
	is($caller->run_ok("SELECT zk_try_lock('x', '1 min')"), 't', '... and locks');
	$caller->quit;
	$_->stop for (@foreign, $deserted, $revoked, $outdated);
}

#
# Restarts under load: a section reads a counter of a, and writes what it has
# read plus one; two at a time would lose one.
#

{
	my $connstr = $a->connstr('postgres') =~ s/'/''/gr;
	my $script = PostgreSQL::Test::Utils::tempdir . '/section.pgbench';
	my (%load, %commits);
	my $rounds = 0;

	append_to_file($script, q{BEGIN;
SELECT zk_lock('counter');
SELECT count_up();
COMMIT;
});
	$a->safe_psql('postgres', 'CREATE TABLE counter (n bigint); INSERT INTO counter VALUES (0)');
	for my $node ($a, $b)
	{
		$node->safe_psql('postgres', qq{
			CREATE EXTENSION dblink;
			CREATE TABLE section (id bigserial PRIMARY KEY);
			CREATE FUNCTION count_up() RETURNS void LANGUAGE plpgsql AS \$\$
			DECLARE
				counter bigint;
			BEGIN
				IF dblink_get_connections() IS NULL THEN
					PERFORM dblink_connect('counter', '$connstr');
				END IF;
				INSERT INTO section DEFAULT VALUES;
				SELECT n FROM dblink('counter', 'SELECT n FROM counter') AS t(n bigint) INTO counter;
				PERFORM dblink_exec('counter', format('UPDATE counter SET n = %s', counter + 1));
			END \$\$;
		});
		local %ENV = $node->_get_env();
		my %run = (out => '', err => '');
		$run{run} = IPC::Run::start(
			[
				$node->installed_command('pgbench'),
				qw(-n -c 8 -j 1 -T 3600 -f), $script, $node->connstr('postgres')
			],
			'<', \undef, '>', \$run{out}, '2>', \$run{err});
		$load{ $node->name } = \%run;
	}
	my $running = sub {
		# pump_nb dies if the process has ended meanwhile
		return grep { eval { $_->{run}->pump_nb }; $_->{run}->pumpable } values %load;
	};
	my $sections = sub { return map { sql($_, 'SELECT count(*) FROM section')->{out} } ($a, $b) };

	while (1)
	{
		my @before = $sections->();

		poll_until(
			sub {
				my @now = $sections->();
				return $running->() < 2 || ($now[0] > $before[0] && $now[1] > $before[1]);
			},
			'sections in both instances');
		last if $rounds == $restarts || $running->() < 2;
		restart_all($rounds % 3 == 0 ? @doors : $rounds % 3 == 1 ? $client{a} : $client{b});
		$rounds++;
	}
	# by its own timer pgbench ends when each client has ended its transaction
	$_->{run}->signal('ALRM') for values %load;
	for my $name (sort keys %load)
	{
		my $ended = $load{$name}{run}->finish;

		is($load{$name}{err} =~ /(.*error.*)/ ? $1 : '', '', "restarts under load: no error in $name");
		ok($ended, '... and all clients go on to the end');
		$commits{$name} = $load{$name}{out} =~ /^number of transactions actually processed: (\d+)/m ? $1 : -1;
	}
	note "$rounds restarts, $commits{a} and $commits{b} commits";
	is($rounds, $restarts, "$rounds restarts");
	cmp_ok(sql($_, 'SELECT reconnects FROM zk_session')->{out}, '>', 0, $_->name . ' has connected again')
	  for ($a, $b);
	is(join(' ', $sections->()), "$commits{a} $commits{b}", 'all that was committed is there');
	is(sql($a, 'SELECT n FROM counter')->{out}, $commits{a} + $commits{b}, 'nothing is lost');
}

wait_no_contenders($zk, 'counter');
for my $node ($a, $b)
{
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/, $node->name . ' has not crashed');
	$node->stop('fast');
}

done_testing();
