# Copyright (c) 2026, zklock developers

# Instances of two releases of PostgreSQL, with two releases of ZooKeeper's client
# library, use the same locks: with a ZooKeeper of the one release, and of the
# other.
#
# And pg_upgrade of an instance with the extension, to the newer PostgreSQL: what is
# in the databases works there, and other instances do not notice.
#
# ZKLOCK_TEST_OTHER is a directory with the root of another release of Debian,
# whose zklock/bin has the programs of its PostgreSQL in a form that runs from
# here.  "make matrix" makes one.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkScene;
use ZkSession;
use ZooKeeper;

my $other = $ENV{ZKLOCK_TEST_OTHER}
  or plan skip_all => 'needs another release of Debian: run "make matrix"';

my %zk = (
	new => ZooKeeper->new(name => 'new_zk'),
	old => ZooKeeper->new(name => 'old_zk', root => $other));
$_->start for values %zk;

# Nothing in here waits for a session to expire.
my %settings = (
	'zklock.session_timeout' => '60s',
	'deadlock_timeout' => '300ms',
	'autovacuum' => 'off');
my ($old_1, $old_2) = zk_clusters($zk{old}, [ 'old_1', 'old_2' ],
	%settings, install_path => "$other/zklock");
my ($new_1, $new_2) = zk_clusters($zk{old}, [ 'new_1', 'new_2' ], %settings);
my @nodes = ($old_1, $new_1, $old_2, $new_2);

my $referee = PostgreSQL::Test::Cluster->new('referee');
$referee->init;
$referee->append_conf('postgresql.conf', "log_statement = none\n");
$referee->start;

sub server_version { return $_[0]->fourlw('srvr') =~ /version: ([\d.]+)/ ? $1 : die 'no version'; }

#
# Who waits for a lock on any of them gets it in turn, and all of them read the
# same of each other
#

sub one_queue
{
	my ($zk, $title) = @_;
	my $queue = q{
		SELECT position, path, mode, owner, session_id, extract(epoch FROM queued_at)
		  FROM zk_queue('q') ORDER BY position};
	my @sessions = (holder($nodes[0], 'q'));

	for my $node (@nodes[ 1 .. $#nodes ])
	{
		push @sessions, waiter($node, 'q', 2);
		wait_contenders($zk, 'q', scalar @sessions);
	}

	my @queues = map { value($_, $queue) } @nodes;
	my @owners = $queues[0] =~ /\|(postgresql host=\S+ port=\d+ cluster=\w+ pid=\d+)\|/g;
	is_deeply(
		[ map { s/.* port=//r } @owners ],
		[
			map { $nodes[$_]->port . ' cluster=' . $nodes[$_]->name . ' pid=' . $sessions[$_]->pid }
			  (0 .. $#nodes)
		],
		"$title: the queue shows whose they are");
	like($queues[0], qr/\|\Q$_\E\|\d+\.\d+$/m, "$title: and of which session")
	  for map { session_of($_) } @nodes;
	is($queues[$_], $queues[0], "$title: " . $nodes[$_]->name . ' reads the same')
	  for (1 .. $#nodes);

	while (my $holder = shift @sessions)
	{
		$holder->run_ok('COMMIT', "$title: one commits");
		$holder->quit;
		is($sessions[0]->result->{message}, undef, "$title: the next gets the lock") if @sessions;
		ok(!$_->done, "$title: nobody else does") for @sessions[ 1 .. $#sessions ];
	}
	wait_no_contenders($zk, 'q');
	return;
}

sub readers
{
	my ($zk, $title) = @_;
	my $read = q{SELECT zk_lock('r', shared => true)};
	my @readers = map { ZkSession->new($_) } ($old_1, $new_1);

	$_->run_ok("BEGIN; $read", "$title: readers on both share a lock") for @readers;
	my $writer = waiter($new_2, 'r', 2);
	wait_contenders($zk, 'r', 3);
	my $late = waiter($old_2, 'r', 2, $read);
	wait_contenders($zk, 'r', 4);

	$readers[0]->run_ok('COMMIT');
	ok(!$writer->done, "$title: a writer waits for the readers of both");
	$readers[1]->run_ok('COMMIT');
	is($writer->result->{message}, undef, "$title: and gets the lock behind them");
	ok(!$late->done, "$title: a later reader waits for the writer");
	$writer->run_ok('COMMIT');
	is($late->result->{message}, undef, "$title: and gets it then");
	$late->run_ok('COMMIT');
	$_->quit for (@readers, $writer, $late);
	wait_no_contenders($zk, 'r');
	return;
}

sub permits
{
	my ($zk, $title) = @_;
	my $try = q{SELECT zk_try_acquire('s', 2)};
	my ($one, $two) = map { ZkSession->new($_) } ($old_1, $new_1);

	is($_->run_ok("BEGIN; $try"), 't', "$title: a permit for each") for ($one, $two);
	is(value($_, $try), 'f', "$title: no third one for " . $_->name) for ($old_2, $new_2);
	is(value($new_2, q{SELECT count(*) FROM zk_queue('s')}),
		value($old_2, q{SELECT count(*) FROM zk_queue('s')}),
		"$title: both see the same holders");
	$one->run_ok('COMMIT');
	is(value($new_2, $try), 't', "$title: one that is given back is there for another");
	$two->run_ok('COMMIT');
	$_->quit for ($one, $two);
	return;
}

# The holder's instance obeys what another one writes into its contender.
sub cancels
{
	my ($title, $asked, $asking) = @_;

	$asked->safe_psql('postgres', 'CREATE ROLE app LOGIN')
	  if $asked->safe_psql('postgres', q{SELECT to_regrole('app') IS NULL}) eq 't';
	my $holder = holder($asked, 'c', 'postgres', 'app');

	$holder->send('SELECT pg_sleep(600)');
	$asked->poll_query_until('postgres',
		'SELECT count(*) = 1 FROM pg_stat_activity'
		  . q{ WHERE wait_event = 'PgSleep' AND pid = } . $holder->pid);
	is(value($asking, q{SELECT zk_cancel_holders('c')}), 1, "$title: a holder is asked");
	is($holder->result->{sqlstate}, '57014', "$title: and is canceled");
	$holder->quit;
	return;
}

#
# Each tells the other what its sessions wait for
#

sub deadlock
{
	my ($zk, $title, $first, $second) = @_;
	my $scene = ZkScene->new($zk, $title, one => $first, two => $second);
	my @pids = map { $scene->pid($_) } ('one', 'two');

	$scene->does(one => q{SELECT zk_lock('x')});
	$scene->does(two => q{SELECT zk_lock('y')});
	$scene->waits(one => q{SELECT zk_lock('y')}, queue => { y => 2 });
	$scene->closes(two => q{SELECT zk_lock('x')});
	$scene->ends(first => 'two');

	my @members = sort(
		$first->name . " $pids[0] y false", $second->name . " $pids[1] x true");
	for my $node ($first, $second)
	{
		ok( $node->poll_query_until(
				'postgres', q{
				SELECT coalesce(string_agg(
					format('%s %s %s %s', cluster_name, pid, name, victim::text), ', ' ORDER BY cluster_name), '')
				  FROM zk_deadlocks WHERE id = (SELECT max(id) FROM zk_deadlocks)},
				join(', ', @members)),
			"$title: " . $node->name . ' shows it');
	}
	return;
}

#
# Under load no two critical sections overlap: each reads a counter of the
# referee, and writes what it has read plus one.
#

$referee->safe_psql('postgres', q{
	CREATE TABLE counter (n bigint);
	INSERT INTO counter VALUES (0);
	CREATE TABLE section (id bigserial PRIMARY KEY, instance text);
});

my $sections = 20;

sub make_work
{
	my ($node) = @_;
	my $connstr = $referee->connstr('postgres') =~ s/'/''/gr;
	my $name = $node->name;

	value($node, 'CREATE DATABASE work');
	value($node, qq{
		CREATE EXTENSION zklock;
		CREATE EXTENSION dblink;
		CREATE TABLE stop (now bool);
		CREATE PROCEDURE work() LANGUAGE plpgsql AS \$\$
		DECLARE
			counter bigint;
		BEGIN
			PERFORM dblink_connect('referee', '$connstr');
			LOOP
				PERFORM zk_lock('counter');
				EXIT WHEN EXISTS (SELECT FROM stop);
				SELECT n FROM dblink('referee', 'SELECT n FROM counter') AS t(n bigint)
					INTO counter;
				PERFORM dblink_exec('referee', format('UPDATE counter SET n = %s;'
					' INSERT INTO section (instance) VALUES (%L)', counter + 1, '$name'));
				COMMIT;
			END LOOP;
		END \$\$;
	}, 'work');
	return;
}

sub start_work
{
	my ($node) = @_;
	my @sessions = map { ZkSession->new($node, 'work') } (1 .. 2);

	value($node, 'TRUNCATE stop', 'work');
	$_->send('CALL work()') for @sessions;
	return @sessions;
}

sub stop_work
{
	my ($node, $title, @sessions) = @_;

	value($node, 'INSERT INTO stop VALUES (true)', 'work');
	is($_->result->{message}, undef, "$title: " . $node->name . ' has worked until it was to end')
	  for @sessions;
	$_->quit for @sessions;
	return;
}

# Wait until these instances have done some more sections each.
sub wait_work
{
	my ($title, @working) = @_;
	my $from = value($referee, 'SELECT count(*) FROM section');

	for my $node (@working)
	{
		my $name = $node->name;

		ok( $referee->poll_query_until('postgres',
				"SELECT count(*) >= $sections FROM section"
				  . " WHERE id > $from AND instance = '$name'"),
			"$title: $name works");
	}
	return;
}

# One instance is restarted, as for a new library, while the other one works all
# the time.
sub rolling_restart
{
	my ($title, $restarted, $working) = @_;

	make_work($_) for ($restarted, $working);
	my $session = session_of($working);
	my @others = start_work($working);
	my @work = start_work($restarted);
	wait_work("$title: before", $restarted, $working);

	stop_work($restarted, $title, @work);
	$restarted->stop;
	delete @$restarted{qw(zk_watcher zk_scene_watcher)};
	wait_work("$title: while the other is down", $working);
	$restarted->start;
	wait_connected($restarted);
	@work = start_work($restarted);
	wait_work("$title: after a restart", $restarted, $working);

	stop_work($restarted, $title, @work);
	stop_work($working, $title, @others);
	is(session_of($working), $session, "$title: the other one kept its session");
	is(value($referee, 'SELECT n FROM counter'),
		value($referee, 'SELECT count(*) FROM section'),
		"$title: no two sections overlapped");
	cmp_ok(
		value($referee, 'SELECT count(*) FROM (SELECT instance <> lag(instance) OVER (ORDER BY id)'
			  . ' AS other FROM section) s WHERE other'),
		'>=', 4, "$title: they took turns");

	value($_, 'DROP DATABASE work') for ($restarted, $working);
	value($referee, 'TRUNCATE section; UPDATE counter SET n = 0');
	return;
}

my @versions = map { value($_, 'SHOW server_version') =~ s/ .*//r } ($old_1, $new_1);
cmp_ok($versions[0] =~ s/\D.*//r, '<', $versions[1] =~ s/\D.*//r, 'the instances are of two releases');

# What the instances are linked with: a root's client library tells its version.
my @libraries = map {
	my ($file) = glob "$_/usr/lib/*/libzookeeper_mt.so.2";
	slurp_file($file) =~ /zookeeper C client (\d[\d.]+)/ ? $1 : die "no version in $file";
} ($other, '');
isnt($libraries[0], $libraries[1], "so are the client libraries: @libraries");

my @servers = map { server_version($zk{$_}) } ('old', 'new');
isnt($servers[0], $servers[1], "and the ZooKeepers: @servers");

for my $server ('old', 'new')
{
	my $zk = $zk{$server};
	my $version = server_version($zk);

	for my $node ($server eq 'old' ? () : @nodes)
	{
		$node->stop;
		$node->append_conf('postgresql.conf', "zklock.servers = '" . $zk->connstr . "'");
		$node->start;
		delete @$node{qw(zk_watcher zk_scene_watcher)};
		wait_connected($node);
	}
	diag sprintf('PostgreSQL %s and %s, libraries %s and %s, on ZooKeeper %s',
		@versions, @libraries, $version);
	one_queue($zk, $version);
	readers($zk, $version);
	permits($zk, $version);
	cancels("$version, old asks new", $new_1, $old_1);
	cancels("$version, new asks old", $old_1, $new_1);
	deadlock($zk, "$version, victim in new", $old_1, $new_1);
	deadlock($zk, "$version, victim in old", $new_1, $old_1);
	rolling_restart("$version, old is updated", $old_1, $new_1);
	rolling_restart("$version, new is updated", $new_1, $old_1);

	$_->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zk_locks') for @nodes;
	poll_until(sub { !all_contenders($zk) }, 'the contenders to go');
	pass("$version: nothing is left");
}

for my $node (@nodes)
{
	$node->stop;
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/,
		$node->name . ' has not crashed');
}

#
# pg_upgrade
#

my $zk = $zk{new};
my $old = zk_cluster('old', $zk, 'zklock.session_timeout' => '60s', install_path => "$other/zklock");
my $neighbour = zk_cluster('neighbour', $zk, 'zklock.session_timeout' => '60s');

# Database "first" has a root of its own; and each has what users make.
value($old, 'CREATE ROLE shop');
value($old, 'CREATE DATABASE first');
value($old, 'CREATE EXTENSION zklock', 'first');
value($old, q{ALTER DATABASE first SET zklock.root = '/first'});
for my $db ('postgres', 'first')
{
	value($old, q{
		CREATE VIEW held AS SELECT name, pid FROM zk_locks;
		GRANT SELECT ON held TO shop;
		REVOKE EXECUTE ON FUNCTION zk_lock, zk_try_lock FROM PUBLIC;
		GRANT EXECUTE ON FUNCTION zk_lock TO shop;
		CREATE TABLE stock (item text, quantity int);
		INSERT INTO stock VALUES ('teapot', 3);
		CREATE PROCEDURE sell() LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM zk_lock('stock');
			UPDATE stock SET quantity = quantity - 1;
		END $$;
		CALL sell();
		BEGIN;
		SELECT zk_lock('f'), zk_fence('f');
		COMMIT;
	}, $db);
}
my %fences = map { $_ => value($old, 'SELECT name, root, token FROM zk_fences', $_) }
  ('postgres', 'first');

my $new = PostgreSQL::Test::Cluster->new('new');
$new->init(
	value($neighbour, 'SHOW server_version_num') >= 180000
	? (extra => ['--no-data-checksums'])
	: ());
$new->append_conf('postgresql.conf', join("\n",
	"shared_preload_libraries = 'zklock'",
	"zklock.servers = '" . $zk->connstr . "'",
	"zklock.session_timeout = '60s'",
	'max_prepared_transactions = 10'));

my @upgrade = (
	'pg_upgrade', '--no-sync',
	'-d', $old->data_dir, '-D', $new->data_dir,
	'-b', "$other/zklock/bin", '-B', $new->config_data('--bindir'),
	'-p', $old->port, '-P', $new->port, '-s', $new->host);
chdir $PostgreSQL::Test::Utils::tmp_check or die "could not change directory: $!";

# A check while both instances work
{
	my $holder = holder($old, 'h');

	command_ok([ @upgrade, '--check' ], 'pg_upgrade --check of a running instance');
	is(value($neighbour, q{SELECT zk_try_lock('h')}), 'f', 'a lock of it is held');
	$holder->run_ok('COMMIT');
	$holder->quit;
}

my $holder = holder($neighbour, 'x');
my $session = session_of($neighbour);

$old->stop;
wait_contenders($zk, 'x', 1);
command_ok(\@upgrade, 'pg_upgrade');
is(scalar(contenders($zk, 'x')), 1, 'another instance holds its lock');
$new->start;
wait_connected($new);

for my $db ('postgres', 'first')
{
	is(value($new, 'SELECT name, root, token FROM zk_fences', $db), $fences{$db}, "$db: the fences stand");
	value($new, 'CALL sell()', $db);
	is(value($new, 'SELECT quantity FROM stock', $db), 1, "$db: procedures of users work");
	is( value($new, q{
			SELECT has_table_privilege('shop', 'held', 'SELECT'),
			       has_function_privilege('shop', 'zk_lock(text, interval, boolean, boolean)', 'EXECUTE'),
			       has_function_privilege('shop', 'zk_try_lock(text, interval, boolean, boolean)', 'EXECUTE')},
			$db),
		't|t|f', "$db: privileges are kept");

	my $session = ZkSession->new($new, $db);
	my ($token) = $fences{$db} =~ /(\d+)$/;
	$session->run_ok(q{BEGIN; SELECT zk_lock('f')});
	cmp_ok($session->run_ok(q{SELECT zk_fence('f')}), '>', $token, "$db: a later holder is fenced as such");
	is($session->run_ok('SELECT name FROM held'), 'f', "$db: views of users work");
	$session->run_ok('COMMIT');
	$session->quit;
	is(value($new, 'SELECT count(*) FROM zk_deadlocks', $db), 0, "$db: all views are there");
}
is(value($new, 'SHOW zklock.root', 'first'), '/first', 'settings of a database are kept');

# One queue with the instance that had the lock all the time
my $waiter = waiter($new, 'x', 2);
wait_contenders($zk, 'x', 2);
$holder->run_ok('COMMIT', 'it commits');
is(session_of($neighbour), $session, 'in the session that it had');
is($waiter->result->{message}, undef, 'the new instance is next');
$waiter->run_ok('COMMIT');
$_->quit for ($holder, $waiter);
wait_no_contenders($zk, 'x');

$_->stop for ($new, $neighbour);
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|was terminated by signal/, $_->name . ' has not crashed')
  for ($old, $new, $neighbour);

done_testing();
