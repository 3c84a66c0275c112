"""What the distance to ZooKeeper costs: started by "bench/run network".

usage: network.py full|quick DIRECTORY; the servers are in the environment
(BENCH_*).  Two instances reach ZooKeeper through test/lib/proxy.py, which holds
back what goes through it for half of a round trip in each direction.

DIRECTORY gets network.md.
"""
import os
import sys
import threading
import time
from collections import defaultdict
from statistics import median

from connections import Proxy, ask, connect, env, wait_until

quick = sys.argv[1] == "quick"
out = sys.argv[2]
ROUND_TRIPS = (0, 5, 20)        # ms that the proxy adds
ROUNDS = 1 if quick else 5
SAMPLES = 5 if quick else 20    # of each operation in a round
TOGETHER = 10                   # locks in one zk_lock_all
PAUSE = 0.01                    # seconds; and some round trips, for what is on its way

OPERATIONS = {
    "lone": "a lone lock, until it is granted",
    "together": "%d locks, by one `zk_lock_all`" % TOGETHER,
    "habit": "a lock that the instance retains by habit",
    "taken": "`zk_try_lock` of a lock that another instance holds",
    "handover": "from COMMIT in one instance to the lock in another",
    "plain": "COMMIT of a changed row, without a lock",
    "lease": "the same under a lock",
    "quorum": "the same with `zklock.commit_check = quorum`",
}


class Instance:
    """An instance behind the proxy: a session that takes locks, and one that looks."""

    def __init__(self, name, port):
        self.user, self.observer = connect(port), connect(port)
        self.run(self.user, "CREATE TABLE changes (n integer)")
        self.set("servers", "127.0.0.1:%d" % proxy.port)
        wait_until(lambda: self.ask("SELECT state FROM zk_session") == "connected",
                   "instance %s is connected" % name)

    @staticmethod
    def run(cursor, statement):
        """Seconds that it took."""
        began = time.monotonic()
        cursor.execute(statement)
        return time.monotonic() - began

    def ask(self, statement):
        return ask(self.observer, statement)

    def set(self, setting, value):
        self.ask("ALTER SYSTEM SET zklock.%s = '%s'" % (setting, value))
        self.ask("SELECT pg_reload_conf()")
        wait_until(lambda: self.ask("SHOW zklock.%s" % setting) == value, "the reload")

    def none_left(self):
        """Wait until ZooKeeper has removed what was given back."""
        wait_until(lambda: self.ask("SELECT slots FROM zk_stat") == 0, "locks are given back")


def note(operation, seconds):
    figures[operation, round_trip].append(seconds * 1000)


def one_transaction(sample):
    """A lock that nobody owns, a change, and COMMIT, with each check; and the
    same without a lock."""
    one = instances[0]
    for check in ("lease", "quorum"):
        one.run(one.user, "SET zklock.commit_check = " + check)
        one.run(one.user, "BEGIN")
        taken = one.run(one.user, "SELECT zk_lock('lone%d')" % (sample % 8))
        one.run(one.user, "INSERT INTO changes VALUES (1)")
        note(check, one.run(one.user, "COMMIT"))
        note("lone", taken)
        one.none_left()
    one.run(one.user, "BEGIN")
    one.run(one.user, "INSERT INTO changes VALUES (1)")
    note("plain", one.run(one.user, "COMMIT"))


def together(sample):
    one = instances[0]
    one.run(one.user, "BEGIN")
    note("together", one.run(
        one.user, "SELECT zk_lock_all(array_agg('all' || i)) FROM generate_series(1, %d) i" % TOGETHER))
    one.run(one.user, "COMMIT")
    one.none_left()


def handover(sample):
    """One instance holds a lock: another one tries to take it, waits for it, and
    gets it."""
    holder, waiter = instances[::1 if sample % 2 else -1]
    granted = []

    def wait():
        waiter.run(waiter.user, "SELECT zk_lock('relay')")
        granted.append(time.monotonic())

    holder.run(holder.user, "BEGIN")
    holder.run(holder.user, "SELECT zk_lock('relay')")
    note("taken", waiter.run(waiter.user, "SELECT zk_try_lock('relay')"))
    waiter.run(waiter.user, "BEGIN")
    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: holder.ask("SELECT count(*) FROM zk_queue('relay')") == 2, "a queue of two")
    time.sleep(PAUSE + 3 * round_trip / 1000)
    began = time.monotonic()
    holder.run(holder.user, "COMMIT")
    thread.join()
    note("handover", granted[0] - began)
    waiter.run(waiter.user, "COMMIT")
    for instance in instances:
        instance.none_left()


def habit():
    """A lock that one instance takes again and again."""
    one = instances[0]
    one.set("retain_time", "-1")
    for take in range(10 + SAMPLES):
        one.run(one.user, "BEGIN")
        seconds = one.run(one.user, "SELECT zk_lock('habit')")
        one.run(one.user, "COMMIT")
        if take >= 10:
            note("habit", seconds)
        time.sleep(PAUSE)
    one.set("retain_time", "0")
    one.none_left()


proxy = Proxy()
instances = [Instance(name, port)
             for name, port in zip("ab", env["BENCH_INSTANCES"].split())]
figures = defaultdict(list)
for turn in range(ROUNDS):
    for round_trip in ROUND_TRIPS[::-1 if turn % 2 else 1]:
        proxy.ask("delay", round_trip / 2)
        for sample in range(SAMPLES):
            one_transaction(sample)
            together(sample)
            handover(sample)
        habit()
for instance in instances:
    instance.set("servers", env["BENCH_ZOOKEEPER"])
wait_until(lambda: proxy.ask("connections") == 0, "the connections through the proxy end")
proxy.stop()

lines = ["| medians, in ms | " + " | ".join(
    "%d ms" % ms if ms else "on the same machine" for ms in ROUND_TRIPS) + " |",
         "|---|" + "---|" * len(ROUND_TRIPS)]
lines += ["| %s | %s |" % (what, " | ".join(
    "%.3g" % median(figures[operation, ms]) for ms in ROUND_TRIPS))
          for operation, what in OPERATIONS.items()]
with open(os.path.join(out, "network.md"), "w") as file:
    file.write("\n".join(lines) + "\n")
print("\n".join(lines))
