#!/usr/bin/perl
#
# make chaos: see test/README.md.  Needs what test/run chaos sets up.

use strict;
use warnings;

my $screen;

# PostgreSQL::Test::Utils sends what is printed to a log.
BEGIN
{
	open($screen, '>&', \*STDOUT) or die "could not duplicate stdout: $!";
	$screen->autoflush;
}

use Chaos;
use Checker;
use List::Util qw(max min sum);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Timeline;

Test::More->builder->$_(\*STDOUT) for qw(output failure_output todo_output);

sub say_it { print $screen "$_[0]\n"; print "$_[0]\n"; return; }

# min, median, p90, max
sub distribution
{
	my @sorted = sort { $a <=> $b } @_ or return 'none';
	my $at = sub { $sorted[ int($_[0] * $#sorted + 0.5) ] };

	return sprintf('%4d: min %.2f, median %.2f, p90 %.2f, max %.2f',
		scalar @sorted, $at->(0), $at->(0.5), $at->(0.9), $at->(1));
}

my $seed = $ENV{SEED} // time % 1_000_000;
my $mutation = $ENV{MUTATION} // 'none';
my %run = (
	duration => $ENV{TRANSACTIONS} ? 86400 : 300,
	# that is what one wants to see of a mutation
	$mutation ne 'none' && $mutation ne 'lost_wakeup' ? (until => sub { $_[0]->has_same_numbers }) : (),
	$ENV{FAULTS} ? () : Chaos::showing($mutation),
	$ENV{DURATION} ? (duration => $ENV{DURATION}) : (),
	mutation => $mutation);

if ($ENV{FAULTS})
{
	my %known = map { ($_ => 1) } Chaos::fault_kinds();
	$run{faults} = [ grep { $_ ne 'none' } split /,/, $ENV{FAULTS} ];
	for (@{ $run{faults} })
	{
		next if $known{$_};
		say_it("no such fault: $_; there are none, " . join(', ', Chaos::fault_kinds()));
		exit 2;
	}
}
if ($ENV{TRANSACTIONS})
{
	@run{qw(transactions long medium slow)} = ($ENV{TRANSACTIONS}, 0, 0, 0.02);
}
$run{gap} = [ (split /-/, $ENV{GAP})[ 0, -1 ] ] if $ENV{GAP};

my $chaos = Chaos->new(
	seed => $seed, say => \&say_it,
	clients => $ENV{CLIENTS} // 12, timeout => $ENV{TIMEOUT} // 4, acl => $ENV{ACL} // 'open',
	install_path => $ENV{ZKLOCK_TEST_INSTALL});

say_it("SEED=$seed, " . ($run{transactions} ? "$run{transactions} transactions" : "$run{duration} s")
	  . ", mutation $run{mutation}");
$chaos->start;
say_it(sprintf('%4.0f s: started', time - $^T));
my $history = $chaos->run(%run);
say_it(sprintf('%4.0f s: all is quiet', time - $^T));
$chaos->stop($history);
say_it(sprintf('%4.0f s: stopped', time - $^T));
my $verdict = Checker::check($history);

my @holds = @{ $history->{holds} // [] };
my @sections = @{ $history->{sections} // [] };
my $seconds = $history->{faults_end} - $history->{start};

say_it(sprintf("\n%d sections in %.0f s, %.0f/s", scalar @sections, $seconds, @sections / $seconds));
say_it('  outcomes: ' . tally(map { $_->{outcome} } @sections));
my %committed;
$committed{/^wh/ ? 'wh...' : $_} += $verdict->{committed}{$_} for keys %{ $verdict->{committed} };
say_it('  committed under: ' . join(', ', map { "$_ $committed{$_}" } sort keys %committed));
say_it('  calls: ' . tally(map { "$_->{call} $_->{mode}" } grep { $_->{hold} !~ /second/ } @holds));
say_it('  of more than two locks: ' . grep({ @{ $_->{locks} } > 2 } @holds)
	  . '; of the session: ' . grep({ $_->{scope} eq 'session' } @holds)
	  . '; back to a savepoint: ' . grep({ $_->{kept} } @sections));
say_it('  claims: ' . tally(map { $_->{what} . ' ' . ($_->{result} // $_->{sqlstate} // 'unknown') }
		  map { { %$_, what => $_->{in} ? "$_->{what} in a transaction" : $_->{what} } }
		  @{ $history->{acts} // [] })
	  . sprintf('; kept beyond their end for %.2f s at most',
		max(0, map { $_->{seconds} } @{ $history->{late} // [] }))
	  . sprintf(', %.2f s without a fault', $verdict->{late}));
say_it('  errors: ' . tally(
	map { $_->{sqlstate} . ($_->{sqlstate} eq '40001' ? ($_->{message} =~ /lost/ ? ' lost' : ' other') : '') }
	grep { ($_->{sqlstate} // '') =~ /^\w{5}$/ } @holds));
say_it("  committed in the warehouse only (crash or cancel in COMMIT): $verdict->{half}");
my @stalls = grep { $_->{kind} eq 'stall' } @{ $history->{faults} };
say_it('faults: ' . tally(map { $_->{kind} } grep { $_->{kind} ne 'stall' } @{ $history->{faults} }));
say_it(sprintf('the machine stood still: %d times, %.1f s', scalar @stalls,
	sum(0, map { $_->{end} - $_->{begin} } @stalls)));
say_it('from the end of a fault to the first new grant, in seconds:');
say_it(sprintf('  %-20s %s', $_, distribution(@{ $verdict->{recovery}{$_} })))
  for sort keys %{ $verdict->{recovery} };
say_it('from a crashed instance accepting connections to the next grant of each lock it held:');
say_it('  ' . distribution(@{ $verdict->{after_crash} }));
say_it('longest time a lock was free with waiters, apart from faults: '
	  . sprintf('%.2f s', max(0, values %{ $verdict->{gaps} })));
say_it('from the closing of a deadlock to its victim, in seconds, apart from faults: '
	  . distribution(@{ $verdict->{deadlocks} }));
my $undisturbed = $verdict->{undisturbed};
say_it('part of the run without a fault that excuses waiting: by lock ' . parts('locks')
	  . '; by instance ' . join(', ',
		map { sprintf('%s %.0f %%', $_, 100 * $undisturbed->{instances}{$_}) }
		sort keys %{ $undisturbed->{instances} }));
say_it(sprintf('  in it, somebody waited for a lock for %.0f s, all locks together',
	sum(0, values %{ $verdict->{waited} })));
memory();

sub parts
{
	my @parts = sort { $a <=> $b } map { 100 * $_ } values %{ $undisturbed->{ $_[0] } };
	return @parts ? sprintf('%.0f to %.0f %%', @parts[ 0, -1 ]) : 'none';
}

sub tally
{
	my %count;
	$count{$_}++ for @_;
	return join(', ', map { "$_ $count{$_}" } sort keys %count) || 'none';
}

# The workers' memory: mean of the first and last quarter of the run.
sub memory
{
	my @samples = @{ $history->{samples} };
	my $quarter = int(@samples / 4) or return;

	for my $name (@{ $history->{instances} })
	{
		my ($first, $last) = map {
			my @kb = map { $_->{rss}{$name} ? $_->{rss}{$name}[1] : () } @$_;
			@kb ? sum(@kb) / @kb : 0
		} ([ @samples[ 0 .. $quarter - 1 ] ], [ @samples[ -$quarter .. -1 ] ]);
		my %pids = map { $_->{rss}{$name} ? ($_->{rss}{$name}[0] => 1) : () } @samples;
		say_it(sprintf('memory of the worker of %s: first quarter %.0f kB, last quarter %.0f kB (%d workers)',
			$name, $first, $last, scalar keys %pids));
	}
	return;
}

for my $hole (@{ $verdict->{holes} })
{
	say_it("no violation, but a hole that is known: $hole->{text}");
}

# The verdicts
if (@{ $history->{diverged} })
{
	say_it('');
	say_it('ZooKeeper has lost data: its servers disagree for good, so that what follows says');
	say_it('nothing of zklock.  Versions before 3.8.4 are known for it (ZOOKEEPER-4785).');
	say_it("        $_") for @{ $history->{diverged} };
}
my %found;
push @{ $found{ $_->{kind} } }, $_->{text} for @{ $verdict->{violations} };
$found{'left behind'} = $history->{left} if @{ $history->{left} };
my @verdicts = (
	[ 'no two committed sections overlap', 'overlap', 'same number', 'stale read' ],
	[ 'never more holders than permits', 'too many permits' ],
	[ 'tokens never go back', 'token went back', 'token of two instances' ],
	[ 'the counter equals the number of commits', 'counter' ],
	[ 'clients got true answers', 'lost commit', 'committed in spite of an error',
		'committed on one side', 'no such section' ],
	[ 'everybody got an answer', 'no answer', 'connection lost', 'unexpected error' ],
	[ 'a savepoint gives back what was taken behind it, and no more', 'savepoint' ],
	[ 'nothing is done with a claim that has ended', 'claim used after its end' ],
	[ 'a claim lasts for its ttl', 'claim ended early' ],
	[ 'and ends after it', 'claim stranded' ],
	[ 'nobody waited for a free lock', 'free with waiters' ],
	[ 'a victim needs a deadlock', 'victim without a deadlock', 'needless victim' ],
	[ 'no deadlock lasts', 'deadlock lasts' ],
	[ 'that could be seen: there was enough quiet', 'hardly undisturbed' ],
	[ 'nothing is left behind', 'left behind' ]);
my $failed = @{ $history->{diverged} } ? 1 : 0;

say_it('');
for my $v (@verdicts)
{
	my ($text, @kinds) = @$v;
	my @wrong = grep { $found{$_} } @kinds;

	$failed++ if @wrong;
	say_it((@wrong ? 'FAILED  ' : 'ok      ') . $text);
	for my $kind (@wrong)
	{
		my @texts = @{ $found{$kind} };
		say_it("        $kind: $_") for @texts[ 0 .. min($#texts, 4) ];
		say_it("        $kind: " . (@texts - 5) . ' more') if @texts > 5;
	}
}
append_to_file("$chaos->{dir}/timeline.svg", Timeline::draw($history, $verdict));
say_it("chaos: SEED=$seed: " . ($failed ? "$failed of " . @verdicts . ' failed' : 'no violation'));

ok(!$failed, 'chaos');
done_testing();
