# A leader that others have deposed, and that has not noticed: it answers from
# what it knew, and answers a sync at once.  A worker that goes on with its
# session there must not believe it.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

# Who is cut off from the others notices after syncLimit, a minute.  Sessions
# last longer than all of this: while one is to be expired that it cannot have
# expired, a deposed leader answers no sync.
my $proxy = ZkProxy->new;
my $zk = ZooKeeper->new(
	servers => 3,
	conf => { syncLimit => 120 },
	proxy => $proxy);
$zk->start;

my $a = zk_cluster('a', $zk,
	'zklock.servers' => $zk->connstr_through($proxy, 'a'),
	'zklock.session_timeout' => '60s');

# Connect the instance to one of some servers.
sub attach
{
	my (@servers) = @_;
	my %wanted = map { $_ => 1 } @servers;

	$proxy->refuse(map { "a-$_" } grep { !$wanted{$_} } (0 .. 2));
	$proxy->thaw(map { "a-$_" } @servers);
	return;
}

sub is_attached
{
	my (@servers) = @_;

	poll_until(
		sub {
			my $i = value($a, q{
				SELECT array_position(string_to_array(servers, ','), server) - 1
				  FROM zk_session WHERE state = 'connected'});
			return $i ne '' && grep { $_ == $i } @servers;
		},
		"the instance to be connected to one of @servers");
	return;
}

$proxy->count(map { "a-$_" } (0 .. 2));
wait_connected($a);
my $old = $zk->leader;
my @others = $zk->followers;
my $session = session_of($a);
attach(@others);
is_attached(@others);

# The followers are started anew, and elect one of them.
$zk->cut_peers($old, $_) for @others;
$zk->kill9(@others);
$zk->start(@others);
is_attached(@others);
is($zk->mode($old), 'leader', 'there are two leaders');

# What the first one does not know of
my $holder = ZkSession->new($a);
$holder->run_ok($_) for ('CREATE TABLE t (i int)', 'BEGIN', "SELECT zk_lock('x')", 'INSERT INTO t VALUES (1)');

# A new worker has not seen it either, so that the old leader lets it in.
my $before = worker_of($a);
my $asked = sub {
	my $requests = $proxy->requests("a-$old");
	return ($requests->{check} // 0) + ($requests->{exists} // 0);
};
my $had_asked = $asked->();
attach($old);
kill 'TERM', $before;
wait_next_worker($a, $before);
is_attached($old);
is(session_of($a), $session, 'the old leader lets the session go on');
poll_until(sub { $asked->() > $had_asked }, 'the worker to ask something');
is($zk->mode($old), 'leader', 'it still believes to be the leader');

# It is told better by the others.
attach(@others);
is_attached(@others);
is($holder->run_ok('SELECT zk_fencing_token(\'x\') > 0'), 't', 'the lock is held');
$holder->run_ok('COMMIT', 'its holder commits');
is(value($a, 'SELECT count(*) FROM t'), '1', 'it has committed');
is(session_of($a), $session, 'the session is the same');
ok(slurp_file($a->logfile) !~ /lost the lock/, 'no lock was lost');
$holder->quit;

$zk->heal_peers;
$zk->wait_ready;
wait_no_contenders($zk, 'x');

retire($a);
$zk->stop;

#
# ZooKeeper's data restored from an older copy, in which the sessions are alive:
# what has been released since is there again, and what has been got is not.  The
# next write of an instance tells, and its sessions are ended.  A server that is
# merely behind tells nothing.
#

{
	die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};
	my $restored = qr/ZooKeeper has been restored from an older copy of its data/;

	# The version of an instance's own znode, which counts its writes.
	my sub version
	{
		my ($zk, $name) = @_;
		my $client = $zk->client;
		my ($version) = map { $_->{version} } grep { $_->{data} =~ /\bcluster=$name\b/ }
		  map { $client->get("/zklock/%clusters/$_") } $client->ls('/zklock/%clusters');

		$client->disconnect;
		return $version // -1;
	}

	# Wait until an instance has noted what it has changed last.
	my sub wait_noted
	{
		my ($zk, $node, $do) = @_;
		my $before = version($zk, $node->name);

		$do->();
		poll_until(sub { version($zk, $node->name) > $before }, 'the change to be noted');
		return;
	}

	# An instance holds "old", and "new" when its copy has been made.
	my sub scene
	{
		my ($zk, $node) = @_;
		my $session = ZkSession->new($node);
		my $name = $node->name;

		$session->run_ok('CREATE TABLE t (i int)');
		wait_noted($zk, $node, sub {
			$session->run_ok("SELECT zk_lock('$name/old', session => true)") });
		return $session;
	}

	my sub after_copy
	{
		my ($zk, $node, $session) = @_;
		my $name = $node->name;

		wait_noted($zk, $node, sub { $session->run_ok("SELECT zk_unlock('$name/old')") });
		$session->run_ok($_)
		  for ('BEGIN', "SELECT zk_lock('$name/new')", 'INSERT INTO t VALUES (1)');
		return;
	}

	# How long an instance has taken to notice, in seconds, since it was connected.
	my sub took
	{
		my ($node, $at) = @_;
		my $time = qr/^\S+ (\d+):(\d+):([\d.]+) /m;
		my @times = slurp_file($node->logfile, $at) =~
		  /$time.*connected to ZooKeeper at[^\0]*?$time[^\n]*$restored/;
		my ($connected, $noticed) = map { $_->[0] * 3600 + $_->[1] * 60 + $_->[2] }
		  ([ @times[ 0 .. 2 ] ], [ @times[ 3 .. 5 ] ]);

		return ($noticed - $connected + 86400) % 86400;
	}

	# What became of it
	my sub outcome
	{
		my ($node, $session, $other, $before) = @_;
		my $name = $node->name;

		my $error = $session->run('COMMIT');
		is($error->{sqlstate}, '40001', "$name: what it got since is lost");
		is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), '0', "$name: nothing is committed");
		wait_connected($node);
		isnt(session_of($node), $before, "$name: it has another session");
		$other->safe_psql('postgres', "SELECT zk_lock('$name/old'), zk_lock('$name/new')");
		pass("$name: what it had released since is free");
		is($node->safe_psql('postgres', "SELECT zk_try_lock('$name/old', '60s')"), 't', "$name: it goes on");
		return;
	}

	#
	# An ensemble
	#

	{
		my $proxy = ZkProxy->new;
		my $zk = ZooKeeper->new(name => 'three', servers => 3);
		$zk->start;
		my $a = zk_cluster('a', $zk,
			'zklock.servers' => $zk->connstr_through($proxy, 'a'),
			'zklock.session_timeout' => '40s');
		wait_connected($a);
		my $session = scene($zk, $a);
		my $id = session_of($a);

		# A follower that is held back, and knows nothing of the latest changes, lets
		# the next worker in.
		my ($follower) = $zk->followers;
		$zk->pause($follower);
		$proxy->refuse(map { "a-$_" } grep { $_ != $follower } (0 .. 2));
		$zk->resume($follower);
		next_worker($a);
		$session->run_ok("SELECT zk_lock('a/behind', session => true), zk_unlock('a/behind')");
		is(session_of($a), $id, 'with a server that was behind the session goes on');
		unlike(slurp_file($a->logfile), $restored, 'nothing has been restored yet');
		$proxy->thaw(map { "a-$_" } (0 .. 2));

		# The ensemble begins a new epoch, so that the connection is not refused.
		$zk->save;
		after_copy($zk, $a, $session);
		$zk->stop;
		$zk->restore;
		my $at = -s $a->logfile;
		$zk->start;
		my $serves = -s $a->logfile;
		$a->wait_for_log($restored, $at);
		unlike(slurp_file($a->logfile, $serves), qr/restarting the zklock worker/, 'the same worker notices');
		note sprintf 'noticed %.1f s after it had connected', took($a, $at);
		my $b = zk_cluster('b', $zk);
		outcome($a, $session, $b, $id);
		$session->quit;
		$_->stop for ($a, $b);
		$zk->stop;
	}

	#
	# One server, which refuses connections that have seen more than it knows
	#

	{
		my $zk = ZooKeeper->new(name => 'one');
		$zk->start;
		my $c = zk_cluster('c', $zk, 'zklock.session_timeout' => '40s');
		my $no_pauses = no_pauses();
		my $d = zk_cluster('d', $zk, 'zklock.session_timeout' => '5s');
		wait_connected($_) for ($c, $d);
		my ($of_c, $of_d) = map { scene($zk, $_) } ($c, $d);
		my ($id_c, $id_d) = map { session_of($_) } ($c, $d);

		$zk->save;
		after_copy($zk, @$_) for ([ $c, $of_c ], [ $d, $of_d ]);
		$zk->stop;
		$zk->restore;
		my $worker = worker_of($c);
		kill 'TERM', $worker;
		wait_next_worker($c, $worker);
		my $at = -s $c->logfile;
		$zk->start;
		$c->wait_for_log($restored, $at);
		like(slurp_file($c->logfile, $at),
			qr/connected to ZooKeeper at \S+, session \Q$id_c\E,.*$restored.*ZooKeeper session \Q$id_c\E has ended/s,
			'the next worker resumes the session, and ends it');
		note sprintf 'noticed %.1f s after it had connected', took($c, $at);

		# The other one is refused until it has a new worker, too.
		$d->wait_for_log(qr/restarting the zklock worker, because ZooKeeper could not be reached/);
		wait_connected($d);
		outcome($c, $of_c, $d, $id_c);
		outcome($d, $of_d, $c, $id_d);
		$_->quit for ($of_c, $of_d);
	}

	#
	# Another ensemble, which has seen less: it has not been restored
	#

	{
		my ($old, $new) = map { ZooKeeper->new(name => $_) } qw(old new);
		$_->start for ($old, $new);
		my $e = zk_cluster('e', $old);
		my $session = ZkSession->new($e);

		$old->client->create_all([ map { "/change$_" } 1 .. 200 ], '');
		wait_noted($old, $e, sub {
			$session->run_ok(q{SELECT count(zk_lock('e/' || lpad(i::text, 2, '0'), session => true))
				FROM generate_series(1, 40) i}) });
		my $at = -s $e->logfile;
		$e->append_conf('postgresql.conf', q{zklock.servers = '} . $new->connstr . q{'});
		$e->reload;
		$e->wait_for_log(qr/ZooKeeper session \S+ has ended/, $at);
		$e->poll_query_until('postgres', q{SELECT count(*) = 1 FROM zk_fleet() WHERE cluster_name = 'e'});
		wait_noted($new, $e, sub {
			is(value($e, "SELECT zk_try_lock('e/free', '60s')"), 't', 'e: with another ensemble it goes on') });
		unlike(slurp_file($e->logfile, $at), $restored, 'e: nothing has been restored');
		$session->quit;
		$e->stop;
	}

	like(slurp_file(($ENV{TESTDIR} // '.') . '/doc/operations.md'), $restored, 'operations.md has the message');
}

done_testing();
