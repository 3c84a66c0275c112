
# Copyright (c) 2026, zklock developers

# doc/applications.md: all blocks of the page are run.  Each of its loops meets
# a lock that is lost, one that is not free in time, a deadlock, and the end of
# its connection, and the work is done exactly once.

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

my $doc = ($ENV{TESTDIR} // '.') . '/doc';
my $dir = PostgreSQL::Test::Utils::tempdir('programs');

my $zk = ZooKeeper->new;
$zk->start;
my $foreign = $zk->client(timeout => 60);
my ($a, $b) = zk_clusters($zk, [qw(a b)],
	'zklock.session_timeout' => '10s',
	deadlock_timeout => '200ms');
my $page = DocPage->new("$doc/applications.md", { a => $a, b => $b }, run => 'a');

my $payments = 0;

# The payment of a request is there, and the account is charged for each once.
sub paid_once
{
	my ($request, $name) = @_;

	$payments++;
	is( $a->safe_psql('postgres',
			"SELECT count(*) FILTER (WHERE request = '$request'), count(*), sum(amount),"
			  . ' (SELECT 100 - balance FROM accounts) FROM payments'),
		join('|', 1, $payments, 10 * $payments, 10 * $payments),
		"$name: exactly once");
	return;
}

#
# The page
#

$a->safe_psql('postgres', 'CREATE ROLE developer LOGIN');

# A session of a role that has no privilege at all.
sub log_in_as_developer
{
	my ($session) = @_;

	$session->run_ok('\c - developer', 'log in');
	$session->{pid} = $session->run_ok('SELECT pg_backend_pid()');
	return $session;
}

# Who has the lock, and who waits for it: two sessions of that role here, one on
# another server.
sub block_developer
{
	my $there = holder($b, 'account:1');
	my @here = map { log_in_as_developer(ZkSession->new($a)) } (1, 2);

	for my $n (0, 1)
	{
		$here[$n]->send("SELECT zk_lock('account:1')");
		$here[$n]->wait_waiting(2 - $n);
	}
	log_in_as_developer($page->session('a.developer'));
	return ($there, @here);
}

for my $section ($page->sections)
{
	my @blocks = grep { $_->{kind} eq 'sql' } @{ $section->{blocks} };
	my $asks = grep { $_->{run} eq 'a.developer' } @blocks;
	my ($there, @here) = $asks ? block_developer() : ();

	$page->run_block($_, $section->{title}) for (@blocks);
	if ($asks)
	{
		my $developer = $page->session('a.developer');
		my ($query) = map { $_->{text} } grep { $_->{run} eq 'a.developer' } @blocks;
		my $out = $developer->run_ok($query);
		my $zk_event = $a->pg_version >= 17 ? 'ZkLockAcquire' : 'Extension';

		like($out, qr/^$here[0]{pid}\|Extension\|$zk_event\|[^|]*\|\{\}\|/m,
			'it sees that one waits for ZooKeeper');
		like($out, qr/^$here[1]{pid}\|Lock\|userlock\|[^|]*\|\{$here[0]{pid}\}\|/m,
			'and one for the other');
		for my $what (qw(zk_locks zk_session zk_stat zk_deadlocks), "zk_queue('account:1')")
		{
			is($developer->run("SELECT * FROM $what")->{sqlstate}, '42501', "it may not see $what");
		}
		is( $developer->run_ok('SELECT usename, datname, application_name, state, query'
				. ' FROM pg_stat_activity WHERE pid = ' . $page->session('a')->pid),
			getpwuid($<) . '|postgres|067_applications.pl||<insufficient privilege>',
			'little of a session of another role');
		like($developer->run_ok("SELECT * FROM who_has('account:1')"),
			qr/^1\|exclusive\|.*cluster=b pid=$there->{pid}\|.*\n2\|.*cluster=a pid=$here[0]{pid}\|/,
			'but the queue by way of a function');
		is($developer->run_ok('SELECT name, pid, granted FROM my_locks() ORDER BY pid = '
				. "$here[1]{pid}"),
			"account:1|$here[0]{pid}|f\naccount:1|$here[1]{pid}|f", 'and its own locks');
		$there->run_ok('COMMIT');
		is($_->result->{message}, undef, 'the locks are had') for (@here);
		$_->quit for ($there, @here);
	}
	$page->end_section;
}
paid_once('invoice 1', 'the page, in PL/pgSQL');

#
# PL/pgSQL
#

{
	my $payer = ZkSession->new($a);
	my $other = ZkSession->new($a);
	my $holder = holder($b, 'account:1');
	my $timed_out = $a->safe_psql('postgres', 'SELECT timed_out FROM zk_stat');

	$payer->run_ok("SET lock_timeout = '100ms'");
	$payer->send("CALL pay_again('late', 1, 10, 50)");
	$a->poll_query_until('postgres', "SELECT timed_out > $timed_out FROM zk_stat");
	$holder->run_ok('COMMIT');
	is($payer->result->{message}, undef, 'PL/pgSQL: a timeout');
	paid_once('late', 'PL/pgSQL, a timeout');
	$holder->quit;

	# The payer has the lock and waits for the row; who looks first is the payer.
	$payer->run_ok("RESET lock_timeout; SET deadlock_timeout = '1s'");
	$other->run_ok("SET deadlock_timeout = '3s'; BEGIN; SELECT FROM accounts FOR UPDATE");
	$payer->send("CALL pay_again('deadlock', 1, 10)");
	$payer->wait_waiting(1);
	is($other->run("SELECT zk_lock('account:1')")->{message}, undef, 'PL/pgSQL: a deadlock ends');
	$other->run_ok('COMMIT');
	is($payer->result->{message}, undef, 'and the payer has gone on');
	paid_once('deadlock', 'PL/pgSQL, a deadlock');

	# What it cannot catch: a lock that is lost while a statement runs, ...
	$other->run_ok('BEGIN; SELECT FROM accounts FOR UPDATE');
	$payer->send("CALL pay_again('lost', 1, 10)");
	$payer->wait_waiting(1);
	end_session($a, $foreign);
	is($payer->result->{sqlstate}, '57014', 'PL/pgSQL: a statement under a lost lock is canceled');
	$other->run_ok('COMMIT');
	wait_connected($a);

	# ... and at COMMIT
	$payer->run_ok("BEGIN; CALL pay_again('commit', 1, 10)");
	end_session($a, $foreign);
	$a->poll_query_until('postgres', 'SELECT lost FROM zk_locks');
	is($payer->run('COMMIT')->{sqlstate}, '40001', 'PL/pgSQL: COMMIT fails');
	$_->quit for ($other, $payer);
	wait_connected($a);
}

#
# Programs
#

# The page's loop, and a program around it, which tells of each attempt, runs the
# statements that it is given, and commits when it is told to return; and the
# page's example of its use.
my %programs = (
	python => {
		command => ['/usr/bin/python3'],
		connect => "import sys\n",
		drive => q{
attempt = 0

def work(cursor):
    global attempt
    attempt += 1
    print('attempt', attempt, flush=True)
    for line in sys.stdin:
        if line == 'return\n':
            return
        cursor.execute(line)
        print('ok', flush=True)

try:
    in_transaction(lambda: psycopg2.connect(sys.argv[1]), work, attempts=50)
    print('done', flush=True)
except psycopg2.Error as error:
    print('failed', error.pgcode, flush=True)
},
		use => $page->named('python use') =~ s/'dbname=shop'/sys.argv[1]/r,
		used => 'invoice 2',
	},
	ruby => {
		command => ['/usr/bin/ruby'],
		connect => q{
ActiveRecord::Base.establish_connection(
  adapter: 'postgresql', host: ENV['PGHOST'], port: ENV['PGPORT'], database: 'postgres')
},
		drive => q{
$stdout.sync = true
attempt = 0
begin
  in_transaction(attempts: 50) do
    puts "attempt #{attempt += 1}"
    while (line = $stdin.gets) != "return\n"
      ActiveRecord::Base.connection.execute(line)
      puts 'ok'
    end
  end
  puts 'done'
rescue ActiveRecord::StatementInvalid => error
  puts "failed #{error.cause.result.error_field(PG::PG_DIAG_SQLSTATE)}"
end
},
		use => $page->named('ruby use'),
		used => 'invoice 3',
	});

for my $language (keys %programs)
{
	my $program = $programs{$language};
	my $loop = $page->named($language) . $program->{connect};

	append_to_file("$dir/drive.$language", $loop . $program->{drive});
	append_to_file("$dir/use.$language", $loop . $program->{use});
	$program->{$_} = [ @{ $program->{command} }, "$dir/$_.$language", $a->connstr('postgres') ]
	  for qw(drive use);
}

sub start_program
{
	my ($program) = @_;
	my $self = { in => '', out => '', err => '' };

	local %ENV = $a->_get_env();
	$self->{run} =
	  IPC::Run::start($program->{drive}, '<', \$self->{in}, '>', \$self->{out}, '2>', \$self->{err});
	expect($self, 'attempt 1');
	return $self;
}

# Wait for a line of the program.
sub expect
{
	my ($self, $line) = @_;

	poll_until(
		sub {
			$self->{run}->pump_nb if $self->{run}->pumpable;
			return 1 if $self->{out} =~ s/\A$line\n//;
			die "instead of \"$line\": $self->{out}$self->{err}"
			  if $self->{out} =~ /\n/ || !$self->{run}->pumpable;
			return 0;
		},
		"\"$line\"");
	return;
}

# Have it run a statement, and wait for what it tells then.
sub type
{
	my ($self, $line, $answer) = @_;

	$self->{in} .= "$line\n";
	$self->{run}->pump_nb;
	expect($self, $answer);
	return;
}

# It has done it, after some attempts.
sub is_done
{
	my ($self, $request, $name) = @_;

	type($self, 'return', 'done');
	$self->{run}->finish;
	paid_once($request, $name);
	return;
}

sub pay { return "CALL pay('$_[0]', 1, 10)"; }

for my $language (sort keys %programs)
{
	my $program = $programs{$language};
	my $run;

	# the lock is lost, and COMMIT fails
	$run = start_program($program);
	type($run, pay("$language lost"), 'ok');
	end_session($a, $foreign);
	$a->poll_query_until('postgres', 'SELECT lost FROM zk_locks');
	type($run, 'return', 'attempt 2');
	wait_connected($a);
	type($run, pay("$language lost"), 'ok');
	is_done($run, "$language lost", "$language: a lost lock");

	# another server has the lock for too long
	my $holder = holder($b, 'account:1');
	$run = start_program($program);
	type($run, "SET LOCAL lock_timeout = '100ms'", 'ok');
	type($run, pay("$language late"), 'attempt 2');
	$holder->run_ok('COMMIT');
	type($run, pay("$language late"), 'ok');
	is_done($run, "$language late", "$language: a timeout");

	# the other one wants our lock, and its transaction is the older one
	$holder->run_ok("BEGIN; SELECT zk_lock('other')");
	$run = start_program($program);
	type($run, "SELECT zk_lock('account:1')", 'ok');
	$holder->send("SELECT zk_lock('account:1')");
	$holder->wait_waiting(2);
	type($run, "SELECT zk_lock('other')", 'attempt 2');
	is($holder->result->{message}, undef, "$language: a deadlock ends");
	$holder->run_ok('COMMIT');
	type($run, pay("$language deadlock"), 'ok');
	is_done($run, "$language deadlock", "$language: a deadlock");
	$holder->quit;

	# the connection ends
	$run = start_program($program);
	type($run, pay("$language gone"), 'ok');
	is($a->safe_psql('postgres', 'SELECT count(pg_terminate_backend(pid)) FROM zk_locks'),
		1, 'it is terminated');
	$a->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zk_locks');
	type($run, 'return', 'attempt 2');
	type($run, pay("$language gone"), 'ok');
	is_done($run, "$language gone", "$language: the end of the connection");

	# what no retry can help
	$run = start_program($program);
	type($run, "SELECT zk_lock('')", 'failed 22023');
	$run->{run}->finish;

	# as the page has it
	{
		local %ENV = $a->_get_env();
		command_ok($program->{use}, "$language: the page's example");
	}
	paid_once($program->{used}, "$language: the page's example");
}

for my $node ($a, $b)
{
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/,
		$node->name . ' has not crashed');
	$node->stop;
}

done_testing();
