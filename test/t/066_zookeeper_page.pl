
# Copyright (c) 2026, zklock developers

# doc/zookeeper.md: an ensemble of the page's own files.  An instance takes a lock
# on it, and keeps it when a server is killed and comes back.  Then all that
# this page and doc/operations.md have an operator type, as it is printed; only
# hosts, ports and directories are others.

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
my %cluster;
my $page = DocPage->new("$doc/zookeeper.md", \%cluster, run => 'a');
my $operations = DocPage->new("$doc/operations.md", \%cluster, run => 'a');

#
# Three servers
#

# The page's zkN is the server with number N - 1.
my $zk = ZooKeeper->new(
	servers => 3,
	config => sub {
		my ($i, $data, $port, @peers) = @_;
		my $text = $page->named('zoo.cfg');

		$text =~ s{^(server\.(\d))=zk\2:2888:3888$}
		  {join(':', "$1=127.0.0.1", @{ $peers[$2 - 1] })}gme;
		$text =~ s{^clientPort=2181$}{clientPort=$port\nclientPortAddress=127.0.0.1}m;
		$text =~ s{/var/lib/zookeeper}{$data}g;
		die "something is left: $text" if $text =~ /=zk|\b(2181|2888|3888)\b|\/var/;
		return $text;
	});
my @ports = $zk->ports;

# What the page says, as typed on zkN.
sub here
{
	my ($text, $n) = @_;
	my $data = $zk->data_dir(($n // 1) - 1);

	$text =~ s{\bzk(\d)([: ])2181\b}{127.0.0.1$2$ports[$1 - 1]}g;
	$text =~ s{/var/lib/zookeeper}{$data}g;
	return $text;
}

# What bash prints for these commands.
sub typed
{
	my ($commands, $input) = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run([ 'bash', '-euc', $commands ], '<', \($input // ''), '>', \$out, '2>', \$err)
	  or diag($err);
	is($?, 0, "as typed: " . $commands =~ s/\n.*//sr);
	return $out;
}

for my $n (1 .. 3)
{
	my @mine = grep { !/# on zk(\d)/ || $1 == $n } split /\n/, $page->named('myid');

	# there is no such user here
	typed(here(join("\n", @mine), $n) =~ s/-o zookeeper -g zookeeper//r);
	is(slurp_file($zk->data_dir($n - 1) . '/myid'), "$n\n", "zk$n knows who it is");
}
# Debian's own, with what the page adds
for my $jar (split /:/, typed('CLASSPATH=; ' . $page->named('default') . "\nprintf %s \"\$CLASSPATH\""))
{
	ok(-e $jar, "there is $jar") if $jar ne '';
}
$zk->start;

my $modes = typed(here($page->named('ask')));
is(scalar(() = $modes =~ /^Mode: leader$/mg), 1, 'there is a leader');
is(scalar(() = $modes =~ /^Mode: follower$/mg), 2, 'and two followers');
like(slurp_file($zk->logfile), $_, "the log has $_")
  for (qr/autopurge\.snapRetainCount set to 3/, qr/Starting JVM Pause Monitor/);
for my $i (0 .. 2)
{
	ok(-d $zk->data_dir($i) . '/log/version-2', "server $i has its log where it should");
}

#
# PostgreSQL
#

my %settings = here($page->named('postgresql.conf')) =~ /^(\S+) = '(.*)'/mg;
# each instance of a test is started with a name of its own
is(delete $settings{cluster_name}, 'shop_a', 'the page has settings');
@cluster{qw(a b)} = zk_clusters(
	$zk,
	[qw(a b)],
	%settings,
	'zklock.session_timeout' => '10s');
my ($a, $b) = @cluster{qw(a b)};

wait_connected($_) for ($a, $b);
$page->run_block($_, 'Connect PostgreSQL') for ($page->blocks('sql'));

sub server_of { return $_[0]->safe_psql('postgres', 'SELECT server FROM zk_session'); }

my $holder = holder($a, 'stock/17');
my $session = session_of($a);
my $server = server_of($a);
my ($killed) = grep { $server =~ /:$ports[$_]$/ } (0 .. 2);

$zk->kill9($killed);
$a->poll_query_until('postgres',
	"SELECT state = 'connected' AND server <> '$server' FROM zk_session");
is(session_of($a), $session, 'a has the same session, by another server');
wait_connected($b);
is(sql($b, "SELECT zk_try_lock('stock/17')")->{out}, 'f', 'and its lock');
$zk->start($killed);
$holder->run_ok('COMMIT', 'and commits');
is(sql($b, "SELECT zk_try_lock('stock/17')")->{out}, 't', 'then b can have it');

#
# What is typed
#

$holder->run_ok("BEGIN; SELECT zk_lock('stock/17')");
my ($contender) = wait_contenders($zk, 'stock/17', 1);

# the leader knows most, but for the connections of the others
my $leader = 'zk' . ($zk->leader + 1);
my ($near) = map { 'zk' . ($_ + 1) } grep { server_of($a) =~ /:$ports[$_]$/ } (0 .. 2);
my %answer;
my ($definition) = $page->named('ask') =~ /^(zk4\(\).*)$/m;
my @words = slurp_file("$doc/zookeeper.md") =~ /^\| `(\w{4})` \|/mg;
cmp_ok(scalar @words, '>', 4, 'the page has words');
for my $word (@words)
{
	my $asked = $word eq 'cons' ? $near : $leader;

	$answer{$word} = typed(here("$definition\nzk4 $asked 2181 $word"));
}
like($answer{srvr}, qr/^Mode: leader$/m, 'srvr');
like($answer{ruok}, qr/^imok/, 'ruok');
like($answer{cons}, qr/\(queued=\d+,.*sid=0x/, 'cons');
like($answer{dump}, qr{^\s/zklock/stock%2F17/\Q$contender\E$}m, 'dump');
like($answer{mntr}, qr/^zk_server_state\tleader$/m, 'mntr');

# each figure that the pages name with mntr
for my $file (qw(zookeeper operations))
{
	my @names = map { /`(zk_\w+)`|\b(zk_\w+)(?=,|$)/g }
	  grep { /mntr/ || /^ +#.*zk_/ } split /\n/, slurp_file("$doc/$file.md");

	for my $name (grep { defined } @names)
	{
		like($answer{mntr}, qr/^$name\t/m, "$file.md: $name");
	}
}

# Package zookeeper has zkCli.sh, and wants a desktop JRE: without it, what
# zkCli.sh runs.
sub shell
{
	my ($command, $input) = @_;
	my $jars = join(':', map { "/usr/share/java/$_.jar" }
		  qw(zookeeper zookeeper-jute commons-cli slf4j-simple));

	$command =~ s{^/usr/share/zookeeper/bin/zkCli\.sh}
	  {java -cp $jars -Dorg.slf4j.simpleLogger.defaultLogLevel=warn org.apache.zookeeper.ZooKeeperMain}
	  unless -x '/usr/share/zookeeper/bin/zkCli.sh';
	return typed($command, $input);
}

my ($command, @lines) = split /\n/, here($operations->named('shell')) =~ s/ +#.*//mgr;
my $shown = shell($command, join('', map { s/_c_1f0c\.\.\.-lock-\d+/$contender/r . "\n" } @lines));
like($shown, qr/^\[\Q$contender\E\]$/m, 'and the contenders of one');
like($shown, qr/cluster=a pid=$holder->{pid}\b/, 'and whose it is');
like($shown, qr/^ephemeralOwner = $session$/m, 'and its session');
$holder->run_ok('COMMIT');
$holder->quit;

#
# Who may connect
#

for my $node ($a, $b)
{
	$node->append_conf('postgresql.conf', $page->named('acl.conf'));
	next_worker($node, sub { $node->reload; });
}
$holder = holder($a, 'guarded');
is(sql($b, "SELECT zk_try_lock('guarded')")->{out}, 'f', 'instances with the password share a lock');

my $stranger = $zk->client;
ok(!eval { $stranger->ls('/zklock/guarded'); 1 }, 'who has no password');
like($@, qr/^NoAuthError/, 'may not see it');
$stranger->disconnect;
$holder->run_ok('COMMIT', 'its holder commits');
$holder->quit;

for my $node ($a, $b)
{
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/,
		$node->name . ' has not crashed');
	$node->stop;
}

#
# After a loss of all data
#

$zk->stop;
for my $n (1 .. 3)
{
	my $data = $zk->data_dir($n - 1);

	system_or_bail('rm', '-rf', "$data/version-2", "$data/log/version-2");
	typed(here($operations->named('epoch'), $n));
}
$zk->start;
like($zk->fourlw('srvr', $zk->leader), qr/^Zxid: 0x12\d{8}$/m, 'the next epoch is 18');

done_testing();
