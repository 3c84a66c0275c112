# Copyright (c) 2026, zklock developers

# Nobody fails with 40P01 who was not a member of a deadlock, where all that
# workers publish is soon out of date: 24 clients in three instances,
# deadlock_timeout = 10 ms, lock timeouts of 5 to 50 ms, statements that are
# canceled at random, and workers that are terminated.
#
# 1. Those who take three of eight locks in ascending order take the lock "gate"
#    shared first, those in descending order exclusively, and give it back when they
#    have all three: whoever waits for one of the eight has the gate, so there can
#    be no deadlock, and nobody fails.  But soon after waits in one direction
#    there are waits in the other one.  Some of the latter take all three in one
#    call, and some of all take any one and no more.
# 2. In random order and without the gate: each who fails was a member of a
#    deadlock, by what the clients have written down (Cycles.pm), and none has
#    failed in vain; and none of the deadlocks stays.  Whom PostgreSQL's own
#    detector has chosen, inside of an instance, is its own matter.  Which victim
#    was the first, the zxids of the acts tell, which workers log.  Some calls are
#    for two or three locks together, or for any of them; who wants any has a
#    timeout, since a deadlock by way of a holder in its own instance is found by
#    nobody.
#
# 3. What is out of date for certain; and that this can fail, with a test build that
#    is broken on purpose.
# 4. Not by default: as 2., but with all clients in one instance and PostgreSQL's own
#    advisory locks, to compare how long there may be no commit.
#
# ZKLOCK_TEST_PARTS=2 leaves the other parts out.  ZKLOCK_TEST_DEADLOCK_TIMEOUT is
# deadlock_timeout in ms (10); lock timeouts are 0.5 to 5 times as long.

use strict;
use warnings;

use Cycles;
use List::Util qw(max min shuffle sum);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
use ZkCluster;
use ZkScene;
use ZkWire;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};
my $transactions = soak(500, 4000);    # of each part
my $check = ($ENV{ZKLOCK_TEST_DEADLOCK_CHECK} // 'on') ne 'off';
my $seed = seed();
my %parts = map { ($_ => 1) } split //, $ENV{ZKLOCK_TEST_PARTS} // '123';
my $timeout = ($ENV{ZKLOCK_TEST_DEADLOCK_TIMEOUT} || 10) / 1000;
my $nclients = 24;
my @locks = map { "l$_" } (1 .. 8);

sub now { return clock_gettime(CLOCK_MONOTONIC); }

#
# Made-up records: what explains a victim, and what does not
#

my @records;

# A call of client c1 in instance c, and so on: name, locks, mode, asked, entered,
# left.
sub call
{
	my ($who, $locks, $mode, $asked, $entered, $left, %more) = @_;
	my %r = (
		instance => substr($who, 0, 1), client => substr($who, 1), locks => [ split / /, $locks ],
		mode => { x => 'exclusive', s => 'shared', p => 'permit' }->{$mode},
		asked => $asked, entered => $entered, left => $left, %more);

	push @records, \%r;
	return \%r;
}

sub victim
{
	my ($who, $locks, $mode, $asked, $left, %more) = @_;

	return call($who, $locks, $mode, $asked, undef, $left, sqlstate => '40P01', %more);
}

sub explains
{
	my ($victim, $want, $name, %permits) = @_;
	my $why = Cycles->new(\@records, permits => \%permits)->explain($victim);
	my $is = $why ? join(' ', sort map { s/ //r } @{ $why->{members} }) . ($why->{vain} ? ' needless' : '')
	  : 'nothing';

	is($is, $want, "records: $name");
	@records = ();
	return;
}

# a1 holds x from 1, b1 holds y from 1, a1 waits for y from 2 to 9
sub half
{
	call('a1', 'x', 'x', 0, 1, 9.1);
	call('b1', 'y', 'x', 0, 1, 8.1);
	return call('a1', 'y', 'x', 2, 8.05, 9.1);
}

half();
explains(victim('b1', 'x', 'x', 3, 8), 'a1 b1', 'two that wait for each other');
half();
explains(victim('b1', 'z', 'x', 3, 8), 'nothing', 'one that waits for what nobody holds');
half();
explains(victim('c1', 'x', 'x', 3, 8), 'nothing', 'one that waits for a deadlock');
half()->{entered} = 2.9;
explains(victim('b1', 'x', 'x', 3, 8), 'nothing', 'a wait that was over before');
half();
$records[0]{left} = 3.05;
explains(victim('b1', 'x', 'x', 3.1, 8), 'nothing', 'a lock that was given back before');
half()->{asked} = 7.6;
call('c1', 'q', 'x', 7.2, 7.3, 7.4);
explains(victim('b1', 'x', 'x', 3, 7.5), 'nothing', 'a wait that began later');
half();
$records[1]{entered} = 8;
explains(victim('b1', 'x', 'x', 3, 7), 'nothing', 'a lock that came later');
half();
call('b1', 'x', 'x', 3, undef, 7, sqlstate => '55P03');
explains(victim('b1', 'x', 'x', 7.5, 8), 'a1 b1', 'one after a timeout');

# each edge was there, but never all of them: a1 gives up when c1 begins
call('a1', 'x', 'x', 0, 1, 5);
call('b1', 'y', 'x', 0, 1, 20);
call('c1', 'z', 'x', 0, 1, 20);
call('a1', 'y', 'x', 2, undef, 4.9, sqlstate => '57014');
call('b1', 'z', 'x', 3, 19, 20);
explains(victim('c1', 'x', 'x', 5.2, 8), 'nothing', 'edges of different times');

# one cycle, two victims
half()->{entered} = undef;
@{ $records[-1] }{qw(left sqlstate)} = (7.9, '40P01');
explains(victim('b1', 'x', 'x', 3, 8), 'a1 b1 needless', 'a second victim of one deadlock');
half()->{entered} = undef;
@{ $records[-1] }{qw(left sqlstate)} = (2.9, '40P01');
call('a1', 'y', 'x', 2.95, 8.05, 9.1);
explains(victim('b1', 'x', 'x', 3, 8), 'a1 b1', 'the victim of the next one');

# of two that hear of it in another order
sub two_victims
{
	my ($one, $other) = @_;

	half();
	@{ $records[-1] }{qw(entered left sqlstate)} = (undef, 7.9, '40P01');
	@{ $records[-1] }{ keys %$one } = values %$one;
	my $victim = victim('b1', 'x', 'x', 3, 8);
	@$victim{ keys %$other } = values %$other;
	return $victim;
}
explains(two_victims({ left => 8 }, {}), 'a1 b1', 'two victims at the same time');
explains(two_victims({ act => 2 }, { act => 1 }), 'a1 b1', 'the first one hears of it later');
explains(two_victims({ left => 8.05, act => 1 }, { act => 2 }),
	'a1 b1 needless', 'the second one learns of it earlier');
explains(two_victims({ failed => 12 }, { failed => 11, act => 1 }),
	'a1 b1', 'one that another detector has chosen later');
explains(two_victims({ left => 8.05, failed => 11 }, { failed => 12, act => 1 }),
	'a1 b1 needless', 'one that another detector has chosen earlier');
explains(two_victims({ failed => 11, act => 2 }, { failed => 12, act => 1 }),
	'a1 b1', 'the acts tell more than the times');

# all members wait behind others of their instances: a2 for y ahead of a1, b2 for x
# ahead of b1; who is ahead is no member
half();
call('b2', 'x', 'x', 2, 8.1, 8.2);
call('b1', 'x', 'x', 3, 8.1, 8.2);
explains(victim('a2', 'y', 'x', 1.5, 7), 'nothing', 'one that is only ahead of a member');

# unless it holds what b1 waits for, as a1 does
half();
$records[0]{mode} = 'shared';
call('a2', 'x', 's', 1, 1.1, 7.1);
call('b1', 'x', 'x', 3, 8.1, 8.2);
explains(victim('a2', 'y', 'x', 1.5, 7), 'a2 b1', 'one that is ahead of a member, and a member itself');

# readers
sub reader
{
	my ($mode) = @_;
	call('a1', 'x', 's', 0, 1, 9.1);
	call('b1', 'y', 'x', 0, 1, 8.1);
	call('a1', 'y', 'x', 2, 8.05, 9.1);
	call('c1', 'x', $_[0], 2.5, 9.2, 9.3) if $_[0];
	return victim('b1', 'x', 's', 3, 8);
}
explains(reader(), 'nothing', 'readers do not wait for each other');
explains(reader('x'), 'a1 b1', 'but behind a writer they do');
explains(reader('s'), 'nothing', 'and not behind a reader');
{
	my $victim = reader('x');

	$records[-2]{left} = 1.5;
	explains($victim, 'nothing', 'nor behind a writer that has given up');
	$victim = reader('x');
	@{ $records[-2] }{qw(left queued)} = (1.5, 8);
	explains($victim, 'a1 b1', 'unless its contender is still in the queue');
}

# who calls for several
half();
$records[1]{locks} = [ 'y', 'w' ];
explains(victim('b1', 'q x', 'x', 3, 8), 'a1 b1', 'a call for two locks');
call('a1', 'x', 'x', 0, 1, 9.1);
call('a1', 'y', 'x', 2, 8.05, 9.1);
explains(victim('b1', 'x y', 'x', 1.5, 8), 'a1 b1', 'it keeps those that it is in front for');
call('a1', 'x', 'x', 0, 1, 9.1);
call('a1', 'y', 'x', 2, 8.05, 9.1);
explains(victim('b1', 'x', 'x', 1.5, 8), 'nothing', 'a call for one keeps nothing');

# who calls for any of several
half();
explains(victim('b1', 'q x', 'x', 3, 8, any => 1), 'nothing', 'a call for any of two');
half();
call('a1', 'q', 'x', 0, 1, 9.1);
explains(victim('b1', 'q x', 'x', 3, 8, any => 1), 'a1 b1', 'of which both are held by a member');
half();
@{ $records[1] }{qw(locks any took)} = ([ 'w', 'y' ], 1, ['w']);
explains(victim('b1', 'x', 'x', 3, 8), 'nothing', 'it keeps what it got');
call('a1', 'x', 'x', 0, 1, 9.1);
call('a1', 'y', 'x', 2, 8.05, 9.1);
explains(victim('b1', 'x y', 'x', 1.5, 8, any => 1), 'nothing', 'and nothing before');

# semaphores
sub permits
{
	my ($waits) = @_;
	call('a1', 'p', 'p', 0, 1, 9.1);
	call('b1', 'p', 'p', 0, 1, 9.1);
	call('c1', 'x', 'x', 0, 1, 9.1);
	call('a1', 'x', 'x', 2, 8.05, 9.1);
	call('b1', 'x', 'x', 2, 8.05, 9.1) if $_[0];
	return victim('c1', 'p', 'p', 3, 8);
}
explains(permits(1), 'a1 c1', 'all permits are held by members', p => 2);
explains(permits(0), 'nothing', 'one permit is not', p => 2);
explains(permits(0), 'a1 c1', 'unless one is enough', p => 1);

# b1 waits for d1, who waits for e1, and so on, and the last of them for nobody
call('b1', 'd', 'x', 2, undef, 9.1);
for my $who ('d' .. 'j')
{
	call("${who}1", $who, 'x', 0, 1, 9.2);
	call("${who}1", chr(1 + ord $who), 'x', 2, undef, 9.1) if $who ne 'j';
}
explains(permits(0), 'nothing', 'one permit is not, in the end', p => 2);

# which last
sub lasting
{
	my ($seconds, $want, $name, $length) = @_;
	is(join('; ', map { $_->{text} } Cycles->new(\@records)->lasting($seconds, $length)),
		$want, "records: $name");
	@records = ();
	return;
}
half();
call('b1', 'x', 'x', 3, undef, 8, sqlstate => '55P03');
lasting(4, '5.0 s: b 1 for x; a 1 for y', 'a deadlock that lasts');
half();
call('b1', 'x', 'x', 3, undef, 8, sqlstate => '55P03');
lasting(6, '', 'it closed later than its waits began');
half();
call('b1', 'x', 'x', 1.5, undef, 8, sqlstate => '55P03');
lasting(4, '6.0 s: b 1 for x; a 1 for y', 'it closed later than the first of its waits began');
half();
@{ $records[1] }{qw(locks left)} = ([ 'y', 'w' ], 9);
@{ $records[2] }{qw(locks entered)} = (['w'], 5);
call('a1', 'y', 'x', 5.1, 8.05, 9.1);
call('b1', 'x', 'x', 3, undef, 8, sqlstate => '55P03');
lasting(2, '2.9 s: b 1 for x; a 1 for y', 'of two that follow each other');
half();
lasting(4, '', 'a wait that lasts, and no deadlock');
half();
call('b1', 'x', 'x', 3, undef, 8, sqlstate => '55P03');
lasting(4, '', 'what does not count', sub { return 3; });

# a1 holds y; b1 and c1 call for it and for another lock, of which c1's is free
sub two_calls
{
	my ($b, $c) = @_;
	call('a1', 'y z', 'x', 0, 1, 9.1);
	call('b1', 'x y', 'x', $b, undef, 9, sqlstate => '55P03');
	call('c1', 'w x', 'x', $c, undef, 9, sqlstate => '55P03');
	return;
}
two_calls(2, 3);
lasting(4, '', 'of two calls for several, one keeps the other waiting');
two_calls(3, 2);
lasting(4, '', 'or the other way round');
two_calls(2, 4);
call('a1', 'x', 'x', 3.5, undef, 9.1, sqlstate => '55P03');
lasting(4, '5.5 s: b 1 for x,y; a 1 for x', 'a call for several keeps a later one waiting');
two_calls(2, 3);
call('a1', 'x', 'x', 1.5, undef, 9.1, sqlstate => '55P03');
lasting(4, '', 'but not an earlier one');

# b1 wants to write, and waits for readers: a1, and b2 until 6
sub behind_own_reader
{
	my ($until) = @_;
	half();
	$records[0]{mode} = 'shared';
	call('b2', 'x', 's', 1, 1.1, $until);
	call('b1', 'x', 'x', 3, undef, 8, sqlstate => '55P03');
	return;
}
behind_own_reader(3);
lasting(4, '5.0 s: b 1 for x; a 1 for y', 'a writer behind a reader of another instance');
behind_own_reader(6);
lasting(4, '', 'and behind one of its own instance first');
behind_own_reader(6);
lasting(1.5, '2.0 s: b 1 for x; a 1 for y', 'which counts when that has gone');
behind_own_reader(9);
call('b2', 'y', 'x', 3.5, 8.5, 9);
lasting(4, '4.5 s: b 1 for x; a 1 for y', 'or when it is deadlocked, too');

#
# Clients
#

my $zk = ZooKeeper->new;
$zk->start;
my %instance;
@instance{qw(a b c)} = zk_clusters(
	$zk, [qw(a b c)],
	install_path => $ENV{ZKLOCK_TEST_INSTALL},
	'zklock.session_timeout' => '60s',
	'log_statement' => 'none',
	'log_min_messages' => 'debug1',
	'autovacuum' => 'off',
	'deadlock_timeout' => 1000 * $timeout . 'ms');
my $client = $zk->client(timeout => 60);
my %admin = map { $_ => ZkWire->new($instance{$_}) } keys %instance;
my @clients = clients_of(sort keys %instance);
my $alone = 0;    # PostgreSQL's own locks
my %run;

sub clients_of
{
	my (@names) = @_;

	return map {
		my $name = $_;
		map { { instance => $name, client => $_, wire => ZkWire->new($instance{$name}) } } (1 .. $nclients / @names)
	} @names;
}

sub chance { return rand() < $_[0]; }

# The calls of a transaction: { locks, mode, any }.
sub calls_of_transaction
{
	my @three = (shuffle @locks)[ 0 .. 2 ];
	my $up = chance(0.9);
	my $call = sub {
		my ($locks, %more) = @_;
		return { locks => $locks, mode => chance(0.2) ? 'shared' : 'exclusive', %more };
	};
	my @gate;

	if ($run{gate})
	{
		@three = sort @three;
		@three = reverse @three unless $up;
		@gate = { locks => ['gate'], mode => $up ? 'shared' : 'exclusive' };
	}
	my $how = $alone ? 1 : rand();
	# of two such calls that wait the records do not tell which is ahead
	return (@gate, $call->(\@three)) if $run{gate} ? !$up && $how < 0.5 : $how < 0.1;
	return (@gate, $call->(\@three, any => 1)) if $how < 0.15;
	if (!$run{gate})
	{
		my ($one, @two) = @three;

		return ($call->([$one]), $call->(\@two)) if $how < 0.25;
		return ($call->([$one]), $call->(\@two, any => 1)) if $how < 0.35;
		return ($call->(\@two, any => 1), $call->([$one])) if $how < 0.4;
	}
	return (@gate, map { $call->([$_]) } @three);
}

sub call_for
{
	my ($call) = @_;
	my @locks = @{ $call->{locks} };
	my $shared = $call->{mode} eq 'shared';
	my $more = ($shared ? ', shared => true' : '') . ')';

	return 'pg_advisory_xact_lock' . ($shared ? '_shared' : '') . "(hashtext('$locks[0]'))" if $alone;
	return "zk_lock('$locks[0]'$more" if @locks == 1;
	return 'zk_lock_' . ($call->{any} ? 'any' : 'all') . "('{" . join(',', @locks) . "}'$more";
}

# Begin the next statement of a client.
sub step
{
	my ($c) = @_;

	if (!$c->{calls})
	{
		return if $run{over};
		$c->{calls} = [ calls_of_transaction() ];
		$c->{held} = [];
		$c->{begin} = 'BEGIN; '
		  . (!$check || chance(0.5) || (grep { $_->{any} } @{ $c->{calls} }) ? sprintf("SET LOCAL lock_timeout = '%dms'; ",
				$check ? 1000 * $timeout * (0.5 + rand 4.6) : 50 + rand 200) : '');
	}
	if (my $call = shift @{ $c->{calls} })
	{
		$c->{record} = {
			instance => $c->{instance}, client => $c->{client}, asked => now(), %$call
		};
		$run{calls}{ $call->{any} ? 'any' : @{ $call->{locks} } > 1 ? 'all' : 'one' }++;
		$c->{wire}->send(($c->{begin} // '') . 'SELECT ' . call_for($call));
		$c->{begin} = '';
		$c->{is} = 'call';
	}
	elsif (@{ $c->{held} } && $c->{held}[0]{locks}[0] eq 'gate' && !$c->{failed})
	{
		# nothing has been written, so it is given back at once
		$c->{is} = 'unlock';
		$c->{wire}->send("SELECT zk_unlock('gate')");
	}
	else
	{
		$c->{is} = 'end';
		$c->{wire}->send($c->{failed} ? 'ROLLBACK' : 'COMMIT');
	}
	return;
}

# An answer has come.
sub answer
{
	my ($c, $now) = @_;
	my $result = $c->{wire}->result;
	my $state = $result->{sqlstate};
	my $r = delete $c->{record};

	die "the connection of $c->{instance}$c->{client} has ended\n" if $c->{wire}->gone;
	if ($r)
	{
		push @{ $run{records} }, $r;
		if (defined $state)
		{
			@$r{qw(left sqlstate message detail)} = ($now, @$result{qw(sqlstate message detail)});
			$run{errors}{$state}++;
			push @{ $run{odd} }, "$state: $result->{message}"
			  unless $state =~ /^(55P03|57014|40P01)$/;
			# what the transaction had is given back ahead of the answer
			$_->{left} = $now for splice @{ $c->{held} };
			@$c{qw(failed calls)} = (1, []);
		}
		else
		{
			$r->{entered} = $now;
			$r->{took} = [ $result->{out} ] if $r->{any};
			push @{ $c->{held} }, $r;
			# some hold it for a while
			$c->{wake} = $now + rand 0.02 if chance(0.5);
		}
		return;
	}
	if ($c->{is} eq 'unlock')
	{
		if (defined $state)
		{
			$_->{left} = $now for splice @{ $c->{held} };
			$c->{failed} = 1;
			push @{ $run{odd} }, "$state: $result->{message}" unless $state eq '57014';
			return;
		}
		(shift @{ $c->{held} })->{left} = $now;
		$c->{wake} = $now + rand 0.05;
		return;
	}
	if (defined $state && $state ne '57014')
	{
		push @{ $run{odd} }, "$state: $result->{message}";
	}
	if ($result->{status} ne 'I')
	{
		# a cancel that was meant for what came before
		$c->{failed} = 1;
		return;
	}
	$_->{left} = $now for splice @{ $c->{held} };
	$run{ended}++;
	push @{ $run{commits} }, $now unless $c->{failed} || defined $state;
	delete @$c{qw(calls failed)};
	return;
}

# Cancel somebody who waits, and terminate a worker now and then.
sub disturb
{
	my ($now) = @_;

	if ($now > $run{next_cancel})
	{
		my @waiting = grep { $_->{record} && $_->{wire}->busy } @clients;

		$run{next_cancel} = $now + rand 10 * $timeout;
		if (@waiting)
		{
			my $c = $waiting[ rand @waiting ];
			$admin{ $c->{instance} }->run('SELECT pg_cancel_backend(' . $c->{wire}->pid . ')');
			$run{cancels}++;
		}
	}
	if ($now > $run{next_note})
	{
		$run{next_note} = $now + 0.03;
		look_at_notes();
	}
	if ($run{outage} && $now > $run{next_look})
	{
		my $o = $run{outage};

		$run{next_look} = $now + 0.05;
		if ($admin{ $o->{instance} }->run("SELECT worker_pid <> $o->{pid} AND state = 'connected'"
				. ' FROM zk_session')->{out} eq 't')
		{
			$o->{to} = now();
			push @{ $run{outages} }, delete $run{outage};
			$run{next_restart} = $now + 1 + rand 3;
		}
	}
	if (!$run{outage} && $now > $run{next_restart} && !$run{over} && !$alone)
	{
		my $name = (sort keys %instance)[ rand 3 ];
		my $pid = $admin{$name}->run('SELECT worker_pid FROM zk_session')->{out};

		if ($pid)
		{
			$run{outage} = { instance => $name, pid => $pid, from => $now };
			$admin{$name}->run("SELECT pg_terminate_backend($pid)");
		}
		$run{next_look} = $now;
	}
	return;
}

# How often something was made in the directory of the texts.
sub made_in_room
{
	my $node = $client->create('/zklock/%waits/test-', ephemeral => 1, sequence => 1, makepath => 1);

	$client->delete($node);
	return $node =~ /(\d+)$/ ? 0 + $1 : die $node;
}

# Does an instance tell that a holder waits?
sub look_at_notes
{
	$run{published}++ if told($zk, 'keep', $locks[ rand @locks ]);
	return;
}

# So many transactions, and until it has been seen what the part is about.
sub run_part
{
	my ($gate, $transactions, $seen) = @_;
	my $begin = now();
	my $enough;

	%run = (
		gate => $gate, ended => 0, cancels => 0, records => [], errors => {}, odd => [], commits => [$begin],
		outages => [], next_cancel => $begin, next_restart => $begin + 1, next_note => $begin,
		published => 0, probes => made_in_room(),
		log => { map { ($_ => -s $instance{$_}->logfile) } keys %instance });
	my $progress = $begin;
	while (1)
	{
		my $now = now();

		$enough //= $now if $run{ended} >= $transactions;
		$run{over} ||= $enough
		  && (!$seen || $seen->() || $now > $enough + $PostgreSQL::Test::Utils::timeout_default);
		for my $c (grep { !$_->{wire}->busy && ($_->{wake} // 0) <= $now } @clients)
		{
			delete $c->{wake};
			step($c);
		}
		my @busy = grep { $_->{wire}->busy } @clients;
		my @wakes = grep { defined } map { $_->{wake} } @clients;
		last if !@busy && !@wakes && !$run{outage};

		my $wait = max(0, min(0.02, map { $_ - now() } @wakes));
		my %client = map { ($_->{wire} => $_) } @busy;
		my @ended = @busy ? ZkWire::wait_any($wait, map { $_->{wire} } @busy)
		  : Time::HiRes::sleep($wait) && ();
		$now = now();
		answer($client{$_}, $now) for @ended;
		$progress = $now if @ended;
		if ($now > $progress + $PostgreSQL::Test::Utils::timeout_default)
		{
			die "ZKLOCK_TEST_SEED=$seed; a deadlock that stays: "
			  . join('; ', map { $_->{record} ? "$_->{instance}$_->{client} for @{ $_->{record}{locks} }" : () } @busy)
			  . "\n";
		}
		disturb($now);
	}
	$run{took} = now() - $begin;
	$run{probes} = made_in_room() - $run{probes};
	return;
}

# Times without a commit, apart from outages and the time to recover.
sub longest_stall
{
	my @all = @{ $run{commits} };
	my ($longest, $at) = (0, 0);

	for my $i (1 .. $#all)
	{
		my ($from, $to) = @all[ $i - 1, $i ];

		next if $to - $from <= $longest;
		next if grep { $_->{from} < $to && $_->{to} + 1 > $from } @{ $run{outages} };
		($longest, $at) = ($to - $from, $from - $all[0]);
	}
	return sprintf('%.3f s at %.1f s', $longest, $at);
}

sub report
{
	my ($what) = @_;
	my @errors = map { "$_ $run{errors}{$_}" } sort keys %{ $run{errors} };

	diag sprintf('%s: %d transactions in %.1f s (%.0f/s), %d commits, %d calls (%s); errors: %s; '
		  . '%d cancels, %d restarts of workers; %d of the notes seen had waits; '
		  . '%d changes among the probes; longest time without a commit apart from those: %s',
		$what, $run{ended}, $run{took}, $run{ended} / $run{took}, scalar @{ $run{commits} } - 1,
		scalar @{ $run{records} }, join(', ', map { "$_ $run{calls}{$_}" } sort keys %{ $run{calls} }),
		join(', ', @errors) || 'none', $run{cancels},
		scalar @{ $run{outages} }, @run{qw(published probes)}, longest_stall());
	return;
}

# A victim, what it was told, and what else happened then, for people.
sub around
{
	my ($r) = @_;
	my $line = sub {
		my ($o) = @_;
		return sprintf("%s%s %s %s: %.4f %s %.4f %s\n", @$o{qw(instance client mode)},
			"@{ $o->{locks} }", $o->{asked} - $r->{asked},
			defined $o->{entered} ? sprintf('%.4f', $o->{entered} - $r->{asked}) : '-',
			$o->{left} - $r->{asked}, $o->{sqlstate} // '');
	};
	return ('victim ', $line->($r), ($r->{detail} // '') . "\n",
		map { $line->($_) } grep { $_->{asked} < $r->{left} && $_->{left} > $r->{asked} } @{ $run{records} });
}

# Who failed as a member of a deadlock, by the log of a server: for each process,
# when, and with which act; those since the part has begun.
sub failures
{
	no warnings 'portable';    # zxids have 64 bits
	my ($name) = @_;
	my (%act, %failures);

	for (split /\n/, slurp_file($instance{$name}->logfile, $run{log}{$name}))
	{
		my ($at, $pid, $what) = /^(\S+ \S+) \S+ \[(\d+)\] .*?((?:DEBUG|ERROR):  .*)/ or next;

		$at =~ s/\D//g;
		# the worker tells of the act before it wakes the victim
		if ($what =~ /: +act 0x([0-9a-f]+): process (\d+) fails/)
		{
			$act{$2} = { failed => $at, act => hex $1 || undef };
		}
		elsif ($what =~ /^ERROR/)
		{
			my $act = delete $act{$pid};
			push @{ $failures{$pid} }, { at => $at, act => $act } if $what =~ /deadlock detected/;
		}
	}
	return \%failures;
}

# Tell the records of victims when they were chosen, and by which act.
sub order_victims
{
	my %failures = map { ($_ => failures($_)) } keys %instance;
	my %pid = map { ("$_->{instance} $_->{client}" => $_->{wire}->pid) } @clients;

	for my $r (grep { ($_->{sqlstate} // '') eq '40P01' } @{ $run{records} })
	{
		my $failure = shift @{ $failures{ $r->{instance} }{ $pid{"$r->{instance} $r->{client}"} } };

		if ($r->{detail} !~ /in ZooKeeper/) { $r->{failed} = $failure->{at}; }
		else { @$r{qw(failed act)} = @{ $failure->{act} // {} }{qw(failed act)}; }
	}
	return sum(0, map { scalar @$_ } map { values %$_ } values %failures);
}

# What is to be said of the victims of a part.
# Calls that failed while their instance had no worker: only the next one deletes
# their contenders.
sub note_contenders_left
{
	for my $r (grep { defined $_->{left} && !defined $_->{entered} } @{ $run{records} })
	{
		my ($outage) = grep {
			$_->{instance} eq $r->{instance}
			  && $_->{from} < $r->{left} + 1
			  && $_->{to} > $r->{left}
		} @{ $run{outages} };

		$r->{queued} = $outage->{to} + 1 if $outage;
	}
	return;
}

sub judge
{
	my %found = map { ($_ => []) } qw(victims false vain lasted unknown);
	$found{other} = order_victims();
	note_contenders_left();
	my $cycles = Cycles->new($run{records});

	for my $r (grep { ($_->{sqlstate} // '') eq '40P01' && $_->{detail} =~ /in ZooKeeper/ }
		@{ $run{records} })
	{
		my $why = $cycles->explain($r);

		push @{ $found{victims} }, $r;
		push @{ $found{unknown} }, $r if !$r->{act};
		if (!$why) { push @{ $found{false} }, $r; }
		elsif ($why->{vain}) { push @{ $found{vain} }, $r; }
		else
		{
			push @{ $found{lasted} }, $r->{left} - $why->{since}
			  unless grep { $_->{from} < $r->{left} && $_->{to} + 1 > $why->{since} } @{ $run{outages} };
		}
	}
	return \%found;
}

sub nothing_is_left
{
	my ($what) = @_;

	wait_no_contenders($zk, $_) for ('gate', @locks);
	poll_until(
		sub { !eval { $client->ls('/zklock/%waits') } },
		'what workers ask each other to be gone');
	pass("$what: nothing is left");
	return;
}

#
# 1. With the gate
#

if ($parts{1})
{
	run_part(1, $transactions, sub { return @{ $run{outages} } && ($run{published} || !$check); });
	report('with the gate');
	is(join('; ', @{ $run{odd} }), '', 'with the gate: no unexpected error');
	is($run{errors}{'40P01'} // 0, 0, 'with the gate: no victim')
	  or diag(explain([ grep { ($_->{sqlstate} // '') eq '40P01' } @{ $run{records} } ]));
	cmp_ok(scalar @{ $run{outages} }, '>', 0, 'with the gate: workers were restarted');
	cmp_ok($run{published}, '>', 0, 'with the gate: waits were published') if $check;
	# nor did the records have any
	is(join('; ', map { $_->{text} } Cycles->new($run{records})->lasting(0.05)),
		'', 'with the gate: there was no deadlock');
	nothing_is_left('with the gate');
}

#
# 2. Without
#

run_part(0, $transactions, sub { return $run{errors}{'40P01'} || !$check; });
report('without');
is(join('; ', @{ $run{odd} }), '', 'without: no unexpected error');
my $found = judge();
my @victims = @{ $found->{victims} };
my @lasted = sort { $a <=> $b } @{ $found->{lasted} };
diag sprintf('%d victims, and %d of PostgreSQL alone; from the closing of the cycle to the error, apart from restarts: '
	  . 'median %.3f s, longest %.3f s', scalar @victims, ($run{errors}{'40P01'} // 0) - @victims,
	$lasted[ @lasted / 2 ] // 0, $lasted[-1] // 0);
is(scalar @{ $found->{unknown} } + $found->{other}, 0, 'without: the acts are known');
is(scalar @{ $found->{false} }, 0, 'without: each victim was a member of a deadlock')
  or diag(map { around($_) } @{ $found->{false} });
is(scalar @{ $found->{vain} }, 0, 'without: and the only victim of it')
  or diag(map { around($_) } @{ $found->{vain} });
cmp_ok(scalar @victims, '>', 0, 'without: there were victims') if $check;
nothing_is_left('without');

#
# 3. What is out of date for certain, and workers that are broken on purpose
#

sub mutate
{
	my ($mutation) = @_;

	for my $node (values %instance)
	{
		$node->append_conf('postgresql.conf', "zklock.mutation = $mutation");
		$node->reload;
		$node->poll_query_until('postgres', "SELECT current_setting('zklock.mutation') = '$mutation'");
	}
	return;
}

# In a, the holder of m1 has told that it waits for m5, and waits no more; but the
# contender stays, for another one, or since a has no worker.  In b, the owner of
# m5 waits for m1.  Returns the scene.
sub out_of_date
{
	my ($title, $without_worker) = @_;
	my $s = ZkScene->new($zk, $title, holder => $instance{a}, other => $instance{a},
		owner => $instance{b}, third => $instance{c});

	$s->does(owner => "SELECT zk_lock('m5')");
	$s->does(holder => "SELECT zk_lock('m1')");
	$s->does(holder => 'SAVEPOINT s');
	$s->waits(third => "SELECT zk_lock('m1')", queue => { m1 => 2 });
	$s->waits(holder => "SELECT zk_lock('m5')", queue => { m5 => 2 });
	$s->waits(other => "SELECT zk_lock('m5')", tier => 1);
	poll_until(sub { told($zk, 'keep', 'm1') }, 'the wait to be published');
	$admin{a}->run('SELECT pg_terminate_backend(worker_pid) FROM zk_session') if $without_worker;
	$admin{a}->run('SELECT pg_cancel_backend(' . $s->pid('holder') . ')');
	$s->gives_up(holder => 'ROLLBACK TO s');
	$s->closes(owner => "SELECT zk_lock('m1')");
	return $s;
}

sub nobody_fails
{
	my ($s) = @_;

	poll_until(sub { told($zk, 'keep', 'm5') && !told($zk, 'keep', 'm1') }, 'what is out of date to be taken back');
	$s->does(holder => 'COMMIT');
	$s->ends(victims => 0);
	wait_no_contenders($zk, $_) for ('m1', 'm5');
	return;
}

if ($check && $parts{3})
{
	nobody_fails(out_of_date('out of date, and no worker', 1));

	my $made = made_in_room();
	nobody_fails(out_of_date('out of date'));
	$made = made_in_room() - $made;
	cmp_ok($made, '<', 20, 'out of date: hardly anything is confirmed');

	# each deadlock has several victims
	my $vain = 0;
	my $end = now() + $PostgreSQL::Test::Utils::timeout_default;
	mutate('cycle_second_victim');
	while (!$vain && now() < $end)
	{
		run_part(0, $transactions);
		$vain = @{ judge()->{vain} };
	}
	cmp_ok($vain, '>', 0, 'second victims: some end without effect');
	mutate('none');
	nothing_is_left('second victims');
}

if ($parts{4})
{
	$_->{wire}->vanish for @clients;
	@clients = clients_of('a');
	$alone = 1;
	run_part(0, $transactions);
	report('PostgreSQL alone');
	cmp_ok($run{errors}{'40P01'} // 0, '>', 0, 'PostgreSQL alone: there were victims');
}

$_->{wire}->vanish for @clients;
$_->stop for values %instance;
done_testing();
