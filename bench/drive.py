"""Runs the scenarios, round by round, and writes what was measured.

usage: drive.py full|quick DIRECTORY, started by bench/run, which has started
the servers and passes their addresses in the environment (BENCH_*).

results.csv gets a row for each figure of each round:
scenario, rival, x (clients, clusters, held locks, ...), round, metric, value.
"""
import csv
import os
import select
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

MODES = {
    # ms and warmup are of each measurement; java is how long a JVM warms up;
    # "others" are the rounds of those whose ratios need not be known exactly
    "full": SimpleNamespace(
        rounds=3, others=2, lone_rounds=5, ms=800, warmup=200, java=4000,
        clients=(1, 16, 64, 256), clusters=(2, 4), held=(10, 100, 1000, 10000),
        waiters=(1, 10, 100, 1000), units=5000, sale_ms=10000, sale_rounds=1,
        waiter_rounds=2, pgbench_turns=8),
    "quick": SimpleNamespace(
        rounds=1, others=1, lone_rounds=1, ms=250, warmup=100, java=1000,
        clients=(1, 64), clusters=(2,), held=(10, 1000),
        waiters=(1, 100), units=200, sale_ms=1000, sale_rounds=1,
        waiter_rounds=1, pgbench_turns=2),
}
PAUSE = 2000                # us between the cycles of a lone client
RELAY_PAUSE = 10000         # us for a waiter to get into its place
ANSWER_LIMIT = 120          # seconds after which a rival counts as hung
QUANTILES = (1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.5)

mode = MODES[sys.argv[1]]
out = sys.argv[2]
env = os.environ
clusters = env["BENCH_CLUSTERS"].split()
shops = env["BENCH_SHOPS"].split(",")


def java(kind):
    # Compiled code of the JVM's better compiler, as in a server that has been
    # up for a while; hence the warm-up.
    return ["java", "-Xmx512m", "-XX:-UsePerfData",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp", "bin:" + env["BENCH_CLASSPATH"],
            "JavaRival", kind, env["BENCH_ZOOKEEPER"]]


def pg(kind, *ports):
    return ["bin/pg", kind, env["BENCH_SOCKETS"], *ports]


COMMANDS = {
    "zklock": pg("zklock", *clusters),
    "zklock-0": pg("zklock", env["BENCH_NO_HANDOFF"]),
    "advisory": pg("advisory", *clusters),
    "curator": java("curator"),
    "writelock": java("writelock"),
    "kazoo": ["/usr/bin/python3", "bin/rivals/kazoorival.py", env["BENCH_ZOOKEEPER"]],
    "redis": ["bin/redis", env["BENCH_REDIS"]],
    "etcd": ["bin/etcd", env["BENCH_ETCD"]],
    "raw": ["bin/raw", "single", env["BENCH_ZOOKEEPER"]],
    "raw-multi": ["bin/raw", "multi", env["BENCH_ZOOKEEPER"]],
}
LOCKS = ["zklock", "curator", "writelock", "kazoo", "redis", "etcd"]
OTHERS = ["writelock", "kazoo", "redis", "etcd"]    # in no bound of report.py


class Failed(Exception):
    pass


class Rival:
    """A program that answers requests; it stays for the whole run, so that
    Java's compiler has to warm up only once."""

    def __init__(self, name):
        self.name = name
        self.process = None
        self.starts = 0
        self.seconds = 0.0      # that it took to answer, and
        self.measured = 0.0     # that it was asked to measure

    def start(self):
        self.starts += 1
        self.process = subprocess.Popen(
            COMMANDS[self.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
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
        try:
            self.process.stdin.write(request.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed("ended before: " + request) from None
        samples = []
        for line in self.lines(request):
            if line == "done":
                return samples
            samples.append(tuple(map(int, line.split())))
        raise Failed("ended at: " + request)

    def lines(self, request):
        pending = b""
        fd = self.process.stdout.fileno()
        while True:
            if not select.select([fd], [], [], ANSWER_LIMIT)[0]:
                raise Failed("did not answer: " + request)
            data = os.read(fd, 1 << 20)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            yield from map(bytes.decode, lines)

    def stop(self, kill=False):
        if self.process is not None:
            if kill:
                self.process.kill()
            self.process.stdin.close()
            self.process.wait()
            self.process = None


failures = []
rivals = {name: Rival(name) for name in COMMANDS}
results_file = open(os.path.join(out, "results.csv"), "w")
results = csv.writer(results_file, lineterminator="\n")
results.writerow(["scenario", "rival", "x", "round", "metric", "value"])


def record(scenario, rival, x, turn, **metrics):
    for metric, value in metrics.items():
        results.writerow([scenario, rival, x, turn, metric, "%.6g" % value])
    results_file.flush()
    print("%-10s %-10s %6s  %s" % (scenario, rival, x, "  ".join(
        "%s %.6g" % m for m in metrics.items() if m[0] not in ("acquire", "cycle")
        and not m[0].startswith("q"))), flush=True)


@contextmanager
def contest(scenario, name):
    """If a rival fails, the others go on, and the report tells."""
    try:
        yield
    except Failed as failure:
        rivals[name].stop(kill=True)
        failures.append(name)
        print("%s: %s failed: %s" % (scenario, name, failure), flush=True)
        with open(os.path.join(out, "failures.txt"), "a") as file:
            file.write("%s, %s: %s\n" % (scenario, name, failure))


def of_round(turn, names, others=()):
    """Who takes part: those that the bounds are about in every round."""
    return [name for name in names
            if turn < mode.others or name not in (*OTHERS, *others)]


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
    """Cycles a second, from the end of the first one to that of the last."""
    ends = [s[3] for s in samples]
    return 1e6 * (len(samples) - 1) / max(1, max(ends) - min(ends))


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
    return subprocess.run(
        ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", env["BENCH_SOCKETS"], "-p", port,
         "-U", "postgres", "-d", database, "-f", "-"],
        input=statement, check=True, capture_output=True, text=True).stdout.strip()


# ---------------------------------------------------------------------------
# Scenarios; each runs one round, all rivals one after the other
# ---------------------------------------------------------------------------

def lone(turn):
    """One client, which pauses between cycles: latencies, not throughput."""
    names = of_round(turn, LOCKS + ["advisory", "raw"], others=["advisory"])
    for name in names[turn % len(names):] + names[:turn % len(names)]:
        with contest("lone", name):
            words = dict(clients=1, locks=8, pause=PAUSE, prefix="lone", ms=mode.ms * 3 // 2)
            samples = lock(name, **words)
            cycles = sorted(s[3] - s[1] for s in samples)
            if name in ("zklock", "advisory"):
                samples = lock(name, split=1, **words)
            acquires = sorted(s[2] - s[1] for s in samples)
            record("lone", name, 1, turn,
                   acquire_p50=quantile(acquires, 50), acquire_p99=quantile(acquires, 99),
                   cycle_p50=quantile(cycles, 50), cycle_p99=quantile(cycles, 99),
                   **{"q%g" % q: quantile(acquires, q) for q in QUANTILES})


def distinct(turn):
    """As many locks as clients, each client its own, as fast as they go."""
    for clients in mode.clients:
        for name in of_round(turn, ["zklock", "zklock-0", *LOCKS[1:],
                                    "advisory", "raw", "raw-multi"]):
            with contest("distinct", name):
                samples = lock(name, clients=clients, locks=clients, prefix="own")
                cycles = sorted(s[3] - s[1] for s in samples)
                record("distinct", name, clients, turn, rate=rate(samples),
                       cycle_p50=quantile(cycles, 50), cycle_p99=quantile(cycles, 99))


def hot(turn):
    """16 clients, one lock, one cluster."""
    for name in of_round(turn, LOCKS + ["advisory"]):
        with contest("hot", name):
            samples = lock(name, clients=16, locks=1, prefix="hot")
            cycles = sorted(s[3] - s[1] for s in samples)
            record("hot", name, 16, turn, rate=rate(samples),
                   cycle_p50=quantile(cycles, 50), cycle_p99=quantile(cycles, 99))


def spread(turn):
    """One lock over several clusters, or sessions, with 16 clients in each."""
    for n in mode.clusters:
        for name in of_round(turn, LOCKS):
            with contest("spread", name):
                samples = lock(name, clients=16 * n, clusters=n, locks=1, prefix="spread",
                               ms=mode.ms * 3 // 2)
                waits = sorted(s[2] - s[1] for s in samples)
                wait = max(1, quantile(waits, 50))
                longest = longest_wait(samples, 16 * n)
                of_cluster = Counter(s[0] % n for s in samples)
                record("spread", name, n, turn, rate=rate(samples),
                       share=min(of_cluster[i] for i in range(n)) / len(samples),
                       wait_p50=wait, wait_longest=longest, longest=longest / wait)


def relay(turn):
    """From COMMIT in one cluster to the grant in another that waits."""
    for name in ("zklock", "curator", "raw"):
        with contest("relay", name):
            samples = rivals[name].ask("relay", ms=mode.ms * 2, warmup=mode.warmup,
                                       pause=RELAY_PAUSE, prefix="relay")
            waits = sorted(s[2] - s[1] for s in samples)
            record("relay", name, 2, turn, handover_p50=quantile(waits, 50),
                   handover_p99=quantile(waits, 99))


def set_in_first_cluster(setting, value, shown):
    change = "RESET %s" % setting if value is None else "SET %s = '%s'" % (setting, value)
    sql(clusters[0], "bench", "ALTER SYSTEM %s; SELECT pg_reload_conf()" % change)
    wait_until(lambda: sql(clusters[0], "bench", "SHOW " + setting) == shown, "SHOW " + setting)


def wait_until(condition, what):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.02)
    sys.exit("waited in vain: " + what)


def retained(turn):
    """A lock that stays with the cluster between its transactions.  It comes
    from ZooKeeper in the warm-up."""
    setting = "zklock.retain_time"
    default = sql(clusters[0], "bench",
                  "SELECT current_setting(name) FROM pg_settings WHERE name = '%s'" % setting)
    if not default:
        print("retained   not available: there is no " + setting, flush=True)
        return
    set_in_first_cluster(setting, "1s", "1s")
    try:
        for scenario, clients, locks in (("retained", 1, 1), ("retained", 16, 16),
                                         ("retained_hot", 16, 1)):
            for name in ("zklock", "advisory"):
                with contest(scenario, name):
                    samples = lock(name, clients=clients, locks=locks, prefix="kept")
                    record(scenario, name, clients, turn, rate=rate(samples))
    finally:
        set_in_first_cluster(setting, None, default)
    # what comes next is measured in a cluster that owns nothing
    contenders = "SELECT count(*) FROM generate_series(0, 15) i, zk_queue('kept' || i)"
    wait_until(lambda: sql(clusters[0], "bench", contenders) == "0",
               "the retained locks are given back")


def held(turn):
    """What a lone acquire costs while the cluster, or session, holds others."""
    names = ["zklock", "curator", "raw"]
    count = 0
    for total in mode.held:
        for name in list(names):
            names.remove(name)
            with contest("held", name):
                rivals[name].ask("hold", count=total - count, prefix="held%d-" % total)
                split = {"split": 1} if name == "zklock" else {}
                samples = lock(name, clients=1, locks=8, pause=PAUSE, prefix="lone", **split)
                acquires = sorted(s[2] - s[1] for s in samples)
                record("held", name, total, turn, acquire_p50=quantile(acquires, 50))
                names.append(name)
        count = total
    for name in names:
        with contest("held", name):
            rivals[name].ask("drop")
    wait_until(lambda: sql(clusters[0], "bench", "SELECT slots FROM zk_stats") == "0",
               "the held locks are given back")


def waiters(turn):
    """What a hot lock costs while so many wait for it."""
    for n in mode.waiters:
        for name in ("zklock", "curator", "redis", "etcd", "advisory"):
            with contest("waiters", name):
                # until all are in the queue, which takes etcd longest
                queueing = n * (3 if name == "etcd" else 1)
                samples = lock(name, clients=n + 1, locks=1, prefix="queue",
                               warmup=mode.warmup + queueing)
                record("waiters", name, n, turn, cost=1e6 / rate(samples))


def sales(turn):
    """The demo: two shops sell what one warehouse has, 32 customers in each."""
    procedure = open("sell.sql").read()
    unlocked = "".join(line for line in procedure.splitlines(True) if "zk_lock" not in line)
    for name in LOCKS:
        with contest("sales", name):
            for port in shops:
                sql(port, "shop", "TRUNCATE orders;"
                    + (procedure if name == "zklock" else unlocked))
            sql(env["BENCH_WAREHOUSE"], "warehouse",
                "TRUNCATE stock; INSERT INTO stock (item, units) VALUES ('lamp', %d)" % mode.units)
            samples = rivals[name].ask("sell", clients=64, clusters=2, ms=mode.sale_ms)
            sold = sum(int(sql(port, "shop", "SELECT count(*) FROM orders")) for port in shops)
            left = int(sql(env["BENCH_WAREHOUSE"], "warehouse", "SELECT sum(units) FROM stock"))
            record("sales", name, 64, turn, rate=rate(samples), sold=sold,
                   oversold=max(0, -left))


def pgbench(turn):
    """pgbench -S, without zklock and with it loaded: two servers with the same
    data take turns of a second.  And the shared memory of a slot."""
    ports = dict(zip(("without", "with"), env["BENCH_PGBENCH"].split(",")))
    loaded = ["shared_preload_libraries=zklock"]

    def pg_ctl(action, name, *settings):
        subprocess.run(["pg_ctl", action, "-w", "-m", "fast", "-D", "pgbench_" + name,
                        "-l", "pgbench_%s.log" % name,
                        "-o", " ".join("-c " + s for s in settings)],
                       check=True, stdout=subprocess.DEVNULL)

    def run(name, *options):
        command = ["pgbench", "-h", env["BENCH_SOCKETS"], "-p", ports[name], "-U", "postgres",
                   *options, "postgres"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    pg_ctl("start", "without")
    pg_ctl("start", "with", *loaded)
    for name in ports:
        run(name, "-i", "-q")
    for i in range(-1, mode.pgbench_turns):
        for name in sorted(ports, reverse=i % 2):
            answer = run(name, "-S", "-n", "-M", "prepared", "-c", "2", "-j", "2", "-T", "1")
            tps = [float(line.split()[2]) for line in answer.splitlines()
                   if line.startswith("tps")]
            if i >= 0:          # the first turn warms up
                record("pgbench", name, 2, turn * mode.pgbench_turns + i, rate=tps[0])
    pg_ctl("stop", "without")
    pg_ctl("stop", "with")

    if turn == 0:
        size = {}
        for locks in (1000, 11000):
            pg_ctl("start", "with", "zklock.max_locks=%d" % locks, *loaded)
            # of the whole segment: elements of hash tables have no name there
            size[locks] = int(sql(ports["with"], "postgres",
                                  "SELECT sum(allocated_size) FROM pg_shmem_allocations"))
            pg_ctl("stop", "with")
        record("slot", "zklock", 1, turn, bytes=(size[11000] - size[1000]) / 10000)


PLAN = [(lone, "lone_rounds"), (distinct, "rounds"), (hot, "rounds"), (spread, "rounds"),
        (relay, "rounds"), (retained, "rounds"), (waiters, "waiter_rounds"), (pgbench, "rounds"),
        # these leave much that ZooKeeper clears away during the next minute
        (held, "rounds"), (sales, "sale_rounds")]
only = env.get("BENCH_ONLY", "").split()

# ZooKeeper's own compiler has work to do, too; nobody should pay for it.
with contest("warm-up", "raw"):
    rivals["raw"].ask("lock", clients=16, locks=16, prefix="warm", ms=mode.java)

for scenario, rounds in PLAN:
    if only and scenario.__name__ not in only:
        continue
    began = time.monotonic()
    for turn in range(getattr(mode, rounds)):
        scenario(turn)
    print("%s took %.0f s, %.0f s of it measuring: %s" % (
        scenario.__name__, time.monotonic() - began,
        sum(rival.measured for rival in rivals.values()),
        ", ".join("%s %.1f of %.1f s" % (rival.name, rival.measured, rival.seconds)
                  for rival in rivals.values() if rival.seconds)), flush=True)
    for rival in rivals.values():
        rival.seconds = rival.measured = 0.0
for rival in rivals.values():
    rival.stop()
if "zklock" in failures:
    sys.exit("zklock failed")
