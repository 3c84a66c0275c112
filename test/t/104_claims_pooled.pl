
# Claims through pgbouncer in transaction mode: random sequences of 30 clients
# over two instances, while sessions are lost, workers replaced, and an instance
# crashes.  What was committed under a claim or a lock overlaps with nothing of
# other owners, and fencing tokens grow; an ended claim is never used again; a
# token that was not given does nothing; none is stranded.
#
# ZKLOCK_TEST_SEED repeats what was done (in as far as that does not depend on
# who was faster).

use strict;
use warnings;

use Bouncer;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use ZkCluster;
use ZkWire;
use ZooKeeper;

my $operations = soak(1500, 10_000);
my $seed = $ENV{ZKLOCK_TEST_SEED} // (time ^ $$ << 8) & 0xFFFFFF;
my @names = map { "c$_" } (1 .. 4);

# A claim that is over is removed at once; this is for a machine under load.
my $stranded_s = 1 + ($ENV{ZKLOCK_TEST_STRANDED} // 2);

note "seed $seed, $operations operations";
srand $seed;

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my %cluster = map {
	$_ => zk_cluster($_, $zk,
		'cluster_name' => $_,
		'zklock.session_timeout' => '60s',
		'log_statement' => 'none',
		'deadlock_timeout' => '50ms')
} qw(a b);

# both write what they have done
for my $node (values %cluster)
{
	$node->safe_psql('postgres', <<'EOC');
CREATE TABLE section (n integer PRIMARY KEY, name text, owner text,
                      fencing_token bigint, began timestamptz, ended timestamptz);
EOC
}
my %bouncer = map { $_ => Bouncer->new($cluster{$_}, pool_size => 8) } qw(a b);

my @clients = map { { number => $_, at => $_ % 2 ? 'a' : 'b' } } (1 .. 30);
my (@claims, @wrong, %count);
my $n = 0;
my $done = 0;

# until when nobody can tell how late the worker is
my $disturbed = 0;

sub wrong
{
	my ($text) = @_;

	push @wrong, $text;
	diag $text if @wrong < 20;
	return;
}

# A statement for what is done under a lock that has been taken: one of an
# implicit transaction.
sub section
{
	my ($name, $owner) = @_;
	my $number = ++$n;
	my $for = sprintf '%.3f', rand 0.03;

	return "INSERT INTO section SELECT $number, '$name', '$owner',"
	  . " zk_fencing_token('$name'), clock_timestamp();"
	  . " SELECT pg_sleep($for);"
	  . " UPDATE section SET ended = clock_timestamp() WHERE n = $number";
}

sub some { return $_[ int rand @_ ]; }

sub some_ttl { return some('1 s', '2 s', '5 s'); }

# A claim, nearly always a young one, and now and then of the other instance.
sub some_claim
{
	my ($client) = @_;
	my @of = grep { $_->{at} eq $client->{at} || rand() < 0.02 } @claims[ -(@claims < 12 ? @claims : 12) .. -1 ];

	return @of ? some(@of) : undef;
}

# What a client does next: the statement, and what is to be done with its result.
sub operation
{
	my ($client) = @_;
	my $kind = rand;
	my $claim = some_claim($client);
	my $name = some(@names);

	if ($kind < 0.2 || !$claim)
	{
		my $timeout = some(0, 0, 100, 1000);
		my $ttl = some_ttl();

		return {
			kind => 'claim',
			name => $name,
			sql => "SELECT zk_try_claim('$name', '$ttl', '$timeout ms')"
		};
	}
	if ($kind < 0.35)
	{
		my $owner = 'lock ' . ($n + 1);

		return { kind => 'lock', sql => "SELECT zk_lock('$name', '2 s'); " . section($name, $owner) };
	}
	my $token = $claim->{token};

	if ($kind < 0.37)
	{
		# 16 bytes that were not given
		$token =~ s{/.*}{'/' . join '', map { sprintf '%02x', rand 256 } 1 .. 16}e;
		return {
			kind => 'guess',
			over => 1,
			claim => $claim,
			sql => some("SELECT zk_renew_claim('$token')", "SELECT zk_end_claim('$token')",
				"SELECT zk_use_claim('$token')")
		};
	}
	my %operation = (claim => $claim, over => $claim->{over});

	if ($kind < 0.6)
	{
		$operation{kind} = 'renew';
		$operation{sql} = "SELECT zk_renew_claim('$token'"
		  . (rand() < 0.3 ? ", '" . some_ttl() . "')" : ')');
	}
	elsif ($kind < 0.92)
	{
		$operation{kind} = 'use';
		$operation{sql} = "SELECT zk_use_claim('$token'); " . section($claim->{name}, $claim->{owner});

		# with an end that is part of it, or that is rolled back
		$operation{ends} = rand() < 0.15;
		$operation{sql} .= "; SELECT zk_end_claim('$token')" if $operation{ends};
		if (rand() < 0.05)
		{
			$operation{sql} .= '; SELECT 1/0';
			$operation{ends} = 0;
		}
	}
	else
	{
		$operation{kind} = 'end';
		$operation{sql} = "SELECT zk_end_claim('$token')";
	}
	return \%operation;
}

# What may go wrong without being wrong
my %may_fail = map { $_ => 1 }
  qw(40001 40P01 55P03 57P03 57P01 57P02 57014 08P01 08006 08000 08003 22012 58000);

sub ended
{
	my ($client) = @_;
	my $operation = delete $client->{operation};
	my $result = $client->{wire}->result;
	my $state = $client->{wire}->gone ? 'gone' : $result->{sqlstate};
	my $claim = $operation->{claim};
	my $kind = $operation->{kind};
	my $out = ($result->{out} // '') =~ /([^\n]*)\z/ ? $1 : '';

	$count{ "$kind " . ($state // 'ok') }++;
	if ($client->{wire}->gone)
	{
		delete $client->{wire};
		return;
	}
	if ($claim && $claim->{at} ne $client->{at})
	{
		wrong("$kind of the other instance: " . ($state // 'ok'))
		  if ($state // '') ne '55000' && time > $disturbed && !$may_fail{ $state // '' };
		return;
	}
	if ($state)
	{
		# after a crash, the tokens of before are unknown, not foreign
		wrong("$kind failed: $state $result->{message}") if !$may_fail{$state};
		$claim->{over} = 1
		  if $kind eq 'use' && $state eq '40001' && $result->{message} eq 'the claim has ended';
		return;
	}
	if ($kind eq 'claim')
	{
		push @claims,
		  {
			at => $client->{at},
			name => $operation->{name},
			token => $out,
			owner => 'claim ' . scalar @claims
		  } if $out ne '';
		return;
	}
	return if $kind eq 'lock';

	my $worked = $kind eq 'use' || $out eq 't';
	wrong("$kind of a claim that had ended, or was none: $out")
	  if $operation->{over} && $worked;
	return if $kind eq 'guess';
	$claim->{over} = 1 if $kind eq 'end' || ($kind eq 'renew' && !$worked) || $operation->{ends};
	return;
}

sub connect_client
{
	my ($client) = @_;

	$client->{wire} = eval { ZkWire->new($bouncer{ $client->{at} }, 'transaction') };
	$client->{later} = time + 0.2 if !$client->{wire};
	return;
}

# Go on until so many operations have begun.
sub go_on
{
	my ($end) = @_;

	while ($done < $end)
	{
		for my $client (@clients)
		{
			next if $client->{operation} || ($client->{later} // 0) > time;
			connect_client($client) if !$client->{wire};
			next if !$client->{wire};
			$client->{operation} = operation($client);
			$client->{wire}->send($client->{operation}{sql});
			$done++;
		}
		my @busy = grep { $_->{operation} } @clients;
		@busy or select(undef, undef, undef, 0.05), next;
		ZkWire::wait_any(0.2, map { $_->{wire} } @busy);
		ended($_) for grep { !$_->{wire}->busy } @busy;
	}
	return;
}

sub settle
{
	my $until = time + $PostgreSQL::Test::Utils::timeout_default;

	while (my @busy = grep { $_->{operation} } @clients)
	{
		die 'a client hangs' if time > $until;
		ZkWire::wait_any(0.5, map { $_->{wire} } @busy);
		ended($_) for grep { !$_->{wire}->busy } @busy;
	}
	return;
}

# None is over for longer than a second that nobody uses.
my $latest = 0;
sub look_for_stranded
{
	return if time < $disturbed;
	for my $at (sort keys %cluster)
	{
		my $late = value($cluster{$at},
			'SELECT coalesce(max(extract(epoch FROM clock_timestamp() - expires_at)), 0)'
			  . ' FROM zk_claims WHERE users = 0');
		$latest = $late if $late > $latest;
		wrong("a claim in $at is over since $late s") if $late > $stranded_s;
	}
	return;
}

# All claims of an instance have ended, as far as they had been given.
sub lose_claims
{
	my ($at, $n) = @_;

	$_->{at} eq $at and $_->{over} = 1 for @claims[ 0 .. $n - 1 ];
	return;
}

my @faults = (
	sub { lose_session($cluster{a}, $foreign); return 'a' },
	sub { next_worker($cluster{b}); return },
	sub { lose_session($cluster{b}, $foreign); return 'b' },
	sub {
		my $pid = value($cluster{a}, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
			  . ' AND pid <> pg_backend_pid() LIMIT 1');

		kill 'KILL', $pid if $pid;
		wait_accepting($cluster{a});
		wait_connected($cluster{a});
		return 'a';
	},
	sub { next_worker($cluster{a}); return });

my $rounds = 2 * @faults;
for my $round (1 .. $rounds)
{
	go_on($operations * $round / ($rounds + 1));
	look_for_stranded();
	next if $round % 2;

	# the clients go on meanwhile, but hear of it later
	my $given = @claims;
	my $lost = $faults[ $round / 2 - 1 ]->();
	lose_claims($lost, $given) if $lost;
	$disturbed = time + 5;
}
go_on($operations);
settle();

is(scalar @wrong, 0, 'every answer is right');
is($count{'use ok'} > $operations / 50, 1, 'claims were used');
note join ', ', map { "$_: $count{$_}" } sort keys %count;

# What was committed
my @sections = sort { $a->[4] cmp $b->[4] }
  map { [ split /\|/ ] }
  map {
	split /\n/, value($_,
		"SELECT n, name, owner, fencing_token, extract(epoch FROM began), extract(epoch FROM ended) FROM section")
  } values %cluster;
my ($overlaps, $backward, $pairs) = (0, 0, 0);
for my $name (@names)
{
	my @of = sort { $a->[4] <=> $b->[4] } grep { $_->[1] eq $name } @sections;

	for my $i (0 .. $#of)
	{
		for my $j ($i + 1 .. $#of)
		{
			last if $of[$j][4] >= $of[$i][5];
			next if $of[$j][2] eq $of[$i][2];
			$overlaps++;
			diag "overlap of $name: @{$of[$i]} and @{$of[$j]}" if $overlaps < 5;
		}
		next if $i == 0;
		$pairs++ if $of[$i][2] eq $of[ $i - 1 ][2] && $of[$i][4] < $of[ $i - 1 ][5];
		$backward++ if $of[$i][3] < $of[ $i - 1 ][3];
	}
}
is($overlaps, 0, scalar(@sections) . ' sections were committed, none beside one of another owner');
is($backward, 0, 'fencing tokens never go back');
cmp_ok($pairs, '>', 0, "but $pairs beside one under the same claim");

# In the end nothing is left, but by the ttl.
$_->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zk_claims') for values %cluster;
$_->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zk_locks') for values %cluster;
wait_no_contenders($zk, $_) for @names;
note "the latest claim that was over: $latest s";

my $shown = grep {
	my $log = join '', grep { !/statement:/i } split /^/, slurp_file($_->logfile);
	grep { index($log, (split m{/}, $_->{token})[1]) >= 0 } @claims
} values %cluster;
is($shown, 0, 'no token is in a log');

done_testing();
