
# Claims through pgbouncer in transaction mode: random sequences of 30 clients
# over two instances, while sessions are lost, workers replaced, and an instance
# crashes.  What was committed under a claim or a lock overlaps with nothing of
# other owners, and fencing tokens grow; an ended claim is never used again; a
# token that was not given does nothing; none ends ahead of its ttl, or is
# stranded; and no token is shown to others.
#
# Then that overlaps, claims that end early or late or are stranded, and tokens that
# are shown are found, with locks that are broken on purpose, by mutations of the
# test build, or with tokens in the text of statements.
#
# ZKLOCK_TEST_SEED takes another seed than 1 (but who is faster is not repeated).

use strict;
use warnings;

use Bouncer;
use IO::Handle;
use List::Util qw(all max min sum0);
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use ZkCluster;
use ZkWire;
use ZooKeeper;

die "needs ZKLOCK_TEST_INSTALL\n" unless $ENV{ZKLOCK_TEST_INSTALL};
my $operations = soak(1500, 10_000);
my $faults = soak(5, 15);
my $seed = $ENV{ZKLOCK_TEST_SEED} // 1;
my @names = map { "c$_" } (1 .. 4);

# How long a claim may be left when it is over, while nothing is in the way, and the
# machine does not stand still.
my $stranded_s = 1;

# A process that does nothing but notice when it could not run, and says so: from,
# to.
my $stop_text = '';
my @stops;
pipe(my $stops, my $noticed) or die "pipe: $!";
my $noticer = fork() // die "fork: $!";
if (!$noticer)
{
	close $stops;
	my $last = time;

	while (getppid() != 1)
	{
		select(undef, undef, undef, 0.02);
		my $now = time;
		syswrite($noticed, "$last $now\n") if $now - $last > 0.1;
		$last = $now;
	}
	POSIX::_exit(0);
}
close $noticed;
$stops->blocking(0);

# For how long has the machine stood still between these times?
sub stood_still
{
	my ($from, $to) = @_;

	while (sysread($stops, my $read, 4096)) { $stop_text .= $read; }
	push @stops, [ $1, $2 ] while $stop_text =~ s/^(\S+) (\S+)\n//;
	return sum0(map { max(0, min($to, $_->[1]) - max($from, $_->[0])) } @stops);
}

note "seed $seed, $operations operations";
srand $seed;

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my %cluster = map {
	$_ => zk_cluster($_, $zk,
		'install_path' => $ENV{ZKLOCK_TEST_INSTALL},
		'cluster_name' => $_,
		'zklock.session_timeout' => '60s',
		'log_statement' => 'none',
		'log_lock_waits' => 'on',
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
my (@claims, %count);
my $n = 0;
my $done = 0;

# What is wrong, by the clause that it breaks, and whether that is on purpose
my %wrong;
my $broken = 0;

# Are tokens part of the text of statements?
my $in_text = 0;

# until when nobody can tell how late the worker is
my $disturbed = 0;

sub wrong
{
	my ($clause, $text) = @_;

	push @{ $wrong{$clause} }, $text;
	return if @{ $wrong{$clause} } > 5;
	$broken ? note "$clause: $text" : diag "$clause: $text";
	return;
}

sub none_wrong
{
	my ($clause, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(scalar @{ $wrong{$clause} // [] }, 0, $name);
}

# What is done under a lock that has been taken: statements of one transaction.
sub section
{
	my ($name, $owner) = @_;
	my $number = ++$n;
	my $for = sprintf '%.3f', rand($broken ? 0.3 : some(0.03, 0.03, 0.03, 0.3));

	return ([ "INSERT INTO section SELECT $number, '$name', '$owner',"
			  . " zk_fencing_token('$name'), clock_timestamp()" ],
		["SELECT pg_sleep($for)"],
		["UPDATE section SET ended = clock_timestamp() WHERE n = $number"]);
}

sub seconds { return $_[0] =~ /^(\d+) s$/ ? $1 : die; }

# Has it certainly ended?
sub is_over
{
	my ($claim) = @_;
	return $claim->{over} || (!$claim->{renewals} && time > $claim->{until});
}

# Has it certainly not ended?  Its ttl is not over, nor has anybody sent what ends it.
sub is_sure
{
	my ($claim) = @_;
	return !$claim->{over} && !$claim->{ends} && time < $claim->{sure} && time > $disturbed;
}

sub some { return $_[ int rand @_ ]; }

sub some_ttl { return some('1 s', '2 s', '5 s'); }

# A claim, nearly always a young one, and now and then of the other instance.
sub some_claim
{
	my ($client) = @_;
	my @of = grep { $_->{at} eq $client->{at} || rand() < 0.02 } @claims[ -min(scalar @claims, 12) .. -1 ];

	return @of ? some(@of) : undef;
}

# What a client does next: the statements, and what is to be done with the result.
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
			ttl => $ttl,
			sql => [ ["SELECT zk_try_claim('$name', '$ttl', '$timeout ms')"] ]
		};
	}
	if ($kind < 0.35)
	{
		my $owner = 'lock ' . ($n + 1);

		return { kind => 'lock', sql => [ ["SELECT zk_lock('$name', '2 s')"], section($name, $owner) ] };
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
			sql => [ [ some(map { "SELECT zk_${_}_claim(\$1)" } qw(renew end use)), $token ] ]
		};
	}
	my %operation = (claim => $claim, over => is_over($claim));

	# nobody ends a claim that is kept: it is renewed a few times, and ends by its ttl
	if ($kind < 0.6 && (!$claim->{kept} || ($claim->{renewed} // 0) < 3))
	{
		$operation{kind} = 'renew';
		$operation{ttl} = some_ttl();
		$operation{sql} = [ [ 'SELECT zk_renew_claim($1, $2)', $token, $operation{ttl} ] ];

		# which ttl counts is certain after a renewal that was alone
		$claim->{sure} = min($claim->{sure}, time + seconds($operation{ttl}));
		$operation{alone} = ++$claim->{renewals} == 1;
		$operation{renewal} = ++$claim->{renewed};
	}
	elsif ($kind < 0.92 || $claim->{kept})
	{
		$operation{kind} = 'use';
		$operation{sql} = [ [ 'SELECT zk_use_claim($1)', $token ], section(@$claim{qw(name owner)}) ];

		# with an end that is part of it, or that is rolled back
		$operation{ends} = !$claim->{kept} && rand() < 0.15;
		$claim->{ends} ||= $operation{ends};
		push @{ $operation{sql} }, [ 'SELECT zk_end_claim($1)', $token ] if $operation{ends};
		if (rand() < 0.05)
		{
			push @{ $operation{sql} }, ['SELECT 1/0'];
			$operation{ends} = 0;
		}
	}
	else
	{
		$operation{kind} = 'end';
		$claim->{ends} = 1;
		$operation{sql} = [ [ 'SELECT zk_end_claim($1)', $token ] ];
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
	if ($kind eq 'renew')
	{
		my $until = time + seconds($operation->{ttl});

		$claim->{renewals}--;
		$claim->{until} = $until if $until > $claim->{until} && $out ne 'f';
		$claim->{sure} = $operation->{asked} + seconds($operation->{ttl})
		  if $out eq 't' && $operation->{alone} && $claim->{renewed} == $operation->{renewal};
	}
	if ($client->{wire}->gone)
	{
		# not again and again while the instance starts
		delete $client->{wire};
		$client->{later} = time + 0.5;
		return;
	}
	if ($claim && $claim->{at} ne $client->{at})
	{
		wrong('unexpected answer', "$kind of the other instance: " . ($state // 'ok'))
		  if ($state // '') ne '55000' && time > $disturbed && !$may_fail{ $state // '' };
		return;
	}
	if ($state)
	{
		# after a crash, the tokens of before are unknown, not foreign
		wrong('unexpected answer', "$kind failed: $state $result->{message}") if !$may_fail{$state};
		if ($kind eq 'use' && $state eq '40001' && $result->{message} eq 'the claim has ended')
		{
			wrong('ended early', "use of $claim->{owner}") if is_sure($claim);
			$claim->{over} = 1;
		}
		return;
	}
	if ($kind eq 'claim')
	{
		push @claims,
		  {
			at => $client->{at},
			name => $operation->{name},
			token => $out,
			until => time + seconds($operation->{ttl}),
			sure => $operation->{asked} + seconds($operation->{ttl}),
			owner => 'claim ' . scalar @claims,
			kept => rand() < 0.3
		  } if $out ne '';
		return;
	}
	return if $kind eq 'lock';

	my $worked = $kind eq 'use' || $out eq 't';
	wrong('used after its end', "$kind of a claim that had ended, or was none: $out")
	  if $operation->{over} && $worked;
	return if $kind eq 'guess';
	wrong('ended early', "renewal of $claim->{owner}") if !$worked && is_sure($claim);
	$claim->{over} = 1 if $kind eq 'end' || ($kind eq 'renew' && !$worked) || $operation->{ends};
	return;
}

# A statement that has its parameters in its text.
sub in_text
{
	my ($sql, @parameters) = @_;

	$sql =~ s/\$(\d)/'$parameters[$1 - 1]'/g;
	return [$sql];
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
			$client->{operation}{asked} = time;
			$client->{wire}->send_with(map { $in_text ? in_text(@$_) : $_ } @{ $client->{operation}{sql} });
			$done++;
		}
		my @busy = grep { $_->{operation} } @clients;
		@busy or select(undef, undef, undef, 0.05);
		ZkWire::wait_any(0.1, map { $_->{wire} } @busy) if @busy;
		ended($_) for grep { !$_->{wire}->busy } @busy;
		look_around($_) for sort keys %cluster;
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

# A superuser sees all that others could see: the claim that was to end first and
# is not in use, and everything that is shown of sessions and locks.
my $shown = join ' UNION ALL ', map { "SELECT x::text FROM $_ x" }
  qw(pg_stat_activity pg_locks zk_locks zk_claims zk_session zk_stat zk_stat_locks zk_deadlocks);
my $look = q{SELECT coalesce(max(extract(epoch FROM clock_timestamp() - expires_at)), 0)
	FROM zk_claims WHERE users = 0};
my %watch = map { $_ => { next => 0 } } keys %cluster;
my ($latest, $looks) = (0, 0);

# Look at an instance, again and again, when the last answer is there.
sub look_around
{
	my ($at) = @_;
	my $watch = $watch{$at};
	my $wire = $watch->{wire};

	return if time < $watch->{next};
	if (!$wire)
	{
		$watch->{wire} = eval { ZkWire->new($cluster{$at}) };
		$watch->{next} = time + 0.2 if !$watch->{wire};
	}
	elsif ($watch->{asked})
	{
		ZkWire::wait_any(0, $wire) or return;
		note_look($at, delete $watch->{asked}, $wire->result);
		delete $watch->{wire} if $wire->gone;
		$watch->{next} = time + 0.1;
	}
	else
	{
		$watch->{asked} = time;
		$wire->send("$look; $shown");
	}
	return;
}

sub note_look
{
	my ($at, $asked, $result) = @_;
	my ($late, $text) = split /\n/, $result->{out} // '', 2;

	return if !defined $text;
	for my $claim (@claims[ -min(scalar @claims, 30) .. -1 ])
	{
		wrong('shown', "the token of $claim->{owner}") if index($text, secret($claim)) >= 0;
	}

	return if $asked - $late < $disturbed;
	$looks++;
	$late -= stood_still($asked - $late, time);
	$latest = $late if $late > $latest;
	wrong('stranded', "a claim in $at is over since $late s") if $late > $stranded_s;
	return;
}

sub secret { return (split m{/}, $_[0]{token})[1]; }

# All claims of an instance have ended, as far as they had been given.
sub lose_claims
{
	my ($at, $n) = @_;

	$_->{at} eq $at and $_->{over} = 1 for @claims[ 0 .. $n - 1 ];
	return;
}

# When sessions were closed from outside: of which instance, from and to.
my @closed;
sub close_session
{
	my ($at) = @_;
	my $from = time;

	lose_session($cluster{$at}, $foreign);
	push @closed, [ $at, $from, time ];
	return $at;
}

# What is committed before the instance hears of that is known as a hole: see
# doc/guarantees.md.
sub is_of_closed_session
{
	my ($section) = @_;
	my ($ended, $at) = @$section[ 5, 6 ];

	return grep { $_->[0] eq $at && $ended >= $_->[1] && $ended <= $_->[2] } @closed;
}

# What was committed: how many sections there are, and how many beside one under the
# same claim.
sub check_sections
{
	my @sections =
	  map { [ split /\|/ ] }
	  map {
		split /\n/, value($cluster{$_},
			"SELECT n, name, owner, fencing_token, extract(epoch FROM began), extract(epoch FROM ended), '$_' FROM section")
	  } keys %cluster;
	my $pairs = 0;

	for my $name (@names)
	{
		my @of = sort { $a->[4] <=> $b->[4] } grep { $_->[1] eq $name } @sections;

		for my $i (0 .. $#of)
		{
			for my $j ($i + 1 .. $#of)
			{
				last if $of[$j][4] >= $of[$i][5];
				next if $of[$j][2] eq $of[$i][2] || is_of_closed_session($of[$i]);
				wrong('overlap', "in $name: @{$of[$i]} and @{$of[$j]}");
			}
			next if $i == 0;
			$pairs++ if $of[$i][2] eq $of[ $i - 1 ][2] && $of[$i][4] < $of[ $i - 1 ][5];
			wrong('token went back', "in $name: @{$of[$i - 1]} and @{$of[$i]}")
			  if $of[$i][3] < $of[ $i - 1 ][3];
		}
	}
	return (scalar @sections, $pairs);
}

sub check_logs
{
	for my $file (map { ($_->logfile, $bouncer{ $_->name }{log}) } values %cluster)
	{
		my $log = slurp_file($file);

		for my $claim (@claims)
		{
			wrong('logged', "the token of $claim->{owner}") if index($log, secret($claim)) >= 0;
		}
	}
	return;
}

# In the end nothing is left, but by the ttl.
sub wait_for_the_end
{
	poll_until(
		sub {
			look_around($_) for sort keys %cluster;
			return !grep { value($_, 'SELECT count(*) FROM zk_claims') } values %cluster;
		},
		'all claims to end');
	$_->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zk_locks') for values %cluster;
	wait_no_contenders($zk, $_) for @names;
	return;
}

my @faults = (
	sub { return close_session('a') },
	sub { next_worker($cluster{b}); return },
	sub { return close_session('b') },
	sub {
		my $pid = value($cluster{a}, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
			  . ' AND pid <> pg_backend_pid() LIMIT 1');

		kill 'KILL', $pid if $pid;
		wait_accepting($cluster{a});
		wait_connected($cluster{a});
		return 'a';
	},
	sub { next_worker($cluster{a}); return });

for my $round (1 .. $faults)
{
	go_on($operations * $round / ($faults + 1));

	# the clients go on meanwhile, but hear of it later
	my $given = @claims;
	my $lost = $faults[ $round % @faults ]->();
	lose_claims($lost, $given) if $lost;
	$disturbed = time + 5;
}
go_on($operations);
settle();

my ($sections, $pairs) = check_sections();
wait_for_the_end();
check_logs();
note join ', ', map { "$_: $count{$_}" } sort keys %count;
note "the latest claim that was over: $latest s, in $looks looks";

none_wrong('unexpected answer', 'every answer is right');
cmp_ok($count{'use ok'}, '>', $operations / 50, 'claims were used');
none_wrong('used after its end', 'none that had ended, and no other token');
none_wrong('ended early', 'none has ended ahead of its ttl');
none_wrong('overlap', "$sections sections were committed, none beside one of another owner");
none_wrong('token went back', 'fencing tokens never go back');
cmp_ok($pairs, '>', 0, "but $pairs beside one under the same claim");
none_wrong('stranded', 'no claim is left when it is over');
cmp_ok($looks, '>', 20, 'which was looked at');
none_wrong('shown', 'no token is in a view');
none_wrong('logged', 'no token is in a log');

#
# What is broken on purpose is found
#

$broken = 1;
for my $case (
	[ claim_users_forgotten => 'overlap' ],
	[ claim_not_renewed => 'ended early' ],
	[ claim_ends_late => 'used after its end' ],
	[ claim_stays => 'stranded' ],
	[ none => 'shown', 'logged' ])
{
	my ($mutation, @clauses) = @$case;
	my $from = $done;
	my $began = time;

	@claims = ();
	%wrong = ();
	$in_text = $mutation eq 'none';
	for my $node (values %cluster)
	{
		value($node, 'TRUNCATE section');
		alter_system($node, 'zklock.mutation' => $mutation);
	}
	until ((all { $wrong{$_} } @clauses) || $done - $from > 5000)
	{
		go_on($done + 100);
		settle();
		check_sections();
		check_logs();
	}
	ok($wrong{$_}, ($in_text ? 'tokens in the text of statements: ' : "$mutation: ") . $_) for @clauses;
	note sprintf '%s: %d operations, %.1f s; wrong: %s', $mutation, $done - $from, time - $began,
	  join(', ', map { "$_ " . @{ $wrong{$_} } } sort keys %wrong);
	alter_system($_, 'zklock.mutation' => 'none') for values %cluster;
	wait_for_the_end();
}

kill 'KILL', $noticer;
waitpid $noticer, 0;
done_testing();
