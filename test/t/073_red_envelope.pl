
# Copyright (c) 2026, zklock developers

# A budget that many servers hand out in random shares: the pattern of
# doc/patterns.md, with 32 clients on three instances.  With zk_lock they get all
# of it, and nothing more, each client once, also if a client is paused, or its
# instance's session ends meanwhile.  With the locks that are usual in Redis, one of
# SET NX PX and one of SETNX and GETSET, a client that is paused for longer
# than its lock lasts gives out too much.

use strict;
use warnings;

use DocPage;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $top = $ENV{TESTDIR} // '.';
my $dir = PostgreSQL::Test::Utils::tempdir('envelope');
my $units = 10000;
my $clients = 32;

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my %cluster;
@cluster{qw(a b c)} = zk_clusters($zk, [qw(a b c)],
	'zklock.session_timeout' => '60s',
	max_connections => 200);
my $a = $cluster{a};

#
# What the pages make, without what they run
#

my $page = DocPage->new("$top/doc/patterns.md", \%cluster,
	run => 'a',
	replace => sub { DocPage::with_db1($_[0], $a, 'postgres') });

for my $section ($page->sections)
{
	next unless $section->{title} =~ /^Before you begin$|^A budget in random shares$/;

	$page->run_block($_, $section->{title})
	  for grep { $_->{kind} eq 'sql' && $_->{text} !~ /^SELECT/ } @{ $section->{blocks} };
}
$page->end_section;

sub fill
{
	my ($envelope) = @_;
	$a->safe_psql('postgres', "INSERT INTO envelopes VALUES ('$envelope', $units, $clients)");
	return;
}

# What is wrong with how an envelope was handed out; nothing, or text.
sub wrong
{
	my ($envelope) = @_;
	my ($sum, $shares, $who, $least) = split /\|/, $a->safe_psql('postgres',
		'SELECT coalesce(sum(units), 0), count(*), count(DISTINCT client), coalesce(min(units), 1)'
		  . " FROM shares_given WHERE envelope = '$envelope'");
	my @wrong;

	push @wrong, 'too much' if $sum > $units;
	push @wrong, 'something is left' if $sum < $units;
	push @wrong, 'too many shares' if $shares > $clients;
	push @wrong, 'a client twice' if $who < $shares;
	push @wrong, 'an empty share' if $least < 1;
	note "$envelope: $sum units in $shares shares";
	return join(', ', @wrong);
}

#
# All clients on all instances at once, with zk_lock
#

# Each client asks on each of the three instances.
sub rush
{
	my ($envelope) = @_;
	my $file = "$dir/$envelope.pgbench";
	my @runs;

	append_to_file($file, "SELECT open_envelope('$envelope', 'client ' || :client_id);\n");
	for my $node (values %cluster)
	{
		my %run = (out => '', err => '');

		local %ENV = $node->_get_env;
		$run{run} = IPC::Run::start(
			[
				$node->installed_command('pgbench'), '-n', '-f', $file,
				'-c', $clients, '-t', 1, 'postgres'
			],
			'<', \undef, '>', \$run{out}, '2>', \$run{err});
		push @runs, \%run;
	}
	$_->{run}->finish or fail("$envelope: $_->{err}") for (@runs);
	return;
}

for my $round (1 .. 5)
{
	fill("rush $round");
	rush("rush $round");
	is(wrong("rush $round"), '', "rush $round: all units, and none more, each client once");
}

#
# A client is paused
#

my $redis_port = PostgreSQL::Test::Cluster::get_free_port();
my $redis = IPC::Run::start(
	[
		'redis-server', '--port', $redis_port, '--bind', '127.0.0.1',
		'--save', '', '--appendonly', 'no', '--dir', $dir
	],
	'<', \undef, '>&', "$PostgreSQL::Test::Utils::log_path/redis.log");
my @paused;

END
{
	local $?;
	for my $run (@paused)
	{
		$run->signal('KILL') if $run->pumpable;
		eval { $run->finish };
	}
	if ($redis)
	{
		$redis->signal('TERM');
		eval { $redis->finish };
	}
}

# What Redis answers to a command.
sub redis
{
	my $out = '';

	IPC::Run::run([ 'redis-cli', '-p', $redis_port, @_ ], '<', \undef, '>', \$out, '2>', \my $err);
	return $out =~ s/\s+$//r;
}

poll_until(sub { redis('PING') eq 'PONG' }, 'redis-server');

# Begin a program whose clients open an envelope one after the other.
sub start
{
	my ($lock, $node, $envelope, $pause, @who) = @_;
	my %run = (out => '');

	$run{run} = IPC::Run::start(
		[
			'/usr/bin/python3', "$top/test/lib/envelope.py", $lock, $redis_port,
			$node->connstr('postgres'), $envelope, $pause, @who
		],
		'<', \undef, '>', \$run{out}, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return \%run;
}

# A client of instance b that has read what is left, and stands still.
sub start_paused
{
	my ($lock, $envelope) = @_;
	my $program = start($lock, $cluster{b}, $envelope, 'pause', 'paused');
	my $pid = $program->{run}{KIDS}[0]{PID};

	push @paused, $program->{run};
	poll_until(sub { slurp_file("/proc/$pid/stat") =~ /\) T / }, 'the client to be paused');
	return $program;
}

sub finish
{
	my ($program) = @_;

	ok($program->{run}->finish, 'the program ends') or diag($program->{out});
	return $program->{out};
}

sub resume
{
	my ($program) = @_;

	$program->{run}->signal('CONT');
	return finish($program);
}

# Other clients, so many in each of these instances.
sub start_others
{
	my ($lock, $envelope, $n, @names) = @_;

	return map {
		my $node = $_;
		start($lock, $cluster{$node}, $envelope, 'go', map { "$node $_" } (1 .. $n))
	} @names;
}

# With zk_lock they wait for who is paused.
{
	my $envelope = 'paused under ZkLock';

	fill($envelope);
	my $paused = start_paused('ZkLock', $envelope);
	my @others = start_others('ZkLock', $envelope, 11, qw(a b c));
	wait_contenders($zk, "envelope:$envelope", 3);
	is($a->safe_psql('postgres', "SELECT count(*) FROM shares_given WHERE envelope = '$envelope'"),
		0, 'ZkLock: as long as a client is paused, nobody gets anything');
	like(resume($paused), qr/^paused [1-9]\d*$/, 'its share');
	my $out = join('', map { finish($_) } @others);
	is(wrong($envelope), '', 'ZkLock: all units, and none more');
	is(scalar(() = $out =~ / None$/mg), 2, 'who comes too late gets nothing');
}

# Nor is too much given out if the session of the instance ends meanwhile, and the
# other instances go on.
{
	my $envelope = 'lost under ZkLock';

	fill($envelope);
	my $paused = start_paused('ZkLock', $envelope);
	my @others = start_others('ZkLock', $envelope, 16, qw(a c));
	wait_contenders($zk, "envelope:$envelope", 3);
	end_session($cluster{b}, $foreign);
	$cluster{b}->poll_query_until('postgres', 'SELECT lost FROM zk_locks');
	finish($_) for (@others);
	is(wrong($envelope), '', 'ZkLock: who goes on gets all units');
	is(resume($paused), "paused 40001\n", 'ZkLock: who has lost the lock gets an error');
	is(wrong($envelope), '', 'ZkLock: all units, and none more');
}

# With a lock that expires they do not.
my %expired = (
	ExpiringLock => sub {
		return redis('GET', $_[0]) < time;
	},
	RedisLock => sub { return redis('EXISTS', $_[0]) eq '0'; });

for my $lock (sort keys %expired)
{
	my $envelope = "paused under $lock";

	fill($envelope);
	my $paused = start_paused($lock, $envelope);
	poll_until(sub { $expired{$lock}->("envelope:$envelope") }, 'the lock to expire');
	finish($_) for start_others($lock, $envelope, 11, qw(a b c));
	like(resume($paused), qr/^paused [1-9]\d*$/, "$lock: who was paused gets a share");
	like(wrong($envelope), qr/^too much/, "$lock: there is more than there was");
}

poll_until(sub { !all_contenders($zk) }, 'the last contender to go');
$_->stop for values %cluster;

done_testing();
