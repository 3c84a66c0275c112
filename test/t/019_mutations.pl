
# The checker of make chaos can fail: made-up histories show each kind of
# violation being found, and so do locks that are broken on purpose, by the
# mutations of a test build.  On the same instances, with the same faults and
# without a mutation, it finds none.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../chaos";

use Chaos;
use Checker;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Timeline;
use ZkWire;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};

#
# Made-up histories
#

my %history;

# A new history of instances a and b, with nothing in it.
sub history
{
	%history = (
		start => 0, end => 100, faults_end => 90, timeout => 4, instances => [ 'a', 'b' ],
		holds => [], sections => [], faults => [], acts => [], late => [],
		rows => { warehouse => [], a => [], b => [] },
		counters => { warehouse => {}, a => {}, b => {} });
	return;
}

# A section of one hold, that has read n; what is not said is as in a good run.
sub section
{
	my ($id, $lock, $entered, $commit, $n, %more) = @_;
	my $instance = substr($id, 0, 1);
	my %hold = (
		hold => "$id.1", instance => $instance, client => 1, pid => 1, locks => [$lock],
		mode => 'exclusive', scope => 'transaction', call => 'zk_lock',
		asked => $entered - 0.1, entered => $entered, left => $commit + 0.1, result => 'got',
		%{ delete $more{hold} // {} });
	my %section = (
		id => "$id.1.1", hold => "$id.1", n => { $lock => $n }, token => {},
		commit => $commit, end => $commit + 0.1, outcome => 'committed', %more);
	my @stores = $lock =~ /^l/ ? ($instance) : ('warehouse', $instance);

	push @{ $history{holds} }, \%hold;
	push @{ $history{sections} }, \%section;
	return if $hold{mode} eq 'shared' || $section{outcome} =~ /rolled|failed|died/;
	for my $store (@{ $more{there} // \@stores })
	{
		push @{ $history{rows}{$store} },
		  { lock => $lock, n => $n + 1, id => $section{id}, token => $section{token}{$lock} };
		$history{counters}{$store}{$lock} = $n + 1;
	}
	return;
}

sub finds
{
	my ($what, $name) = @_;
	my %found = map { ($_->{kind} => 1) } @{ Checker::check(\%history)->{violations} };

	is(join(', ', sort keys %found), $what, "checker: $name");
	return;
}

history();
section('a1', 'w', 1, 2, 0, token => { w => 10 });
section('b1', 'w', 3, 4, 1, token => { w => 11 });
section('a2', 'w', 4.5, 5, 2, hold => { mode => 'shared' });
section('b2', 'w', 4.6, 5, 2, hold => { mode => 'shared' });
section('a3', 'w', 6, 7, 2, token => { w => 12 });
section('a4', 'w', 8, 9, 3, outcome => 'rolled back');
section('a5', 'w', 10, 11, 3, token => { w => 12 }, outcome => 'unknown');
section('a6', 'l', 1, 2, 0, token => { l => 20 });
section('b6', 'l', 3, 4, 0, token => { l => 21 });
section('a7', 'l', 5, 6, 1, token => { l => 22 });
finds('', 'a good history');
is(Checker::check(\%history)->{committed}{w}, 4, 'checker: its commits');

# What should not be, on top of that.
sub also { history(); section('a1', 'w', 1, 5, 0); section(@_); return; }

also('b1', 'w', 6, 7, 0);
finds('counter, same number', 'the same number');
also('b1', 'w', 4, 7, 1);
finds('overlap', 'two at a time');
also('b1', 'w', 4, 7, 0, hold => { mode => 'shared' });
finds('overlap, stale read', 'a reader beside a writer');
also('b1', 'w', 0.5, 0.6, 0, hold => { mode => 'shared' });
finds('', 'a reader ahead of a writer');
history();
section('b1', 'w', 1, 5, 0, hold => { mode => 'shared' });
section('a1', 'w', 0.5, 0.9, 0);
section('a2', 'w', 4.9, 4.95, 1, hold => { asked => 0.95 });
finds('overlap, stale read', 'a writer beside a reader');
also('b1', 'w', 6, 7, 1, outcome => 'unknown', there => ['warehouse']);
finds('', 'a crash between the commits of both sides');
is(Checker::check(\%history)->{half}, 1, 'checker: it is counted');
also('b1', 'w', 6, 7, 1, outcome => 'unknown', there => ['b']);
finds('committed on one side', 'a commit without that of the warehouse');
also('b1', 'w', 6, 7, 1, there => []);
finds('lost commit', 'a lost commit');
history();
section('a1', 'w', 1, 2, 0);
$history{sections}[0]{outcome} = 'failed';
finds('committed in spite of an error', 'an error that was none');
history();
section('a1', 'f', 1, 2, 0, token => { f => 11 });
section('b1', 'f', 3, 4, 1, token => { f => 10 });
finds('token went back', 'a token that is older than the last');
history();
section('a1', 'l', 1, 2, 0, token => { l => 11 });
section('b1', 'l', 3, 4, 0, token => { l => 10 });
finds('token went back', 'the same over instances');
history();
section('a1', 'f', 1, 2, 0, token => { f => 11 });
section('b1', 'f', 3, 4, 1, token => { f => 11 });
finds('token of two instances', 'a token of two owners');
history();
section('a1', 'l', 1, 2, 0);
$history{counters}{a}{l} = 0;
finds('counter', 'a lost update');
history();
section('a1', 'w', 1, 2, 0, hold => { result => 'hangs' });
finds('no answer', 'a client that waits forever');

sub lost_connection
{
	history();
	section('a1', 'w', 1, 2, 0, outcome => 'died', hold => { result => 'died' });
	push @{ $history{faults} }, @_;
	return;
}

lost_connection();
finds('connection lost', 'a connection that ends without a cause');
lost_connection({ kind => 'kill-backend', begin => 1.9, end => 2.5, ends => 1, instances => ['a'] });
finds('', 'one that has a cause');
lost_connection({ kind => 'kill-backend', begin => 1.9, end => 2.5, ends => 1, instances => ['b'] });
finds('connection lost', 'a cause elsewhere');
history();
section('a1', 'w', 1, 2, 0, outcome => 'failed',
	hold => { sqlstate => 'XX000', message => 'odd' });
finds('unexpected error', 'an internal error');

# the lock is free from 2.1 to 29.9, and b waits
sub idle { history(); section('a1', 'w', 1, 2, 0); section('b1', 'w', 30, 31, 1, hold => { asked => 1.5 }); return; }
idle();
finds('free with waiters', 'a lost wake-up');
idle();
push @{ $history{faults} }, { kind => 'lose-quorum', begin => 3, end => 22 };
finds('', 'no wake-up while there is no quorum');

# only of those who may have been in the queue at that time, and not of what
# harms nobody
for my $instance ('a', 'b')
{
	idle();
	push @{ $history{faults} },
	  { kind => 'stop-instance', begin => 3, end => 22, instances => [$instance] };
	finds('', "nor while instance $instance stands still");
}
idle();
section('c1', 'x', 1, 2, 0);
push @{ $history{faults} },
  { kind => 'stop-instance', begin => 3, end => 22, instances => ['c'] };
finds('free with waiters', 'but while one does that has nothing to do with the lock');
idle();
section('c1', 'w', 71, 72, 2);
push @{ $history{faults} },
  { kind => 'stop-instance', begin => 3, end => 22, instances => ['c'] };
finds('free with waiters', 'or not yet');
history();
section('c1', 'w', 1, 2, 0);
section('a1', 'w', 39, 40, 1);
section('b1', 'w', 70, 71, 2, hold => { asked => 39.5 });
push @{ $history{faults} },
  { kind => 'stop-instance', begin => 41, end => 62, instances => ['c'] };
finds('free with waiters', 'or no longer');
idle();
push @{ $history{faults} },
  { kind => 'cancel-backends', begin => 3, end => 22, instances => ['b'], harmless => 1 };
finds('free with waiters', 'or while others are canceled');

# the machine stands still, for long or for a moment
idle();
push @{ $history{faults} }, { kind => 'stall', begin => 3, end => 20 };
finds('', 'no wake-up while the machine stands still');
idle();
push @{ $history{faults} }, map { { kind => 'stall', begin => $_, end => $_ + 0.5 } } (3, 8, 13, 18, 23);
finds('free with waiters', 'but after that');

# no fault excuses everything, or is there all the time
history();
section('a1', 'w', 1, 2, 0);
section('b1', 'w', 98, 99, 1, hold => { asked => 1.5 });
push @{ $history{faults} }, { kind => 'lose-quorum', begin => 3, end => 91 };
finds('free with waiters, hardly undisturbed', 'a wait for too long in spite of faults');
also('b1', 'w', 6, 7, 1);
push @{ $history{faults} }, { kind => 'lose-quorum', begin => 5.5, end => 80 };
finds('hardly undisturbed', 'a run that is disturbed nearly all the time');
like(Checker::check(\%history)->{undisturbed}{locks}{w}, qr/^0\.09/, 'checker: it says how much');
$history{faults_end} = 59;
finds('', 'a short one says nothing of that');

# A call that waits for some locks, from when to when.
sub waits
{
	my ($id, $locks, $asked, $entered, %more) = @_;
	push @{ $history{holds} },
	  {
		hold => "$id.1", instance => substr($id, 0, 1), client => 1, pid => 1, locks => $locks,
		mode => 'exclusive', scope => 'transaction', call => 'zk_lock_all', asked => $asked,
		entered => $entered, left => ($entered // $asked) + 0.1, result => 'got', %more
	  };
	return;
}

# who waits for several keeps some of them while others are held, and no longer
sub several
{
	my ($to) = @_;
	history();
	waits('a1', ['y'], 1, 1.1, left => $to);
	waits('a2', [ 'x', 'y' ], 2, 30.1);
	waits('b2', [ 'w', 'x' ], 3, 30.1);
	waits('b3', ['w'], 4, 30.3);
	return;
}

several(30);
finds('', 'a chain of those who wait for several');
several(20);
finds('free with waiters', 'that waits for nobody');
history();
waits('a1', [ 'w', 'x' ], 2, 20);
waits('b1', [ 'x', 'w' ], 2, 22);
finds('free with waiters', 'two that wait for each other');
history();
waits('a1', [ 'w', 'x' ], 2, 20);
waits('b1', ['x'], 1, 1.5, left => 19.5);
finds('', 'one that waits for a holder');

# deadlocks: a and b each hold what the other one asks for; one of them fails
sub beside
{
	my ($id, $lock, $asked, $entered, $left, %more) = @_;
	waits($id, [$lock], $asked, $entered, call => 'zk_lock', client => $id, left => $left, %more);
	return;
}

sub deadlock
{
	my (%victim) = @_;
	history();
	beside('a1', 'd', 1, 1.1, 9, client => 1);
	beside('b1', 'e', 1, 1.1, 8.1, client => 1);
	beside('a2', 'e', 2, 8.05, 9, client => 1);
	beside('b2', 'd', 3, undef, 8.1, client => 1, waited => 8, result => 'failed', sqlstate => '40P01',
		detail => 'waits in ZooKeeper', %victim);
	return;
}

deadlock();
finds('', 'a victim of a deadlock');
is(join(', ', @{ Checker::check(\%history)->{deadlocks} }), 5, 'checker: how long it took');
deadlock(locks => ['w']);
finds('victim without a deadlock', 'a victim that waits for nobody');
for my $mode ('exclusive', 'shared')
{
	deadlock(mode => $mode);
	$history{holds}[0]{mode} = 'shared';
	finds($mode eq 'shared' ? 'victim without a deadlock' : '', "a victim that waits for a reader: $mode");
}
deadlock(locks => ['w'], detail => 'of PostgreSQL');
finds('', "one of PostgreSQL's own");
deadlock();
@{ $history{holds}[2] }{qw(entered waited left sqlstate result)} = (undef, 7.9, 9, '40P01', 'failed');
$history{holds}[2]{detail} = 'waits in ZooKeeper';
finds('needless victim', 'two victims of a deadlock');
push @{ $history{faults} },
  { kind => 'stop-instance', begin => 5, end => 6, instances => ['a'] };
finds('', 'while one of the instances stands still');
$history{faults}[0]{instances} = ['c'];
finds('needless victim', 'but not while another one does');

# from 3 to 12.1
sub deadlock_lasts
{
	deadlock(waited => 12, left => 12.1);
	$history{holds}[$_]{left} = 13 for (0, 1, 2);
	$history{holds}[2]{entered} = 12.05;
	return;
}
deadlock_lasts();
finds('deadlock lasts', 'a deadlock that lasts');
push @{ $history{faults} }, { kind => 'lose-quorum', begin => 4, end => 5 };
finds('', 'while there is no quorum');
$history{faults}[0] = { kind => 'stop-instance', begin => 4, end => 5, instances => ['c'] };
finds('deadlock lasts', 'but not while another instance stands still');

# semaphores
sub permits
{
	my ($permits) = @_;
	history();
	$history{permits}{s} = $permits;
	section('a1', 's', 1, 5, 0, hold => { mode => 'permit' });
	section('b1', 's', 2, 6, 0, hold => { mode => 'permit' });
	section('a2', 's', 5.5, 7, 1, hold => { mode => 'permit' });
	section('a3', 's', 8, 9, 2, hold => { mode => 'permit' });
	return;
}

permits(2);
finds('', 'two permits, and two holders at a time');
permits(1);
finds('too many permits', 'two holders, and one permit');
permits(2);
push @{ $history{faults} },
  { kind => 'kill-session', begin => 1.5, end => 5.05, closes => 1.6, instances => ['a'] };
section('b2', 's', 4, 4.5, 1, hold => { mode => 'permit' });
finds('', 'three, one of them in a session that was closed from outside');
is(scalar @{ Checker::check(\%history)->{holes} }, 1, 'checker: is a hole');
for my $permits (1, 2)
{
	history();
	$history{permits}{s} = $permits;
	section('a1', 's', 1, 40, 0, hold => { mode => 'permit' });
	section('b1', 's', 41, 42, 1, hold => { mode => 'permit', asked => 2 });
	finds($permits == 1 ? '' : 'free with waiters', "a wait while one of $permits permits is taken");
}
history();
$history{permits}{s} = 2;
section("a$_", 's', $_, $_ + 0.3, $_ - 1, hold => { mode => 'permit', asked => $_ - 1.2 }) for (1 .. 20);
finds('', 'somebody waits all the time, a permit is left, and one after the other gets it');

# another client has held its lock for certain only until it looked
sub foreign
{
	history();
	section('a1', 'f', 1, 5, 0, there => ['warehouse'], token => { f => 5 },
		hold => { foreign => 1 }, @_);
	section('b1', 'f', 4, 6, 1, token => { f => 6 });
	return;
}

foreign(sure => 3);
finds('', 'another client whose lock has gone since it looked');
foreign(sure => 4.5);
finds('overlap', 'another client that has looked meanwhile');
history();
section('a1', 'f', 4, 5, 0, hold => { mode => 'shared', foreign => 1 }, sure => 4.5);
section('b1', 'f', 4.7, 6, 0);
finds('', 'the same of a reader');
$history{sections}[0]{sure} = 4.9;
finds('overlap, stale read', 'and of one that has looked later');

# statements that were canceled
sub canceled
{
	my ($lock, @pids) = @_;
	history();
	section('a1', $lock, 1, 2, 0, outcome => 'unknown', sqlstate => '57014',
		there => ['warehouse'], hold => { sqlstate => '57014', message => 'canceled' });
	$history{sections}[0]{outcome} = 'failed';
	push @{ $history{faults} },
	  { kind => 'cancel-backends', begin => 1.5, end => 3, cancels => \@pids, instances => ['a'],
		harmless => 1 };
	return;
}

# A shutdown ends the connection of a COMMIT that has passed the check, and the
# other side commits later than the next holder reads.
sub terminated
{
	my ($lock, $state, $token) = @_;
	history();
	section('a1', $lock, 1, 2, 0, outcome => 'unknown', sqlstate => $state, there => ['warehouse'],
		token => $token ? { $lock => 10 } : {}, hold => { result => 'died', sqlstate => $state });
	section('b1', $lock, 3, 4, 0, token => $token ? { $lock => 11 } : {});
	push @{ $history{faults} },
	  { kind => 'restart-fast', begin => 1.5, end => 2.5, ends => 1, instances => ['a'] };
	return;
}

terminated('w', '57P01');
finds('', 'a termination, while the other side commits');
is(scalar @{ Checker::check(\%history)->{holes} }, 1, 'checker: it is a hole');
$history{faults}[0]{instances} = ['b'];
finds('connection lost, counter, same number', 'a termination elsewhere');
terminated('w', '57P02');
finds('counter, same number', 'a crash, whose lock lasts until the next start');
terminated('f', '57P01', 1);
finds('counter, same number', 'a termination under a fence');

canceled('w', 7, 1);
finds('', 'a cancel, while the other side commits');
is(Checker::check(\%history)->{half}, 1, 'checker: it is counted');
canceled('w', 7);
finds('unexpected error', 'a cancel that nobody asked for');
canceled('w');
push @{ $history{faults} },
  { kind => 'freeze-links-long', begin => 0.5, end => 1.5, instances => ['a'] };
finds('', 'a holder may be canceled since its lock is lost');
$history{faults}[-1]{instances} = ['b'];
finds('unexpected error', 'not by a fault elsewhere');
$history{faults}[-1]{instances} = ['a'];
@{ $history{holds}[0] }{qw(entered result)} = (undef, 'failed');
@history{qw(sections rows)} = ([], {});
finds('unexpected error', 'and who waits is not canceled for that');
canceled('w', 1);
section('b1', 'w', 2.05, 3, 0);
finds('', 'a later section beside it');
is(scalar @{ Checker::check(\%history)->{holes} }, 1, 'checker: is a hole');
canceled('f', 1);
section('b1', 'f', 2.05, 3, 0);
finds('counter, same number', 'with a fence it is a violation');
history();
section('a1', 'w', 1, 2, 0, outcome => 'failed', hold => { sqlstate => '42501', message => 'denied' });
push @{ $history{faults} }, { kind => 'reload', begin => 0.5, end => 1.5, instances => ['a'] };
finds('unexpected error', 'ZooKeeper denies access');
push @{ $history{faults} },
  { kind => 'change-auth', begin => 0.5, end => 1.5, instances => ['a'], denies => 1 };
finds('', 'to credentials that are not those of the znodes');

# savepoints
for my $kept ([], ['w'], [ 'w', 'wm' ])
{
	history();
	section('a1', 'w', 1, 2, 0, keeps => ['w'], kept => $kept);
	finds(@$kept == 1 ? '' : 'savepoint',
		'after ROLLBACK TO there is left: ' . (join(', ', @$kept) || 'nothing'));
}

# rule 7: a pause in COMMIT, without a fence and with one
sub paused
{
	my ($lock) = @_;
	history();
	section('a1', $lock, 1, 2, 0, end => 12, token => { $lock => 5 });
	section('b1', $lock, 8, 9, 0, token => { $lock => 6 });
	$history{counters}{warehouse}{$lock} = 1;
	push @{ $history{faults} },
	  { kind => 'stop-instance', begin => 2, end => 11, stops => 1, instances => ['a'] };
	return;
}

paused('w');
finds('', 'a pause in COMMIT is no violation');
is(scalar @{ Checker::check(\%history)->{holes} }, 1, 'checker: it is the hole of rule 7');
like(Timeline::draw(\%history, Checker::check(\%history)),
	qr/<svg.*stop-instance.*w in b.*stroke="#d00000".*hole: same number/s, 'the picture shows it');
history();
section('b1', 'f', 5, 6, 0, hold => { mode => 'shared' });
section('a1', 'f', 1, 2, 0, end => 9, token => { f => 5 });
finds('stale read', 'a reader ahead of a late commit');
$history{sections}[1]{pause} = 5;
finds('', 'no violation after a pause, since readers are not fenced');
is(scalar @{ Checker::check(\%history)->{holes} }, 1, 'checker: but a hole');

# a session that is closed from outside, and its instance has not heard of it
sub closed
{
	history();
	section('a1', 'w', 1, 5, 0, @_);
	section('b1', 'w', 4, 6, 0);
	push @{ $history{faults} },
	  { kind => 'kill-session', begin => 3.9, end => 5.1, closes => 4, instances => ['a'] };
	return;
}

closed();
finds('', 'a commit in a session that was closed from outside');
is(scalar @{ Checker::check(\%history)->{holes} }, 2, 'checker: is a hole');
closed(check => 'quorum');
finds('counter, overlap, same number', 'but not with the quorum check');
closed(check => 'quorum', commit => 2, end => 5.1);
finds('', 'unless it had been asked before');
is(scalar @{ Checker::check(\%history)->{holes} }, 1, 'checker: that is a hole');
closed();
$history{faults}[0]{end} = 4.9;
finds('counter, overlap, same number', 'nor once the instance has learned of it');
paused('f');
finds('counter, same number', 'with a fence it is a violation');

# A claim of w in a, made from 1 to 2, with a ttl of 4 s; sections of it, each
# with when it was begun and committed.
sub claim
{
	my ($left, @sections) = @_;
	my $n = 0;

	history();
	push @{ $history{holds} },
	  {
		hold => 'a', instance => 'a', client => 'claim a', pid => 1, locks => ['w'], mode => 'exclusive',
		scope => 'claim', call => 'claim', ttl => 4, asked => 1, entered => 1, left => $left, result => 'got'
	  };
	for my $s ([ 1, 2 ], @sections)
	{
		my ($entered, $commit, %hold) = @$s;

		section("a$n", 'w', $entered, $commit, $n, %{ delete $hold{section} // {} },
			hold => { claim => 'a', call => 'zk_use_claim', %hold });
		$n++;
	}
	return;
}

# What is done with it by itself, and the answer, within 0.1 s.
sub act
{
	my ($what, $asked, $result, %more) = @_;

	push @{ $history{acts} },
	  {
		claim => 'a', what => $what, asked => $asked, answered => $asked + 0.1, result => $result,
		($what eq 'renew' ? (ttl => 4, least => 4) : ()), %more
	  };
	return;
}

claim(6.1, [ 3, 3.5 ], [ 5, 5.9 ]);
finds('', 'a claim, and transactions that use it');
section('b1', 'w', 6.2, 7, 3);
finds('', 'then another owner');
claim(6.1, [ 3, 3.5 ], [ 5, 5.9 ]);
section('b1', 'w', 3.6, 4.9, 3);
finds('overlap', 'another owner between two transactions that use it');
claim(6.1, [ 3, 3.5 ]);
section('b1', 'w', 3.6, 4.9, 2);
finds('', 'but after the last one it may have ended');
claim(6.1, [ 3, 3.5, section => { n => { w => 0 } } ]);
$history{rows}{$_}[-1]{n} = 1 for qw(warehouse a);
$history{counters}{warehouse}{w} = 1;
finds('counter, same number', 'two transactions that use it at once');
claim(9, [ 6.2, 6.5 ]);
finds('claim used after its end', 'one that is used when its ttl is over');
claim(10.3, [ 6.2, 6.5 ]);
act(renew => 5.2, 't');
finds('', 'but not if it was renewed');
act(renew => 9.4, 't');
finds('claim used after its end', 'and that is over, too');
claim(10.3, [ 7.5, 8 ]);
act(renew => 5.2, 't', ttl => 2, least => 2);
finds('claim used after its end', 'a ttl that a renewal has made shorter');
claim(10.3, [ 7.5, 8 ]);
act(renew => 5.2, undef);
finds('', 'a renewal without an answer');
claim(10.3, [ 9.5, 10 ]);
act(renew => 5.2, undef);
finds('claim used after its end', 'which lasts for a ttl, too');
claim(10, [ 6.2, 6.5 ]);
act(renew => 5.2, undef, sqlstate => '57P03');
finds('claim used after its end', 'and not at all if it was refused');
claim(5, [ 4, 4.5 ]);
act(end => 3, 't');
finds('claim used after its end', 'one that was ended');
claim(5, [ 3, 3.5 ], [ 4, 4.5 ]);
act(end => 3.2, 't', in => 'a1.1');
finds('claim used after its end', 'or at the end of a transaction');
claim(5, [ 3, 3.5, section => { outcome => 'rolled back', there => [] } ],
	[ 4, 4.5, section => { n => { w => 1 } } ]);
$history{rows}{$_}[-1]{n} = 2 for qw(warehouse a);
$history{counters}{warehouse}{w} = 2;
act(end => 3.2, 't', in => 'a1.1');
finds('', 'which was rolled back');
claim(5);
act(renew => 3, 'f');
finds('claim ended early', 'one that ends ahead of its ttl');
push @{ $history{faults} }, { kind => 'kill-session', begin => 2.5, end => 2.6, instances => ['a'] };
finds('', 'since its session has ended');
$history{faults}[0]{instances} = ['b'];
finds('claim ended early', 'but not by a fault elsewhere');
claim(5, [ 3, 3.1, entered => undef, waited => 3.1, result => 'failed', sqlstate => '40001',
		message => 'the claim has ended', section => { outcome => 'failed' } ]);
finds('claim ended early', 'a transaction that cannot use it');
claim(5);
act(renew => 5.8, 'f');
finds('claim ended early', 'a moment ahead of it');
claim(6.1);
act(renew => 6.01, 'f');
finds('', 'at the end of it');
claim(6.1);
act(renew => 3, undef, sqlstate => '55000', message => 'of another instance');
finds('unexpected error', 'a token that its instance does not know');
push @{ $history{faults} },
  { kind => 'restart-fast', begin => 2.5, end => 3, ends => 1, instances => ['a'] };
finds('', 'since that was started again');

# ... and who is told of it beyond that
sub late
{
	history();
	push @{ $history{late} }, { name => 'w', instance => 'a', asked => 10, answered => 10.1, seconds => @_ };
	return;
}

late(1.1);
finds('claim stranded', 'a claim that is kept beyond its end');
late(0.9);
finds('', 'for a moment');
is(Checker::check(\%history)->{late}, 0.9, 'checker: for how long');
late(5);
push @{ $history{faults} }, { kind => 'stop-worker', begin => 1, end => 4, instances => ['a'] };
finds('', 'while the worker stands still');
$history{faults}[0]{end} = 1;
finds('claim stranded', 'but not later');

#
# What clients write down of their calls is what they have sent
#

# Clients that write into a list, ...
package Unrecorded
{
	our @ISA = ('Clients');

	sub _record
	{
		my ($self, $what) = @_;
		push @{ $self->{records} }, $what if $what->{t} eq 'hold' || $what->{t} eq 'act';
		return;
	}
}

# ... and a connection of theirs by which they get whatever they ask for.
package Unconnected
{
	sub send
	{
		my ($self, $sql) = @_;
		my $sections = () = $sql =~ /chaos_(?:look|peek|section)/g;

		push @{ $self->{sent} }, $sql =~ /(zk_(?:try_)?(?:lock|acquire|claim)(?:_all)?\('.*?\))/g;
		push @{ $self->{done} }, $sql =~ /(zk_(?:renew|use|end)_claim\('.*?\))/g;
		$self->{result} = {
			status => 'T',
			out => $sections ? join('|', ('0:') x $sections)
			: $sql =~ /zk_(?:try_)?claim\('(.*?)'/ ? "$1 " . @{ $self->{sent} }
			: 't'
		};
		return;
	}

	sub vanish { $_[0]{gone} = 1; return; }
	sub gone { return $_[0]{gone}; }
	sub result { return $_[0]{result}; }
	sub pid { return 1; }
}

my %options = (
	name => 'a', seed => 1, locks => { w1 => 1, wm1 => 1, l1 => 1, s1 => 1, wc1 => 1, fc1 => 1 },
	permits => { s1 => 2 }, claims => 0.4,
	beside => [ map { "d$_" } (1 .. 6) ], besides => 0.25, shared => 0.3,
	long => 0, medium => 0.3, medium_lasts => [ 0.1, 0.2 ], slow => 0);
my $clients = bless { %options, records => [], total => 0 }, 'Unrecorded';
my $client = { number => 1, k => 0, wake => 0 };
my (@sent, @done);

until ($client->{k} == 500 && !$client->{plan})
{
	$client->{wire} //= bless { sent => \@sent, done => \@done }, 'Unconnected';
	$clients->_step($client, Clients::now());
	$clients->_answer($client, Clients::now()) if delete $client->{busy};
}
$clients->_end_claim($client);
my @all = sort { $a->{asked} <=> $b->{asked} } @{ $clients->{records} };
my @written = grep { $_->{t} eq 'hold' && $_->{call} !~ /^(?:claim|zk_use_claim)$/ } @all;
my @told = map {
	my ($call, $locks) = /^(\w+)\('\{?(.*?)\}?'/;
	join(' ', $call, $locks, $call =~ /acquire/ ? 'permit' : /shared => true/ ? 'shared' : 'exclusive')
} @sent;

is_deeply([ map { join(' ', $_->{call}, join(',', @{ $_->{locks} }), $_->{mode}) } @written ],
	\@told, 'clients write down which calls they have sent');
cmp_ok(scalar(grep { $_->{hold} =~ /second/ } @written), '>', 20, 'of each kind');

my %claim = map { $_->{hold} => $_ } grep { $_->{call} eq 'claim' } @all;
my %wrote = map {
	my $what = $_;
	($what => [ grep { ($_->{what} // '') eq $what || $_->{call} && $_->{call} eq "zk_${what}_claim" } @all ])
} qw(renew use end);

for my $what (qw(renew use end))
{
	my @of = map { /^zk_${what}_claim\('(\S+) / ? $1 : () } @done;

	is_deeply([ map { $claim{ $_->{claim} }{locks}[0] } @{ $wrote{$what} } ],
		\@of, "and what they do with claims: $what");
	cmp_ok(scalar @of, '>', 20, "often: $what");
}

#
# The same seed, the same faults
#

sub schedule
{
	my ($seed, $lane) = @_;
	my $chaos = bless {
		seed => $seed, timeout => 4, instances => [ 'a', 'b', 'c' ],
		run => { faults => [ Chaos::fault_kinds() ], gap => [ 0.3, 5 ] }
	}, 'Chaos';
	my $next = $chaos->_schedule($lane);

	return join("\n", map {
		my $f = $next->();
		join(' ', @$f{qw(kind instance gap lasts)})
	} (1 .. 50));
}

for my $lane ('servers', 'links', 'instances')
{
	is(schedule(1, $lane), schedule(1, $lane), "faults of $lane: the same for a seed");
	isnt(schedule(1, $lane), schedule(2, $lane), "faults of $lane: not for another");
}

#
# Mutations
#

my $chaos = Chaos->new(
	seed => 1, servers => 1, instances => [ 'a', 'b' ], clients => 16, timeout => 2,
	say => sub { note $_[0]; },
	install_path => $ENV{ZKLOCK_TEST_INSTALL});
$chaos->start;

sub run
{
	my (%options) = @_;
	my $history = $chaos->run(%options);
	return ($history, Checker::check($history));
}

# The simulator finds all of them in seconds (094_simulator.pl); one shows that the
# checker does so in what real servers have done.
my $all = soak(0, 1);

for my $mutation ($all
	? qw(commit_check_off recovered_create_owns requeued_owns release_before_commit
	gap_owns collected_owns reconnected_owns claim_users_forgotten)
	: 'commit_check_off')
{
	my $begin = time;
	my ($history, $verdict) = run(
		Chaos::showing($mutation), mutation => $mutation,
		duration => 150, until => sub { $_[0]->has_same_numbers });
	my ($same) = grep { $_->{kind} eq 'same number' } @{ $verdict->{violations} };

	ok($same, "$mutation is found") or diag(explain($verdict->{violations}));
	note sprintf('%s: found after %.1f s (%d s in all), %d sections: %s', $mutation,
		$history->{faults_end} - $history->{start}, time - $begin,
		scalar @{ $history->{sections} }, $same ? $same->{text} : '');
}

# A writer beside readers: they write nothing down, so no end is known ahead.
if ($all)
{
	my $begin = time;
	my ($history, $verdict) =
	  run(Chaos::showing('reader_precedes'), mutation => 'reader_precedes');
	my ($beside) = grep { $_->{kind} =~ /^(overlap|stale read)$/ } @{ $verdict->{violations} };

	ok($beside, 'reader_precedes is found') or diag(explain($verdict->{violations}));
	note sprintf('reader_precedes: %d s in all, %d sections: %s', time - $begin,
		scalar @{ $history->{sections} }, $beside ? $beside->{text} : '');
}

# A claim that its client goes on using.
if ($all)
{
	my $begin = time;
	my ($history, $verdict) = run(Chaos::showing('claim_ends_late'), mutation => 'claim_ends_late');
	my %found = map { $_->{kind} => $_->{text} } @{ $verdict->{violations} };

	for my $kind ('claim used after its end', 'claim stranded')
	{
		ok($found{$kind}, "claim_ends_late is found: $kind") or diag(explain($verdict->{violations}));
	}
	note sprintf('claim_ends_late: %d s in all, %d sections: %s', time - $begin,
		scalar @{ $history->{sections} }, join('; ', map { "$_: $found{$_}" } sort keys %found));
}

if ($all)
{
	my $begin = time;
	my %wire = map { ($_ => ZkWire->new($chaos->{node}{$_})) } ('a', 'b');
	# Most calls have a timeout of three seconds at most; when some have waited
	# much longer, the checker has enough, also on a machine that is busy.
	my $waits_long = sub {
		return grep {
			$_->run("SELECT count(*) FROM zk_locks WHERE NOT granted"
				  . " AND state_change < now() - interval '30 s'")->{out} > 0
		} values %wire;
	};
	my ($history, $verdict) = run(
		locks => { map { ("w$_" => 1) } (1 .. 16) }, beside => 0, besides => 0, mutation => 'lost_wakeup', faults => [],
		duration => 90, drain => 5, until => $waits_long);
	my ($free) = grep { $_->{kind} eq 'free with waiters' } @{ $verdict->{violations} };

	ok($free, 'lost_wakeup is found') or diag(explain($verdict->{gaps}));
	# who is not woken keeps the other locks that it has taken with this one
	is(scalar(grep { $_->{kind} !~ /^(free with waiters|no answer|deadlock lasts)$/ }
			  @{ $verdict->{violations} }),
		0, 'and nothing else')
	  or diag(join("\n", map { "$_->{kind}: " . ($_->{text} // '') } @{ $verdict->{violations} }));
	note sprintf('lost_wakeup: %d s in all, %d sections: %s', time - $begin,
		scalar @{ $history->{sections} }, $free ? $free->{text} : '');
}

# all of that together, but on sound locks
my ($history, $verdict) = run(
	locks => { (map { ("w$_" => 1) } (1 .. 12)), map { ("wc$_" => 1) } (1 .. 4) },
	faults => [ 'freeze-links-long', 'kill-session', 'reset-links' ], gap => [ 0.1, 0.3 ],
	slow => 0.3, duration => 6);
is_deeply([ map { "$_->{kind}: $_->{text}" } @{ $verdict->{violations} } ],
	[], 'without a mutation: no violation');
cmp_ok(scalar(keys %{ $verdict->{committed} }), '>', 10, 'without a mutation: there are commits');
$chaos->stop($history);
is_deeply($history->{left}, [], 'without a mutation: nothing is left behind');

done_testing();
