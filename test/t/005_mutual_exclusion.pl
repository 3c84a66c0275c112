
# Two instances, 32 clients each, one lock: no two critical sections overlap,
# also while workers and ZooKeeper are restarted.
#
# The referee is a third instance, where each section notes that it has begun
# and that it is about to end, at once and visibly for all: the ids of these
# notes put them in order without any clock.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $clients = 32;

my $zk = ZooKeeper->new;
$zk->start;

my $referee = PostgreSQL::Test::Cluster->new('referee');
$referee->init;
$referee->append_conf('postgresql.conf', "log_statement = none\n");
$referee->start;
$referee->safe_psql('postgres', q{
	CREATE TABLE note (
		id bigserial PRIMARY KEY,
		part int, instance text, section bigint, token bigint, leaves bool);
	CREATE TABLE counter (n bigint);
	INSERT INTO counter VALUES (0);
});

my %cluster;
my $connstr = $referee->connstr('postgres') =~ s/'/''/gr;
for my $name ('a', 'b')
{
	my $node = zk_cluster($name, $zk,
		'zklock.session_timeout' => '30s',
		'log_statement' => 'none',
		'deadlock_timeout' => '1h');

	# A section reads the counter of the referee, and writes what it has read
	# plus one: two at a time would lose one.
	$node->safe_psql('postgres', qq{
		CREATE EXTENSION dblink;
		CREATE TABLE section (id bigserial PRIMARY KEY, part int);
		CREATE FUNCTION note(part int, section bigint, token bigint, leaves bool)
		RETURNS void LANGUAGE plpgsql AS \$\$
		BEGIN
			IF dblink_get_connections() IS NULL THEN
				PERFORM dblink_connect('referee', '$connstr');
			END IF;
			PERFORM dblink_exec('referee',
				format('INSERT INTO note (part, instance, section, token, leaves)'
					' VALUES (%s, %L, %s, %L, %L)',
					part, '$name', section, token, leaves));
		END \$\$;
		CREATE FUNCTION critical_section(part int)
		RETURNS void LANGUAGE plpgsql AS \$\$
		DECLARE
			my_section bigint;
			my_token bigint;
			counter bigint;
		BEGIN
			INSERT INTO section (part) VALUES (part) RETURNING id INTO my_section;
			IF my_section % 4 = 0 THEN
				my_token := zk_fencing_token('mutex');
			END IF;
			PERFORM note(part, my_section, my_token, false);
			SELECT n FROM dblink('referee', 'SELECT n FROM counter') AS t(n bigint)
				INTO counter;
			PERFORM dblink_exec('referee',
				format('UPDATE counter SET n = %s', counter + 1));
			PERFORM note(part, my_section, my_token, true);
		END \$\$;
	});
	$cluster{$name} = $node;
}

my $script = PostgreSQL::Test::Utils::tempdir . '/section.pgbench';
append_to_file($script, q{BEGIN;
SELECT zk_lock('mutex');
SELECT critical_section(:part);
COMMIT;
});

sub start_clients
{
	my ($name, $part) = @_;
	my $node = $cluster{$name};
	my %bench = (out => '', err => '');

	local %ENV = $node->_get_env();
	$bench{run} = IPC::Run::start(
		[
			$node->installed_command('pgbench'), '-n', '-c', $clients, '-j', 1,
			'-D', "part=$part", '-T', 3600, '-f', $script,
			$node->connstr('postgres')
		],
		'<', \undef, '>', \$bench{out}, '2>', \$bench{err});
	return \%bench;
}

sub sections
{
	my ($part) = @_;
	my %sections = (a => 0, b => 0);

	my $rows = $referee->safe_psql('postgres',
		"SELECT instance, count(*) FROM note WHERE part = $part AND leaves GROUP BY 1");

	$sections{$1} = $2 while $rows =~ /^(\w)\|(\d+)$/mg;
	return \%sections;
}

# Run both instances until there were so many sections, each of @disturb has been
# called, and both have got the lock since then.
sub run_part
{
	my ($part, $sections, @disturb) = @_;
	my %bench = map { $_ => start_clients($_, $part) } sort keys %cluster;

	poll_until(
		sub {
			my $now = sections($part);
			$_->{run}->pump_nb for values %bench;
			return $now->{a} + $now->{b} >= $sections;
		},
		"$sections sections");
	for my $disturb (@disturb, undef)
	{
		my $before = sections($part);

		poll_until(
			sub {
				my $now = sections($part);

				# pump_nb dies if the process has ended
				$_->{run}->pump_nb for values %bench;
				return $now->{a} > $before->{a} && $now->{b} > $before->{b};
			},
			'sections in both instances');
		$disturb->() if $disturb;
	}
	# by its own timer pgbench ends when each client has ended its transaction
	$_->{run}->signal('ALRM') for values %bench;

	for my $name (sort keys %bench)
	{
		my $bench = $bench{$name};
		my ($done) = $bench->{run}->finish ? 1 : 0;

		is($bench->{err} =~ /(.*error.*)/ ? $1 : '', '', "part $part, instance $name: no error");
		ok($done, "part $part, instance $name: pgbench ends well");
		$bench{$name}{commits} =
		  $bench->{out} =~ /^number of transactions actually processed: (\d+)/m ? $1 : -1;
	}
	# the last contender goes with the last commit
	wait_no_contenders($zk, 'mutex');
	check_part($part, map { $bench{$_}{commits} } sort keys %bench);
	return;
}

# What the referee has seen.
sub check_part
{
	my ($part, @commits) = @_;
	my $total = $commits[0] + $commits[1];
	my $query = sub { $referee->safe_psql('postgres', $_[0]); };

	note "part $part: $commits[0] sections in a, $commits[1] in b";
	cmp_ok($commits[0], '>', 0, "part $part: instance a has had the lock");
	cmp_ok($commits[1], '>', 0, "part $part: so has instance b");

	# in and out, in and out
	is( $query->(qq{
			SELECT count(*) FROM (
				SELECT leaves, instance, section,
					lag(leaves, 1, true) OVER w AS before,
					lag(instance) OVER w AS before_cluster,
					lag(section) OVER w AS before_section
				FROM note WHERE part = $part WINDOW w AS (ORDER BY id)) n
			WHERE CASE WHEN leaves
				THEN before OR (instance, section) <> (before_cluster, before_section)
				ELSE NOT before END}),
		0, "part $part: no two sections overlap");
	is($query->("SELECT count(*) FROM note WHERE part = $part AND NOT leaves"),
		$total, "part $part: every section was begun by a commit");
	is($query->("SELECT count(*) FROM note WHERE part = $part AND leaves"),
		$total, "part $part: and ended");
	is($query->('SELECT n FROM counter'),
		$query->('SELECT count(*) FROM note WHERE leaves'),
		"part $part: no change of the counter is lost");
	for my $name (sort keys %cluster)
	{
		is($cluster{$name}->safe_psql('postgres',
				"SELECT count(*) FROM section WHERE part = $part"),
			shift @commits, "part $part, instance $name: commits are there");
		is($cluster{$name}->safe_psql('postgres', 'SELECT count(*) FROM zk_locks'),
			0, "part $part, instance $name: no lock is left");
	}

	# the token grows with every change of the owning instance, never shrinks,
	# and one token has one owner
	is( $query->(qq{
			SELECT count(*) FROM (
				SELECT token, instance, lag(token) OVER w AS before,
					lag(instance) OVER w AS before_cluster
				FROM note WHERE part = $part AND token IS NOT NULL AND NOT leaves
				WINDOW w AS (ORDER BY id)) n
			WHERE token < before OR token = before AND instance <> before_cluster}),
		0, "part $part: fencing tokens grow");
	cmp_ok(
		$query->("SELECT count(DISTINCT token) FROM note WHERE part = $part"),
		'>', 1, "part $part: and there are some");
	return;
}

run_part(1, soak(200, 1000));

# Workers and ZooKeeper restart, in turn.
run_part(2, 0, (
		sub { next_worker($cluster{a}); },
		sub { next_worker($cluster{b}); },
		sub { $zk->stop; $zk->start; },
		sub { next_worker($cluster{a}); },
		sub { next_worker($cluster{b}); },
		sub { $zk->kill9; $zk->start; }) x soak(1, 3));
for my $name (sort keys %cluster)
{
	is($cluster{$name}->safe_psql('postgres', 'SELECT sessions FROM zk_session'),
		1, "instance $name has kept its session");
	unlike(slurp_file($cluster{$name}->logfile), qr/PANIC|TRAP|was terminated by signal/,
		"instance $name has not crashed");
}
$_->stop for (values %cluster, $referee);

done_testing();
