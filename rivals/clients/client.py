"""A client of the sale, whose lock is that of RIVAL: client.py RIVAL

Reads a command a line and answers each with a line, "ok", "lost" or "error":
see rivals/README.md.  RIVAL_LOCK, RIVAL_SERVERS, RIVAL_DATABASE and RIVAL_TTL
are in the environment.
"""
import logging
import os
import sys
import threading
import time
import uuid

import psycopg2

LOCK = os.environ["RIVAL_LOCK"]
SERVERS = os.environ["RIVAL_SERVERS"]
TTL = float(os.environ["RIVAL_TTL"])


class Lost(Exception):
    """The lock may be another's by now."""


class Lock:
    """What a rival need not have."""

    def __init__(self, database):
        self.database = database

    def check(self):
        """Raise Lost if the library, or the documentation, knows of a reason."""

    def unlock(self):
        """The end of the transaction has released it."""


class Kazoo(Lock):
    """kazoo's Lock, with the listener that its documentation recommends."""

    def __init__(self, database):
        from kazoo.client import KazooClient

        super().__init__(database)
        logging.basicConfig(level=logging.CRITICAL)
        self.lost = False
        self.connected = threading.Event()
        self.zk = KazooClient(hosts=SERVERS, timeout=TTL)
        self.zk.add_listener(self.listen)
        self.zk.start()

    def listen(self, state):
        if state == "CONNECTED":
            self.connected.set()
        else:
            self.connected.clear()
        if state == "LOST":
            self.lost = True

    def lock(self):
        self.mutex = self.zk.Lock("/kazoo/" + LOCK)
        self.mutex.acquire()
        self.lost = False
        return self.zk.exists(self.mutex.path + "/" + self.mutex.node).czxid

    def check(self):
        """While the connection is suspended nothing is certain."""
        if not self.connected.wait(TTL) or self.lost:
            raise Lost("LOST" if self.lost else "SUSPENDED")

    def unlock(self):
        self.mutex.release()


class Redis(Lock):
    """SET NX PX, and the script that deletes only what is ours: the pattern in
    the documentation of SET.  Work has to end within the time of the key."""

    RELEASE = ("if redis.call('get', KEYS[1]) == ARGV[1] then"
               " return redis.call('del', KEYS[1]) else return 0 end")
    RETRY = 0.02

    def __init__(self, database):
        import redis

        super().__init__(database)
        host, port = SERVERS.split(":")
        self.redis = redis.Redis(host=host, port=int(port), socket_timeout=1,
                                 retry_on_timeout=False)
        self.unreachable = (redis.exceptions.ConnectionError,
                            redis.exceptions.TimeoutError)
        self.token = str(uuid.uuid4())

    def set(self):
        self.since = time.clock_gettime(time.CLOCK_BOOTTIME)
        try:
            return self.redis.set(LOCK, self.token, nx=True, px=int(TTL * 1000))
        except self.unreachable:
            return False

    def lock(self):
        while not self.set():
            time.sleep(self.RETRY)
        return ""

    def check(self):
        if time.clock_gettime(time.CLOCK_BOOTTIME) - self.since > TTL:
            raise Lost("the time of the key is over")

    def unlock(self):
        try:
            if not self.redis.eval(self.RELEASE, 1, LOCK, self.token):
                raise Lost("the key is another's, or gone")
        except self.unreachable as e:
            raise Lost(str(e)) from e


class MariaDB(Lock):
    """GET_LOCK, RELEASE_LOCK, and the question whether the connection still has
    the lock."""

    def __init__(self, database):
        import pymysql

        super().__init__(database)
        host, port = SERVERS.split(":")
        self.error = pymysql.err.Error
        self.connection = pymysql.connect(host=host, port=int(port), user="root",
                                          read_timeout=600)

    def one(self, sql):
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(sql, (LOCK,))
                return cursor.fetchone()[0]
        except self.error as e:
            raise Lost(str(e)) from e

    def lock(self):
        if self.one("SELECT GET_LOCK(%s, 3600)") != 1:
            raise Lost("GET_LOCK failed")
        return ""

    def check(self):
        if self.one("SELECT IS_USED_LOCK(%s) = CONNECTION_ID()") != 1:
            raise Lost("not this connection's")

    def unlock(self):
        if self.one("SELECT RELEASE_LOCK(%s)") != 1:
            raise Lost("not this connection's")


class Advisory(Lock):
    """PostgreSQL's advisory lock of the transaction that sells."""

    def lock(self):
        self.database.run("SELECT pg_advisory_xact_lock(hashtextextended('%s', 0))" % LOCK)
        return ""


class Zklock(Lock):
    """zk_lock in the transaction that sells.  COMMIT checks it."""

    def lock(self):
        self.database.run("SELECT zk_lock('%s')" % LOCK)
        return self.database.run("SELECT zk_fencing_token('%s')" % LOCK)

    def unlock(self):
        """As a program would that unlocks before COMMIT."""
        self.database.run("SELECT zk_unlock('%s')" % LOCK)


class Database:
    def __init__(self):
        self.connection = psycopg2.connect(os.environ["RIVAL_DATABASE"])
        self.connection.autocommit = True

    def run(self, sql):
        """The first value of the result, or an empty string."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            row = cursor.fetchone() if cursor.description else None
            return "" if row is None or row[0] is None else row[0]


def obey(command, argument, lock, database):
    if command == "sql":
        return database.run(argument)
    return {"lock": lock.lock, "check": lock.check, "unlock": lock.unlock}[command]()


def main():
    database = Database()
    lock = {"kazoo": Kazoo, "redis": Redis, "mariadb": MariaDB, "advisory": Advisory,
            "zklock": Zklock}[sys.argv[1]](database)
    print("ok", flush=True)
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        try:
            result = obey(command, argument, lock, database)
            answer = "ok %s" % ("" if result is None else result)
        except Lost as e:
            answer = "lost %s" % e
        except psycopg2.Error as e:
            answer = "error %s %s" % (e.pgcode, e)
        print(answer.splitlines()[0], flush=True)


if __name__ == "__main__":
    main()
