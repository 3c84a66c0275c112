# Copyright (c) 2026, zklock developers

# The simulator (test/sim/README.md), beside the schedules that test/run plays: a seed
# is the same schedule twice; memory does not grow; a lock that is broken on purpose
# is found.  In a soak also an hour from a new seed, or for ZKLOCK_TEST_SECONDS.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZooKeeper;

my $seconds = $ENV{ZKLOCK_TEST_SECONDS} || soak(0, 3600);
my $seed = $ENV{ZKLOCK_TEST_SEED} // time() * 1000;
my $pg_config = $ENV{PG_CONFIG} || 'pg_config';
my $top = $ENV{TESTDIR} or die "needs TESTDIR\n";
my $log = PostgreSQL::Test::Utils::tempdir . '/sim.log';

plan skip_all => 'the stand-ins are for PostgreSQL 15'
  unless `$pg_config --version` =~ /PostgreSQL 15\b/;

my @make = ('make', '-s', '-C', $top, "PG_CONFIG=$pg_config");
is(system(@make, 'build/sim/sim', 'build/sim/guest.so'), 0, 'it compiles');

# Returns its status and what it says.
sub simulate
{
	my (@options) = @_;

	# into a file: a pipe's reader may take a stop of all processes for its end
	my $status = system("'$top/build/sim/sim' @options '$top/build/sim/guest.so' >$log 2>&1");
	my $out = slurp_file($log);

	note $out;
	return ($status == 0, $out);
}

my ($ok, $out);
if ($seconds > 0)
{
	($ok, $out) = simulate('--seed', $seed, '--seconds', $seconds);
	ok($ok, "nothing is found, from seed $seed on");
	like($out, qr/\b[1-9][0-9]* commits/, 'there are commits');
}
($ok) = simulate('--seed', $seed, '--schedules', 3, '--twice');
ok($ok, 'a seed is the same schedule each time');

($ok) = simulate('--seed', $seed, '--days', soak(2, 30));
ok($ok, 'the memory of the workers does not grow from day to day');
($ok, $out) = simulate('--seed', 1, '--days', 3, '--mutation', 'event_leaked');
like($out, qr/step \d+: memory:/, 'event_leaked is found');

# by the checker that is to find it, or those of which the first one does
my %found = (
	claim_not_renewed => 'claims|proofs',
	clock_read_twice => 'sleep',
	cycle_act_unchecked => 'acts',
	cycle_ahead_fails => 'victims',
	gap_owns => 'order',
	heartbeat_always => 'requests',
	release_before_commit => 'mutual exclusion|claims',
	requeue_keeps_token => 'tokens',
	room_unchecked => 'room',
	watches_of_one_type => 'watches');
foreach my $mutation (sort keys %found)
{
	($ok, $out) =
	  simulate('--seed', 1, '--cpu', 60, '--mutation', $mutation);
	like($out, qr/step \d+: (?:$found{$mutation}):/, "$mutation is found");
}
is(system("$top/test/sim/mutations"), 0, 'each mutation is found in a minute of CPU')
  if soak(0, 1);
done_testing();
