# Copyright (c) 2026, zklock developers

# A rolling upgrade of a fleet of three under load: one instance after the other
# is restarted with the newer library, and then with the older one, while clients
# of all of them, and of kazoo and Curator, work.  The checker of make chaos
# examines what was committed.
#
# ZKLOCK_TEST_OLD_INSTALL is an installation of PostgreSQL with the test build of
# an older zklock, which test/run makes of the checkout in ZKLOCK_TEST_OLD.  Its SQL
# objects must be those of this one or fewer: each instance keeps those that it
# begins with.  So there are claims only if the older zklock has them.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../chaos";

use Chaos;
use Checker;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZooKeeper;

my $old = $ENV{ZKLOCK_TEST_OLD_INSTALL}
  or plan skip_all => 'needs an older version of zklock: see test/matrix.md';
my $new = $ENV{ZKLOCK_TEST_INSTALL} or die "needs ZKLOCK_TEST_INSTALL\n";

# there and back, twice
my @instances = qw(a b c);
my $steps = soak(4, 40) * @instances;
my $seed = seed();
my $chaos = Chaos->new(
	seed => $seed, instances => \@instances, servers => 1, clients => 8, timeout => 2,
	say => sub { note $_[0]; },
	install_path => $old, other_path => $new);
$chaos->start;

# A restart excuses who waits for five seconds: see Checker.pm.
my $history = $chaos->run(
	faults => ['other-library'], gap => [ 6, 8 ], quiet => 0,
	duration => 60 * $steps, until => sub { $_[0]->instance_faults >= $steps });
my $verdict = Checker::check($history);

my @steps = grep { $_->{kind} eq 'other-library' } @{ $history->{faults} };
my %version = map { ("$_->[1]" => $_->[0]) } ([ old => $old ], [ new => $new ]);

sub version_of
{
	my ($library) = @_;
	my ($path) = grep { index($library, "$_/") == 0 } keys %version;
	return $path ? $version{$path} : $library;
}

is_deeply(
	[ map { "$_->{instances}[0] " . version_of($_->{library}) } @steps ],
	[ map { my $i = $_; $instances[ $i % 3 ] . ($i % 6 < 3 ? ' new' : ' old') } (0 .. $#steps) ],
	scalar(@steps) . ' steps: one instance after the other has the other library');

# With which library an instance worked at that time
sub works_with
{
	my ($instance, $at) = @_;
	my ($last) = grep { $_->{begin} < $at && $_->{instances}[0] eq $instance } reverse @steps;
	return $last ? version_of($last->{library}) : 'old';
}

# The texts by which instances search for deadlocks together begin with this.  With
# a library that writes others, a deadlock lasts until a wait times out.
my %searches = map { (version_of($_) => scalar(slurp_file($_) =~ /zklock1/)) } map { $_->{library} } @steps;
my %instance = map { ($_->{hold} => $_->{instance}) } @{ $history->{holds} };
my $alone = sub {
	my ($violation) = @_;
	my %versions = map { works_with($instance{$_}, $violation->{at}) => 1 } @{ $violation->{ids} };
	return $violation->{kind} eq 'deadlock lasts' && keys %versions > 1 && grep { !$_ } values %searches;
};
my @violations = grep { !$alone->($_) } @{ $verdict->{violations} };
is_deeply([ map { "$_->{kind}: $_->{text}" } @violations ], [], 'no violation');

my (%committed, %last, %passed);
for my $s (sort { $a->{commit} <=> $b->{commit} } grep { $_->{outcome} eq 'committed' } @{ $history->{sections} })
{
	my ($instance) = $s->{id} =~ /^([abc])\d/ or next;
	my $version = works_with($instance, $s->{commit});

	$committed{"$instance $version"}++;
	for my $lock (sort keys %{ $s->{n} })
	{
		my $from = $last{$lock} // '';
		$passed{"$from to $version"}++ if $from && $from ne $version;
		$last{$lock} = $version;
	}
}
is_deeply(
	[ sort keys %committed ],
	[ map { ("$_ new", "$_ old") } @instances ],
	'each has committed with either library');
is_deeply([ sort keys %passed ], [ 'new to old', 'old to new' ], 'locks passed from each to the other');
note join(', ', map { "$_: $passed{$_}" } sort keys %passed);

$chaos->stop($history);
is_deeply($history->{left}, [], 'nothing is left behind');

done_testing();
