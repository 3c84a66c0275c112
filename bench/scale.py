"""What 8,000 locks cost, each, beside 100: started by "bench/run scale".

usage: scale.py full|quick DIRECTORY; the servers are in the environment
(BENCH_*).  An instance with room for them does what instances do with many locks,
with 100, 1,000 and 8,000 of them in turns.  PostgreSQL's own advisory
locks do the same where they can, since their cost is part of ours.

DIRECTORY gets scale.md.
"""
import os
import sys
import time
from collections import defaultdict
from statistics import median

from connections import PATIENCE, Proxy, ask, connect, env, wait_until

quick = sys.argv[1] == "quick"
out = sys.argv[2]
SIZES = (100, 1000) if quick else (100, 1000, 8000)
ROUNDS = int(env.get("BENCH_ROUNDS") or (1 if quick else 3))
TOGETHER = 250              # locks in one zk_lock_all
ENOUGH = 0.2 if quick else 1.0      # seconds that each figure is measured for, or
AT_MOST = 5.0                       # seconds for all that one repetition tells
RETAINED = 3                # seconds
QUIET = 0.2                 # seconds without work after which a worker has done it

OPERATIONS = {
    "take": "`zk_lock`, one by one",
    "unlock": "`zk_unlock`, one by one, until all are given back",
    "take_all": "`zk_lock_all`, %d at a time" % TOGETHER,
    "commit": "COMMIT",
    "give_back": "the same, until all are given back",
    "expire": "retained locks expire, until all are given back",
    "zk_locks": "`SELECT count(*) FROM zk_locks`",
    "new_worker": "a new worker takes them over",
    "reconnect": "the connection is lost, and regained",
    "advisory": "`pg_advisory_lock`, one by one",
    "advisory_unlock": "`pg_advisory_unlock`, one by one",
    "pg_locks": "`SELECT count(*) FROM pg_locks`",
}
# that nobody has to mend here


def busy_time(pid):
    """Processor time of all threads of a process, to the ns; one that ends takes
    its part away."""
    total = 0
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/schedstat" % (pid, task)) as file:
                total += int(file.read().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return total / 1e9


def processor_time(pid):
    """Of a process, in seconds, to the tick."""
    with open("/proc/%d/stat" % pid) as file:
        own = file.read().rpartition(")")[2].split()[11:13]
    return sum(map(int, own)) / os.sysconf("SC_CLK_TCK")


class Instance:
    def __init__(self):
        self.worker = connect(env["BENCH_SCALE"])
        self.user = connect(env["BENCH_SCALE"])     # whose locks they are
        self.user_pid = ask(self.user, "SELECT pg_backend_pid()")

    def worker_pid(self):
        return ask(self.worker, "SELECT worker_pid FROM zk_session")

    def is_connected(self):
        return ask(self.worker, "SELECT state = 'connected' FROM zk_session")

    def given_back(self):
        return ask(self.worker, "SELECT slots = 0 FROM zk_stat")

    def set(self, **settings):
        """In force, also for the worker, when that is connected again."""
        for name, value in settings.items():
            ask(self.worker, "ALTER SYSTEM SET zklock.%s = '%s'" % (name, value))
        ask(self.worker, "SELECT pg_reload_conf()")
        for name, value in settings.items():
            wait_until(lambda: ask(connect(env["BENCH_SCALE"]), "SELECT setting FROM pg_settings"
                                   " WHERE name = 'zklock.%s'" % name) == str(value), name)
        time.sleep(2 if "servers" in settings else 0.1)
        wait_until(self.is_connected, "the worker is connected")

    def work_ends(self, pid):
        """When the worker has nothing more to do."""
        done, last = time.monotonic(), busy_time(pid)
        end = done + PATIENCE
        while time.monotonic() < min(end, done + QUIET):
            time.sleep(0.01)
            now = busy_time(pid)
            if now - last > 0.002:      # in 0.01 s
                done = time.monotonic()
            last = now
        return done


figures = defaultdict(list)     # (operation, size, metric): by round
instance = Instance()
proxy = Proxy()


class Sums:
    """Of the repetitions of one operation in one round."""

    def __init__(self):
        self.sums = defaultdict(lambda: [0.0, 0.0, 0])
        self.begins = {}

    def add(self, operation, seconds, processor):
        sums = self.sums[operation]
        sums[0] += seconds
        sums[1] += processor
        sums[2] += 1

    def record(self, size):
        for operation, (seconds, processor, times) in self.sums.items():
            for metric, value in (("elapsed", seconds), ("processor", processor)):
                figures[operation, size, metric].append(1e6 * value / times / size)
            print("%-16s %7d  %8.2f us each, %8.2f us of processor time, %d times" % (
                operation, size, 1e6 * seconds / times / size, 1e6 * processor / times / size,
                times), flush=True)


def repeat(size, measure):
    """Until there is enough of the shortest of what it measures."""
    sums = Sums()
    end = time.monotonic() + AT_MOST
    while time.monotonic() < end:
        measure(size, sums)
        if min(of[0] for of in sums.sums.values()) > ENOUGH:
            break
    sums.record(size)


class Timed:
    """Elapsed time and the processor time of the worker and the backend."""

    def __init__(self, sums, operation):
        self.sums, self.operation = sums, operation
        self.pids = (instance.worker_pid(), instance.user_pid)

    def __enter__(self):
        self.processor = sum(map(processor_time, self.pids))
        self.began = time.monotonic()
        self.ended = None
        return self

    def __exit__(self, *failure):
        ended = self.ended or time.monotonic()
        self.sums.add(self.operation, ended - self.began,
                      sum(map(processor_time, self.pids)) - self.processor)


NAME = "'scale/' || to_char(i, 'FM000000')"
names_taken = 0


def numbers(size):
    return "generate_series(1, %d) i" % size


def next_names(size):
    """The numbers of the next names of all those that there are.  So a name is
    taken again when all have been: small numbers are no names that an instance
    takes all the time, for which it would read less."""
    global names_taken
    first = names_taken % SIZES[-1]
    names_taken += size
    return "generate_series(%d, %d) i" % (first, first + size - 1)


def take_all(size):
    ask(instance.user, "SELECT count(zk_lock_all(part)) FROM (SELECT array_agg(%s) AS part"
        " FROM %s GROUP BY i / %d) parts" % (NAME, next_names(size), TOGETHER))


# ---------------------------------------------------------------------------
# What is measured
# ---------------------------------------------------------------------------

def one_by_one(size, sums):
    which = next_names(size)
    with Timed(sums, "take"):
        ask(instance.user, "SELECT count(zk_lock(%s, session => true)) FROM %s" % (NAME, which))
    with Timed(sums, "unlock") as timed:
        ask(instance.user, "SELECT count(*) FILTER (WHERE zk_unlock(%s)) FROM %s" % (NAME, which))
        timed.ended = wait_until(instance.given_back, "the locks are given back")


def together(size, sums):
    ask(instance.user, "BEGIN")
    with Timed(sums, "take_all"):
        take_all(size)
    with Timed(sums, "give_back") as timed:
        with Timed(sums, "commit"):
            ask(instance.user, "COMMIT")
        timed.ended = wait_until(instance.given_back, "the locks are given back")


def expiry(size, sums):
    ask(instance.user, "BEGIN")
    take_all(size)
    ask(instance.user, "COMMIT")
    due = time.monotonic() + RETAINED
    if ask(instance.worker, "SELECT slots FROM zk_stat") < size:
        sys.exit("bench: not all locks are retained")
    while time.monotonic() < due - 0.01:
        time.sleep(0.001)
    with Timed(sums, "expire") as timed:
        timed.began = due
        timed.ended = wait_until(instance.given_back, "the locks are given back")


def listed(size, sums):
    for _ in range(10):
        with Timed(sums, "zk_locks"):
            if ask(instance.user, "SELECT count(*) FROM zk_locks") != size:
                sys.exit("bench: not all locks are in zk_locks")


def new_worker(size, sums):
    old = instance.worker_pid()
    ask(instance.worker, "SELECT pg_terminate_backend(%d)" % old)
    wait_until(lambda: instance.worker_pid() not in (None, old), "a new worker")
    pid = instance.worker_pid()
    started = float(ask(instance.worker, "SELECT extract(epoch FROM clock_timestamp() -"
                        " backend_start) FROM pg_stat_activity WHERE pid = %d" % pid))
    began = time.monotonic() - started
    wait_until(instance.is_connected, "the new worker is connected")
    sums.add("new_worker", instance.work_ends(pid) - began, processor_time(pid))


def reconnect(size, sums):
    pid = instance.worker_pid()
    before = ask(instance.worker, "SELECT reconnects + 1 FROM zk_session")
    processor = processor_time(pid)
    began = time.monotonic()
    proxy.ask("reset", "zookeeper")
    wait_until(lambda: ask(instance.worker, "SELECT reconnects >= %d FROM zk_session"
                           % before), "the session is connected again")
    sums.add("reconnect", instance.work_ends(pid) - began, processor_time(pid) - processor)


def advisory(size, sums):
    with Timed(sums, "advisory"):
        ask(instance.user, "SELECT count(pg_advisory_lock(i)) FROM " + numbers(size))
    for _ in range(10):
        with Timed(sums, "pg_locks"):
            ask(instance.user, "SELECT count(*) FROM pg_locks")
    with Timed(sums, "advisory_unlock"):
        ask(instance.user, "SELECT count(pg_advisory_unlock(i)) FROM " + numbers(size))


def while_held(size):
    """What is done with locks that are held."""
    ask(instance.user, "BEGIN")
    take_all(size)
    for measure in (listed, new_worker, reconnect):
        repeat(size, measure)
    ask(instance.user, "COMMIT")
    wait_until(instance.given_back, "the locks are given back")


def make_directories():
    """They last: what is measured is not how directories are made."""
    ask(instance.user, "BEGIN")
    take_all(SIZES[-1])
    ask(instance.user, "COMMIT")
    wait_until(instance.given_back, "the locks are given back")


def one_round(turn):
    sizes = SIZES[::-1 if turn % 2 else 1]
    for measure in (advisory, one_by_one, together):
        if is_chosen(measure):
            for size in sizes:
                repeat(size, measure)
    if is_chosen(expiry):
        instance.set(retain_time=RETAINED * 1000)
        for size in sizes:
            repeat(size, expiry)
        instance.set(retain_time=0)
    if is_chosen(while_held):
        instance.set(servers="127.0.0.1:%d" % proxy.port)
        for size in sizes:
            while_held(size)
        instance.set(servers=env["BENCH_ZOOKEEPER"])


def is_chosen(measure):
    asked = env.get("BENCH_ONLY", "").split()
    return not asked or measure.__name__ in asked


# ---------------------------------------------------------------------------
# The report
# ---------------------------------------------------------------------------

def shown(value):
    return "%.3g" % value if value < 100 else "%.0f" % value


def report():
    lines = [
        "# The cost of a lock beside many others", "",
        "Made by `bench/run scale`; bench/README.md describes what is measured, and how.",
        "Microseconds for each lock, elapsed and of processor time (of the worker and the",
        "backend), medians of %d rounds; the ratio is that of the largest number to the" % ROUNDS,
        "smallest, within each round: the median, the lowest and the highest.", ""]
    with open(os.path.join(out, "about.txt")) as about:
        lines += ["|  |  |", "|---|---|"]
        lines += ["| %s | %s |" % tuple(line.strip().split(": ", 1)) for line in about]
    lines += ["", "| | " + " | ".join("%s locks" % format(size, ",") for size in SIZES)
              + " | ratio | of processor time |",
              "|---|" + "---|" * (len(SIZES) + 2)]
    for operation, what in OPERATIONS.items():
        if (operation, SIZES[-1], "elapsed") not in figures:
            continue
        of = {metric: [median(figures[operation, size, metric]) for size in SIZES]
              for metric in ("elapsed", "processor")}
        # processor time comes in ticks of the clock: there may be none
        ratios = {metric: [large / small for large, small in
                           zip(figures[operation, SIZES[-1], metric],
                               figures[operation, SIZES[0], metric]) if small]
                  for metric in of}
        lines.append("| %s | %s | %s | %s |" % (
            what, " | ".join("%s (%s)" % (shown(a), shown(b))
                             for a, b in zip(of["elapsed"], of["processor"])),
            *("%.2f (%.2f to %.2f)" % (median(ratio), min(ratio), max(ratio)) if ratio else "–"
              for ratio in ratios.values())))
    with open(os.path.join(out, "scale.md"), "w") as file:
        file.write("\n".join(lines) + "\n")
    print("\n".join(line for line in lines if line.count("|") > 3))


def main():
    wait_until(instance.is_connected, "the worker is connected")
    make_directories()
    for turn in range(ROUNDS):
        one_round(turn)
    report()
    proxy.stop()


main()
