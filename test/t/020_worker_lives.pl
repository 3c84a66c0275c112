
# Lives of the worker: it is terminated, or PostgreSQL crashes.  After a crash
# the next worker closes the session of before that, which a file in the data
# directory names, so that its locks are free at once; and it closes no other,
# whatever has been copied.
#
# The session timeout is longer than any of these tests waits for a lock.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use ZkCluster;
use ZkSession;
use ZkWire;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;
my %settings = (
	'zklock.session_timeout' => '30s',
	'log_statement' => 'none');
my $a = zk_cluster('a', $zk, %settings);
my $b = zk_cluster('b', $zk, %settings);

$a->safe_psql('postgres', 'CREATE TABLE t (what text)');
wait_connected($_) for ($a, $b);

# Its locks are free a moment before it has gone from all of ZooKeeper's tables.
sub is_gone
{
	my ($session, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(poll_until(sub { !$zk->has_session($session) }, "the end of session $session"), $name);
	return;
}

# The file is there, for the owner only, and names the present session.
sub file_is_right
{
	my ($node, $name) = @_;
	my ($file, $session) = (session_file($node), session_of($node));
	my $mode = (stat $file)[2] // 0;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sprintf('%o', $mode & 07777), '600', "$name: the session's file has mode 0600");
	is((read_file($file))[4], hex($session), "$name: and names the session");
	return;
}

# magic, boot id, device, inode, session, password, CRC
my $layout = 'L a36 Q Q q a16 L x4';

sub read_file { return unpack($layout, slurp_file($_[0])); }

sub write_file
{
	my ($file, $bytes) = @_;

	unlink $file;
	append_to_file($file, $bytes);
	return;
}

sub crc32c
{
	my $crc = 0xFFFFFFFF;

	for my $byte (unpack('C*', $_[0]))
	{
		$crc ^= $byte;
		$crc = $crc & 1 ? $crc >> 1 ^ 0x82F63B78 : $crc >> 1 for (1 .. 8);
	}
	return $crc ^ 0xFFFFFFFF;
}

# A session of b that waits behind the owner of a lock, and more of a's.
sub remote_waiter
{
	my ($lock, $contenders) = @_;
	my $waiter = ZkWire->new($b);

	$waiter->run('BEGIN');
	$waiter->send("SELECT zk_lock('$lock')");
	wait_contenders($zk, $lock, $contenders // 2);
	return $waiter;
}

sub waits { return !ZkWire::wait_any(0, $_[0]); }

# Wait until it has the lock, and give that back.
sub has_lock
{
	my ($waiter, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	poll_until(sub { !waits($waiter) }, 'a wait to end') if $waiter->busy;
	is($waiter->result->{message}, undef, $name);
	is($waiter->run('COMMIT')->{message}, undef, 'and commits');
	$waiter->vanish;
	return;
}

# The client of a process that has crashed is told so, and can do no more.
sub is_dead
{
	my ($session, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(eval { $session->run('COMMIT')->{stderr} } // 1, $name);
	$session->kill_client;
	return;
}

#
# The worker is terminated: nothing changes
#

{
	my $session = session_of($a);
	my @file = stat session_file($a);
	my $holder = holder($a, 'x');
	my $local = waiter($a, 'x', 1);
	my $remote = remote_waiter('x');

	file_is_right($a, 'at start');
	next_worker($a);
	is(session_of($a), $session, 'terminated: the session goes on');
	is_deeply([ (stat session_file($a))[ 1, 9 ] ], [ @file[ 1, 9 ] ], 'the file is untouched');
	$holder->run_ok("INSERT INTO t VALUES ('terminated'); COMMIT", 'the holder commits');
	is($local->result->{message}, undef, 'the next one has the lock');
	is(value($a, 'SELECT lost FROM zk_stat'), 0, 'and was not lost');
	$local->run_ok('COMMIT');
	has_lock($remote, 'and then the other instance');
	$_->quit for ($holder, $local);
	delete $a->{zk_watcher};
}

#
# PostgreSQL crashes
#

# Kill a process of a, and return how long after the first SELECT 1 that is
# answered by the restarted server the waiter in b has had its lock, in ms.
sub crash
{
	my ($pid, $waiter) = @_;
	my $offset = -s $a->logfile;
	my ($accepts, $granted, $restarted);

	delete $a->{zk_watcher};
	kill 'KILL', $pid;
	poll_until(
		sub {
			$granted //= time if $waiter && !waits($waiter);
			$restarted ||= substr(slurp_file($a->logfile), $offset) =~
			  /all server processes terminated; reinitializing/;
			if ($restarted && !$accepts)
			{
				my $session = eval { ZkWire->new($a) };
				if ($session && ($session->run('SELECT 1')->{out} // '') eq '1')
				{
					$accepts = time;
					$session->vanish;
				}
			}
			return $accepts && ($granted || !$waiter);
		},
		'the crash to be over');
	return unless $waiter;
	return ($granted - $accepts) * 1000;
}

my @delays;
for my $victim ('the holder', 'a waiter', 'the worker', 'a bystander')
{
	my $session = session_of($a);
	my $holder = holder($a, 'x');
	my $waiter = waiter($a, 'x', 1);
	my $bystander = ZkSession->new($a);
	my $remote = remote_waiter('x');
	my %pid = (
		'the holder' => $holder->pid,
		'a waiter' => $waiter->pid,
		'a bystander' => $bystander->pid,
		'the worker' => worker_of($a));

	$holder->run_ok("INSERT INTO t VALUES ('crash')");
	my $delay = crash($pid{$victim}, $remote);
	push @delays, $delay;
	is_gone($session, "$victim is killed: the old session is gone");
	unlike(slurp_file($zk->logfile), qr/Expiring session \Q$session\E/, "$victim is killed: it was closed, and did not expire");
	wait_connected($a);
	isnt(session_of($a), $session, 'a new one is there');
	file_is_right($a, 'after a crash');
	is_dead($_, 'clients have been disconnected') for ($holder, $waiter, $bystander);
	is(value($a, "SELECT count(*) FROM t WHERE what = 'crash'"), 0, 'nothing was committed');
	has_lock($remote, 'the other instance has the lock');
}
note sprintf('locks were free %s ms after the first connection was accepted, with a session timeout of 30 s',
	join(', ', map { sprintf '%.0f', $_ } @delays));

# without ZooKeeper, twice, and with somebody who wants a lock before it is back
{
	my $session = session_of($a);
	my $holder = holder($a, 'x');
	my $remote = remote_waiter('x');

	$zk->kill9;
	for my $n (1, 2)
	{
		crash(value($a, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'"));
		is((read_file(session_file($a)))[4], hex($session), "crash $n without ZooKeeper: the file stays");
	}
	my $early = waiter($a, 'y', 2);
	is(value($a, 'SELECT state, session_id IS NULL FROM zk_session'), 'connecting|t', 'there is no session');
	ok(waits($remote), 'who waited waits');

	$zk->start;
	has_lock($remote, 'ZooKeeper is back: who waited has the lock');
	is($early->result->{message}, undef, 'who came before it was back has its lock');
	is_gone($session, 'the old session is gone');
	my ($node) = contenders($zk, 'y');
	is($zk->client->get(lock_dir('y') . "/$node")->{ephemeralOwner},
		hex(session_of($a)), 'and nothing was taken in it');
	$early->run_ok('COMMIT');
	$_->quit for $early;
	is_dead($holder, 'the holder is dead');
	delete $a->{zk_watcher};
	file_is_right($a, 'after two crashes');
}

# it has expired meanwhile
{
	my $session = session_of($a);

	$a->stop('immediate');
	$zk->client->kill_session($session);
	my $offset = -s $a->logfile;
	$a->start;
	wait_connected($a);
	$a->wait_for_log(qr/ZooKeeper session \Q$session\E from before the crash has ended/, $offset);
	file_is_right($a, 'an old session that had expired');
	is(sql($a, "SELECT zk_try_lock('x')")->{out}, 't', 'locks are available');
}

#
# The postmaster is killed, and a backend lives on
#

{
	my $session = session_of($a);
	my $holder = holder($a, 'x');
	my $remote = remote_waiter('x');
	my $postmaster = slurp_file($a->data_dir . '/postmaster.pid') =~ /^(\d+)/ ? $1 : die;

	kill 'STOP', $holder->pid;
	$a->kill9;
	poll_until(sub { !kill 0, $postmaster }, 'the postmaster to be gone');
	for my $lock_file ('with postmaster.pid', 'without it')
	{
		my $offset = -s $a->logfile;

		unlink $a->data_dir . '/postmaster.pid' if $lock_file eq 'without it';
		command_fails_like(
			[ 'pg_ctl', '-D', $a->data_dir, '-l', $a->logfile, '-w', 'start' ],
			qr/could not start server/,
			"a backend has survived the postmaster: no start, $lock_file");
		like(substr(slurp_file($a->logfile), $offset),
			qr/pre-existing shared memory block .*is still in use/, '... because of it');
	}
	ok($zk->has_session($session), 'the session lives, too');
	ok(waits($remote), 'the other instance waits');
	kill 'KILL', $holder->pid;
	poll_until(sub { !kill 0, $holder->pid }, 'the backend to be gone');
	$a->start;
	has_lock($remote, 'started when it was gone: the other instance has the lock');
	is_gone($session, 'the old session is gone');
	is_dead($holder, 'the holder is dead');
	wait_connected($a);
}

#
# Files that do not count
#

{
	my $file = session_file($a);

	my %change = (
		'not have the format of this version' => {
			'an empty file' => sub { '' },
			'a truncated file' => sub { substr($_[0], 0, 40) },
			'another format' => sub { "\0" . substr($_[0], 1) },
			'a wrong checksum' => sub {
				my @field = unpack($layout, $_[0]);
				$field[4]++;
				return pack($layout, @field);
			},
		},
		'before the last start of the machine' => {
			'another boot id' => sub { changed($_[0], 1, '7' x 36) },
		},
		'another data directory' => {
			'another device' => sub { changed($_[0], 2, 12345) },
			'another inode' => sub { changed($_[0], 3, 12345) },
		});

	# with a checksum that is right
	sub changed
	{
		my ($bytes, $n, $value) = @_;
		my @field = unpack($layout, $bytes);

		$field[$n] = $value;
		my $new = pack($layout, @field);
		substr($new, 80, 4, pack('L', crc32c(substr($new, 0, 80))));
		return $new;
	}

	is(changed(slurp_file($file), 2, (read_file($file))[2]), slurp_file($file),
		'we know how the file is made');
	for my $why (sort keys %change)
	{
		for my $what (sort keys %{ $change{$why} })
		{
			my $session = session_of($a);
			my $offset;

			$a->stop('immediate');
			write_file($file, $change{$why}{$what}->(slurp_file($file)));
			$offset = -s $a->logfile;
			$a->start;
			wait_connected($a);
			like(substr(slurp_file($a->logfile), $offset),
				qr/ignoring file "pgsql_tmp\.zklock_session"\n.*DETAIL: .*\Q$why\E/, "$what is ignored");
			ok($zk->has_session($session), 'and the session is not closed');
			file_is_right($a, $what);
			$zk->client->kill_session($session);
		}
	}

	# what cannot even be removed
	$a->stop;
	ok(!-e $file, 'a shutdown removes the file');
	mkdir $file or die "could not mkdir: $!";
	append_to_file("$file/x", '');
	$a->start;
	wait_connected($a);
	is(sql($a, "SELECT zk_try_lock('x')")->{out}, 't', 'a directory in its place: all works');
	$a->wait_for_log(qr/could not write file "pgsql_tmp\.zklock_session"/);
	$a->stop;
	system_or_bail('rm', '-r', $file);
	$a->start;
	wait_connected($a);
	file_is_right($a, 'and afterwards');
}

#
# A copy of the data directory
#

{
	my $copy = PostgreSQL::Test::Cluster->new('copy');
	my $session = session_of($a);
	my $holder = holder($a, 'x');
	my $remote = remote_waiter('x');

	$a->stop('immediate');
	system_or_bail('rm', '-rf', $copy->data_dir);
	system_or_bail('cp', '-a', $a->data_dir, $copy->data_dir);
	$copy->append_conf('postgresql.conf',
		'port = ' . $copy->port . "\nunix_socket_directories = '" . $copy->host . "'");
	ok(-e session_file($copy), 'a copy has the file');
	$copy->start;
	wait_connected($copy);
	like(slurp_file($copy->logfile), qr/ignoring file .*\n.*another data directory/, 'and ignores it');
	ok($zk->has_session($session), 'the session of the original lives');
	ok(waits($remote), 'and has its lock');
	file_is_right($copy, 'the copy');

	# hard links have the inodes of the original, but not the directory
	$copy->stop;
	link(session_file($a), session_file($copy)) or die "could not link: $!";
	my $offset = -s $copy->logfile;
	$copy->start;
	wait_connected($copy);
	like(substr(slurp_file($copy->logfile), $offset),
		qr/ignoring file .*\n.*another data directory/, 'a hard link is ignored');
	ok($zk->has_session($session), 'the session of the original lives');
	$copy->stop;

	$a->start;
	has_lock($remote, 'the original knows it, and closes it');
	is_gone($session, 'the old session is gone');
	is_dead($holder, 'the holder is dead');
	wait_connected($a);
}

for my $node ($a, $b)
{
	is(value($node, 'SELECT count(*) FROM zk_locks'), 0, $node->name . ' has no lock');
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|signal (6|11):/, $node->name . ' has not crashed by itself');
}
poll_until(sub { !all_contenders($zk) }, 'all contenders to be gone');
$_->stop for ($a, $b);

done_testing();
