
# Tokens of other instances: whoever makes them up does not make the server read
# the members of the fleet each time.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkCluster;
use ZkProxy;
use ZkSession;
use ZooKeeper;

my $zk = ZooKeeper->new;
$zk->start;
my $proxy = ZkProxy->new;
my $servers = $zk->connstr_through($proxy, 'a');
$proxy->count('a-0');
my $a = zk_cluster('a', $zk,
	'cluster_name' => 'a',
	'zklock.servers' => $servers,
	'zklock.session_timeout' => '60s');
my $b = zk_cluster('b', $zk,
	'cluster_name' => 'b',
	'zklock.session_timeout' => '60s');

wait_connected($_) for ($a, $b);
my $token = value($b, "SELECT zk_claim('x', '1 h')");
my $named = sub {
	return (sql($a, "SELECT zk_renew_claim('$token')")->{hint} // '') =~ /^Connect to instance "b" /;
};
poll_until($named, 'the other instance to be a member');
my $before = $proxy->requests('a-0');

value($a, <<'EOC');
CREATE ROLE nobody;
SET ROLE nobody;
DO $$
BEGIN
  FOR i IN 1 .. 200 LOOP
    BEGIN
      PERFORM zk_renew_claim(md5(i::text)::char(16) || '/' || md5(i::text));
    EXCEPTION WHEN object_not_in_prerequisite_state THEN
    END;
  END LOOP;
END$$;
EOC
my $now = $proxy->requests('a-0');
my $reads = ($now->{children} // 0) + ($now->{get} // 0) - ($before->{children} // 0) - ($before->{get} // 0);
cmp_ok($reads, '<', 50, "200 tokens that were made up, and $reads reads");
poll_until($named, 'an instance to be named again');

# one that joins is known, too
my $c = zk_cluster('c', $zk,
	'cluster_name' => 'c',
	'zklock.session_timeout' => '60s');
wait_connected($c);
$token = value($c, "SELECT zk_claim('y', '1 h')");
poll_until(
	sub { (sql($a, "SELECT zk_renew_claim('$token')")->{hint} // '') =~ /^Connect to instance "c" / },
	'a new instance to be named');
pass('a new instance is named');

done_testing();
