"""Compares zklock of this checkout with that of a commit, by rows: for bench/run.

usage: against.py full|quick ROW..., started by bench/run, which has built both
and made an instance of each, in the directories "tree" and "commit", whose
ports and programs are in the environment (BENCH_*).

In a round both run the row's transactions for a third of a second each, in an
order that changes.  The figure of a round is the ratio of the times that a transaction
takes: above 1 the checkout is slower.  There are rounds until the 95 % interval
of their median is close to it, or until time is over.  Where a row has a count,
it is that of the instructions that a backend executes for a transaction.
"""
import os
import sys
import time
from statistics import median
from types import SimpleNamespace

from bounds import interval, number
from commands import Counting, Failed, pg_ctl, pgbench_line, run_command

CLOSE = 0.01                # how near the ends of a row's interval must be to its median
LEAST_ROUNDS = 6            # fewer have no interval

MODES = {
    "full": SimpleNamespace(seconds=0.3, limit=180, counted=1000),
    "quick": SimpleNamespace(seconds=0.3, limit=30, counted=200),
}
mode = MODES[sys.argv[1]]
env = os.environ
limit = float(env.get("BENCH_SECONDS", mode.limit))


def row(name, what, statement, clients=1, retained=False, counted=False):
    """statement: between BEGIN and COMMIT.  retained: the lock stays with the
    instance between its transactions.  counted: instructions, too."""
    return SimpleNamespace(name=name, what=what, statement=statement, clients=clients,
                           retain_time="1h" if retained else "0", counted=counted)


def all_of(n):
    return ("SELECT zk_lock_all(array_agg('all/' || i)) FROM generate_series(1, %d) i" % n)


ROUND = "\\set i random(1, 64)\n"
ROWS = [
    row("cycle", "one client, 64 names: each lock comes from ZooKeeper",
        ROUND + "BEGIN;\nSELECT zk_lock('cycle/' || :i)"),
    row("own", "64 clients, each with a name of its own",
        "BEGIN;\nSELECT zk_lock('own/' || :client_id)", clients=64),
    row("shared", "one client, 64 names, shared",
        ROUND + "BEGIN;\nSELECT zk_lock('shared/' || :i, shared => true)"),
    row("try", "zk_try_lock, one client, 64 names",
        ROUND + "BEGIN;\nSELECT zk_try_lock('try/' || :i)"),
    row("permit", "zk_acquire, one client, 64 names",
        ROUND + "BEGIN;\nSELECT zk_acquire('permit/' || :i, 2)"),
    row("any", "zk_lock_any of ten names, one client",
        "BEGIN;\nSELECT zk_lock_any(array_agg('any/' || i)) FROM generate_series(1, 10) i"),
    row("handoff", "16 clients, one name",
        "BEGIN;\nSELECT zk_lock('handoff')", clients=16),
    row("retained", "one client, one name that stays with the instance",
        "BEGIN;\nSELECT zk_lock('retained')", retained=True, counted=True),
    row("retained-try", "the same, zk_try_lock",
        "BEGIN;\nSELECT zk_try_lock('retained-try')", retained=True, counted=True),
    row("retained-shared", "the same, shared",
        "BEGIN;\nSELECT zk_lock('retained-shared', shared => true)", retained=True, counted=True),
    row("all-2", "zk_lock_all of 2 names, one client", "BEGIN;\n" + all_of(2)),
    row("all-10", "zk_lock_all of 10 names, one client", "BEGIN;\n" + all_of(10)),
    row("all-100", "zk_lock_all of 100 names, one client", "BEGIN;\n" + all_of(100)),
    row("retained-all", "zk_lock_all of 10 names that stay with the instance, one client",
        "BEGIN;\n" + all_of(10), retained=True, counted=True),
]


class Side:
    """The server of one of the two."""

    def __init__(self, name):
        self.name = name
        self.port = env["BENCH_PORT_" + name.upper()]
        self.programs = env["BENCH_PROGRAMS_" + name.upper()]

    def control(self, action, *settings):
        pg_ctl(action, self.name, *settings, program=self.programs + "/pg_ctl")

    def settings(self, a_row):
        return ["zklock.retain_time=" + a_row.retain_time,
                "zklock.max_retain_time=1h", "zklock.root=/%s/%s" % (self.name, a_row.name)]

    def options(self, a_row):
        return ["-n", "-M", "prepared", "-f", a_row.name + ".sql", "-c", str(a_row.clients)]

    def time_of(self, a_row, *amount):
        """What a transaction takes, by the rate that pgbench tells, in s."""
        answer = run_command(pgbench_line(self.port, *self.options(a_row), *amount))
        rates = [float(line.split()[2]) for line in answer.splitlines() if line.startswith("tps")]
        if not rates or rates[0] == 0:
            raise Failed("pgbench does not tell the rate: " + answer)
        return 1 / rates[0]

    def count(self, a_row):
        counting = Counting(self.name, self.port, a_row.name, *self.settings(a_row),
                            postgres=self.programs + "/postgres")
        try:
            counting.start()
            return counting.of_a_transaction(mode.counted, *self.options(a_row))
        finally:
            self.control("stop")


def is_close(ratios):
    ends = interval(ratios)
    middle = median(ratios)
    return ends is not None and all(abs(end - middle) <= CLOSE * middle for end in ends)


def measure(a_row, sides):
    """The times of a transaction, by side, of each round."""
    times = [[] for _ in sides]
    for side in sides:
        side.control("start", *side.settings(a_row))
    try:
        # these fill caches, and make directories
        first = max(side.time_of(a_row, "-T", "1") for side in sides)
        amount = ["-t", str(max(1, int(mode.seconds / first / a_row.clients)))]
        end = time.monotonic() + limit
        while len(times[0]) < LEAST_ROUNDS or (
                time.monotonic() < end and not is_close([x / y for x, y in zip(*times)])):
            turn = len(times[0])
            for i in (0, 1) if turn % 2 else (1, 0):
                times[i].append(sides[i].time_of(a_row, *amount))
    finally:
        for side in sides:
            side.control("stop")
    return times


def main():
    asked = sys.argv[2:]
    sides = [Side("tree"), Side("commit")]
    print("| row | tree, ms | commit, ms | tree over commit | 95 % interval, rounds"
          " | instructions: tree, commit, ratio |\n|---|---|---|---|---|---|", flush=True)
    for a_row in ROWS:
        if a_row.name not in asked:
            continue
        with open(a_row.name + ".sql", "w") as file:
            file.write(a_row.statement + ";\nCOMMIT;\n")
        times = measure(a_row, sides)
        ratios = [x / y for x, y in zip(*times)]
        counts = [side.count(a_row) for side in sides] if a_row.counted else None
        print("| %s: %s | %s | %s | %.3f | %.3f to %.3f, %d | %s |" % (
            a_row.name, a_row.what, *(number(1000 * median(of)) for of in times), median(ratios),
            *interval(ratios), len(ratios),
            "%s, %s, %.4f" % (*map(number, counts), counts[0] / counts[1]) if counts else ""),
            flush=True)


main()
