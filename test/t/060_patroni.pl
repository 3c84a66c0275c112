
# Under Patroni, which keeps its own state in the same ZooKeeper, and zklock's
# below a chroot: a switchover with locks held.  Those of the old primary end with
# its sessions, and the new one takes them.  The configuration is that of
# doc/patroni-pgbouncer-replication.md.

use strict;
use warnings;

#
# A member: a Patroni, which starts and stops its server.  To the rest it is a
# PostgreSQL::Test::Cluster that nobody has started.
#

package Member;

use HTTP::Tiny;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX ();
use Test::More;
use ZooKeeper;

our @ISA = ('PostgreSQL::Test::Cluster');
my @all;

# The configuration of the page, with what differs here: each of these words must
# be in it.
sub configuration
{
	my ($self, $zk) = @_;
	my $yaml = slurp_file(($ENV{TESTDIR} // '.') . '/doc/patroni/db1.yml');
	my $port = $self->port;
	my $user = getpwuid($<);
	chomp(my $bin = `pg_config --bindir`);
	my @here = (
		'zk1:2181,zk2:2181,zk3:2181' => $zk->connstr,
		'name: db1' => 'name: ' . $self->name,
		'0.0.0.0:8008' => "127.0.0.1:$self->{rest}",
		'db1:8008' => "127.0.0.1:$self->{rest}",
		'0.0.0.0:5432' => "127.0.0.1:$port",
		'db1:5432' => "127.0.0.1:$port",
		'/var/lib/postgresql/15/main' => $self->data_dir,
		'/usr/lib/postgresql/15/bin' => $bin,
		'/var/run/postgresql' => $self->host,
		'/var/lib/postgresql/.patroni_pgpass' => $self->basedir . '/pgpass',
		'username: postgres' => "username: $user",
		'(?:peer|scram-sha-256)$' => 'trust',
		# the least that Patroni takes
		'ttl: 30' => 'ttl: 20',
		'loop_wait: 10' => 'loop_wait: 2',
		'retry_timeout: 10' => 'retry_timeout: 3');

	while (my ($word, $here) = splice(@here, 0, 2))
	{
		$yaml =~ s/$word/$here/gm or die "\"$word\" is not in the configuration";
	}
	$yaml =~ s/^(\s+)(shared_preload_libraries: .*)$/$1$2\n$1fsync: 'off'\n$1max_standby_streaming_delay: '-1'/m;
	return $yaml;
}

sub new
{
	my ($class, $name, $zk) = @_;
	my $self = $class->SUPER::new($name);

	$self->{owner} = $$;
	$self->{rest} = PostgreSQL::Test::Cluster::get_free_port();
	$self->{file} = $self->basedir . '/patroni.yml';
	append_to_file($self->{file}, $self->configuration($zk));
	push @all, $self;
	return $self;
}

sub start
{
	my ($self) = @_;

	note 'starting Patroni for ' . $self->name;
	my $pid = fork // die "could not fork: $!";
	if ($pid == 0)
	{
		chdir $self->basedir;
		open STDIN, '<', '/dev/null';
		# PostgreSQL::Test::Utils has tied the file handles, hence dup2.
		open my $log, '>>', $self->logfile or POSIX::_exit(1);
		POSIX::dup2(fileno($log), $_) for (1, 2);
		# With pdeathsig it ends with us, even if we are killed.
		exec qw(setpriv --pdeathsig KILL -- /usr/bin/patroni), $self->{file}
		  or POSIX::_exit(1);
	}
	$self->{patroni} = $pid;
	return;
}

# The members as Patroni sees them: a hash of name and role.
sub roles
{
	my ($self) = @_;
	my $answer = HTTP::Tiny->new(timeout => 5)->get("http://127.0.0.1:$self->{rest}/cluster");

	ZooKeeper::check_runs(\$self->{patroni}, 'Patroni', $self->logfile);
	return {} unless $answer->{success};
	return { map { $_->{name} => $_->{role} } @{ decode_json($answer->{content})->{members} } };
}

sub wait_role
{
	my ($self, $role) = @_;

	ZooKeeper::poll_until(sub { ($self->roles->{ $self->name } // '') eq $role },
		$self->name . " to be $role");
	return;
}

# Patroni stops its server before it ends.  A server whose Patroni does not end
# is stopped without it.
sub stop
{
	my ($self) = @_;

	return 1 unless $self->{patroni} && $self->{owner} == $$;
	kill 'TERM', $self->{patroni};
	my $ended = eval {
		ZooKeeper::poll_until(
			sub { waitpid($self->{patroni}, POSIX::WNOHANG) != 0 }, 'the end of Patroni');
	};
	if (!$ended)
	{
		kill 'KILL', $self->{patroni};
		waitpid($self->{patroni}, 0);
		PostgreSQL::Test::Utils::system_log('pg_ctl', '-D', $self->data_dir, '-m', 'immediate', 'stop');
	}
	delete $self->{patroni};
	return $ended;
}

END
{
	my $status = $?;

	local $PostgreSQL::Test::Utils::timeout_default = 60;
	$_->stop for @all;
	$? = $status;
}

#
# What an application connects to: whichever member is the primary.
#

package Application;

our @ISA = ('PostgreSQL::Test::Cluster');

sub new
{
	my ($class, @members) = @_;

	return bless { %{ $members[0] }, _name => 'application', members => \@members }, $class;
}

sub connstr
{
	my ($self, $dbname) = @_;
	my $list = sub { my ($method) = @_; join(',', map { $_->$method } @{ $self->{members} }) };

	return sprintf("host=%s port=%s target_session_attrs=read-write dbname='%s'",
		$list->('host'), $list->('port'), $dbname);
}

package main;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;
my $observer = $zk->client;
my $root = '/locks/zklock';
$observer->create('/locks');
my ($a, $b) = map { Member->new($_, $zk) } qw(a b);
$a->start;
my $c = zk_cluster('c', $zk,
	'zklock.servers' => $zk->connstr . '/locks',
	'zklock.session_timeout' => '60s');
chomp(my $patroni = `/usr/bin/patroni --version`);
diag sprintf('%s, PostgreSQL %s', $patroni, $c->pg_version);

# A session of a server that has been shut down.
sub is_terminated
{
	my ($session, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$session->send('SELECT 1') unless $session->{busy};
	is($session->result->{sqlstate}, '57P01', $name);
	return;
}

#
# Two members
#

$a->wait_role('leader');
$b->start;
value($a, $_) for split /;\n/, <<'SQL';
CREATE EXTENSION zklock;
CREATE TABLE sales (what text);
CREATE TABLE slow (what text);
CREATE TABLE busy ();
CREATE FUNCTION latch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM zk_lock(''latch''); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER latch AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION latch()
SQL
$b->wait_role('sync_standby');
$a->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'");
$b->poll_query_until('postgres', "SELECT to_regclass('slow') IS NOT NULL");
wait_connected($_) for ($a, $b);
my ($session_a, $session_b) = map { session_of($_) } ($a, $b);
my $worker_b = worker_of($b);

isnt($session_a, $session_b, 'each member has a session of its own');
is(value($a, 'SHOW cluster_name') . ' ' . value($b, 'SHOW cluster_name'), 'shop shop',
	'Patroni gives all members the same name');

#
# Locks in the primary
#

my $token = value($a,
	"BEGIN; DO 'BEGIN PERFORM zk_lock(''fenced''); END'; SELECT zk_fence('fenced'); COMMIT");

my $holder = holder($a, 'x');
$holder->run_ok("INSERT INTO sales VALUES ('not committed')");
my $session_scope = ZkSession->new($a);
$session_scope->run_ok("SELECT zk_lock('y', session => true)");
my $local = waiter($a, 'x', 1);
my $other_cluster = waiter($c, 'x', 2);
my $standby = ZkSession->new($b);
$standby->send("SELECT zk_lock('y', session => true)");
$standby->wait_waiting(2);

# a COMMIT that has not been written, and one that waits for the standby to show it
my $latch = holder($c, 'latch');
my $early = holder($a, 'early');
$early->run_ok("INSERT INTO slow VALUES ('early')");
$early->send('COMMIT');
$early->wait_waiting(2);

my $reader = ZkSession->new($b);
$reader->run_ok('BEGIN; SELECT FROM busy', 'the standby is kept from going on');
my $late = holder($a, 'late');
$late->run_ok("SET LOCAL synchronous_commit = 'remote_apply'; LOCK busy; INSERT INTO sales VALUES ('late')");
$late->send('COMMIT');
$a->poll_query_until('postgres',
	'SELECT wait_event = \'SyncRep\' FROM pg_stat_activity WHERE pid = ' . $late->pid);
is(sql($c, "SELECT zk_try_lock('late')")->{out}, 'f', 'a COMMIT that waits for the standby holds its lock');

#
# The switchover
#

{
	my ($out, $err) = ('', '');
	my $run = IPC::Run::start(
		[
			'/usr/bin/patronictl', '-c', $b->{file}, 'switchover',
			qw(--leader a --candidate b --force shop)
		],
		'<', \undef, '>', \$out, '2>', \$err);

	is($other_cluster->result->{message}, undef, 'the lock of an open transaction passes to another instance');
	is($standby->result->{message}, undef, 'a session-scoped one to a session of the standby');

	my $result = $late->result;
	is($result->{warnings}[0]{sqlstate}, '57P01', 'a COMMIT that waits for the standby is left with a WARNING');
	like($result->{warnings}[0]{detail} // '', qr/already committed locally/, '... that says that it is done');
	is(sql($c, "SELECT zk_try_lock('late', '1 min')")->{out}, 't', '... and releases its lock');
	$reader->quit;
	$run->finish;
	is($run->result(0), 0, 'patronictl: done') or diag($out . $err);
}

is_terminated($holder, 'an idle transaction is terminated');
is_terminated($session_scope, 'a session-scoped holder');
is_terminated($local, 'a waiter');
is_terminated($early, 'a COMMIT that was not written yet');

#
# The new primary
#

$b->wait_role('leader');
$b->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
is(value($b, 'SELECT worker_pid, session_id, sessions FROM zk_session'), "$worker_b|$session_b|1",
	'the new primary has the same worker and the same session');
$standby->run_ok("CREATE TEMP TABLE promoted (n int)", 'a session of the standby goes on, and may write');
is($standby->run_ok("SELECT zk_unlock('y')"), 't', '... with the lock it took as a standby');
is(value($b, 'SELECT what FROM sales'), 'late', 'what was committed is there, and nothing else');
is(value($b, 'SELECT count(*) FROM slow'), 0, '... of either table');
is(value($b, 'SELECT token FROM zk_fences'), $token, 'tokens are');

my $next = ZkSession->new(Application->new($a, $b));
is($next->run_ok('SHOW port'), $b->port, 'the application finds the new primary');
$next->run_ok("BEGIN; SELECT zk_lock('early'), zk_lock('late'), zk_lock('fenced')",
	'it takes the locks of the old one');
cmp_ok($next->run_ok("SELECT zk_fence('fenced')"), '>', $token, '... with higher tokens');
$next->send("SELECT zk_lock('x')");
wait_contenders($zk, 'x', 2, $root);
$other_cluster->run_ok('COMMIT');
is($next->result->{message}, undef, '... and waits for those that others have');
$next->run_ok("INSERT INTO sales VALUES ('next'); COMMIT");

#
# The old primary
#

$a->poll_query_until('postgres', 'SELECT pg_is_in_recovery()');
wait_connected($a);
isnt(session_of($a), $session_a, 'the old primary has a new session');
ok(!$zk->has_session($session_a), 'the old one has ended');
$a->poll_query_until('postgres', "SELECT count(*) = 1 FROM sales WHERE what = 'next'");
my $held = holder($b, 'x');
is(sql($a, "SELECT zk_try_lock('x')")->{out}, 'f', 'as a standby it is excluded by the new one');
$held->run_ok('COMMIT');
is(sql($a, "SELECT zk_try_lock('x', '1 min')")->{out}, 't', '... and takes locks');

$_->quit
  for ($holder, $session_scope, $local, $other_cluster, $standby, $latch, $early, $late, $reader, $next, $held);
is(value($_, 'SELECT count(*) FROM zk_locks'), 0, $_->name . ' has no lock') for ($a, $b, $c);
poll_until(sub { !all_contenders($zk, $root) }, 'all contenders to be gone');

#
# Nothing stays
#

my @sessions = map { session_of($_) } ($a, $b, $c);
ok($_->stop, 'Patroni stops ' . $_->name) for ($a, $b);
$c->stop;
is(join(' ', grep { $zk->has_session($_) } @sessions), '', 'no session is left');
is(join(' ', grep { $_ ne 'zookeeper' } $observer->ls('/')), 'locks service',
	'Patroni and zklock are beside each other');
is(join(' ', $observer->ls('/locks')), 'zklock', 'zklock has its chroot to itself');
is(join(' ', grep { !/^(?:config|failover|history|initialize|members|status|sync|optime)$/ } $observer->ls('/service/shop')),
	'', 'of Patroni there is only what it keeps');
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|was terminated by signal/, $_->name . ' has not crashed')
  for ($a, $b, $c);
done_testing();
