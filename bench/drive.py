"""Runs the scenarios, round by round, and writes what was measured.

usage: drive.py full|quick DIRECTORY [ROW...], started by bench/run, which has
started the servers and passes their addresses in the environment (BENCH_*).

First come some rounds of all scenarios, then more rounds of what the rows of
bounds.py need that are not known closely enough.  With ROWs, only what these
need is measured.

results.csv gets a row for each figure of each round:
scenario, rival, x (clients, instances, held locks, ...), round, metric, value.
failures.txt gets a line for each failure; the exit status is 3 if there is one,
and 1 if zklock is among them.
"""
import csv
import json
import os
import select
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from statistics import median
from types import SimpleNamespace

from kazoo.client import KazooClient

import bounds
import servers
from commands import (
    ANSWER_LIMIT, Counting, Failed, Hangs, ending, last_words, pg_ctl, pgbench_line, run_command,
    wait_until)

MODES = {
    # ms and warmup are of each measurement; java is how long a JVM warms up;
    # "others" are the rounds of those whose ratios need not be known exactly;
    # small are numbers of small instances.
    # limits, in seconds, of the further rounds of one scenario in all, of those
    # of zipf, pgbench, held and crowd, and of this program, of whose time
    # "reserve" is left to the scenarios that come last.
    "full": SimpleNamespace(
        rounds=2, others=2, ms=800, warmup=200, java=4000,
        clients=(1, 16, 64, 256), instances=(1, 2, 4),
        held=(10, 100, 1000, 8000), most=16000,
        waiters=(1, 10, 100, 1000), units=5000, sale_ms=10000, single_round=1,
        pgbench_rounds=8, pgbench_warmup=2000, pgbench_transactions=30000, counted=1000, idle=20,
        small=(2, 4, 8, 16, 32), kills=20,
        limit=1050, reserve=400, scenario_limit=120, zipf_limit=240, pgbench_limit=180,
        held_limit=60, crowd_limit=40, contended=1000, search_ms=5000, listing_ms=10000),
    "quick": SimpleNamespace(
        rounds=1, others=1, ms=250, warmup=100, java=1000,
        clients=(1, 64), instances=(1, 2),
        held=(10, 1000), most=2000,
        waiters=(1, 100), units=200, sale_ms=1000, single_round=1,
        pgbench_rounds=1, pgbench_warmup=200, pgbench_transactions=1000, counted=200, idle=5,
        small=(2, 4), kills=2,
        limit=300, reserve=0, scenario_limit=0, zipf_limit=0, pgbench_limit=0,
        held_limit=0, crowd_limit=0, contended=100, search_ms=1000, listing_ms=1000),
}
PAUSE = 2000                # us between the cycles of a lone client
ZIPF_PAUSE = 3000           # us between a client's cycles, for their p99
RELAY_PAUSE = 10000         # us for a waiter to get into its place
USUAL_PAUSE = 10000         # us between the takes of a lock by a lone client
DEADLOCK_TIMEOUT = 1        # seconds, PostgreSQL's default
TOO_OFTEN = 3               # failures after which a rival is left out
QUANTILES = (1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.5)
ROUND_LOCKS = 6400          # that 64 clients go round
ZIPF_LOCKS = 400            # of four instances
ONCE_LOCKS = 640000         # more than are taken in a round
FLEET_LOCKS = 10000         # that zk_fleet_locks() lists
CROWD_CLIENTS = 4           # of each small instance
COMPARED = 8                # so many small instances, or fewer, have a row
KILL_MS = 700               # before ZooKeeper's leader is killed
KILL_WINDOW_MS = 3500       # from before that until a leader has long been elected
READS = ("exists", "get", "children")       # proxy.py's names of requests

mode = MODES[sys.argv[1]]
out = sys.argv[2]
env = os.environ
rows_asked = sys.argv[3:]
instances = env["BENCH_INSTANCES"].split()
shops = env["BENCH_SHOPS"].split(",")
counted_port = env["BENCH_COUNTED"]
planted = env.get("BENCH_PLANT", "").split()


def java(kind):
    # Compiled code of the JVM's better compiler, as in a server that has been
    # up for a while; hence the warm-up.
    return ["java", "-Xmx512m", "-XX:-UsePerfData",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp", "bin:" + env["BENCH_CLASSPATH"],
            "JavaRival", kind, env["BENCH_ZOOKEEPER"]]


def pg(kind, *ports):
    return ["bin/pg", kind, env["BENCH_SOCKETS"], *ports]


def raw(kind):
    return ["bin/raw", kind, env["BENCH_ZOOKEEPER"]]


COMMANDS = {
    "zklock": pg("zklock", *instances),
    "zklock-h": pg("zklock", *instances),   # by habit, the default
    "zklock-0": pg("zklock", env["BENCH_NO_HANDOFF"]),
    "zklock-r": pg("zklock", env["BENCH_RETAINING"]),
    "zklock-counted": pg("zklock", counted_port),
    # the ports are those of sockets, which no other instance has
    "zklock-small": pg("zklock", *map(str, range(1, 1 + max(mode.small)))),
    "advisory": pg("advisory", *instances),
    **{way: pg(way, *instances) for way in ("claim-renew", "claim-use", "lease-renew", "lease-use")},
    "curator": java("curator"),
    "writelock": java("writelock"),
    "kazoo": ["/usr/bin/python3", "bin/rivals/kazoorival.py", env["BENCH_ZOOKEEPER"]],
    "redis": ["bin/redis", env["BENCH_REDIS"]],
    "etcd": ["bin/etcd", env["BENCH_ETCD"]],
    "etcd-renew": ["bin/etcd", env["BENCH_ETCD"], "renew"],
    "mariadb": ["bin/mariadb", env["BENCH_MARIADB"]],
    "raw": raw("single"),
    "raw-create": raw("create"),
    "raw-multi": raw("multi"),
    "raw-blind": raw("blind"),
    "raw-blind-2": raw("blind"),        # two flights at a time
}
# that can be between two instances, or more
LOCKS = ["zklock", "curator", "writelock", "kazoo", "redis", "etcd"]
# whose figures no row of bounds.py needs
OTHERS = ["writelock", "kazoo", "redis", "etcd", "mariadb", "raw-multi",
          "raw-blind-2"]


class Rival:
    """A program that answers requests; it stays for the whole run, so that
    Java's compiler has to warm up only once.  What it writes to stderr is kept
    in a file, and quoted if it fails."""

    def __init__(self, name):
        self.name = name
        self.process = None
        self.log = "rival-%s.log" % name
        self.starts = 0
        self.failures = 0
        self.answers = 0
        self.seconds = 0.0      # that it took to answer, and
        self.measured = 0.0     # that it was asked to measure

    def start(self):
        self.starts += 1
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(COMMANDS[self.name], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=log)
        if COMMANDS[self.name][0] == "java":
            self.ask("lock", clients=16, locks=16, prefix="warm", ms=mode.java)

    def ask(self, kind, **words):
        """Returns samples: (client, asked, acquired, released), in us."""
        began = time.monotonic()
        try:
            return self.answer(kind, words)
        finally:
            self.seconds += time.monotonic() - began
            self.measured += (words.get("ms", 0) + words.get("warmup", 0)) / 1000

    def answer(self, kind, words):
        if self.process is None:
            self.start()
        if self.starts > 1 and "prefix" in words:
            # what the one before it has left may still be locked
            words["prefix"] += "r%d-" % self.starts
        request = " ".join([kind] + ["%s=%s" % word for word in words.items()])
        if self.name in planted:
            self.process.kill()
        try:
            self.process.stdin.write(request.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.ended("before", request) from None
        samples = []
        for line in self.lines(request):
            if line == "done":
                self.answers += 1
                return samples
            samples.append(tuple(map(int, line.split())))
        raise self.ended("at", request)

    def ended(self, when, request):
        try:
            status = ending(self.process.wait(10))
        except subprocess.TimeoutExpired:
            status = "its output is closed"
        with open(self.log, errors="replace") as log:
            return Failed("ended %s \"%s\", %s: %s" % (when, request, status,
                                                      last_words(log.read())))

    def lines(self, request):
        pending = b""
        fd = self.process.stdout.fileno()
        while True:
            if not select.select([fd], [], [], ANSWER_LIMIT)[0]:
                with open(self.log, errors="replace") as log:
                    raise Hangs("did not answer \"%s\" in %d s: %s"
                                % (request, ANSWER_LIMIT, last_words(log.read())))
            data = os.read(fd, 1 << 20)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            yield from map(bytes.decode, lines)

    def stop(self, kill=False):
        if self.process is None:
            return
        if kill:
            self.process.kill()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


failures = []
rivals = {name: Rival(name) for name in COMMANDS}
figures = bounds.Figures()
results_file = open(os.path.join(out, "results.csv"), "w")
results = csv.writer(results_file, lineterminator="\n")
results.writerow(["scenario", "rival", "x", "round", "metric", "value"])


def record(scenario, rival, x, turn, **metrics):
    for metric, value in metrics.items():
        figures.add(scenario, rival, x, turn, metric, value)
        results.writerow([scenario, rival, x, turn, metric, "%.6g" % value])
    results_file.flush()
    print("%-12s %-12s %6s  %s" % (scenario, rival, x, "  ".join(
        "%s %.6g" % m for m in metrics.items() if m[0] not in ("acquire", "cycle")
        and not m[0].startswith("q"))), flush=True)


def report_failure(scenario, name, why):
    failures.append(name)
    print("%s: %s failed: %s" % (scenario, name, why), flush=True)
    with open(os.path.join(out, "failures.txt"), "a") as file:
        file.write("%s, %s: %s\n" % (scenario, name, why))


@contextmanager
def contest(scenario, name, *used):
    """If a rival fails, the others go on, and the report tells.  used: the
    programs that may have failed, if they are not the rival's own."""
    try:
        yield
    except Failed as failure:
        report_failure(scenario, name, failure)
        for rival in (rivals[of] for of in used or (name,) if of in rivals):
            rival.stop(kill=True)
            rival.failures += TOO_OFTEN if isinstance(failure, Hangs) else 1


class Round:
    """A round of a scenario: who takes part in it."""

    def __init__(self, turn, wanted=None):
        self.turn = turn
        self.wanted = wanted    # (scenario, rival, x), or None for all

    def wants(self, scenario, name, x):
        if name in rivals and rivals[name].failures >= TOO_OFTEN:
            return False
        if self.wanted is not None:
            return (scenario, name, x) in self.wanted
        return self.turn < mode.others or name not in OTHERS

    def of(self, scenario, names, x):
        """Those who take part, in an order that changes with each round."""
        names = [name for name in names if self.wants(scenario, name, x)]
        first = self.turn % max(1, len(names))
        return names[first:] + names[:first]


def quantile(values, percent):
    if not values:
        raise Failed("nothing was measured")
    return values[min(len(values) - 1, int(len(values) * percent / 100))]


def lock(rival, **words):
    """Lock cycles in a closed loop; the samples, which must not be few."""
    words = {"ms": mode.ms, "warmup": mode.warmup, **words}
    for _ in range(3):
        samples = rivals[rival].ask("lock", **words)
        if len(samples) > 2:
            return samples
        words["ms"] *= 3
    raise Failed("no cycle in %d ms" % (words["ms"] / 3))


def rate(samples):
    """Cycles a second, from the end of the first ones, which may be many at
    once, to that of the last."""
    ends = [s[3] for s in samples]
    first = min(ends)
    return 1e6 * max(1, sum(end > first for end in ends)) / max(1, max(ends) - first)


def longest_wait(samples, clients):
    """Of a closed loop without pauses, in us.  A wait that the end of the run
    has cut counts as far as it came: from the client's last release, or from
    where what was measured began."""
    last = dict.fromkeys(range(clients), min(s[3] for s in samples))
    for client, _, _, released in samples:
        last[client] = max(last[client], released)
    cut = max(last.values()) - min(last.values())
    return max([cut] + [s[2] - s[1] for s in samples])


def sql(port, database, statement):
    return run_command(
        ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", env["BENCH_SOCKETS"], "-p", port,
         "-U", "postgres", "-d", database, "-f", "-"], input=statement)


def set_retain_time(ports, value):
    for port in ports:
        sql(port, "postgres",
            "ALTER SYSTEM SET zklock.retain_time = %s; SELECT pg_reload_conf()" % value)


@contextmanager
def settings_of(name, ports=instances):
    """The settings of a rival: "zklock-h" has the defaults, and all others of
    these instances go through ZooKeeper."""
    if name != "zklock-h":
        yield
        return
    set_retain_time(ports, -1)
    try:
        yield
    finally:
        set_retain_time(ports, 0)


# ---------------------------------------------------------------------------
# Scenarios; each runs one round, all rivals one after the other
# ---------------------------------------------------------------------------

def lone(r):
    """One client, which pauses between cycles: latencies, not throughput."""
    names = LOCKS + ["advisory", "mariadb", "raw", "raw-create"]
    for name in r.of("lone", names, 1):
        with contest("lone", name):
            # a p99 takes more cycles to be known than a median
            ms = mode.ms * 4 if name in ("zklock", "curator") else mode.ms * 3 // 2
            words = dict(clients=1, locks=8, pause=PAUSE, prefix="lone", ms=ms)
            samples = lock(name, **words)
            cycles = sorted(s[3] - s[1] for s in samples)
            if name in ("zklock", "advisory", "mariadb"):
                samples = lock(name, split=1, **words)
            acquires = sorted(s[2] - s[1] for s in samples)
            record("lone", name, 1, r.turn,
                   acquire_p50=quantile(acquires, 50), acquire_p99=quantile(acquires, 99),
                   cycle_p50=quantile(cycles, 50), cycle_p99=quantile(cycles, 99),
                   **{"q%g" % q: quantile(acquires, q) for q in QUANTILES})


def usual(r):
    """One client that takes the same lock again and again, with pauses."""
    names = ["zklock-h"] + LOCKS[1:] + ["advisory", "mariadb"]
    for name in r.of("usual", names, 1):
        with contest("usual", name), settings_of(name):
            samples = lock(name, clients=1, locks=1, pause=USUAL_PAUSE, prefix="usual",
                           ms=mode.ms * 3 // 2)
            cycles = sorted(s[3] - s[1] for s in samples)
            record("usual", name, 1, r.turn, cycle_p50=quantile(cycles, 50),
                   cycle_p99=quantile(cycles, 99))


def zipf(r):
    """Clients of four instances, names by Zipf's law; x: the percentage of a
    client's cycles that are with a lock of its instance.  Cycles a second are
    those of a closed loop, and latencies those at a load that both carry."""
    for home in (90, 25):
        for name in r.of("zipf", ["zklock-h", "zklock"], home):
            with contest("zipf", name), settings_of(name):
                words = dict(instances=4, locks=ZIPF_LOCKS, home=home, prefix="zipf")
                samples = lock(name, clients=8, **words)
                # a p99 takes more cycles to be known than a rate
                acquires = sorted(s[2] - s[1] for s in lock(name, clients=8, split=1,
                                                            pause=ZIPF_PAUSE, ms=mode.ms * 4,
                                                            **words))
                record("zipf", name, home, r.turn, rate=rate(samples),
                       acquire_p50=quantile(acquires, 50), acquire_p99=quantile(acquires, 99))
                if r.turn >= mode.others:
                    continue
                for clients in (16, 64):
                    samples = lock(name, clients=clients, split=1, **words)
                    acquires = sorted(s[2] - s[1] for s in samples)
                    record("zipf", name, home, r.turn,
                           **{"rate%d" % clients: rate(samples),
                              "p99_%d" % clients: quantile(acquires, 99)})


def idle(r):
    """The first acquire of a name that another instance has taken again and
    again, and that nobody holds."""
    for name in r.of("idle", ["zklock-h", "zklock"], 2):
        with contest("idle", name), settings_of(name):
            acquires = []
            for i in range(mode.idle):
                words = dict(clients=1, locks=1, prefix="idle%d-" % i)
                lock(name, ms=100, warmup=0, pause=5000, **words)
                asked, acquired = lock(name, ms=100, warmup=0, split=1, instance=1, **words)[0][1:3]
                acquires.append(acquired - asked)
            record("idle", name, 2, r.turn, acquire_p50=quantile(sorted(acquires), 50))


# "kept": nobody else wants what is retained
OWN_WORDS = {"raw-blind-2": {"flights": 2}, "zklock-r": {"prefix": "kept"}}


def throughput(scenario, r, names, x, **words):
    for name in r.of(scenario, names, x):
        with contest(scenario, name), settings_of(name):
            samples = lock(name, **{**words, **OWN_WORDS.get(name, {})})
            cycles = sorted(s[3] - s[1] for s in samples)
            record(scenario, name, x, r.turn, rate=rate(samples),
                   cycle_p50=quantile(cycles, 50), cycle_p99=quantile(cycles, 99))


def distinct(r):
    """As many locks as clients, each client its own, as fast as they go."""
    names = ["zklock", "zklock-0", *LOCKS[1:], "advisory", "mariadb",
             "raw", "raw-multi", "raw-blind"]
    for clients in mode.clients:
        throughput("distinct", r,
                   names + ["zklock-h", "zklock-r", "raw-blind-2"] * (clients == 64), clients,
                   clients=clients, locks=clients, prefix="own")


def take_all(port, prefix):
    """Has an instance take each lock of "many" once."""
    sql(port, "bench", "SELECT zk_lock_all(array_agg('%s' || i)) FROM generate_series(0, %d) i"
        " GROUP BY i / 250" % (prefix, ROUND_LOCKS - 1))
    none_left(port)


def none_left(port):
    wait_until(lambda: sql(port, "bench", "SELECT slots FROM zk_stat") == "0",
               "the locks are given back")


def many(r):
    """64 clients that go round many locks: nobody takes one twice in a row.
    All have been taken before."""
    if r.wants("many", "zklock", ROUND_LOCKS):
        take_all(instances[0], "many")
    throughput("many", r, ["zklock", "raw", "raw-multi", "raw-blind"], ROUND_LOCKS,
               clients=64, locks=ROUND_LOCKS, prefix="many")


class CountingProxy:
    """test/lib/proxy.py between ZooKeeper and an instance that is started here:
    it counts the instance's requests by their kind."""

    def __init__(self):
        self.log = open("proxy.log", "w")
        self.process = subprocess.Popen(
            ["/usr/bin/python3", "bin/proxy.py"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.log, text=True)
        port = self.ask("link", "zookeeper", int(env["BENCH_ZOOKEEPER"].split(":")[1]))
        self.ask("count", "zookeeper")
        pg_ctl("start", "counted", "zklock.servers=127.0.0.1:%d" % port)
        sql(counted_port, "postgres", "CREATE DATABASE bench")
        sql(counted_port, "bench", "CREATE EXTENSION zklock")

    def ask(self, *request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline() or "null")
        except BrokenPipeError:
            answer = None
        if answer is None or "error" in answer:
            with open("proxy.log", errors="replace") as log:
                raise Failed("the counting proxy: %s, %s" % (answer, last_words(log.read())))
        return answer["result"]

    def requests(self):
        """How many of each kind; not those that come with time, or once."""
        return Counter({kind: count for kind, count in self.ask("requests", "zookeeper").items()
                        if kind not in ("connect", "close", "ping")})

    def stop(self):
        pg_ctl("stop", "counted")
        self.process.stdin.close()
        self.process.wait()
        self.log.close()


counting = None


def counted(r):
    """Requests for each cycle of "many", whose rate the proxy would spoil."""
    global counting
    if not r.of("counted", ["zklock"], ROUND_LOCKS):
        return
    with contest("counted", "zklock", "zklock-counted"):
        counting = counting or CountingProxy()
        words = dict(clients=64, locks=ROUND_LOCKS, prefix="counted")
        take_all(counted_port, "counted")
        taken = "SELECT taken FROM zk_stat"
        before, cycles = counting.requests(), -int(sql(counted_port, "bench", taken))
        lock("zklock-counted", **words)
        none_left(counted_port)
        requests = counting.requests() - before
        cycles += int(sql(counted_port, "bench", taken))
        record("counted", "zklock", ROUND_LOCKS, r.turn, cycles=cycles,
               reads=sum(requests[kind] for kind in READS) / cycles,
               requests=sum(requests.values()) / cycles,
               **{"kind_" + kind: count / cycles for kind, count in requests.items()})


def once(r):
    """Requests for each take of a name that is never taken again."""
    global counting
    for name in r.of("once", ["zklock-h", "zklock"], 1):
        with contest("once", name, "zklock-counted"):
            counting = counting or CountingProxy()
            with settings_of(name, [counted_port]):
                taken = "SELECT taken FROM zk_stat"
                before, cycles = counting.requests(), -int(sql(counted_port, "bench", taken))
                lock("zklock-counted", clients=64, locks=ONCE_LOCKS,
                     prefix="once%d%s-" % (r.turn, name[6:]))
                none_left(counted_port)
                requests = counting.requests() - before
                cycles += int(sql(counted_port, "bench", taken))
                record("once", name, 1, r.turn, cycles=cycles,
                       requests=sum(requests.values()) / cycles)


def hot(r):
    """One lock over several instances, or sessions, with 16 clients in each."""
    for n in mode.instances:
        for name in r.of("hot", LOCKS + ["advisory", "mariadb"] * (n == 1), n):
            with contest("hot", name):
                samples = lock(name, clients=16 * n, instances=n, locks=1, prefix="hot",
                               ms=mode.ms * 3 // 2)
                waits = sorted(s[2] - s[1] for s in samples)
                cycles = sorted(s[3] - s[1] for s in samples)
                wait = max(1, quantile(waits, 50))
                longest = longest_wait(samples, 16 * n)
                of_instance = Counter(s[0] % n for s in samples)
                record("hot", name, n, r.turn, rate=rate(samples),
                       cycle_p50=quantile(cycles, 50), cycle_p99=quantile(cycles, 99),
                       share=min(of_instance[i] for i in range(n)) / len(samples),
                       wait_p50=wait, wait_longest=longest, longest=longest / wait)


def waits(r):
    """32 clients of one lock, in one instance and over two: how long they wait."""
    for n in (1, 2):
        for name in r.of("waits", ["zklock"], n):
            with contest("waits", name):
                samples = lock(name, clients=32, instances=n, locks=1, prefix="waits",
                               ms=mode.ms * 3 // 2)
                of = sorted(s[2] - s[1] for s in samples)
                record("waits", name, n, r.turn, wait_p50=quantile(of, 50),
                       wait_p99=quantile(of, 99), wait_longest=longest_wait(samples, 32))


@contextmanager
def small_instances(numbers, *settings):
    """Instances that are started, and stopped in any case: copies of one that
    bench/run has made."""
    def start(number):
        name = "small%d" % number
        if not os.path.exists(name):
            run_command(["cp", "-a", "small", name])
        pg_ctl("start", name, "port=%d" % number, "cluster_name=" + name, *settings)

    def stop(number):
        if os.path.exists("small%d/postmaster.pid" % number):
            pg_ctl("stop", "small%d" % number)

    with ThreadPoolExecutor(4) as pool:
        try:
            list(pool.map(start, numbers))
            yield
        finally:
            list(pool.map(stop, numbers))


def handover(samples, n):
    """The time from a grant to the next one in another instance, in us."""
    grants = sorted((s[2], s[0] % n) for s in samples)
    changes = sum(a[1] != b[1] for a, b in zip(grants, grants[1:]))
    return (grants[-1][0] - grants[0][0]) / max(1, changes)


def crowd(r):
    """One lock that ever more small instances want, each of which gives it up
    after each transaction: what a handover costs.  x: the instances."""
    def measure(numbers, turn):
        first = turn % len(numbers)
        for n in numbers[first:] + numbers[:first]:
            samples = lock("zklock-small", clients=CROWD_CLIENTS * n, instances=n, locks=1,
                           prefix="crowd")
            record("crowd", "zklock", n, turn, handover=handover(samples, n),
                   rate=rate(samples))

    def known():
        return all(bounds.is_known(row, bounds.row_values(row, figures))
                   for row in bounds.ROWS if row.needs[0][0] == "crowd")

    wanted = [n for n in mode.small if r.wants("crowd", "zklock", n)]
    few = [n for n in wanted if n <= COMPARED]
    many = [n for n in wanted if n > COMPARED]
    with contest("crowd", "zklock", "zklock-small"):
        if not few:
            return
        with small_instances(range(1, 1 + max(few))):
            end = time.monotonic() + mode.crowd_limit
            turn = 0
            while turn < mode.rounds or (time.monotonic() < min(end, deadline) and not known()):
                measure(few, turn)
                turn += 1
            if not many:
                return
            with small_instances(range(1 + max(few), 1 + max(many))):
                for turn in range(mode.rounds):
                    measure(many, turn)


def longest_gap(samples, killed_at):
    """The longest time from one grant, or acknowledged write, to the next, in us.
    There must be some before ZooKeeper's leader was killed, and after."""
    times = sorted(s[2] for s in samples)
    if not times or not times[0] < killed_at < times[-1]:
        raise Failed("nothing came before the leader was killed, or after")
    return max(b - a for a, b in zip(times, times[1:]))


def leader(r):
    """Of three ZooKeeper servers, the leader is killed: the longest time without
    a grant, and that without an acknowledged write of the raw client."""
    if not r.wants("leader", "zklock", 1):
        return
    ensemble = servers.zookeeper()
    addresses = ",".join(ensemble.addresses)
    COMMANDS["raw-ensemble"] = ["bin/raw", "single", addresses]
    rivals["raw-ensemble"] = Rival("raw-ensemble")

    def kill(turn):
        words = dict(ms=KILL_WINDOW_MS, prefix="leader")
        of = ensemble.leader()
        with ThreadPoolExecutor(2) as pool:
            grants = pool.submit(rivals["zklock-small"].ask, "lock", clients=8, locks=8, **words)
            writes = pool.submit(rivals["raw-ensemble"].ask, "write", **words)
            time.sleep(KILL_MS / 1000)
            killed_at = time.monotonic() * 1e6
            of.kill()
        for name, samples in (("zklock", grants.result()), ("raw", writes.result())):
            record("leader", name, 1, turn, gap=longest_gap(samples, killed_at))
        of.start()
        of.await_start()

    with contest("leader", "zklock", "zklock-small", "raw-ensemble"):
        try:
            ensemble.start()
            with small_instances([1], "zklock.servers=" + addresses):
                for turn in range(mode.kills):
                    if turn < mode.rounds or time.monotonic() < deadline:
                        kill(turn)
        except (TimeoutError, RuntimeError) as failure:
            raise Failed(str(failure)) from failure
        finally:
            rivals["raw-ensemble"].stop()
            ensemble.kill()


def relay(r):
    """From COMMIT in one instance to the grant in another that waits."""
    for name in r.of("relay", ["zklock", "zklock-h", "curator", "raw"], 2):
        with contest("relay", name), settings_of(name):
            samples = rivals[name].ask("relay", ms=mode.ms * 2, warmup=mode.warmup,
                                       pause=RELAY_PAUSE, prefix="relay")
            waits = sorted(s[2] - s[1] for s in samples)
            record("relay", name, 2, r.turn, handover_p50=quantile(waits, 50),
                   handover_p99=quantile(waits, 99))


def retained(r):
    """A lock that stays with the instance between its transactions.  It comes
    from ZooKeeper in the warm-up."""
    for scenario, clients, locks in (("retained", 1, 1), ("retained", 16, 16),
                                     ("retained_hot", 16, 1)):
        for name in r.of(scenario, ["zklock-r", "advisory"], clients):
            with contest(scenario, name):
                samples = lock(name, clients=clients, locks=locks, prefix="kept")
                record(scenario, name, clients, r.turn, rate=rate(samples))


def claims(r):
    """Renewals of claims and leases, and transactions that change one row under
    them."""
    for clients in (1, 16):
        words = dict(clients=clients, locks=clients)
        throughput("renewed", r, ["claim-renew", "lease-renew", "etcd-renew"], clients,
                   prefix="renewed", **words)
        throughput("used", r, ["claim-use", "lease-use"], clients, prefix="used", **words)


def held(r):
    """What a lone acquire costs while the instance, or session, holds others.
    All rounds of a number come one after the other, before there are more.  A
    second instance holds 10 locks all the time: the two are compared in turns."""
    lone_cycles = dict(clients=1, locks=8, pause=PAUSE)
    acquired = {}

    def hold(name, total, **words):
        """Until it holds so many, or as many as it can."""
        have = acquired.get(name, 0)
        program = "zklock" if name == "zklock-few" else name
        answer = rivals[program].ask("hold", count=total - have, **words,
                                     prefix="%s%d-" % ("few" if name == "zklock-few" else "h", total))
        acquired[name] = have + (answer[0][0] if answer else total - have)

    def measure(name, scenario, x, turn):
        words = {"zklock": dict(split=1, prefix="lone"),
                 "zklock-few": dict(split=1, prefix="seul", instance=1)}.get(
                     name, dict(prefix="lone"))
        samples = lock("zklock" if name == "zklock-few" else name, **lone_cycles, **words)
        record(scenario, name, x, turn,
               acquire_p50=quantile(sorted(s[2] - s[1] for s in samples), 50))

    def drop(name, **words):
        with contest("held", name):
            rivals[name].ask("drop", **words)

    names = ["zklock", "curator", "raw"]
    for total in mode.held:
        for name in list(names):
            if not r.wants("held", name, total):
                continue
            with contest("held", name):
                names.remove(name)
                hold(name, total)
                names.append(name)
        for turn in range(mode.rounds):
            for name in list(names):
                if r.wants("held", name, total):
                    with contest("held", name):
                        measure(name, "held", total, turn)
    for name in ("curator", "raw"):
        if name in names and name in acquired:
            drop(name)

    if not r.wants("most", "zklock", 1):
        return
    a_row = next(of for of in bounds.ROWS if of.name == "held")
    with contest("most", "zklock"):
        hold("zklock", mode.most)
        hold("zklock-few", mode.held[0], instance=1)
        for name in ("zklock", "zklock-few"):
            record("most", name, 1, 0, locks=acquired[name])
        end = time.monotonic() + mode.held_limit
        turn = 0
        while turn < mode.rounds or (time.monotonic() < min(end, deadline) and
                                     not bounds.is_known(a_row,
                                                         bounds.row_values(a_row, figures))):
            for name in ("zklock", "zklock-few")[::1 if turn % 2 else -1]:
                measure(name, "most", 1, turn)
            turn += 1
        for turn, value in figures.rounds("most", "zklock", 1, "acquire_p50").items():
            record("held", "zklock", acquired["zklock"], turn, acquire_p50=value)
        drop("zklock")
        drop("zklock", instance=1)
        for port in instances[:2]:
            none_left(port)


def waiters(r):
    """What a hot lock costs while so many wait for it."""
    for n in mode.waiters:
        for name in r.of("waiters",
                         ["zklock", "curator", "redis", "etcd", "advisory", "mariadb"], n):
            with contest("waiters", name):
                # until all are in the queue, which takes etcd longest
                queueing = n * (3 if name == "etcd" else 1)
                samples = lock(name, clients=n + 1, locks=1, prefix="queue",
                               warmup=mode.warmup + queueing)
                record("waiters", name, n, r.turn, cost=1e6 / rate(samples))


class Psql:
    """A session of the database "bench"."""

    def __init__(self, port):
        self.process = subprocess.Popen(
            ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", env["BENCH_SOCKETS"], "-p", port,
             "-U", "postgres", "-d", "bench"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, statement):
        self.process.stdin.write(statement + ";\n\\echo done\n")
        self.process.stdin.flush()

    def wait(self):
        for line in self.process.stdout:
            if line == "done\n":
                return
        raise Failed("a session has ended")

    def run(self, statement):
        self.send(statement)
        self.wait()

    def quit(self):
        self.process.stdin.close()
        self.process.wait(ANSWER_LIMIT)


@contextmanager
def searching(n):
    """A session of the first instance holds so many locks that others want, and
    has waited for another instance's for deadlock_timeout."""
    holder, owner = Psql(instances[0]), Psql(instances[1])
    others = KazooClient(hosts=env["BENCH_ZOOKEEPER"])
    others.start()
    try:
        owner.run("BEGIN; SELECT zk_lock('searched')")
        holder.run("BEGIN; SELECT zk_lock('contended-' || i) FROM generate_series(1, %d) i" % n)
        for created in [others.create_async(
                "/zklock/contended-%d/_c_%s-lock-" % (i, uuid.uuid4()),
                ephemeral=True, sequence=True) for i in range(1, n + 1)]:
            created.get(timeout=ANSWER_LIMIT)
        holder.send("SELECT zk_lock('searched')")
        time.sleep(2 * DEADLOCK_TIMEOUT)
        yield
        owner.run("COMMIT")
        holder.wait()
        holder.run("COMMIT")
    finally:
        for each in (holder, owner):
            each.quit()
        others.stop()
        others.close()


def search(r):
    """Lone cycles in an instance that searches for deadlocks meanwhile."""
    for name in r.of("search", ["zklock"], mode.contended):
        with contest("search", name), searching(mode.contended):
            samples = lock(name, clients=1, locks=8, pause=PAUSE, prefix="beside",
                           ms=mode.search_ms)
            record("search", name, mode.contended, r.turn,
                   acquire_p999_ms=quantile(sorted(s[2] - s[1] for s in samples), 99.9) / 1000)


@contextmanager
def listing():
    """A session of the first instance lists the locks of all, again and again."""
    lister = Psql(instances[0])
    over = threading.Event()

    def go_on():
        times = 0
        while not over.is_set():
            lister.run("SELECT count(*) FROM zk_fleet_locks()")
            times += 1
        return times

    with ThreadPoolExecutor(1) as pool:
        times = pool.submit(go_on)
        try:
            yield
        finally:
            over.set()
            lists = times.result()
            lister.quit()
    if lists < 3:
        raise Failed("the locks were listed %d times only" % lists)


def fleet(r):
    """Lone cycles, alone and beside such a session, while the second instance
    holds many locks."""
    if not r.wants("fleet", "zklock", FLEET_LOCKS):
        return
    with contest("fleet", "zklock"):
        held = rivals["zklock"].ask("hold", count=FLEET_LOCKS, prefix="listed", instance=1)
        if held[0][0] != FLEET_LOCKS:
            raise Failed("there is no room for %d locks" % FLEET_LOCKS)
        for x, beside in (0, nullcontext), (FLEET_LOCKS, listing):
            with beside():
                samples = lock("zklock", clients=1, locks=8, pause=PAUSE, prefix="beside",
                               ms=mode.listing_ms)
            waits = sorted(s[2] - s[1] for s in samples)
            record("fleet", "zklock", x, r.turn, acquire_p999_ms=quantile(waits, 99.9) / 1000,
                   acquire_max_ms=waits[-1] / 1000)
        rivals["zklock"].ask("drop", instance=1)
        none_left(instances[1])


def sales(r):
    """The demo: two shops sell what one warehouse has, 32 customers in each."""
    procedure = open("sell.sql").read()
    unlocked = "".join(line for line in procedure.splitlines(True) if "zk_lock" not in line)
    for name in r.of("sales", LOCKS, 64):
        with contest("sales", name):
            for port in shops:
                sql(port, "shop", "TRUNCATE orders;"
                    + (procedure if name == "zklock" else unlocked))
            sql(env["BENCH_WAREHOUSE"], "warehouse",
                "TRUNCATE stock; INSERT INTO stock (item, units) VALUES ('lamp', %d)" % mode.units)
            samples = rivals[name].ask("sell", clients=64, instances=2, ms=mode.sale_ms)
            sold = sum(int(sql(port, "shop", "SELECT count(*) FROM orders")) for port in shops)
            left = int(sql(env["BENCH_WAREHOUSE"], "warehouse", "SELECT sum(units) FROM stock"))
            record("sales", name, 64, r.turn, rate=rate(samples), sold=sold,
                   oversold=max(0, -left))


PGBENCH_PORTS = dict(zip(("without", "with"), env["BENCH_PGBENCH"].split(",")))
PGBENCH_SETTINGS = {"without": [], "with": ["shared_preload_libraries=zklock"]}


def pgbench_command(name, *options):
    return pgbench_line(PGBENCH_PORTS[name], *options)


pgbench_filled = set()


def fill(name):
    if name not in pgbench_filled:
        run_command(pgbench_command(name, "-i", "-q"))
        pgbench_filled.add(name)


def selects(transactions):
    return ["-S", "-n", "-M", "prepared", "-c", "1", "-t", str(transactions)]


@contextmanager
def pgbench_servers(start, *names):
    """Started by start(name), and stopped in any case."""
    try:
        for name in names:
            start(name)
        yield
    finally:
        for name in names:
            if os.path.exists("pgbench_%s/postmaster.pid" % name):
                pg_ctl("stop", "pgbench_" + name)


def pinned(cpu):
    return ["taskset", "-c", str(cpu)]


def server_time(name):
    """Processor time of a server's processes that have ended, in seconds."""
    with open("pgbench_%s/postmaster.pid" % name) as file:
        pid = int(file.readline())
    with open("/proc/%d/stat" % pid) as file:
        children = file.read().rpartition(")")[2].split()[13:15]
    return sum(map(int, children)) / os.sysconf("SC_CLK_TCK")


def at_once(cpus, transactions):
    """pgbench -S on both servers at the same time, each with its server on a
    processor of its own: the rates, and pgbench's processor times."""
    programs = {name: subprocess.Popen(
        pinned(cpus[name]) + pgbench_command(name, *selects(transactions)),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for name in cpus}
    rates, seconds = {}, {}
    for name, program in programs.items():
        answer = program.stdout.read()
        _, status, usage = os.wait4(program.pid, 0)
        program.returncode = os.waitstatus_to_exitcode(status)
        program.stdout.close()
        rates[name] = next((float(line.split()[2]) for line in answer.splitlines()
                            if line.startswith("tps")), None)
        seconds[name] = usage.ru_utime + usage.ru_stime
        if program.returncode != 0 or not rates[name]:
            raise Failed("pgbench says: " + last_words(answer))
    return rates, seconds


def pgbench(r):
    """pgbench -S, without zklock and with it loaded: two servers with the same
    data at the same time, each on a processor, and then the other way round.
    What counts is the processor time of pgbench and its server process: what
    else runs on the machine takes none of that.  And the shared memory of a
    slot."""
    def one_way(cpus):
        """Ratios of with to without: of the rates, and of the same for a second
        of processor time."""
        def start(name):
            pg_ctl("start", "pgbench_" + name, *PGBENCH_SETTINGS[name], before=pinned(cpus[name]))

        with pgbench_servers(start, *cpus):
            for name in cpus:
                fill(name)
            at_once(cpus, mode.pgbench_warmup)
            time.sleep(0.1)     # the server processes have ended
            spent = {name: -server_time(name) for name in cpus}
            of, seconds = at_once(cpus, mode.pgbench_transactions)
            time.sleep(0.1)
            for name in cpus:
                spent[name] += server_time(name) + seconds[name]
                rates[name].append(of[name])
        return of["with"] / of["without"], spent["without"] / spent["with"]

    def measure():
        first, *_, last = sorted(os.sched_getaffinity(0)) * 2
        ratios = [one_way({"without": a, "with": b}) for a, b in ((first, last), (last, first))]
        for name, values in rates.items():
            record("pgbench", name, 1, r.turn, rate=median(values))
        elapsed, processor = [(a * b) ** 0.5 for a, b in zip(*ratios)]
        record("pgbench", "with", 1, r.turn, elapsed=elapsed, over_without=processor)

    def memory_of_a_slot():
        size = {}
        for locks in (1000, 11000):
            with pgbench_servers(lambda name: pg_ctl(
                    "start", "pgbench_" + name, "zklock.max_locks=%d" % locks,
                    *PGBENCH_SETTINGS[name]), "with"):
                # of the whole segment: elements of hash tables have no name there
                size[locks] = int(sql(PGBENCH_PORTS["with"], "postgres",
                                      "SELECT sum(allocated_size) FROM pg_shmem_allocations"))
        record("slot", "zklock", 1, r.turn, bytes=(size[11000] - size[1000]) / 10000)

    rates = {name: [] for name in PGBENCH_PORTS}
    if r.wants("pgbench", "with", 1):
        with contest("pgbench", "pgbench"):
            measure()
    if r.turn == 0 and r.wants("slot", "zklock", 1):
        with contest("slot", "pgbench"):
            memory_of_a_slot()


def counting_of(name, label, *settings):
    return Counting("pgbench_" + name, PGBENCH_PORTS[name], label, *PGBENCH_SETTINGS[name],
                    *settings)


def instructions(r):
    """What a backend executes for a transaction of pgbench -S."""
    if not r.wants("instructions", "with", 1):
        return
    with contest("instructions", "pgbench"):
        counts = {}
        for name in PGBENCH_PORTS:
            if name not in pgbench_filled:
                with pgbench_servers(lambda name: pg_ctl("start", "pgbench_" + name), name):
                    fill(name)
            counting = counting_of(name, "select")
            with pgbench_servers(counting.start, name):
                counts[name] = counting.of_a_transaction(
                    mode.counted, "-S", "-M", "prepared", "-c", "1")
            record("instructions", name, 1, r.turn, instructions=counts[name])
        record("instructions", "with", 1, r.turn,
               over_without=counts["with"] / counts["without"])


# "run" is set for each run
ONCE = "\\set i :i + 1\nBEGIN;\nSELECT zk_lock((1000000 * :run + :i)::text);\nCOMMIT;\n"


def once_code(r):
    """What a backend executes for a transaction that takes a name which is never
    taken again.  Each waits for ZooKeeper, so there are fewer."""
    ways = {"zklock-h": -1, "zklock": 0}
    if not r.wants("once_code", "zklock-h", 1):
        return
    with open("once.sql", "w") as file:
        file.write(ONCE)
    with contest("once_code", "zklock-h", "pgbench"):
        for name, retain_time in ways.items():
            settings = ["zklock.retain_time=%d" % retain_time, "zklock.root=/" + name,
                        "zklock.servers=" + env["BENCH_ZOOKEEPER"]]
            counting = counting_of("with", "once-" + name, *settings)
            with pgbench_servers(lambda _: pg_ctl("start", "pgbench_with",
                                                  *PGBENCH_SETTINGS["with"]), "with"):
                sql(PGBENCH_PORTS["with"], "postgres", "CREATE EXTENSION IF NOT EXISTS zklock")
            with pgbench_servers(counting.start, "with"):
                record("once_code", name, 1, r.turn, instructions=counting.of_a_transaction(
                    mode.counted // 4, "-M", "prepared", "-f", "once.sql", "-D", "i=100000",
                    "-c", "1"))


TRACKED = "BEGIN;\nSELECT zk_lock('tracked');\nCOMMIT;\n"


def tracked(r):
    """What zk_stat_locks costs where a lock goes from one transaction to the next
    with nothing asked of ZooKeeper: instructions that a backend executes for a
    transaction, and rates, with zklock.max_tracked_locks on and off."""
    ways = {"on": 1000, "off": 0}

    def settings(way):
        return ["zklock.max_tracked_locks=%d" % ways[way], "zklock.retain_time=1h",
                "zklock.servers=" + env["BENCH_ZOOKEEPER"], "zklock.root=/tracked"]

    def cycles(*options):
        return ["-n", "-M", "prepared", "-f", "tracked.sql", *options]

    def start(way, name):
        pg_ctl("start", "pgbench_" + name, *PGBENCH_SETTINGS[name], *settings(way))
        sql(PGBENCH_PORTS[name], "postgres", "CREATE EXTENSION IF NOT EXISTS zklock")

    def rate_of(way):
        with pgbench_servers(lambda name: start(way, name), "with"):
            run_command(pgbench_command("with", *cycles("-c", "1", "-t", "1000")))
            answers = [run_command(pgbench_command("with", *cycles(
                "-c", "16", "-t", str(mode.pgbench_transactions // 8)))) for _ in range(3)]
        return median(float(line.split()[2]) for answer in answers
                      for line in answer.splitlines() if line.startswith("tps"))

    with open("tracked.sql", "w") as file:
        file.write(TRACKED)
    if r.wants("tracked", "on", 16):
        with contest("tracked", "pgbench"):
            order = list(ways) if r.turn % 2 else list(reversed(ways))
            rates = {way: rate_of(way) for way in order}
            for way, value in rates.items():
                record("tracked", way, 16, r.turn, rate=value)
            record("tracked", "on", 16, r.turn, over_off=rates["on"] / rates["off"])
    if r.turn == 0 and r.wants("tracked", "on", 1):
        with contest("tracked", "pgbench"):
            counts = {}
            for way in ways:
                counting = counting_of("with", "tracked-" + way, *settings(way))
                with pgbench_servers(lambda name: start("on", name), "with"):
                    pass
                with pgbench_servers(counting.start, "with"):
                    counts[way] = counting.of_a_transaction(
                        mode.counted, "-M", "prepared", "-f", "tracked.sql", "-c", "1")
                record("tracked", way, 1, r.turn, instructions=counts[way])
            record("tracked", "on", 1, r.turn, over_off=counts["on"] / counts["off"])


# ---------------------------------------------------------------------------
# The plan
# ---------------------------------------------------------------------------

class Scenario:
    """One of those above: how many rounds it has at first, the names of its
    figures, and for how long it may go on."""

    def __init__(self, function, rounds="rounds", labels=(), limit="scenario_limit"):
        self.function = function
        self.name = function.__name__
        self.rounds = getattr(mode, rounds)
        self.labels = {self.name, *labels}
        self.limit = (float(env["BENCH_SECONDS"]) if rows_asked and env.get("BENCH_SECONDS")
                      else getattr(mode, limit))
        self.turn = 0
        self.spent = 0.0        # seconds of further rounds
        self.longest = 0.0      # of these
        self.fruitless = Counter()

    def rows(self):
        """Its rows, or those that were asked for."""
        return [row for row in bounds.ROWS if row.needs[0][0] in self.labels
                and (not rows_asked or row.name in rows_asked)]

    def run_round(self, wanted=None):
        try:
            self.function(Round(self.turn, wanted))
        except Failed as failure:
            report_failure(self.name, self.name, failure)
        self.turn += 1

    def first_rounds(self):
        wanted = needed_by(self.rows()) if rows_asked else None
        began = time.monotonic()
        for _ in range(self.rounds):
            self.run_round(wanted)
        print("%s took %.0f s, %.0f s of it measuring: %s" % (
            self.name, time.monotonic() - began,
            sum(rival.measured for rival in rivals.values()),
            ", ".join("%s %.1f of %.1f s" % (rival.name, rival.measured, rival.seconds)
                      for rival in rivals.values() if rival.seconds)), flush=True)
        for rival in rivals.values():
            rival.seconds = rival.measured = 0.0

    def open_rows(self):
        """Those that more rounds may help."""
        return [row for row in self.rows() if row.close is not None
                and self.fruitless[row.name] < 2
                and not bounds.is_known(row, bounds.row_values(row, figures))]

    def may_go_on(self):
        return (self.open_rows() and self.spent < self.limit
                and time.monotonic() + self.longest < deadline)

    def further_round(self):
        rows = self.open_rows()
        before = {row.name: len(bounds.row_values(row, figures)) for row in rows}
        began = time.monotonic()
        self.run_round(needed_by(rows))
        took = time.monotonic() - began
        self.spent += took
        self.longest = max(self.longest, took)
        for row in rows:
            if len(bounds.row_values(row, figures)) == before[row.name]:
                self.fruitless[row.name] += 1


def needed_by(rows):
    return {need[:3] for row in rows for need in row.needs}


def go_on(scenarios):
    """Further rounds of what is not known closely enough, each scenario with
    about the same part of its limit, until all is known or time is over."""
    while True:
        left = [scenario for scenario in scenarios if scenario.may_go_on()]
        if not left:
            break
        min(left, key=lambda scenario: scenario.spent / scenario.limit).further_round()
    for scenario in scenarios:
        if scenario.spent:
            print("%s: further rounds took %.0f s; not known closely enough: %s" % (
                scenario.name, scenario.spent,
                ", ".join(row.name for row in scenario.open_rows()) or "none"), flush=True)


def print_rows():
    for row in bounds.ROWS:
        if row.name in rows_asked:
            measured, ends, met = bounds.row_text(row, bounds.row_values(row, figures))
            print("%s: %s\n    must be %s, measured %s (%s), met: %s" % (
                row.name, bounds.row_what(row, figures), bounds.bound_text(row), measured,
                ends or "no interval", met.strip("*") or "-"), flush=True)


def main():
    global deadline
    asked = env.get("BENCH_ONLY", "").split()
    unknown = set(asked) - {scenario.name for scenario in PLAN + LAST}
    if unknown:
        raise Failed("there is no scenario %s" % " ".join(sorted(unknown)))

    def chosen(scenarios):
        return [scenario for scenario in scenarios
                if (scenario.rows() if rows_asked else not asked or scenario.name in asked)]

    plan, last = chosen(PLAN), chosen(LAST)
    # ZooKeeper's own compiler has work to do, too; nobody should pay for it.
    with contest("warm-up", "raw"):
        rivals["raw"].ask("lock", clients=16, locks=16, prefix="warm", ms=mode.java)
    for scenario in plan:
        scenario.first_rounds()
    reserve = 0 if not last else mode.held_limit if rows_asked else mode.reserve
    deadline -= reserve
    go_on(plan)
    deadline += reserve
    for scenario in last:
        scenario.first_rounds()
    for rival in rivals.values():
        rival.stop()
    if counting:
        counting.stop()
    print_rows()


PLAN = [Scenario(usual), Scenario(zipf, limit="zipf_limit"), Scenario(idle), Scenario(once),
        Scenario(lone), Scenario(distinct), Scenario(many), Scenario(counted), Scenario(hot),
        Scenario(waits), Scenario(relay), Scenario(retained, labels=["retained_hot"]),
        Scenario(waiters), Scenario(search, "single_round"), Scenario(claims, labels=["renewed", "used"]),
        Scenario(pgbench, "pgbench_rounds", ["slot"], "pgbench_limit"),
        Scenario(instructions, "single_round"), Scenario(once_code, "single_round"),
        Scenario(tracked)]
# Of the first two, a round is many.  The others leave much that ZooKeeper clears
# away during the next minute.
LAST = [Scenario(crowd, "single_round"), Scenario(leader, "single_round"),
        Scenario(fleet, "single_round"), Scenario(held, "single_round", ["most"]),
        Scenario(sales, "single_round")]
deadline = time.monotonic() + float(env.get("BENCH_SECONDS") or mode.limit)

try:
    main()
except Failed as cause:
    sys.exit("bench: %s" % cause)
if failures:
    print("bench: failed: %s" % ", ".join(sorted(set(failures))), file=sys.stderr)
    sys.exit(1 if any(name.startswith("zklock") for name in failures) else 3)
