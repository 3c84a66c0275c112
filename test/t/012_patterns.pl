
# The patterns of doc/patterns.md: all SQL of the page is run, on three instances,
# as the comments in the page say, and the outcome of each pattern is checked.

use strict;
use warnings;

use DocPage;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $doc = ($ENV{TESTDIR} // '.') . '/doc';

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my %cluster =
  map { $_ => zk_cluster($_, $zk, 'zklock.session_timeout' => '60s') } qw(a b c);
my ($a, $b) = @cluster{qw(a b)};

my $page = DocPage->new("$doc/patterns.md", \%cluster,
	run => 'a',
	replace => sub { DocPage::with_db1($_[0], $a, 'postgres') });

sub session { return $page->session($_[0]); }

# A query's result in all instances, as a list.
sub in_both { return map { $cluster{$_}->safe_psql('postgres', $_[0]) } qw(a b); }

# Run a call in a session that has to wait for a lock, in this mode and scope.
sub waits
{
	my ($name, $call, $lock, $mode, $scope) = @_;
	my $session = session($name);

	$session->send($call);
	$session->{node}->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM zk_locks WHERE NOT granted AND name = '$lock'"
		  . " AND pid = $session->{pid} AND mode = '$mode' AND scope = '$scope'");
	return $session;
}

# The result of a call that has to wait for a lock: "holder" has made the same
# call, and ends its transaction with "end" when this session waits.
sub result_behind
{
	my ($holder, $name, $call, $lock, $end) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	session($holder)->run_ok("BEGIN; $call");
	my $session = waits($name, $call, $lock, 'exclusive', 'transaction');
	session($holder)->run_ok($end);
	return $session->result;
}

sub sum { my $sum = 0; $sum += $_ for @_; return $sum; }

# The most of these intervals that overlap: a list of "begin|end", in seconds.
sub most_at_once
{
	my @intervals = map { [ split /\|/ ] } @_;
	my $most = 0;

	for my $begin (map { $_->[0] } @intervals)
	{
		my $n = grep { $_->[0] <= $begin && $begin < $_->[1] } @intervals;
		$most = $n if $n > $most;
	}
	return $most;
}

#
# What must have come out
#

my %outcome;

$outcome{'Before you begin'} = sub {
	is($b->safe_psql('postgres', 'SELECT srvname FROM pg_foreign_server'),
		'cluster_a', 'b reaches a');
};

$outcome{'Inventory decrement over two instances'} = sub {
	is(sum(in_both('SELECT count(*) FROM orders')),
		10, 'ten teapots were sold, of ten');

	# one more caller each, behind a holder of the other instance
	$a->safe_psql('postgres', 'UPDATE stock SET quantity = 1');
	my $other = result_behind('a.seller', 'b.seller', "CALL sell('teapot')",
		'stock:teapot', 'COMMIT');
	is($other->{out}, 'f', 'who has waited sees that nothing is left');
};

$outcome{'Run a cron job on one instance only'} = sub {
	my @reports = in_both('SELECT count(*) FROM reports');

	is(sum(@reports), 1, 'one report was written');
	is($a->safe_psql('postgres', 'SELECT job, due, instance FROM job_runs'),
		'nightly_report|2026-12-01|' . ($reports[0] ? 'a' : 'b'), 'by the instance that is noted');

	# a run that fails is another instance's
	my ($blocker, $first) = map { session("a.$_") } qw(blocker cron);
	my $call = "CALL nightly_report('2026-12-02')";

	$blocker->run_ok('BEGIN; LOCK TABLE reports');
	$first->send($call);
	$first->wait_event('relation');
	my $second = waits('b.cron', $call, 'cron:nightly_report', 'exclusive', 'transaction');
	is($b->safe_psql('postgres', "SELECT backend_xmin FROM pg_stat_activity WHERE pid = $second->{pid}"),
		'', 'who waits for the job has no snapshot');
	$a->safe_psql('postgres', "SELECT pg_cancel_backend($first->{pid})");
	is($first->result->{sqlstate}, '57014', 'the job fails');
	is($second->result->{message}, undef, 'the job of the other instance');
	$blocker->run_ok('ROLLBACK');
	is(join(' ', in_both("SELECT count(*) FROM reports WHERE due = '2026-12-02'")),
		'0 1', 'the other instance did what the first has failed to do');
};

$outcome{'Leader with fencing'} = sub {
	my ($old, $new) = map { session($_) } qw(b.leader a.leader);
	my $lock = 'leader:dispatch';

	# the leader in a resigns, and the one that stands by in b takes over
	my $token = $new->run_ok("SELECT zk_fencing_token('$lock')");
	$new->run_ok("SELECT zk_unlock('$lock')");
	is($old->result->{message}, undef, 'the session that stands by is the leader');
	$old->run_ok("CALL dispatch('second, by b')");
	is($new->run("INSERT INTO dispatches VALUES ($token, 'third, by a')")->{sqlstate},
		'40001', 'a write with the token of the old leader is refused');
	is(join("\n\n", in_both('SELECT what FROM dispatches ORDER BY token')),
		join("\n\n", ("first, by a\nsecond, by b") x 2), 'both were dispatched, in this order');

	# the leader in b loses its lock, and one in a takes over
	end_session($b, $foreign);
	$new->run_ok("SELECT zk_lock('$lock', session => true)",
		'another leader takes over');
	$new->run_ok("CALL dispatch('third, by a')");
	$b->poll_query_until('postgres', "SELECT lost FROM zk_locks WHERE name = '$lock'");
	is($old->run("CALL dispatch('fourth, by b')")->{sqlstate},
		'40001', 'who has lost the lock cannot dispatch');
	is($old->run("SELECT zk_unlock('$lock')")->{out}, 't', 'but can acknowledge it');
	$old->send("CALL zk_wait_lock('$lock', session => true)");
	$old->wait_waiting(2);
	is($b->safe_psql('postgres', "SELECT backend_xmin FROM pg_stat_activity WHERE pid = $old->{pid}"),
		'', 'who stands by has no snapshot');
	$new->run_ok("SELECT zk_unlock('$lock')");
	is($old->result->{message}, undef, 'and be the leader again');
	$old->run_ok("CALL dispatch('fourth, by b')");
	is( $a->safe_psql('postgres', 'SELECT what FROM dispatches ORDER BY token'),
		"first, by a\nsecond, by b\nthird, by a\nfourth, by b",
		'all that was dispatched, in the order of the tokens');
};

$outcome{'Migrate all shards once'} = sub {
	is(join(' ', in_both('SELECT count(*) FROM migrations')),
		'2 2', 'each shard was migrated once');
	is(join(' ', in_both('SELECT price FROM prices')), '1250 1250', 'each price was multiplied once');
	is(join(' ', in_both(q{SELECT indisvalid FROM pg_index WHERE indexrelid = 'prices_price'::regclass})),
		't t', 'each index is valid');

	# readers exclude the migration, not each other
	my @readers = map { session("$_.reader") } qw(a b);
	$_->run_ok("BEGIN; SELECT zk_lock('schema', shared => true)") for (@readers);
	my $migration = waits('b.migration', "CALL migrate('3-none', 'SELECT 1')",
		'schema', 'exclusive', 'transaction');
	$readers[1]->run_ok('COMMIT');
	$migration->wait_waiting(2);
	$readers[0]->run_ok('COMMIT');
	is($migration->result->{message}, undef, 'the migration has waited for the readers');
};

$outcome{'Limit N workers over the fleet'} = sub {
	my @mails = in_both('SELECT extract(epoch FROM began), extract(epoch FROM sent)'
		  . ' FROM mails WHERE sent IS NOT NULL');
	@mails = map { split /\n/ } @mails;

	is(scalar(@mails), 40, 'all mails were sent');
	cmp_ok(most_at_once(@mails), '<=', 3, 'by three workers at a time at most');

	# three have the permits, a fourth gets one when one of them has finished
	my $fourth = session('b.four');
	session($_)->run_ok("BEGIN; SELECT zk_acquire('mailers', 3)") for qw(a.one a.two b.one);
	is($fourth->run_ok("SELECT zk_try_acquire('mailers', 3)"), 'f', 'no permit is left');
	session('a.one')->run_ok('COMMIT');
	is($fourth->run_ok("BEGIN; SELECT zk_try_acquire('mailers', 3, timeout => '1 min')"),
		't', 'a permit was given back');
	is(session('a.three')->run("SELECT zk_acquire('mailers', 4)")->{sqlstate},
		'55000', 'another number of permits is refused');
	my $worker = waits('a.worker', 'CALL send_mails()',
		'mailers', 'permit', 'transaction');
	$fourth->run_ok('ROLLBACK');
	is($worker->result->{message}, undef, 'a worker has waited for a permit');
};

$outcome{'Several units at a time'} = sub {
	# jobs that need three of the four, and jobs that need two, which note when
	$cluster{$_}->safe_psql('postgres', q{
		CREATE TABLE jobs (id serial PRIMARY KEY, units text[], began timestamptz, ended timestamptz);
		CREATE PROCEDURE run_jobs(n integer) LANGUAGE plpgsql AS $$
		DECLARE
			taken text[];
			start timestamptz;
		BEGIN
			FOR i IN 1 .. 3 LOOP
				taken := take_units('license', 4, n);
				start := clock_timestamp();
				PERFORM pg_sleep(0.01);
				INSERT INTO jobs VALUES (DEFAULT, taken, start, clock_timestamp());
				COMMIT;
			END LOOP;
		END $$}) for qw(a b);
	$page->run_block({ run => 'a b at once x4', text => "CALL run_jobs(3);\nCALL run_jobs(2);\n" }, 'jobs');

	my @jobs = map { split /\n/ }
	  in_both('SELECT extract(epoch FROM began), extract(epoch FROM ended) FROM jobs, unnest(units)');

	is(scalar(@jobs), 2 * 12 * (3 + 2), 'all jobs had their units');
	cmp_ok(most_at_once(@jobs), '<=', 4, 'four at a time at most');
	is(join('', in_both('SELECT id FROM jobs, unnest(units) u GROUP BY id HAVING count(DISTINCT u) <> cardinality(units)')),
		'', 'none had the same unit twice');
	is(join(' ', in_both('SELECT cardinality(units), count(*) FROM jobs GROUP BY 1 ORDER BY 1')),
		"2|12\n3|12 2|12\n3|12", 'as many as they needed');

	# a.first takes three of four, b.second the fourth, b.third gets none, and
	# b.fourth one more when there are five
	is(session('a.first')->run_ok("BEGIN; SELECT cardinality(take_units('license', 4, 3))"), 3, 'three of four');
	is(session('b.second')->run_ok("BEGIN; SELECT cardinality(take_units('license', 4, 1))"), 1, 'the fourth');
	is( session('b.third')->run("BEGIN; SET LOCAL lock_timeout = '100ms'; SELECT take_units('license', 4, 1)")->{sqlstate},
		'55P03', 'not a fifth');
	is(session('b.fourth')->run_ok("BEGIN; SELECT take_units('license', 5, 1)"), '{license/5}', 'which is there when there are five');
	session('b.third')->run('ROLLBACK');
	is(session('b.third')->run('SELECT count(*) FROM zk_locks WHERE pid = pg_backend_pid()')->{out},
		0, 'who has failed has nothing');
	my $waiter = waits('a.waiter', "BEGIN; SELECT cardinality(take_units('license', 4, 3))",
		'license/1', 'exclusive', 'transaction');
	my $behind = waits('b.behind', "BEGIN; SELECT cardinality(take_units('license', 4, 1))",
		'license', 'exclusive', 'transaction');
	session('b.second')->run_ok('ROLLBACK');
	ok(!$behind->done, 'who comes later waits behind one that needs more');
	session('a.first')->run_ok('ROLLBACK');
	is($waiter->result->{out}, 3, 'who needs three has three');
	is($behind->result->{out}, 1, 'then the next one has one');
	session($_)->run_ok('ROLLBACK') for qw(a.waiter b.behind b.fourth);

	# too many
	is(session('a.waiter')->run("BEGIN; SELECT take_units('license', 4, 5)")->{sqlstate}, '55000', 'more than there are');
	session('a.waiter')->run_ok('ROLLBACK');

	# without the lock ahead
	my ($one, $two) = (session('a.one'), session('b.one'));
	for my $taker ($one, $two)
	{
		$taker->run("ROLLBACK");
		$taker->run("BEGIN; SET LOCAL lock_timeout = '2s'; SELECT zk_lock_any('{u/1,u/2,u/3,u/4}'), zk_lock_any('{u/1,u/2,u/3,u/4}')");
	}
	$_->send("SELECT zk_lock_any('{u/1,u/2,u/3,u/4}')") for ($one, $two);
	my @failed = grep { defined } map { $_->result->{sqlstate} } ($one, $two);
	cmp_ok(scalar @failed, '>', 0, "without that lock they wait for each other: @failed");
	$_->run('ROLLBACK') for ($one, $two);
};

$outcome{'Shards, each worked on by one'} = sub {
	my (%work, %holder);

	# all shards are taken; a fifth worker stands by, and has that of one that dies
	my $standby = session('b.standby');
	is(session('c.two')->run_ok('SELECT zk_try_lock_any(shards()) IS NULL'), 't', 'no shard is free');
	$standby->send('CALL zk_wait_lock_any(shards(), session => true)');
	$standby->wait_waiting(2);
	is( $a->safe_psql('postgres', 'SELECT pg_terminate_backend(pid) FROM zk_locks'
			  . ' WHERE name = ANY (shards()) AND granted ORDER BY state_change LIMIT 1'),
		't', 'a worker dies');
	is($standby->result->{message}, undef, 'the fifth worker has waited');
	is($standby->run_ok('SELECT count(*) FROM zk_locks WHERE pid = pg_backend_pid() AND granted'),
		1, 'and has a shard');

	for my $node (values %cluster)
	{
		for (split /\n/, $node->safe_psql('postgres',
			'SELECT shard, extract(epoch FROM began), extract(epoch FROM ended) FROM shard_work'))
		{
			my ($shard, $interval) = split /\|/, $_, 2;
			push @{ $work{$shard} }, $interval;
		}
		$holder{$_}++
		  for split /\n/, $node->safe_psql('postgres', 'SELECT name FROM zk_locks WHERE granted');
	}
	is(sum(map { scalar @$_ } values %work), 60, 'all work is done');
	is(most_at_once(@{ $work{$_} }), 1, "by one at a time at $_") for sort keys %work;
	is_deeply(\%holder, { map { ("shard/$_" => 1) } (1 .. 4) },
		'each shard has a worker, also that of the worker that has died');

	# a worker's shard is lost with the session, and another instance has it
	my $last = session('a.last');
	$last->send('SELECT zk_lock_any(shards(), session => true)');
	$last->wait_waiting(2);
	my $lost = $cluster{c}->safe_psql('postgres', 'SELECT name FROM zk_locks WHERE granted');
	end_session($cluster{c}, $foreign);
	is($last->result->{out}, $lost, 'the shard of an instance that has lost its session is taken over');
	$cluster{c}->poll_query_until('postgres', 'SELECT lost FROM zk_locks');
	is(session('c.one')->run('INSERT INTO shard_work VALUES (NULL)')->{sqlstate},
		'40001', '... and its worker can do no more');
};

$outcome{'A budget in random shares'} = sub {
	is(join(' ', map { $_->safe_psql('postgres', 'SELECT count(DISTINCT client), count(*), sum(units) FROM shares_given') } @cluster{qw(a b c)}),
		join(' ', ('32|32|10000') x 3), 'all shares were given out, and all units');

	# a client that asks again, behind a holder of another instance
	$a->safe_psql('postgres', "INSERT INTO envelopes VALUES ('small', 3, 2)");
	my $again = result_behind('b.opener', 'c.opener', "SELECT open_envelope('small', 'anna')",
		'envelope:small', 'COMMIT');
	is($again->{out}, '', 'who has waited sees that the client has had its share');
};

# Claims: also the edit lock, and work outside of the database.
$outcome{'A job of many transactions behind a pooler'} = sub {
	my ($job, $other) = map { session($_) } qw(a.anna b.job);
	my $claim = sub {
		my ($session, $name, $ttl) = @_;
		return $session->run_ok("SELECT zk_try_claim('$name', '$ttl', '60 s')");
	};

	is($a->safe_psql('postgres', 'SELECT done FROM imports'), 1017, 'what was done is counted');
	is($a->safe_psql('postgres', 'SELECT count(*) FROM zk_claims'), 0, 'the claim has ended');

	# while one has it, no other one begins the same; when it dies, another takes over
	like($claim->($job, 'import:orders.csv', '2 s'), qr/./, 'a job has the claim');
	is($other->run_ok("SELECT zk_try_claim('import:orders.csv', ttl => '30 s') IS NULL"),
		't', 'no other job begins');
	is($other->run_ok("SELECT zk_claim('import:orders.csv', '1 s', '60 s') IS NOT NULL"),
		't', 'the next job gets the lock');

	# an edit lock
	$job->run_ok("CREATE TABLE documents (id integer PRIMARY KEY, body text); INSERT INTO documents VALUES (7, 'draft')");
	my $token = $claim->($job, 'edit:document/7', '15 min');
	is(session('a.ben')->run_ok("SELECT zk_try_claim('edit:document/7', ttl => '15 min') IS NULL"),
		't', 'somebody else edits it');
	is($job->run_ok("SELECT zk_renew_claim('$token')"), 't', 'the page has it renewed');
	$job->run_ok(
		"BEGIN; SELECT zk_use_claim('$token'); UPDATE documents SET body = 'final' WHERE id = 7;"
		  . " SELECT zk_end_claim('$token'); COMMIT");
	is($job->run("SELECT zk_use_claim('$token')")->{sqlstate}, '40001', 'saved too late');
	is($a->safe_psql('postgres', 'SELECT body FROM documents'), 'final', 'the document was saved');
	like($claim->(session('a.ben'), 'edit:document/7', '15 min'), qr/./, 'somebody else may edit it now');
	is($a->safe_psql('postgres', "SELECT zk_cancel_holders('edit:document/7')"),
		1, 'an administrator takes it away');
	is($a->safe_psql('postgres', "SELECT zk_try_lock('edit:document/7', '60 s')"),
		't', 'and it is free');

	# work outside of the database: a table stands for the device
	$a->safe_psql('postgres', q{
		CREATE TABLE printer (page text, fencing_token bigint);
		CREATE FUNCTION refuse_late() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$
		BEGIN
			IF NEW.fencing_token < (SELECT max(fencing_token) FROM printer) THEN
				RAISE EXCEPTION 'somebody else uses the printer';
			END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER refuse_late BEFORE INSERT ON printer FOR EACH ROW EXECUTE FUNCTION refuse_late()});
	$b->safe_psql('postgres', 'IMPORT FOREIGN SCHEMA public LIMIT TO (printer) FROM SERVER cluster_a INTO public');
	my %fencing_token;
	for my $session ($job, $other)
	{
		$session->run_ok("BEGIN; SELECT zk_claim('printer', ttl => '2 s', timeout => '1 min')");
		$fencing_token{$session} = $session->run_ok("SELECT zk_fencing_token('printer')");
		$session->run_ok("COMMIT; INSERT INTO printer VALUES ('in time', $fencing_token{$session})");
	}
	is($job->run("INSERT INTO printer VALUES ('too late', $fencing_token{$job})")->{sqlstate},
		'P0001', 'the device refuses a job whose claim has ended');
	is($a->safe_psql('postgres', 'SELECT count(*) FROM printer'), 2, 'nobody has printed too late');
};

#
# All sections
#

my @sections = $page->sections;

is_deeply([ sort map { $_->{title} } @sections ],
	[ sort keys %outcome ], 'each section has a check, and each check a section');

for (@sections)
{
	my ($title, $blocks) = @$_{qw(title blocks)};

	cmp_ok(scalar(grep { ($_->{run} // 'no') !~ /^no\b/ } @$blocks),
		'>', 0, "$title: there is something to run");

	$page->run_block($_, $title) for grep { $_->{kind} eq 'sql' } @$blocks;
	$outcome{$title}->();
	$page->end_section;
}

poll_until(sub { !all_contenders($zk) }, 'the last contender to go');

for my $node (values %cluster)
{
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/,
		$node->name . ' has not crashed');
	$node->stop;
}

done_testing();
