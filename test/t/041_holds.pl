
# Holds of one lock, of the session and of the transaction, within savepoints
# and without, taken and undone at random: what is left is what a plain list of
# them says.  And as many as there may be, they take no more memory.
#
# ZKLOCK_TEST_SEED is the first of the seeds, which are printed.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkWire;
use ZooKeeper;

my $steps = soak(300, 1000);
my $many = 100_000;

my $zk = ZooKeeper->new;
$zk->start;
my $node = zk_cluster('a', $zk, 'zklock.retain_time' => '1min', 'log_statement' => 'none');
my $session = ZkWire->new($node);

$node->safe_psql('postgres', 'CREATE TABLE written (i int)');

# The list: a hold has "session", "subid" (of the subtransaction that it belongs
# to) and "undone" (the one that has done so, or 0).
my (@holds, @subids, $wrote, $last_subid);

sub in_transaction { return @subids > 0; }

sub leave_out
{
	my ($condition) = @_;

	@holds = grep { !$condition->($_) } @holds;
	return;
}

sub undo
{
	my @which = @_;

	$_->{undone} = $subids[-1] // 1 for @which;
	leave_out(sub { $_[0]{undone} }) if @subids <= 1 && !$wrote;
	return;
}

sub commit_sub
{
	my $subid = pop @subids;

	for my $hold (@holds)
	{
		$hold->{subid} = $subids[-1] if $hold->{subid} == $subid;
		$hold->{undone} = $subids[-1] if $hold->{undone} == $subid;
	}
	return;
}

sub abort_sub
{
	my $subid = pop @subids;

	leave_out(sub { !$_[0]{session} && $_[0]{subid} == $subid });
	for my $hold (grep { $_->{undone} == $subid } @holds)
	{
		$hold->{undone} = $hold->{session} ? 1 : 0;
	}
	return;
}

sub end_transaction
{
	@subids = ();
	$wrote = 0;
	leave_out(sub { !$_[0]{session} || $_[0]{undone} });
	return;
}

# Each takes a random number, and returns what to run; the answer to it must be
# what they have put into $expected, if they have.
my $expected;
my %actions = (
	begin => sub {
		return if in_transaction();
		@subids = (1);
		$last_subid = 1;
		return 'BEGIN';
	},
	savepoint => sub {
		return if !in_transaction() || @subids > 5;
		push @subids, ++$last_subid;
		return 'SAVEPOINT s' . @subids;
	},
	release => sub {
		my ($random) = @_;

		return if @subids < 2;
		my $level = 2 + int($random * (@subids - 1));
		commit_sub() while @subids >= $level;
		return "RELEASE s$level";
	},
	rollback_to => sub {
		my ($random) = @_;

		return if @subids < 2;
		my $level = 2 + int($random * (@subids - 1));
		abort_sub() while @subids >= $level;
		push @subids, ++$last_subid;
		return "ROLLBACK TO s$level";
	},
	write => sub {
		return if !in_transaction();
		$wrote = 1;
		return 'INSERT INTO written VALUES (1)';
	},
	lock => sub {
		return if !in_transaction();
		push @holds, { session => 0, subid => $subids[-1], undone => 0 };
		return "SELECT zk_lock('x')";
	},
	lock_session => sub {
		push @holds, { session => 1, subid => $subids[-1] // 1, undone => 0 };
		return "SELECT zk_lock('x', session => true)";
	},
	unlock => sub {
		my ($latest) = grep { !$_->{undone} } reverse @holds;

		$expected = $latest ? 't' : 'f';
		undo($latest) if $latest;
		return "SELECT zk_unlock('x')";
	},
	unlock_all => sub {
		undo(grep { $_->{session} && !$_->{undone} } @holds);
		return 'SELECT zk_unlock_all()';
	},
	commit => sub {
		return if !in_transaction();
		commit_sub() while @subids > 1;
		end_transaction();
		return 'COMMIT';
	},
	rollback => sub {
		return if !in_transaction();
		abort_sub() while @subids > 1;
		end_transaction();
		return 'ROLLBACK';
	});

# How often which action is tried, of as many as all together.
my %weights = (
	begin => 6,
	savepoint => 4,
	release => 2,
	rollback_to => 2,
	write => 0.2,
	lock => 6,
	lock_session => 3,
	unlock => 6,
	unlock_all => 0.3,
	commit => 0.5,
	rollback => 0.5);
my @names = sort keys %actions;
my $total = 0;
$total += $_ for values %weights;

sub choose
{
	my $at = rand($total);

	for my $name (@names)
	{
		return $name if ($at -= $weights{$name}) < 0;
	}
	return $names[-1];
}

# What can be seen of the lock, and what should be.
my $look = q{
	SELECT coalesce((SELECT scope FROM zk_locks WHERE pid = pg_backend_pid()), 'none') || ' ' ||
	       (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'userlock')};

sub should_see
{
	return 'none 0' unless @holds;
	return ((grep { $_->{session} } @holds) ? 'session' : 'transaction') . ' 1';
}

sub run
{
	my ($sql) = @_;
	my $result = $session->run($sql);

	die "$sql: $result->{message}" if defined $result->{message};
	return $result->{out};
}

my $seed = seed();
for my $round (0 .. 2)
{
	my @done;
	my @wrong;

	srand($seed + $round);
	for my $step (1 .. $steps)
	{
		$expected = undef;
		my $sql = $actions{ choose() }->(rand) // next;
		my $answer = run($sql);

		push @done, $sql;
		push @wrong, "answer $answer, not $expected"
		  if defined $expected && $answer ne $expected;
		my ($see, $should) = (run($look), should_see());
		push @wrong, "$see, not $should" if $see ne $should;
		last if @wrong;
	}
	is_deeply(\@wrong, [], "as the list says, seed " . ($seed + $round))
	  or diag(join "\n", @done > 60 ? @done[ -60 .. -1 ] : @done);
	run('ROLLBACK') if in_transaction();
	run('SELECT zk_unlock_all()');
	is(run($look), 'none 0', 'and nothing is left');
	(@holds, @subids, $wrote) = ();
}

#
# Many of them
#

sub memory
{
	return run(q{SELECT sum(total_bytes) FROM pg_backend_memory_contexts
		WHERE name IN ('TopMemoryContext', 'zklock holds')});
}

my %many = (
	'of the transaction' => "PERFORM zk_lock('x')",
	'of the session' => "PERFORM zk_lock('x', session => true)",
	'undone' => "PERFORM zk_lock('x'); PERFORM zk_unlock('x')",
	'in a subtransaction each' =>
	  "BEGIN PERFORM zk_lock('x'); EXCEPTION WHEN division_by_zero THEN NULL; END",
	'undone in a subtransaction each' =>
	  "BEGIN PERFORM zk_lock('x'); PERFORM zk_unlock('x'); EXCEPTION WHEN division_by_zero THEN NULL; END",
	'given back by subtransactions' =>
	  "BEGIN PERFORM zk_lock('x'); PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN NULL; END");

for my $what (sort keys %many)
{
	my $loop = sub { run("DO 'BEGIN FOR i IN 1..$_[0] LOOP " . ($many{$what} =~ s/'/''/gr) . "; END LOOP; END'") };

	# what is below is of another sort
	run('BEGIN');
	run('INSERT INTO written VALUES (1)');
	run("SELECT zk_lock('x', session => true)");
	run("SELECT zk_lock('x')");
	$loop->(10);
	my $before = memory();
	$loop->($many);
	cmp_ok(memory() - $before, '<', 65536, "$many holds $what: memory");
	run('ROLLBACK');
	run('SELECT zk_unlock_all()');
	is(run($look), 'none 0', 'and nothing is left');
}

$session->vanish;
$node->stop;
done_testing();
