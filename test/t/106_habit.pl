
# Locks that an instance retains because it takes them again and again
# (zklock.retain_time = -1, the default): when it begins, who ends it, and what
# it does not do.  Rules that are broken on purpose are seen to be.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Foreign;
use ZkCluster;
use ZkSession;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};

# No pause is too long here, so the row does not depend on how fast anything is.
my %settings = (
	'zklock.session_timeout' => '30s',
	'zklock.max_retain_time' => '10min',
	'log_statement' => 'none');

# The pause between takes of a lock that is to be found retained, in seconds, of
# which it is retained for four.
my $pause = 5;

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my $curator = Foreign->curator($zk);

# ZooKeeper, which removes idle containers often here, leaves these alone, so
# that numbers go on.
$foreign->create(lock_dir($_), makepath => 1)
  for qw(k lock try curator curator-try again slow slow2 twice turns all all2 modes shared w m1 m2 m3 m4),
  map { "c$_" } 1 .. 9;

my $a = zk_cluster('a', $zk, %settings);
my $b = zk_cluster('b', $zk, %settings);

# The counters of a lock in an instance.
sub counted
{
	my ($node, $lock) = @_;
	return value($node,
		"SELECT coalesce(sum(retained), 0), coalesce(sum(retaken), 0), coalesce(sum(revoked), 0), coalesce(sum(waited_revoke), 0) FROM zk_stat_locks WHERE name = '$lock'");
}

# One take, whose contender is gone then.
sub take_alone
{
	my ($node, $lock) = @_;

	value($node, "SELECT zk_lock('$lock')");
	wait_no_contenders($zk, $lock);
	return;
}

# Takes of each lock, so often, with the pause in between.
sub take_with_pauses
{
	my ($node, $times, @locks) = @_;
	my $list = join(', ', map { "'$_'" } @locks);

	$node->safe_psql('postgres', qq{
		DO \$\$
		DECLARE lock text;
		BEGIN
			FOR i IN 1 .. $times LOOP
				FOREACH lock IN ARRAY ARRAY[$list] LOOP
					PERFORM zk_lock(lock);
					COMMIT;
				END LOOP;
				PERFORM pg_sleep(CASE WHEN i < $times THEN $pause ELSE 0 END);
			END LOOP;
		END \$\$});
	return;
}

# Is it retained, once more, at one of so many takes?
sub retained_within
{
	my ($node, $takes, $lock) = @_;
	my $retained = sub { (split /\|/, counted($node, $lock))[0] };
	my $before = $retained->();

	for (1 .. $takes)
	{
		value($node, "SELECT zk_lock('$lock')");
		return 1 if $retained->() > $before;
		wait_no_contenders($zk, $lock);
	}
	return 0;
}

sub try { return sql($_[0], "SELECT zk_try_lock('$_[1]')")->{out}; }

#
# From the third take in a row on, and found retained
#

is(value($a, 'SHOW zklock.retain_time'), '-1', 'the default is by habit');
take_with_pauses($a, 3, qw(k lock try));
{
	my @kept = contenders($zk, 'k');

	is(scalar(@kept), 1, 'the contender of the third take stays');
	like($foreign->get(lock_dir('k') . "/$kept[0]")->{data},
		qr/ retain=yes$/, 'and says so');
	is(value($a, 'SELECT count(*) FROM zk_locks'), 0, 'nobody holds it');
	is(counted($a, 'k'), '1|0|0|0', 'it is retained once');
	value($a, "SELECT zk_lock('k')");
	is_deeply([ contenders($zk, 'k') ], \@kept, 'the next take has the same contender');
	is(counted($a, 'k'), '2|1|0|0', 'and it is retaken, and retained again');
}

#
# Given up for others
#

value($b, "SELECT zk_lock('lock')");
is(counted($a, 'lock'), '1|0|1|0', 'zk_lock of another instance revokes it');
is(try($b, 'try'), 't', 'zk_try_lock of another instance gets it');
is(counted($a, 'try'), '1|0|1|0', '... as it is revoked');
is(value($a, 'SELECT retained >= 3 AND retaken = 1 AND revoked = 2 AND waited_revoke = 0 FROM zk_stat'),
	't', 'zk_stat counts all of it');

# An owner may have let go before the other instance has read that it would.
{
	my $s = ZkSession->new($a);

	$s->send("SET statement_timeout = 0; DO 'BEGIN LOOP PERFORM zk_lock(''again''); COMMIT; PERFORM pg_sleep(0.01); END LOOP; END'");
	poll_until(sub { try($b, 'again'); counted($b, 'again') =~ /[1-9]$/ },
		'the other instance to count that it has waited for a revocation');
	value($a, 'SELECT pg_cancel_backend(' . $s->pid . ')');
	is($s->result->{sqlstate}, '57014', 'as often as it is taken again');
	$s->quit;
	is(value($b, 'SELECT waited_revoke > 0 AND revoked = 0 FROM zk_stat'), 't', 'in zk_stat, too');
}

# Nor may it answer in time.  Answers are awaited in the order of the calls.
take_with_pauses($a, 3, qw(slow slow2));
{
	my $worker = value($a, 'SELECT worker_pid FROM zk_session');
	my $s = ZkSession->new($b);

	kill 'STOP', $worker;
	$s->send("SELECT zk_lock('slow')");
	wait_contenders($zk, 'slow', 2);
	is(try($b, 'slow2'), 'f', 'an owner that does not answer counts as a holder');
	kill 'CONT', $worker;
	is($s->result->{message}, undef, '... but gives the lock up when it can');
	is(counted($b, 'slow'), '0|0|0|1', '... which has cost a wait');
	$s->quit;
}

#
# Never again where another kind of client was seen
#

take_with_pauses($a, 3, 'curator');
{
	my $mutex = $curator->make('InterProcessMutex', lock_dir('curator'));

	ok($mutex->acquire, 'a Curator client that waits gets a retained lock');
	$mutex->release;
	ok(!retained_within($a, 10, 'curator'), 'which is not retained any more');

	$mutex = $curator->make('InterProcessMutex', lock_dir('curator-try'));
	take_with_pauses($a, 3, 'curator-try');
	# which may get the lock, if the instance is faster than Curator
	$mutex->release if $mutex->acquire(0);
	wait_no_contenders($zk, 'curator-try');
	pass('after a try with no timeout it is given up');
	ok($mutex->acquire(0), 'and the next try gets it');
	$mutex->release;
	for my $round (1 .. 10)
	{
		take_alone($a, 'curator-try');
		next if $round % 5;
		ok($mutex->acquire(0), 'so does each that finds it free');
		$mutex->release;
	}
	is(counted($a, 'curator-try') =~ s/\|[01]\|0$//r, '1|0', 'since it is not retained any more');
}

#
# After a revocation not for the next takes
#

ok(!retained_within($a, 5, 'lock'), 'after a revocation it is not retained for five takes');
ok(retained_within($a, 1, 'lock'), 'from the sixth on it is');

#
# What is not retained
#

take_alone($a, 'twice') for 1 .. 2;
is(counted($a, 'twice'), '0|0|0|0', 'nothing is retained after two takes');

for my $round (1 .. 6)
{
	take_alone($_, 'turns') for $a, $b;
}
is(counted($_, 'turns'), '0|0|0|0', 'what instances take in turns is not retained') for $a, $b;

for my $round (1 .. 6)
{
	value($a, "SELECT zk_lock_any(ARRAY['any', 'any2'])");
	wait_no_contenders($zk, 'any');
}
is(counted($a, 'any'), '0|0|0|0', 'nor what is taken as any of several');

for my $round (1 .. 6)
{
	take_alone($a, 'modes');
	value($a, "SELECT zk_lock('modes', shared => true)");
	wait_no_contenders($zk, 'modes');
}
is(counted($a, 'modes'), '0|0|0|0', 'nor what is taken in both modes in turns');

sql($a, "SELECT zk_acquire('permit', 2)") for 1 .. 6;
is(counted($a, 'permit'), '0|0|0|0', 'nor permits');

for my $round (1 .. 3)
{
	value($a, "SELECT zk_lock('shared', shared => true)");
	wait_no_contenders($zk, 'shared') if $round < 3;
}
is(counted($a, 'shared'), '1|0|0|0', 'but what is taken in shared mode');

#
# The settings
#

{
	my $c = zk_cluster('c', $zk, %settings, 'zklock.max_locks' => 24);

	take_with_pauses($c, 3, map { "c$_" } 1 .. 8);
	is(scalar(grep { m{/c\d/} } all_contenders($zk)),
		3, 'an eighth of the slots may be retained');
	my $s = ZkSession->new($c);
	$s->run_ok("BEGIN; SELECT zk_lock('all' || i) FROM generate_series(1, 24) i;");
	pass('and they are given up when all slots are needed');
	$s->run_ok('ROLLBACK');
	$s->quit;

	alter_system($c, 'zklock.retain_time', '0');
	wait_no_contenders($zk, "c$_") for 1 .. 8;
	take_alone($c, 'c1') for 1 .. 5;
	pass('with 0 nothing is retained any more');
	alter_system($c, 'zklock.retain_time', '-1');
	alter_system($c, 'zklock.max_retain_time', '1ms');
	take_alone($c, 'c9') for 1 .. 5;
	is(counted($c, 'c9'), '0|0|0|0', 'with a short maximum pauses are too long');
	$c->stop('fast');
}

#
# Rules that are broken on purpose
#

{
	my $d = zk_cluster('d', $zk, %settings,
		'install_path' => $ENV{ZKLOCK_TEST_INSTALL},
		'zklock.max_locks' => 24,
		'zklock.mutation' => 'habits_unbounded');

	take_with_pauses($d, 3, map { "m$_" } 1 .. 4);
	is(scalar(grep { m{/m\d/} } all_contenders($zk)), 4, 'habits_unbounded is seen');

	alter_system($d, 'zklock.mutation', 'revocation_forgotten');
	value($b, "SELECT zk_lock('m$_')") for 1 .. 3;
	ok(retained_within($d, 5, 'm1'), 'revocation_forgotten is seen');

	alter_system($d, 'zklock.mutation', 'others_forgotten');
	$foreign->unlock($foreign->lock(lock_dir('m4')));
	ok(retained_within($d, 10, 'm4'), 'others_forgotten is seen');
	$d->stop('fast');
}

#
# The next worker
#

take_with_pauses($a, 3, 'w');
{
	my @kept = contenders($zk, 'w');

	next_worker($a);
	is_deeply([ contenders($zk, 'w') ], \@kept, 'the next worker keeps what is retained');
	is(try($b, 'w'), 't', 'and gives it up as well');
}

$_->stop('fast') for $a, $b;
is_deeply([ all_contenders($zk) ], [], 'no contender is left');

done_testing();
