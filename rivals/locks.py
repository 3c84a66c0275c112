"""The rivals: how a client of each is started, and what its lock depends on."""

import base64
import json
import os
import sys
import threading

import servers

TTL = 3                         # seconds, of each session, lease and key
PASSWORD = os.environ["RIVALS_PASSWORD"]
BIN = os.path.abspath("bin")
PYTHON = [sys.executable, "-B", BIN + "/clients/client.py"]

sys.path.insert(0, BIN)
from zkclient import Client as ZooKeeperClient  # noqa: E402


class World:
    """All servers of a run, started when first needed."""

    def __init__(self):
        self.network = servers.Network(BIN + "/proxy.py")
        self.starting = threading.RLock()
        self.started = {}
        self.warehouse = servers.Instance("warehouse", [])
        self.warehouse.start()
        self.warehouse.await_start()
        self.warehouse.psql("postgres", "CREATE ROLE sale LOGIN PASSWORD '%s'" % PASSWORD)

    def need(self, name, make):
        with self.starting:
            if name not in self.started:
                self.started[name] = make()
            return self.started[name]

    def need_servers(self, name, make):
        def start():
            made = make()
            made.start()
            return made

        return self.need(name, start)

    def stock(self, name):
        """A database of the warehouse."""
        def create():
            self.warehouse.psql("postgres", "CREATE DATABASE " + name)
            self.warehouse.psql(name, script("warehouse.sql"))
            # so that a crash has little to repeat
            self.warehouse.psql(name, "CHECKPOINT")
            return name

        return self.need("stock of " + name, create)

    def shop(self, name, stock, links):
        """An instance with zklock; that of client a has links."""
        def start():
            ensemble = self.need_servers("zookeeper", servers.zookeeper)
            addresses, warehouse = ensemble.addresses, self.warehouse.address
            if links:
                addresses = [self.network.link(*link) for link in zip(links, ensemble.all)]
                warehouse = self.network.link(links[-1], self.warehouse)
            shop = servers.Instance("shop_" + name, [
                "shared_preload_libraries = 'zklock'", "cluster_name = '%s'" % name,
                "zklock.session_timeout = '%ds'" % TTL,
                "zklock.servers = '%s'" % ",".join(addresses)])
            shop.start()
            shop.await_start()
            shop.psql("postgres", "CREATE DATABASE shop")
            shop.psql("shop", script("shop.sql").replace(
                ":warehouse_port", warehouse.split(":")[1]).replace(":stock", stock))
            return shop

        return self.need("shop " + name, start)


def script(name):
    with open(os.path.join(BIN, name), encoding="utf-8") as f:
        return f.read().replace(":password", "'%s'" % PASSWORD)


def url(address, database):
    return "postgresql://sale:%s@%s/%s?sslmode=disable" % (PASSWORD, address, database)


class Rival:
    """What is common.  Client a is behind links, client b is not."""

    command = None
    begins_first = False        # the lock is taken in the transaction
    checks_commit = False       # COMMIT itself checks the lock
    has_token = False
    unlocks = True              # one can unlock before COMMIT
    same_as = {}                # faults that are those of another rival

    def __init__(self, world):
        self.world = world
        self.stock = world.stock("stock_" + self.name.split("-")[0])

    def servers(self):
        raise NotImplementedError

    def links(self):
        """The names of the links that client a has to the servers of its lock."""
        return ["%s %d" % (self.name, i) for i in range(len(self.servers().all))]

    def warehouse_link(self):
        return self.name + " warehouse"

    def all_links(self):
        return [*self.links(), self.warehouse_link()]

    def addresses(self, who):
        if who == "a":
            return [self.world.network.link(*link)
                    for link in zip(self.links(), self.servers().all)]
        return self.servers().addresses

    def database(self, who):
        warehouse = self.world.warehouse
        return url(self.world.network.link(self.warehouse_link(), warehouse) if who == "a"
                   else warehouse.address, self.stock)

    def environment(self, who, lock):
        return {"RIVAL_LOCK": lock, "RIVAL_SERVERS": ",".join(self.addresses(who)),
                "RIVAL_DATABASE": self.database(who), "RIVAL_TTL": str(TTL)}

    def machine(self):
        """The server whose fate client a's is, if there is one."""
        return None

    def take_away(self, lock):
        """Take the lock away from its holder, as an administrator can."""
        raise NotImplementedError

    def restore(self):
        """End every fault."""
        self.world.network.restore(self.all_links())
        for server in [*self.servers().all, *filter(None, [self.machine()])]:
            if server.process.poll() is None:
                server.resume()
            else:
                server.start()
            server.await_start()


class OnZooKeeper(Rival):
    has_token = True
    directory = None

    def servers(self):
        return self.world.need_servers("zookeeper", servers.zookeeper)

    def take_away(self, lock):
        client = ZooKeeperClient(self.servers().addresses[0], 10)
        directory = self.directory + "/" + lock
        holder = client.contenders(directory)[0]
        client.kill_session(client.get(directory + "/" + holder)["ephemeralOwner"])
        client.close()


class Curator(OnZooKeeper):
    name, title = "curator", "Curator InterProcessMutex"
    directory = "/curator"
    command = servers.JAVA + ["-cp", BIN + "/clients:" + os.environ["RIVALS_CLASSPATH"],
                              "CuratorClient"]

    def environment(self, who, lock):
        e = super().environment(who, lock)
        address = self.database(who).split("@")[1].split("?")[0]
        e["RIVAL_DATABASE"] = ("jdbc:postgresql://%s?user=sale&password=%s&sslmode=disable"
                               % (address, PASSWORD))
        return e


class Kazoo(OnZooKeeper):
    name, title = "kazoo", "kazoo Lock"
    directory = "/kazoo"
    command = PYTHON + ["kazoo"]


class Etcd(Rival):
    name, title = "etcd", "etcd concurrency.Mutex"
    command = [BIN + "/clients/etcd"]
    has_token = True

    def servers(self):
        return self.world.need_servers("etcd", servers.etcd)

    def take_away(self, lock):
        server = self.servers().all[0]
        begin = ("/rivals/%s/" % lock).encode()
        end = begin[:-1] + b"0"
        keys = server.ask("kv/range", {"key": base64.b64encode(begin).decode(),
                                       "range_end": base64.b64encode(end).decode(),
                                       "sort_target": "CREATE", "sort_order": "ASCEND"})["kvs"]
        server.ask("lease/revoke", {"ID": keys[0]["lease"]})


class Redis(Rival):
    name, title = "redis", "Redis SET NX PX"
    command = PYTHON + ["redis"]

    def servers(self):
        return self.world.need_servers("redis", lambda: servers.redis(1))

    def take_away(self, lock):
        import redis
        for server in self.servers().all:
            redis.Redis(host=servers.HOST, port=server.port).delete(lock)


class Redlock(Redis):
    name, title = "redlock", "Redlock on three servers"
    command = ["node", BIN + "/clients/redlock.js"]

    def servers(self):
        return self.world.need_servers("redlock", lambda: servers.redis(3))


class MariaDB(Rival):
    name, title = "mariadb", "MariaDB GET_LOCK"
    command = PYTHON + ["mariadb"]

    def servers(self):
        return self.world.need_servers("mariadb", servers.mariadb)

    def take_away(self, lock):
        import pymysql
        server = self.servers().all[0]
        connection = pymysql.connect(host=servers.HOST, port=server.port, user="root")
        with connection.cursor() as cursor:
            cursor.execute("SELECT IS_USED_LOCK(%s)", (lock,))
            cursor.execute("KILL %d" % cursor.fetchone()[0])
        connection.close()


class Advisory(Rival):
    name, title = "advisory", "pg_advisory_xact_lock in the warehouse"
    command = PYTHON + ["advisory"]
    begins_first = checks_commit = True
    unlocks = False

    def servers(self):
        return servers.Servers([self.world.warehouse])

    def links(self):
        return [self.warehouse_link()]

    def take_away(self, lock):
        self.world.warehouse.psql(self.stock, """
            SELECT pg_terminate_backend(pid) FROM pg_locks
             WHERE locktype = 'advisory' AND granted
               AND (classid::bigint << 32 | objid::bigint) = hashtextextended('%s', 0)""" % lock)


class Zklock(OnZooKeeper):
    """The fault hits the instance with zklock that the client uses."""

    name, title = "zklock", "zklock; its instance fails"
    directory = "/zklock"
    command = PYTHON + ["zklock"]
    begins_first = checks_commit = True
    instance_links = ["zklock 0", "zklock 1", "zklock 2", "zklock warehouse"]

    def shop(self, who):
        return self.world.shop(who, self.stock, self.instance_links if who == "a" else [])

    def database(self, who):
        return url(self.shop(who).address, "shop")

    def machine(self):
        return self.shop("a")


class ZklockApplication(Zklock):
    """The fault hits the program that is connected to that instance."""

    name, title = "zklock-app", "zklock; the program fails"
    same_as = {fault: "zklock" for fault in (
        "none", "unlock-first", "commit-slow", "server-killed", "servers-paused")}

    def database(self, who):
        shop = self.shop(who)
        return url(self.world.network.link("zklock shop", shop) if who == "a" else shop.address,
                   "shop")

    def links(self):
        return ["zklock shop"]

    def all_links(self):
        return self.links()

    def addresses(self, who):
        return []

    def machine(self):
        return None

    def take_away(self, lock):
        self.shop("a").psql("shop", """
            SELECT pg_terminate_backend(pid) FROM zk_locks
             WHERE name = '%s' AND granted""" % lock)


ALL = {rival.name: rival for rival in (
    Zklock, ZklockApplication, Curator, Kazoo, Etcd, Redis, Redlock, MariaDB, Advisory)}
