
# Processes that stand still for longer than the session lasts, as in a machine
# that hangs or a virtual one that moves, while another instance has the lock and
# sells what is left: who stood still must not sell it again.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkSession;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;

no_pauses();
my ($a, $b) = map { zk_cluster($_, $zk, 'zklock.session_timeout' => '6s') } qw(a b);

# The stock is in a third instance, where the others change it.
my $shop = PostgreSQL::Test::Cluster->new('shop');
$shop->init;
$shop->start;
value($shop, 'CREATE TABLE stock (item text, pieces int); CREATE TABLE sold (item text, by text)');
for my $node ($a, $b)
{
	value($node, q{
		CREATE EXTENSION postgres_fdw;
		CREATE SERVER shop FOREIGN DATA WRAPPER postgres_fdw
			OPTIONS (host '} . $shop->host . q{', port '} . $shop->port . q{', dbname 'postgres');
		CREATE USER MAPPING FOR CURRENT_USER SERVER shop;
		IMPORT FOREIGN SCHEMA public FROM SERVER shop INTO public;
		CREATE TABLE bill (item text)});
}

# A transaction that sells a piece if there is one, up to its COMMIT; returns
# the session.
sub sell
{
	my ($node, $item, $session) = @_;

	$session //= holder($node, $item);
	$session->run_ok("INSERT INTO bill SELECT item FROM stock WHERE item = '$item'"
		  . " AND pieces > (SELECT count(*) FROM sold WHERE sold.item = '$item')");
	$session->run_ok("INSERT INTO sold SELECT item, '" . $node->name . "' FROM bill WHERE item = '$item'");
	return $session;
}

# The one piece of an item was sold once, by this instance, which has the bill.
sub sold_by
{
	my ($item, $node, $name) = @_;
	my $other = $node eq $a ? $b : $a;
	my $bills = "SELECT count(*) FROM bill WHERE item = '$item'";

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(value($shop, "SELECT string_agg(by, ' ') FROM sold WHERE item = '$item'"),
		$node->name, "$name: one piece is sold");
	is(value($node, $bills), 1, "$name: with a bill");
	is(value($other, $bills), 0, "$name: and no other");
	return;
}

my %stopped;

sub stop_processes
{
	for my $pid (@_)
	{
		$stopped{$pid} = 1;
		stop_process($pid);
	}
	return;
}

sub continue_processes
{
	kill 'CONT', @_;
	delete @stopped{@_};
	return;
}

# Servers that stand still could not be shut down.
END { kill 'CONT', keys %stopped; }

# All of an instance: the postmaster first, then it starts no others.
sub stop_cluster
{
	my ($node) = @_;
	my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];

	stop_processes($postmaster);
	my @children = split ' ', slurp_file("/proc/$postmaster/task/$postmaster/children");
	stop_processes(@children);
	return ($postmaster, @children);
}

value($shop, "INSERT INTO stock VALUES ('backend', 1), ('worker', 1), ('cluster', 1), ('moment', 1), ('statement', 1)");

#
# The holder's backend: the worker keeps the session, so nothing is lost
#

{
	my $seller = sell($a, 'backend');
	my $other = waiter($b, 'backend', 2);

	stop_processes($seller->pid);
	$seller->send('COMMIT');
	$zk->session_clock(6)->();
	ok(!$other->done, 'backend stopped: the other instance waits');
	continue_processes($seller->pid);
	is($seller->result->{message}, undef, 'backend goes on: it commits');
	is($other->result->{message}, undef, 'then the other instance has the lock');
	sell($b, 'backend', $other)->run_ok('COMMIT');
	sold_by('backend', $a, 'backend stopped');
	$_->quit for ($seller, $other);
}

#
# The worker: who commits waits for it
#

{
	my $seller = sell($a, 'worker');
	my $idle = sell($a, 'moment');
	my $other = waiter($b, 'worker', 2);
	my $worker = worker_of($a);

	stop_processes($worker);
	is($other->result->{message}, undef, 'worker stopped: the other instance gets the lock');
	$seller->send('COMMIT');
	$seller->wait_waiting(2);
	sell($b, 'worker', $other)->run_ok('COMMIT');
	ok(!$seller->done, 'worker stopped: COMMIT waits');
	continue_processes($worker);
	error_is($seller->result, $lock_lost, 'worker goes on: COMMIT fails');
	sold_by('worker', $b, 'worker stopped');

	# who does nothing meanwhile finds out at COMMIT
	sell($b, 'moment')->run_ok('COMMIT');
	error_is($idle->run('COMMIT'), $lock_lost, 'worker goes on: who was idle cannot commit');
	sold_by('moment', $b, 'worker stopped, idle');
	$_->quit for ($seller, $idle, $other);
}

#
# The worker, which would tell readers of a writer
#

{
	my $reader = ZkSession->new($a);
	my $read = "SELECT zk_lock('read', shared => true)";
	my $worker = worker_of($a);

	$reader->run_ok("SELECT zk_lock('read', shared => true, session => true)");
	value($a, $read) for 1 .. 3;
	stop_processes($worker);
	$zk->session_clock(6)->();
	is(sql($a, "BEGIN; SET LOCAL lock_timeout = '500ms'; $read; ROLLBACK")->{sqlstate}, '55P03', 'worker stopped: no reader joins others');
	continue_processes($worker);
	$reader->quit;
}

#
# The whole instance: whoever goes on first, the clock has run out
#

{
	my $seller = sell($a, 'cluster');
	my $running = holder($a, 'statement');
	my $other = waiter($b, 'cluster', 2);

	$running->send("INSERT INTO bill VALUES ('statement'); SELECT pg_sleep(3600)");
	$a->poll_query_until('postgres',
		"SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = " . $running->pid);
	my @processes = stop_cluster($a);
	$seller->send('COMMIT');
	is($other->result->{message}, undef, 'instance stopped: the other instance gets the lock');
	sell($b, 'cluster', $other)->run_ok('COMMIT');
	my $second = sell($b, 'statement');
	$second->run_ok('COMMIT');

	# the seller's backend first
	continue_processes($seller->pid);
	$seller->done;
	continue_processes(@processes);
	error_is($seller->result, $lock_lost, 'instance goes on: COMMIT fails');
	sold_by('cluster', $b, 'instance stopped');
	error_is(
		$running->result,
		{
			sqlstate => '40001',
			message => 'lock "statement" has been lost',
			detail => qr/./,
			hint => qr/^Retry the transaction/
		},
		'instance goes on: a running statement is canceled');
	$running->run('ROLLBACK');
	sold_by('statement', $b, 'instance stopped, statement');
	$_->quit for ($seller, $running, $other, $second);

	# and it works again
	my $again = holder($a, 'cluster');
	is(sql($b, "SELECT zk_try_lock('cluster')")->{out}, 'f', 'instance goes on: it takes locks again');
	$again->run_ok('COMMIT');
	$again->quit;
}

$_->stop for ($a, $b, $shop);
done_testing();
