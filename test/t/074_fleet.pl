
# Copyright (c) 2026, zklock developers

# The instances of an ensemble and root can be seen, and what conflicts: names,
# settings, ACLs; through restarts, crashes and expired sessions; and the
# identity by which two servers tell that they are on the same ensemble.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;


my $zk = ZooKeeper->new;
$zk->start;
my $client = $zk->client;
my $room = '/zklock/%clusters';
my ($a, $b, $c) = zk_clusters($zk, [ 'a', 'b', 'c' ], 'zklock.session_timeout' => '20s');
wait_connected($_) for ($a, $b, $c);

# Rows of zk_fleet(), as strings.
sub fleet
{
	my ($node, $columns, $where) = @_;

	return [ split /\n/, value($node, "SELECT $columns FROM zk_fleet() WHERE "
		  . ($where // 'true') . ' ORDER BY cluster_name, started_at, session_id') ];
}

sub conflicts { return fleet($_[0], "cluster_name, array_to_string(conflicts, ', ')"); }

sub wait_fleet
{
	my ($node, $columns, $expected, $what) = @_;
	my $found;

	is_deeply($found, $expected, $what)
	  if poll_until(sub { $found = fleet($node, $columns); "@$found" eq "@$expected" }, $what);
	return;
}

sub identity
{
	my ($node) = @_;

	$node->poll_query_until('postgres', 'SELECT fleet IS NOT NULL FROM zk_session');
	return value($node, 'SELECT DISTINCT fleet FROM zk_session');
}

sub reload
{
	my ($node, $settings) = @_;

	$node->append_conf('postgresql.conf', $settings);
	$node->reload;
	return;
}

#
# Three instances
#

for my $node ($a, $b, $c)
{
	comes_to(sub { conflicts($node) }, [ 'a|', 'b|', 'c|' ], $node->name . ' sees all three, and they fit');
	is_deeply(fleet($node, 'cluster_name, session_id', 'local'), [ $node->name . '|' . session_of($node) ],
		'and itself');
}
my $version = value($a, "SELECT extversion || '|' || current_setting('server_version') FROM pg_extension WHERE extname = 'zklock'") =~ s/ .*//r;
my $host = `hostname`;
chomp $host;
is_deeply(
	fleet($a, 'cluster_name, host, port, standby, version, server_version, node_format, session_timeout'),
	[ map { join '|', $_->name, $host, $_->port, 'f', $version, 'mutex', '00:00:20' } ($a, $b, $c) ],
	'what each shows');
is(value($a, 'SELECT bool_and(system_identifier = (SELECT system_identifier FROM pg_control_system()))'
		  . ' AND bool_and(started_at BETWEEN pg_postmaster_start_time() - interval \'1 hour\' AND clock_timestamp()) FROM zk_fleet()'),
	't', 'of which server, since when');
is_deeply([ map { identity($_) } ($b, $c) ], [ (identity($a)) x 2 ], 'they have one identity');
like(identity($a), qr/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/, 'a UUID of version 8');
is($client->get($room)->{ephemeralOwner}, 0, 'that of a persistent node: no container, and not ephemeral');
is(value($a, 'SELECT count(*) FROM zk_fleet_locks()'), 0, 'no lock directory');

# a semaphore and a lock of like names are other directories
my $holder = holder($a, '%clusters');
is(value($b, 'SELECT name, holders FROM zk_fleet_locks()'), '%clusters|1', 'a lock may have that name');
$holder->quit;
my $identity = identity($a);

#
# Who may ask
#

value($b, 'CREATE ROLE alice; CREATE ROLE bob; GRANT pg_monitor TO bob');
sql_error($b, 'SET ROLE alice; SELECT * FROM zk_fleet()',
	{ sqlstate => '42501', message => 'permission denied for function zk_fleet' });
is(value($b, 'SET ROLE bob; SELECT count(*) FROM zk_fleet()'), 3, 'a member of pg_monitor may ask');
is(value($b, "SET zklock.root = '/tenant'; SELECT count(*), bool_and(fleet = '$identity') FROM zk_fleet(), zk_session"),
	'3|t', "it is about the worker's root, whatever the session has");

#
# A name twice, none, other settings
#

{
	$b->stop;
	$b->append_conf('postgresql.conf', "zklock.node_format = 'readwrite'");
	{
		# PostgreSQL::Test::Cluster gives each server its name
		local $b->{_name} = 'a';
		$b->start;
	}
	wait_connected($b);
	comes_to(sub { conflicts($b) },
		[
			'a|another instance has this cluster_name',
			'a|another instance has this cluster_name, zklock.node_format differs',
			'c|'
		],
		'two of one name, one with another format');
	is(value($b, "SELECT pg_terminate_backend(worker_pid) FROM zk_session"), 't', 'the worker is terminated');
	$b->poll_query_until('postgres', "SELECT reconnects > 0 AND state = 'connected' FROM zk_session");
	is(scalar @{ conflicts($b) }, 3, 'its instance is there once');

	reload($b, "zklock.node_format = 'mutex'");
	wait_fleet($c, 'node_format', [ ('mutex') x 3 ], 'a reload applies another format');
	$b->stop;
	$b->start;
	wait_connected($b);
	comes_to(sub { conflicts($b) }, [ 'a|', 'b|', 'c|' ], 'with a name of its own it fits');
}

{
	$c->stop;
	{
		local $c->{_name} = '';
		$c->start;
	}
	wait_connected($c);
	comes_to(sub { conflicts($a) }, [ '|cluster_name is empty', 'a|', 'b|' ], 'an empty name');
	$c->stop;
	$c->start;
	wait_connected($c);

	my $session = session_of($c);
	reload($c, "zklock.session_timeout = '21s'");
	wait_fleet($a, "cluster_name, array_to_string(conflicts, ', '), session_timeout",
		[ 'a||00:00:20', 'b||00:00:20', 'c|session timeout differs|00:00:21' ],
		'another session timeout');
	wait_connected($c);
	is(session_of($c), $session, 'in the same session');
	reload($c, "zklock.session_timeout = '20s'");
	wait_fleet($a, "cluster_name, array_to_string(conflicts, ', ')", [ 'a|', 'b|', 'c|' ], 'changed back');
}

#
# Sessions that end
#

# Kill the postmaster; the other processes notice, and go.
sub crash
{
	my ($node) = @_;
	my $postmaster = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/ ? $1 : die;

	$node->kill9;
	poll_until(sub { !kill 0, $postmaster }, 'the postmaster to be gone');
	return;
}

sub start_again
{
	my ($node) = @_;

	poll_until(sub { $node->start(fail_ok => 1) }, 'the old processes to be gone');
	wait_connected($node);
	return;
}

{
	my $session = session_of($a);
	my $offset = -s $a->logfile;

	end_session($a, $client);
	$a->poll_query_until('postgres', "SELECT session_id <> '$session' AND state = 'connected' FROM zk_session");
	is_deeply(fleet($b, 'cluster_name, session_id', "cluster_name = 'a'"), [ 'a|' . session_of($a) ],
		'a session that has ended: the instance is there with the next one')
	  if poll_until(sub { fleet($a, 'session_id', 'local')->[0] eq session_of($a) }, 'a to be there');
	is(identity($a), $identity, 'the identity stays');

	# the session of before the crash is closed first
	crash($a);
	start_again($a);
	comes_to(sub { conflicts($a) }, [ 'a|', 'b|', 'c|' ], 'killed and started: once');

	# nobody can close that of before, as the file is gone: it is no other server
	crash($a);
	unlink session_file($a);
	start_again($a);
	poll_until(sub { (fleet($a, 'session_id', 'local')->[0] // '') eq session_of($a) }, 'a to be there');
	is_deeply(conflicts($b), [ 'a|', 'a|', 'b|', 'c|' ], 'what its dead session has left does not count as another');
	wait_fleet($b, 'cluster_name', [ 'a', 'b', 'c' ], 'it goes with that session');
}

# all of them end: the identity stays
$_->stop for ($a, $b, $c);
is_deeply([ members($zk) ], [], 'after a shutdown no instance is there');
$_->start for ($a, $b, $c);
is(identity($_), $identity, $_->name . ' finds the same identity') for ($a, $b, $c);

#
# What others write and remove
#

{
	my %data = (
		x => 'no zklock',
		"%41 \\'x" => "zklock \x{1}",
		long => 'zklock cluster=' . 'x' x 5000 . ' host=h',
		hex => "zklock cluster=z\x{ff}%00\x{fe}",
		many => 'zklock' . ' cluster=' x 200);

	my $n = 0;
	my %node = map { $_ => "$room/" . member_node($n++) } sort(keys %data), 'persistent';

	$client->create($node{$_}, hex => unpack('H*', $data{$_}), ephemeral => 1) for keys %data;
	$client->create($node{persistent}, data => 'zklock cluster=p');
	$client->create("$room/another", data => 'zklock cluster=n', ephemeral => 1);
	is_deeply(
		[
			sort @{ fleet($a, "cluster_name, array_to_string(conflicts, ', ')",
				"NOT coalesce(cluster_name IN ('a', 'b', 'c'), false)") }
		],
		[ 'z\xff\x00\xfe|', '|cluster_name is empty', ('|not written by zklock') x 3 ],
		'what others have written is shown, and harms nobody; what is not ephemeral, or not named as ours, does not count');
	$client->delete($_) for values %node, "$room/another";
}

{
	$client->delete("$room/$_") for members($zk);
	$client->delete($room);
	is(value($b, 'SELECT count(*) FROM zk_fleet()'), 0, 'all has been removed');
	wait_fleet($b, 'cluster_name', ['b'], 'who notices joins again');
	isnt(identity($b), $identity, 'with a new identity');
	$_->restart for ($a, $c);
	is(identity($_), identity($b), $_->name . ' takes that') for ($a, $c);

	# what it says does not matter
	$identity = identity($b);
	$client->set($room, 'mine');
	$_->restart for ($a, $b, $c);
	wait_connected($_) for ($a, $b, $c);
	comes_to(sub { conflicts($a) }, [ 'a|', 'b|', 'c|' ], 'what others write into it harms nobody');
	is(identity($_), $identity, $_->name . ' has the same identity') for ($a, $b, $c);
}

#
# Another root, another ensemble
#

{
	$_->restart for ($a, $b, $c);
	reload($c, "zklock.root = '/other'");
	wait_fleet($a, 'cluster_name', [ 'a', 'b' ], 'another root: c has left');
	wait_fleet($c, 'cluster_name', ['c'], 'and is alone there');
	is(identity($_), $identity, $_->name . ' has the identity') for ($a, $b);
	my $other = identity($c);
	isnt($other, $identity, 'c has another');

	# both at once: another worker finds the node of the old root
	reload($c, "zklock.root = '/zklock'\nzklock.session_timeout = '22s'");
	wait_fleet($a, 'cluster_name', [ 'a', 'b', 'c' ], 'back again');
	is_deeply([ members($zk, '/other') ], [], 'it is not there twice');
	reload($c, "zklock.session_timeout = '20s'\nzklock.root = 'wrong'");
	$c->wait_for_log(qr/invalid value for parameter "zklock.root": "wrong"/);
	is_deeply(fleet($a, 'cluster_name'), [ 'a', 'b', 'c' ], 'a reload with a wrong root changes nothing');
	$c->restart;
	wait_connected($c);
	is_deeply(fleet($a, 'cluster_name'), [ 'a', 'b' ], 'after a start with one, c has joined nobody');
	is(sql($c, "SET zklock.root = '/zklock'; SELECT * FROM zk_fleet()")->{sqlstate}, '58000',
		'and nobody waits for that');
	reload($c, "zklock.root = '/zklock'");
	wait_fleet($a, 'cluster_name', [ 'a', 'b', 'c' ], 'put right, it has');

	my $second = ZooKeeper->new;
	$second->start;
	$c->append_conf('postgresql.conf', "zklock.servers = '" . $second->connstr . "'");
	$c->restart;
	isnt(identity($c), $identity, 'another ensemble has another identity');
	is_deeply(fleet($c, 'cluster_name'), ['c'], 'and other instances');
	$c->append_conf('postgresql.conf', "zklock.servers = '" . $zk->connstr . "'");
	$c->restart;
	is(identity($c), $identity, 'and back');
}

#
# ACLs
#

{
	# b's node is for b, and so is the room, which all others may only read
	$client->set_acl($room, 'open');    # as anybody may
	is_deeply([ $client->get_acl($room) ], ['anyone:rwcda'], 'with open ACLs the room is open');
	reload($b, "zklock.auth = 'b:secret'\nzklock.acl = 'creator'");
	$b->poll_query_until('postgres', "SELECT state = 'connected' FROM zk_session");
	$b->restart;
	wait_connected($b);
	comes_to(sub { fleet($b, 'cluster_name') }, [ 'a', 'b', 'c' ], 'b sees all');
	is_deeply([ $client->get_acl($room) ], [ 'anyone:r', 'b:rwcda' ], 'and has closed the room');
	is(value($a, "SELECT cluster_name IS NULL, conflicts, started_at IS NULL OR session_id = '" . session_of($b)
			  . "' FROM zk_fleet() WHERE cluster_name IS NULL"),
		't|{"this server may not read it"}|t', 'of b another one sees that it is there');
	for my $try (
		[ 'make a znode there' => sub { $client->create("$room/x", ephemeral => 1) } ],
		[ 'remove one' => sub { $client->delete("$room/$_") for members($zk) } ],
		[ 'change the identity' => sub { $client->set($room, '') } ],
		[ 'change the ACL' => sub { $client->set_acl($room, 'open') } ])
	{
		ok(!eval { $try->[1]->(); 1 } && $@ =~ /^NoAuthError/, "others cannot $try->[0]") or diag($@);
	}

	my $fleet = identity($b);
	for my $node ($a, $c)
	{
		my $offset = -s $node->logfile;

		$node->restart;
		$node->wait_for_log(qr/LOG:  could not publish this server in "\/zklock\/%clusters": not authenticated\n.*DETAIL:  Servers with other credentials have made it\. /, $offset);
		is(identity($node), $fleet, $node->name . ', which has other credentials, may read the identity');
	}
	is_deeply(fleet($b, 'cluster_name'), ['b'], '... but is not in the list, as its log says');

	# a new room is like that from its beginning
	$b->stop;
	{
		my $owner = $zk->client;

		$owner->add_auth('digest', 'b:secret');
		$owner->delete("$room/$_") for members($zk);
		$owner->delete($room);
	}
	$b->start;
	$fleet = identity($b);
	is_deeply([ $client->get_acl($room) ], [ 'anyone:r', 'b:rwcda' ], 'a room that b makes');

	#
	# Other credentials for all, one instance after the other
	#

	for my $node ($a, $c)
	{
		reload($node, "zklock.auth = 'b:secret'\nzklock.acl = 'creator'");
	}
	wait_fleet($b, 'cluster_name', [ 'a', 'b', 'c' ], 'with its credentials the others join');

	my $acl = sub {
		my ($expected, $what) = @_;
		my @found;

		is_deeply(\@found, $expected, $what)
		  if poll_until(sub { @found = $client->get_acl($room); "@found" eq "@$expected" }, $what);
	};
	my @both = ('anyone:r', 'b:rwcda', 'n:rwcda');
	my @new = ('anyone:r', 'n:rwcda');

	# one that holds a lock presents both until it has given that up
	my $holder = holder($a, 'kept');
	reload($a, "zklock.auth = 'n:secret'");
	$acl->(\@both, 'a, which presents both, makes the room for both');
	$c->restart;
	wait_connected($c);
	comes_to(sub { fleet($c, 'cluster_name') }, [ 'a', 'b', 'c' ], 'who has the old ones joins');
	$holder->quit;
	$acl->(\@new, '... and when it has dropped the old ones, for the new ones');
	is(value($b, 'SELECT count(*) FROM zk_fleet()'), 3, 'the others are still there');

	# those that hold nothing do the same
	for my $node ($b, $c)
	{
		my $offset = -s $node->logfile;

		reload($node, "zklock.auth = 'n:secret'");
		$node->wait_for_log(qr/restarting the zklock worker, because its session no longer needs the former credentials/, $offset);
		$node->wait_for_log(qr/connected to ZooKeeper.*connected to ZooKeeper/s, $offset);
		wait_connected($node);
		$acl->(\@new, $node->name . ' has the new ones');
		unlike(substr(slurp_file($node->logfile), $offset), qr/could not (?:publish this server|set the ACL)/,
			'... and its log does not complain');
	}
	for my $node ($a, $b, $c)
	{
		comes_to(sub { fleet($node, 'cluster_name') }, [ 'a', 'b', 'c' ], $node->name . ' sees all again');
	}
	is(identity($_), $fleet, $_->name . ' has the same identity') for ($a, $b, $c);
	$_->restart for ($a, $b, $c);
	wait_fleet($a, 'cluster_name', [ 'a', 'b', 'c' ], 'and so it is after a restart');
	reload($_, "zklock.auth = ''\nzklock.acl = 'open'") for ($a, $c);

	# the next session of one that has lost its own presents the new ones only
	$holder = holder($b, 'kept');
	reload($b, "zklock.auth = 'b:secret'");
	$acl->(\@both, 'b, which presents both, makes the room for both again');
	ok(end_session($b, $client), "... loses its session");
	$acl->([ 'anyone:r', 'b:rwcda' ], '... and in its next session for its own');
	$holder->quit;
	is_deeply([ $client->get_acl('/zklock') ], ['anyone:rwcda'], 'a root that is open stays as it is');

	# a room where nobody may do anything
	$b->stop;
	my $owner = $zk->client;
	$owner->add_auth('digest', 'b:secret');
	$owner->set_acl($room, 'creator');
	my $offset = -s $c->logfile;
	$c->restart;
	wait_connected($c);
	$c->wait_for_log(qr/LOG:  could not publish this server in "\/zklock\/%clusters": not authenticated/, $offset);
	is(value($c, "SELECT zk_try_lock('x') FROM zk_session WHERE fleet IS NULL"), 't',
		'who may not join has locks, and no identity');
	is(sql($c, 'SELECT * FROM zk_fleet()')->{sqlstate}, '42501', 'and the error says why it sees nobody');
}

# A root that an instance has made with its credentials changes with them, so that
# new locks can be taken; one that has other owners, too, is theirs to change.
{
	my $owner = $zk->client;
	my $change = sub {
		my ($user) = @_;
		my $offset = -s $c->logfile;

		reload($c, "zklock.auth = '$user:secret'");
		$c->wait_for_log(qr/restarting the zklock worker, because its session no longer needs the former credentials/, $offset);
		$c->wait_for_log(qr/connected to ZooKeeper.*connected to ZooKeeper/s, $offset);
		wait_connected($c);
		identity($c);
	};

	$owner->add_auth('digest', "$_:secret") for ('admin', 'new');
	$c->append_conf('postgresql.conf', "zklock.auth = 'old:secret'\nzklock.acl = 'creator'\nzklock.root = '/own/deep'");
	$c->restart;
	wait_connected($c);
	identity($c);
	for my $user ('new', 'old', 'new')
	{
		$change->($user);
		is(value($c, "SELECT zk_try_lock('of $user')"), 't', "$user: takes a lock below a root of its own");
	}
	is_deeply([ $owner->get_acl('/own/deep') ], ['new:rwcda'], 'the root is for the new credentials only');

	$owner->create('/both', acl => 'creator');
	reload($c, "zklock.root = '/both'");
	$c->poll_query_until('postgres', "SHOW zklock.root", '/both');
	$change->('last');
	is_deeply([ $owner->get_acl('/both') ], [ 'admin:rwcda', 'new:rwcda' ], 'a root of several owners stays as it is');
}

done_testing();
