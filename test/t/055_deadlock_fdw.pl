# Copyright (c) 2026, zklock developers

# Deadlocks by way of postgres_fdw: a session of one instance has one of another
# work for it, which tells so by its application_name.

use strict;
use warnings;

use IPC::Run;
use List::Util qw(sum);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};
my $proxy = ZkProxy->new;
my $zk = ZooKeeper->new;
$zk->start;
my $client = $zk->client(timeout => 60);
my $room = lock_dir('x') =~ s{[^/]*$}{%waits}r;

my @names = qw(shop_a shop_b shop_c);
my %servers = map { ($_ => $zk->connstr_through($proxy, $_)) } @names;
my @links = map { "$_-0" } @names;
$proxy->count(@links);

my ($a, $b, $c) = zk_clusters(
	$zk, \@names,
	install_path => $ENV{ZKLOCK_TEST_INSTALL},
	'zklock.look_again' => 'off',    # requests are counted
	'zklock.servers' => sub { $servers{ $_[0] } },
	'postgres_fdw.application_name' => 'zklock:%c:%C',
	'listen_addresses' => '127.0.0.1',
	'max_connections' => sub { $_[0] eq 'shop_b' ? 1100 : 50 },
	'zklock.session_timeout' => '10s',
	'deadlock_timeout' => '500ms');

# A foreign table of one instance that is a table of another; through the proxy,
# if there is a link.
sub foreign_table
{
	my ($from, $name, $to, $link) = @_;
	my $user = $to->safe_psql('postgres', 'SELECT current_user');
	my $server = $to->name . ($link ? "_$link" : '');
	my ($host, $port) = $link ? ('127.0.0.1', $proxy->link($link, $to->port)) : ($to->host, $to->port);
	my $table = $link ? "${link}_$name" : $name;

	$from->safe_psql('postgres', qq{
		CREATE EXTENSION IF NOT EXISTS postgres_fdw;
		CREATE SERVER IF NOT EXISTS $server FOREIGN DATA WRAPPER postgres_fdw
			OPTIONS (host '$host', port '$port', dbname 'postgres');
		CREATE USER MAPPING IF NOT EXISTS FOR CURRENT_USER SERVER $server
			OPTIONS (user '$user');
		CREATE FOREIGN TABLE $table (id int, n int) SERVER $server OPTIONS (table_name '$name')});
	return;
}

$_->[0]->safe_psql('postgres',
	"CREATE TABLE $_->[1] (id int PRIMARY KEY, n int); INSERT INTO $_->[1] VALUES (1, 10)")
  for ([ $b, 'stock' ], [ $b, 'locked' ], [ $c, 'far' ]);
$b->safe_psql('postgres', q{
	CREATE FUNCTION take() RETURNS trigger LANGUAGE plpgsql
		AS $$BEGIN PERFORM public.zk_lock('t'); RETURN new; END$$;
	CREATE TRIGGER t BEFORE UPDATE ON locked FOR EACH ROW EXECUTE FUNCTION take()});
$b->safe_psql('postgres', 'CREATE VIEW slow AS SELECT 1 AS id, length(pg_sleep(0.1)::text) AS n');
$b->safe_psql('postgres', 'CREATE VIEW endless AS SELECT 1 AS id, length(pg_sleep(600)::text) AS n');
foreign_table($a, 'slow', $b);
foreign_table($a, 'endless', $b);
foreign_table($a, 'stock', $b);
foreign_table($a, 'locked', $b);
foreign_table($b, 'far', $c);
foreign_table($a, 'far', $b);
foreign_table($a, 'locked', $b, 'cut');

sub update { return "UPDATE $_[0] SET n = n - 1 WHERE id = 1"; }

sub zk_lock { return "SELECT zk_lock('$_[0]')"; }

my $closed;

# The last statement of a deadlock.
sub closes
{
	my ($session, $sql) = @_;

	$closed = time;
	$session->send($sql);
	return;
}

# One ends with 40P01, and the others go on, in the order given.
sub ends
{
	my ($name, $victim, $others, $detail) = @_;
	my $result = $victim->result;

	note sprintf('%s: after %.1f s', $name, time - $closed);
	is($result->{sqlstate}, '40P01', "$name: one is the victim")
	  or diag(explain($result));
	like($result->{detail}, $detail, "$name: its detail") if $detail;
	$victim->run('ROLLBACK');
	for my $other (@$others)
	{
		is($other->result->{message}, undef, "$name: the others go on");
		$other->run('COMMIT');
	}
	$_->quit for ($victim, @$others);
	return;
}

# The texts with a session, or with any: it waits, or is waited for, or what works for it.
sub named
{
	my ($session) = @_;
	my $pid = $session ? sprintf('%x', $session->pid) : '[0-9a-f]+';
	my @found = eval { $client->ls($room) };

	# there is no such directory while nobody needs it
	die $@ if $@ && $@ !~ /^NoNodeError/;
	return grep { (eval { $client->get("$room/$_")->{data} } // '') =~ /^(?:wait \d+ [cw]|keep [cw]) [0-9a-f]+\.$pid:/m }
	  grep { /-\d{10}$/ } @found;
}

# The name of a session for those that work for it.
sub name_of
{
	my ($node, $session) = @_;

	return $node->safe_psql('postgres', sprintf(q{
		SELECT format('zklock:%%s.%%s:%s',
			to_hex(floor(extract(epoch FROM backend_start))::bigint), to_hex(pid))
		FROM pg_stat_activity WHERE pid = %d}, $node->name, $session->pid));
}

# What the instances ask of ZooKeeper, but for heartbeats, while one of them sends
# so many of these, and we do something again and again.
sub asked_during
{
	my ($n, $do) = @_;
	my %before = map { ($_ => $proxy->requests($_)) } @links;
	my %asked;

	poll_until(
		sub {
			my $checks = 0;

			$do->() if $do;
			%asked = ();
			for my $link (@links)
			{
				my $now = $proxy->requests($link);

				for my $kind (keys %$now)
				{
					my $more = $now->{$kind} - ($before{$link}{$kind} // 0);

					$asked{"$link: $kind"} = $more if $more && $kind !~ /^(check|ping)$/;
					$checks = $more if $kind eq 'check' && $more > $checks;
				}
			}
			return $checks >= $n;
		},
		"$n heartbeats");
	return \%asked;
}

# Who holds a lock for long begins to watch its contender, once.
sub settle
{
	my $quiet = 0;

	poll_until(
		sub {
			$quiet = %{ asked_during(2) } ? 0 : $quiet + 1;
			return $quiet == 2;
		},
		'the instances to ask nothing');
	return;
}

# Nothing is asked while nobody waits for long, though sessions work for others.
{
	my $p = ZkSession->new($a);
	my $q = ZkSession->new($b);
	my $calls = ZkSession->new($a);

	$p->run_ok('BEGIN; ' . zk_lock('x') . '; ' . update('stock'), 'a holds x and a row of b');
	$q->run_ok('BEGIN; ' . zk_lock('y'), 'b holds y');

	$calls->run_ok('BEGIN; ' . zk_lock('z'), 'a session of a that will call b holds z');
	settle();
	my ($asked, $longest);
	poll_until(
		sub {
			$longest = 0;
			$asked = asked_during(4,
				sub {
					my $begun = time;

					$calls->run('SELECT n FROM slow');
					$longest = time - $begun if time - $begun > $longest;
				});
			return $longest < 0.4;
		},
		'no statement to last for nearly deadlock_timeout');
	is_deeply($asked, {}, 'nothing is asked while nobody waits for long');
	is_deeply([ named() ], [], 'no session is named');
	$_->run('ROLLBACK') for ($p, $q, $calls);
	$_->quit for ($p, $q, $calls);
}

# A session of a has one of b do something that lasts; until that is canceled.
sub calls_for_long
{
	my ($begin) = @_;
	my $p = ZkSession->new($a);

	$p->send("BEGIN; $begin; SELECT n FROM endless");
	$b->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
	return $p;
}

sub cancel
{
	my ($p) = @_;

	$a->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $p->pid . ')');
	is($p->result->{sqlstate}, '57014', 'what lasts is canceled');
	$p->run('ROLLBACK');
	$p->quit;
	return;
}

# What lasts is published once.  When that is done, nothing is written, but that what was
# needed is deleted; and each instance that publishes looks once in five
# deadlock_timeouts, and when a child of %waits has come or gone.
sub tells_once
{
	my ($name, $nlocks) = @_;
	my ($asked, $begun);

	poll_until(
		sub {
			$begun = time;
			$asked = asked_during(3);
			return !grep { /: (?:create|create_container|set)$/ } keys %$asked;
		},
		"$name: all to be published");
	my $looks = (time - $begun) / 2.5 + 1 + sum(0, map { $asked->{"$_: delete"} // 0 } @links);
	for my $link (@links)
	{
		my ($lists, $stats, $gets, $deletes) = map { $asked->{"$link: $_"} // 0 } qw(children exists get delete);

		cmp_ok($lists, '<=', $looks, "$name, $link: $lists lists");
		cmp_ok($stats, '<=', 4 * $looks, "... at most 3 texts and a list, each checked for its size: $stats");
		cmp_ok($gets, '<=', 3 * $looks + $nlocks, "... and read, besides its own contenders: $gets");
		cmp_ok($deletes, '<=', 1, '... what was needed is deleted');
	}
	return $asked;
}

# While locks are held for long, and a session works for another one
{
	my $q = ZkSession->new($b);

	$q->run_ok('BEGIN; ' . zk_lock('y'), 'b holds y');
	my $p = calls_for_long(update('locked'));
	my $asked = tells_once('while a session works for another one', 2);
	is(join(', ', grep { /^shop_c/ } keys %$asked), '', '... and none of an instance without a part');
	cancel($p);
	$q->run('ROLLBACK');
	$q->quit;
}

# If it rests, the other one may wait for anything, and so may somebody elsewhere
# for the lock.
{
	my $p = ZkSession->new($a);

	$p->run_ok('BEGIN; ' . update('locked'), 'a session of b that works for one of a holds t');
	tells_once('while a session rests', 1);
	$p->run('ROLLBACK');
	$p->quit;
}

# Who holds a lock, and waits for a foreign server
{
	my $p = calls_for_long(zk_lock('x'));

	tells_once('while a holder waits for a foreign server', 1);
	cancel($p);
}

# Who holds many locks and waits for long has the queue of each listed, once.
{
	my $holder = ZkSession->new($c);
	my $waits = ZkSession->new($b);

	$holder->run_ok('BEGIN; ' . zk_lock('o'), 'c holds o');
	$waits->run_ok("BEGIN; SELECT zk_lock('o' || i) FROM generate_series(1, 30) i", 'b holds 30 locks');
	poll_until(sub { !eval { $client->ls($room) } }, 'nothing to be published');
	settle();
	$waits->send(zk_lock('o'));
	wait_contenders($zk, 'o', 2);
	my $asked = asked_during(3);
	my $lists = $asked->{'shop_b-0: children'} // 0;
	cmp_ok($lists, '<=', 35, "a wait that keeps nobody waiting: $lists lists");
	tells_once('... and then', 31);
	$holder->run_ok('COMMIT');
	is($waits->result->{message}, undef, 'b has o');
	$waits->run_ok('COMMIT');
	$_->quit for ($holder, $waits);
}

poll_until(sub { !named() }, 'nobody to be named at first');

# p has updated b's row, for which q waits, who holds x; p waits for x.
sub both_wait
{
	my ($lock, $set) = @_;
	my $p = ZkSession->new($a);
	my $q = ZkSession->new($b);

	$p->run_ok($set, $set) if $set;
	$q->run_ok('BEGIN; ' . zk_lock($lock), "b holds $lock");
	$p->run_ok('BEGIN; ' . update('stock'), 'a has updated the row of b');
	$q->send(update('stock'));
	$q->wait_waiting(1);
	closes($p, zk_lock($lock));
	return ($p, $q);
}

{
	my ($p, $q) = both_wait('x1');
	my ($pp, $pq) = ($p->pid, $q->pid);

	ends('the session waits in ZooKeeper', $p, [$q], qr{\A
Process\ $pp\ of\ instance\ shop_a\ waits\ for\ exclusive\ lock\ "x1"\ in\ ZooKeeper;\ blocked\ by\ process\ $pq\ of\ instance\ shop_b\.\n
Process\ $pq\ of\ instance\ shop_b\ waits\ for\ process\ (\d+)\ of\ the\ same\ instance\.\n
Process\ \1\ of\ instance\ shop_b\ works\ for\ process\ $pp\ of\ instance\ shop_a\.\z}x);
	ok($_->poll_query_until('postgres', 'SELECT count(*) = 1 FROM zk_deadlocks WHERE victim'),
		$_->name . ' knows of it') for ($a, $b);
	is($b->safe_psql('postgres', 'SELECT mode IS NULL AND name IS NULL AND local FROM zk_deadlocks WHERE NOT victim'),
		't', 'who waits for a session waits for no lock');
}

# p holds x, and waits for b's row, which q has updated, who waits for x.
{
	my $p = ZkSession->new($a);
	my $q = ZkSession->new($b);
	my ($pp, $pq) = ($p->pid, $q->pid);

	$q->run_ok('BEGIN; ' . update('stock'), 'b has updated the row');
	$p->run_ok('BEGIN; ' . zk_lock('x2'), 'a holds x2');
	$p->send(update('stock'));
	closes($q, zk_lock('x2'));
	ends('the session waits on the foreign server', $q, [$p], qr{\A
Process\ (\d+)\ of\ instance\ shop_b\ waits\ for\ process\ $pq\ of\ the\ same\ instance\.\n
Process\ $pq\ of\ instance\ shop_b\ waits\ for\ exclusive\ lock\ "x2"\ in\ ZooKeeper;\ blocked\ by\ process\ $pp\ of\ instance\ shop_a\.\n
Process\ $pp\ of\ instance\ shop_a\ waits\ for\ a\ foreign\ server;\ blocked\ by\ process\ \1\ of\ instance\ shop_b\.\z}x);
	ok($a->poll_query_until('postgres',
			"SELECT count(*) = 1 FROM zk_deadlocks WHERE local AND pid = $pp AND mode IS NULL AND path LIKE '%:shop_a'"),
		'... who waits for a foreign server knows of it');
}

# The same, but x is held by another session of a, which waits for p.
{
	my $p = ZkSession->new($a);
	my $other = ZkSession->new($a);
	my $q = ZkSession->new($b);

	$q->run_ok('BEGIN; ' . update('stock'), 'b has updated the row');
	$p->run_ok('BEGIN; SELECT pg_advisory_xact_lock(1)', 'a holds an advisory lock');
	$other->run_ok('BEGIN; ' . zk_lock('x3'), 'another one of a holds x3');
	$other->send('SELECT pg_advisory_xact_lock(1)');
	$other->wait_waiting(1);
	$p->send(update('stock'));
	closes($q, zk_lock('x3'));
	ends('a session that waits for one on a foreign server', $q, [ $p, $other ]);
}

# Three instances: p holds t by a trigger of b, in a session that does nothing
# now.  Who waits for t is of c, and holds y, for which p waits.
{
	my $p = ZkSession->new($a);
	my $q = ZkSession->new($c);

	$p->run_ok('BEGIN; ' . update('locked'), 'a holds t by a trigger of b');
	$q->run_ok('BEGIN; ' . zk_lock('y1'), 'c holds y1');
	$q->send(zk_lock('t'));
	$q->wait_waiting(2);
	closes($p, zk_lock('y1'));
	ends('a lock held by an idle session that works for another', $q, [$p]);
}

# Three instances, and the victim is the session of b that works for p: what began
# last.  p's statement fails by that.
{
	my $p = ZkSession->new($a);
	my $q = ZkSession->new($c);
	my $pp = $p->pid;

	$q->run_ok('BEGIN; ' . zk_lock('t'), 'c holds t');
	$p->run_ok('BEGIN; ' . zk_lock('x4'), 'a holds x4');
	$p->send(update('locked'));
	wait_contenders($zk, 't', 2);
	closes($q, zk_lock('x4'));
	ends('a session that works for another is the victim', $p, [$q],
		qr{^Process $pp of instance shop_a waits for a foreign server; blocked by process \d+ of instance shop_b\.$}m);
}

# Three instances: p holds z, and waits for a row of c by way of b.  b has no lock
# at all.
{
	my $p = ZkSession->new($a);
	my $q = ZkSession->new($c);

	$q->run_ok('BEGIN; ' . update('far'), 'c has updated the row');
	$p->run_ok('BEGIN; ' . zk_lock('z1'), 'a holds z1');
	$p->send(update('far'));
	closes($q, zk_lock('z1'));
	ends('a session works for one that works for another', $q, [$p]);
}

poll_until(sub { !named() }, 'nobody to be named any more');

# Workers come and go in the deadlock.
for my $nodes ([$a], [$b], [ $a, $b ])
{
	my $name = join(' and ', map { $_->name } @$nodes);
	my ($p, $q) = both_wait('w' . @$nodes . $nodes->[0]->name);

	next_worker($_) for @$nodes;
	ends("a new worker of $name", $p, [$q]);
}

# At any moment of the search
for my $i (1 .. 4)
{
	my ($p, $q) = both_wait("v$i");

	poll_until(sub { named($p) || $p->done }, 'a session to be named');
	select(undef, undef, undef, rand 0.02);
	next_worker($i % 2 ? $a : $b);
	ends("a new worker at any moment, $i", $p, [$q]);
}

# A role of b that gives itself the name of a session of a, which waits for
# nobody: q waits for x of a, and holds what the forger wants, in vain.
{
	my $p = ZkSession->new($a);
	my $q = ZkSession->new($b);
	my $forger = ZkSession->new($b);
	my $other = ZkSession->new($a);
	my $name = name_of($a, $p);

	$p->run_ok('BEGIN; ' . zk_lock('f1'), 'a holds f1');
	$q->run_ok('BEGIN; SELECT pg_advisory_xact_lock(1); ' . zk_lock('f0'), 'b holds two locks');

	# so that the worker of a looks
	$other->send(zk_lock('f0'));
	$forger->run_ok("SET application_name = '$name'", "the name $name is forged");
	$forger->send('SELECT pg_advisory_xact_lock(1)');
	$q->send(zk_lock('f1'));
	$q->wait_waiting(2);
	poll_until(sub { named($p) }, 'b to tell for whom the forger seems to work');

	# long enough to be looked at again and again
	asked_during(4);
	ok(!$q->done, 'a session that is idle makes nobody fail');
	$p->run_ok('SELECT pg_sleep(3)', 'a sleeps');
	ok(!$q->done, 'nor one that sleeps');
	$p->run('COMMIT');
	is($q->result->{message}, undef, 'q goes on when a commits');
	$q->run('COMMIT');
	$_->result for ($forger, $other);
	$_->quit for ($p, $q, $forger, $other);
}

# What a forger can do: it has what q waits for, who has what p waits for.  It
# says that it works for p.
{
	my $p = ZkSession->new($a);
	my $q = ZkSession->new($b);
	my $forger = ZkSession->new($b);
	my $name = name_of($a, $p);

	$q->run_ok('BEGIN; ' . zk_lock('f2'), 'b holds f2');
	$forger->run_ok("SET application_name = '$name'; BEGIN; SELECT pg_advisory_xact_lock(1)", 'the forger has a lock');
	$q->send('SELECT pg_advisory_xact_lock(1)');
	closes($p, zk_lock('f2'));
	is($p->result->{sqlstate}, '40P01', 'who waits for a forger in the end may fail');
	ok(!$q->done, '... but nobody else');
	$forger->run_ok('COMMIT');
	is($q->result->{message}, undef, '... and no lock is given away');
	$_->quit for ($p, $q, $forger);
}

# A session of b is left behind in its wait, since the connection by which it
# works for p is cut.  It does not count as p's wait: p goes on to something else.
{
	my $p = ZkSession->new($a);
	my $q = ZkSession->new($c);

	$p->run_ok('BEGIN; SELECT n FROM cut_locked', 'a transaction of b works for one of a');
	$q->run_ok('BEGIN; ' . zk_lock('t'), 'c holds t, in a younger transaction');
	$p->send('UPDATE cut_locked SET n = n - 1 WHERE id = 1');
	wait_contenders($zk, 't', 2);
	$proxy->reset('cut');
	isnt($p->result->{message}, undef, 'the connection is cut');
	$p->run('ROLLBACK');
	$p->run_ok('BEGIN; ' . zk_lock('h'), 'a holds h');
	$q->send(zk_lock('h'));
	$p->send('SELECT n FROM endless');
	asked_during(3);
	ok(!$p->done && !$q->done, 'a session that is left behind makes nobody fail');
	is(scalar(contenders($zk, 't')), 1, '... and has left the queue');
	cancel($p);
	is($q->result->{message}, undef, 'who waits gets the lock');
	$q->run('COMMIT');
	$q->quit;
}

# More than a thousand sessions work for sessions of other instances.
{
	my ($in, $out) = ('', '');
	my $many = IPC::Run::start(
		[
			'python3', '-c', q{
import resource, socket, struct, sys
path, user, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
open_ones = []
for i in range(n):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    words = ['user', user, 'database', 'postgres', 'application_name', 'zklock:1.%x:elsewhere' % (i + 1)]
    body = struct.pack('>i', 196608) + b''.join(word.encode() + bytes(1) for word in words) + bytes(1)
    connection.sendall(struct.pack('>i', len(body) + 4) + body)
    answer = b''
    while not answer.endswith(b'Z' + struct.pack('>i', 5) + b'I'):
        more = connection.recv(8192)
        if not more:
            sys.exit(answer)
        answer += more
    open_ones.append(connection)
print('ready', flush=True)
sys.stdin.read()
}, $b->host . '/.s.PGSQL.' . $b->port, $b->safe_psql('postgres', 'SELECT current_user'), 1010
		],
		'<', \$in, '>', \$out);

	poll_until(sub { $many->pump_nb; $out =~ /ready/ }, 'a thousand sessions');
	my ($p, $q) = both_wait('x9');
	ends('among a thousand that work for others', $p, [$q]);
	$many->finish;
	$b->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name LIKE '%:elsewhere'");
}

# Without the setting, or if that does not name an instance, nobody tells, looks or
# fails: lock_timeout ends it.
for my $value ('', 'zklock:%c:')
{
	my $old = ZkSession->new($a);

	$a->safe_psql('postgres', "ALTER SYSTEM SET postgres_fdw.application_name = '$value'");
	$a->reload;
	poll_until(sub { $old->run('SHOW postgres_fdw.application_name')->{out} eq $value },
		'the setting to be another one');
	$old->quit;
	# an instance deletes it a while after its own last need
	poll_until(sub { !$client->exists($room) }, 'the directory of earlier deadlocks to go');
	my ($p, $q) = both_wait('n' . length $value);

	$p->wait_waiting(2);
	settle();
	is_deeply(asked_during(3), {}, "with \"$value\" nothing is asked");
	is_deeply([ named($p) ], [], '... and nobody is named');
	ok(!$p->done && !$q->done, '... and both wait');
	$a->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $p->pid . ')');
	is($p->result->{sqlstate}, '57014', '... until one is canceled');
	$p->run('ROLLBACK');
	is($q->result->{message}, undef, '... and the other goes on');
	$q->run('COMMIT');
	$_->quit for ($p, $q);

	($p, $q) = both_wait('t' . length $value, "SET lock_timeout = '1s'");
	is($p->result->{sqlstate}, '55P03', "with \"$value\" lock_timeout ends it");
	$p->run('ROLLBACK');
	is($q->result->{message}, undef, '... and the other goes on');
	$q->run('COMMIT');
	$_->quit for ($p, $q);
}

$_->stop for ($a, $b, $c);
done_testing();
