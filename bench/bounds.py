"""The rows of the table of bounds, and what is known of each: for drive.py,
which goes on measuring until that is enough, and for report.py.
"""
import csv
from collections import defaultdict
from math import comb
from statistics import median
from types import SimpleNamespace

CLOSE = 0.05                # how near the ends of a row's interval must be to its median


class Figures:
    """What was measured, by scenario, rival, x (clients, ...), metric, round."""

    def __init__(self):
        self.by_metric = defaultdict(dict)

    @classmethod
    def read(cls, file_name):
        figures = cls()
        with open(file_name) as file:
            for line in csv.DictReader(file):
                figures.add(line["scenario"], line["rival"], int(line["x"]), line["round"],
                            line["metric"], float(line["value"]))
        return figures

    def add(self, scenario, rival, x, turn, metric, value):
        self.by_metric[scenario, rival, x, metric][turn] = value

    def rounds(self, *which):
        return self.by_metric.get(which, {})

    def values(self, *which):
        return list(self.rounds(*which).values())

    def keys(self):
        return {key[:3] for key in self.by_metric}

    def metrics(self, *which):
        return [key[3] for key in self.by_metric if key[:3] == which]


def interval(values):
    """The 95 % interval of the median, by order statistics: the narrowest pair
    of values, equally far from both ends, between which the true median is
    with that probability, whatever the distribution.  Of n values k are below
    the true median with the probability C(n, k) / 2^n.  None if there are less
    than six values, which cannot tell."""
    ordered = sorted(values)
    n = len(ordered)
    rank, outside = None, 0.0
    for k in range(n // 2):
        outside += 2 * comb(n, k) / 2 ** n
        if outside > 0.05:
            break
        rank = k
    return None if rank is None else (ordered[rank], ordered[n - 1 - rank])


def row(name, what, bound, toward, needs, formula=None, close=CLOSE):
    """name: for "bench/run row".  bound: "<= 1.2" or ">= 2".  needs: figures
    (scenario, rival, x, metric), from whose values in a round the formula makes
    the row's (two: the first over the second).  close: see CLOSE; None for what
    does not vary with the machine's load."""
    sign, must = bound.split()
    if formula is None:
        formula = (lambda value: value) if len(needs) == 1 else (lambda a, b: a / b)
    return SimpleNamespace(name=name, what=what, at_most=sign == "<=", must=float(must),
                           toward=toward, needs=needs, formula=formula, close=close)


ROWS = [
    row("usual-curator", "with the defaults: lone cycle p50, the same name with pauses of 10 ms,"
        " over Curator's", "<= 0.1", "0.05",
        [("usual", "zklock-h", 1, "cycle_p50"), ("usual", "curator", 1, "cycle_p50")]),
    row("usual-redis", "the same over Redis' SET NX PX and its release", "<= 0.25", "0.1",
        [("usual", "zklock-h", 1, "cycle_p50"), ("usual", "redis", 1, "cycle_p50")]),
    row("usual-advisory", "the same over pg_advisory_xact_lock", "<= 2", "1.3",
        [("usual", "zklock-h", 1, "cycle_p50"), ("usual", "advisory", 1, "cycle_p50")]),
    row("own-redis", "with the defaults: 64 clients on distinct locks, over Redis", ">= 1.6", "2",
        [("distinct", "zklock-h", 64, "rate"), ("distinct", "redis", 64, "rate")]),
    row("zipf-rate", "Zipf names over four instances, nine of ten takes of a name by one, with"
        " the defaults: cycles a second, over the same with retain_time = 0", ">= 1.5", "3",
        [("zipf", "zklock-h", 90, "rate"), ("zipf", "zklock", 90, "rate")]),
    row("zipf-p99", "the same: p99 of an acquire, with pauses of 3 ms", "<= 1.1", "1",
        [("zipf", "zklock-h", 90, "acquire_p99"), ("zipf", "zklock", 90, "acquire_p99")]),
    row("alike-rate", "Zipf names over four instances, all alike: cycles a second, over the same",
        ">= 0.95", "1", [("zipf", "zklock-h", 25, "rate"), ("zipf", "zklock", 25, "rate")]),
    row("alike-p99", "the same: p99 of an acquire, with pauses of 3 ms", "<= 1.05", "1",
        [("zipf", "zklock-h", 25, "acquire_p99"), ("zipf", "zklock", 25, "acquire_p99")]),
    row("idle", "acquire p50 of a name that another instance retains by habit, over the same with"
        " retain_time = 0", "<= 3", "2",
        [("idle", "zklock-h", 2, "acquire_p50"), ("idle", "zklock", 2, "acquire_p50")]),
    row("once-requests", "names that are never taken again: requests for each, with the defaults"
        " over retain_time = 0", "<= 1.005", "1",
        [("once", "zklock-h", 1, "requests"), ("once", "zklock", 1, "requests")], close=None),
    row("once-code", "the same: instructions that a backend executes for a transaction",
        "<= 1.005", "1",
        [("once_code", "zklock-h", 1, "instructions"), ("once_code", "zklock", 1, "instructions")],
        close=None),
    row("turns", "a lock that two instances take in turns: COMMIT to grant with the defaults,"
        " over retain_time = 0", "<= 1.05", "1",
        [("relay", "zklock-h", 2, "handover_p50"), ("relay", "zklock", 2, "handover_p50")]),
    row("lone-read", "lone acquire p50 of a name taken before, over raw create and getChildren,"
        " pipelined", "<= 0.85", "0.75",
        [("lone", "zklock", 1, "acquire_p50"), ("lone", "raw", 1, "acquire_p50")]),
    row("lone-create", "the same over raw create alone", "<= 1.25", "1.1",
        [("lone", "zklock", 1, "acquire_p50"), ("lone", "raw-create", 1, "acquire_p50")]),
    row("lone-p99", "lone acquire p99, over Curator's", "<= 1", "0.7",
        [("lone", "zklock", 1, "acquire_p99"), ("lone", "curator", 1, "acquire_p99")]),
    row("lone-curator", "lone acquire to end of transaction, over Curator acquire + release",
        "<= 0.45", "0.35",
        [("lone", "zklock", 1, "cycle_p50"), ("lone", "curator", 1, "cycle_p50")]),
    row("own-raw", "64 backends on distinct locks, over the raw client's single operations",
        ">= 2", "4", [("distinct", "zklock", 64, "rate"), ("distinct", "raw", 64, "rate")]),
    row("own-curator", "the same over Curator with 64 threads", ">= 2.5", "4",
        [("distinct", "zklock", 64, "rate"), ("distinct", "curator", 64, "rate")]),
    row("through-raw", "64 backends on distinct locks, every cycle through ZooKeeper"
        " (handoff_quantum = 0), over the raw client's single operations", ">= 2.5", "3.5",
        [("distinct", "zklock-0", 64, "rate"), ("distinct", "raw", 64, "rate")]),
    row("through-curator", "the same over Curator with 64 threads", ">= 2.5", "4",
        [("distinct", "zklock-0", 64, "rate"), ("distinct", "curator", 64, "rate")]),
    row("many-raw", "64 backends that go round 6,400 names, over the raw client's single"
        " operations", ">= 2", "3",
        [("many", "zklock", 6400, "rate"), ("many", "raw", 6400, "rate")]),
    row("many-reads", "reads sent to ZooKeeper for each of these cycles", "<= 0.05", "0.01",
        [("counted", "zklock", 6400, "reads")], close=None),
    row("many-requests", "all requests for each of these cycles", "<= 0.2", "0.05",
        [("counted", "zklock", 6400, "requests")], close=None),
    row("hot-curator", "one hot lock, 16 backends of one instance, over Curator with 16 threads",
        ">= 15", "30", [("hot", "zklock", 1, "rate"), ("hot", "curator", 1, "rate")]),
    row("hot-advisory", "the same over pg_advisory_xact_lock", ">= 0.9", "1",
        [("hot", "zklock", 1, "rate"), ("hot", "advisory", 1, "rate")]),
    row("spread-rate", "hot lock over two instances, 16 backends each, over the same inside one",
        ">= 0.6", "0.8", [("hot", "zklock", 2, "rate"), ("hot", "zklock", 1, "rate")]),
    row("spread-longest", "hot lock over two instances: longest wait over the median", "<= 5", "3",
        [("hot", "zklock", 2, "longest")]),
    row("spread-p99", "hot lock, 32 backends over two instances: p99 of a wait, over the same of 32"
        " inside one", "<= 3", "2",
        [("waits", "zklock", 2, "wait_p99"), ("waits", "zklock", 1, "wait_p99")]),
    row("spread-share", "hot lock over two instances: smaller instance's share", ">= 0.45", "0.5",
        [("hot", "zklock", 2, "share")]),
    row("relay", "COMMIT in one instance to grant in another, over the raw delete-to-watch",
        "<= 1.25", "1.1",
        [("relay", "zklock", 2, "handover_p50"), ("relay", "raw", 2, "handover_p50")]),
    row("crowd-4", "one lock that 4 instances, 4 backends in each, give up after each transaction:"
        " cost of a handover, over that with 2 instances", "<= 1.2", "1",
        [("crowd", "zklock", 4, "handover"), ("crowd", "zklock", 2, "handover")]),
    row("crowd-8", "the same with 8 instances", "<= 1.2", "1",
        [("crowd", "zklock", 8, "handover"), ("crowd", "zklock", 2, "handover")]),
    row("leader", "ZooKeeper's leader is killed, of 3 servers: longest time without a grant, over"
        " the raw client's without an acknowledged write, in the same kill", "<= 1.1", "1",
        [("leader", "zklock", 1, "gap"), ("leader", "raw", 1, "gap")]),
    row("retained-1", "retained lock, 1 backend, over pg_advisory_xact_lock", ">= 0.8", "1",
        [("retained", "zklock-r", 1, "rate"), ("retained", "advisory", 1, "rate")]),
    row("retained-16", "the same, 16 backends, each its own", ">= 0.8", "1",
        [("retained", "zklock-r", 16, "rate"), ("retained", "advisory", 16, "rate")]),
    row("retained-hot", "the same, 16 backends on one retained lock", ">= 0.8", "1",
        [("retained_hot", "zklock-r", 16, "rate"), ("retained_hot", "advisory", 16, "rate")]),
    row("renew-table", "renewals of 16 claims, over those of 16 leases in a table, by UPDATE",
        ">= 2", "5", [("renewed", "claim-renew", 16, "rate"), ("renewed", "lease-renew", 16, "rate")]),
    row("renew-etcd", "the same over keepalives of etcd's leases", ">= 1", "2",
        [("renewed", "claim-renew", 16, "rate"), ("renewed", "etcd-renew", 16, "rate")]),
    row("use-table", "transactions of 16 backends that change a row under a claim, over those that"
        " change it and renew a lease in a table", ">= 1", "1.2",
        [("used", "claim-use", 16, "rate"), ("used", "lease-use", 16, "rate")]),
    # close: the interval is narrower than 1 %
    row("pgbench", "pgbench -S with zklock loaded over without", ">= 0.99", "1",
        [("pgbench", "with", 1, "over_without")], close=0.005),
    row("pgbench-code", "the same, instructions that a backend executes for a transaction,"
        " with over without", "<= 1.01", "1",
        [("instructions", "with", 1, "over_without")], close=None),
    row("track-code", "a lock that is handed on, with zklock.max_tracked_locks over without:"
        " instructions that a backend executes for a transaction", "<= 1.01", "1.005",
        [("tracked", "on", 1, "over_off")], close=None),
    row("track", "the same, 16 backends on one lock, transactions a second", ">= 0.95", "1",
        [("tracked", "on", 16, "over_off")]),
    row("held", "acquire p50 with %s locks held, over that with %s", "<= 1.3", "1.1",
        [("most", "zklock", 1, "acquire_p50"), ("most", "zklock-few", 1, "acquire_p50")]),
    row("search", "acquire p99.9 in an instance that searches for deadlocks: one of its sessions"
        " holds 1,000 locks that others want, and waits; ms", "<= 100", "20",
        [("search", "zklock", 1000, "acquire_p999_ms")], close=None),
    row("fleet", "acquire p99.9 beside a session of the same instance that lists the fleet's locks,"
        " 10,000 names, again and again, less that without it; ms", "<= 20", "5",
        [("fleet", "zklock", 10000, "acquire_p999_ms"), ("fleet", "zklock", 0, "acquire_p999_ms")],
        formula=lambda beside, alone: beside - alone, close=None),
    row("fleet-longest", "the same: longest acquire", "<= 20", "10",
        [("fleet", "zklock", 10000, "acquire_max_ms"), ("fleet", "zklock", 0, "acquire_max_ms")],
        formula=lambda beside, alone: beside - alone, close=None),
    row("slot", "bytes of shared memory a slot", "<= 512", "448",
        [("slot", "zklock", 1, "bytes")], close=None),
]


def row_values(a_row, figures):
    """The row's value in each round that has all it needs."""
    first, *others = [figures.rounds(*need) for need in a_row.needs]
    return [a_row.formula(value, *(of[turn] for of in others)) for turn, value in first.items()
            if all(of.get(turn) for of in others)]


def row_what(a_row, figures):
    """What the row is about."""
    if "%s" not in a_row.what:
        return a_row.what
    return a_row.what % tuple(
        number(max(figures.values("most", name, 1, "locks"), default=0))
        for name in ("zklock", "zklock-few"))


def is_known(a_row, values):
    """Is it measured as closely as it must be?"""
    if a_row.close is None:
        return bool(values)
    ends = interval(values)
    middle = median(values) if values else 0
    return ends is not None and all(abs(end - middle) <= a_row.close * middle for end in ends)


def row_text(a_row, values):
    """measured, its interval, and whether the bound is met, as text."""
    if not values:
        return "not available", "", ""
    ends = interval(values)
    middle = median(values)
    met = middle <= a_row.must if a_row.at_most else middle >= a_row.must
    if a_row.close is None or len(values) == 1:
        shown = ""
    elif ends is None:
        shown = "%s to %s in %d rounds" % (number(min(values)), number(max(values)), len(values))
    else:
        shown = "%s to %s, %d rounds%s" % (number(ends[0]), number(ends[1]), len(values),
                                           "" if is_known(a_row, values) else ", not close")
    return number(middle), shown, "yes" if met else "**no**"


def bound_text(a_row):
    return ("≤ " if a_row.at_most else "≥ ") + "%g" % a_row.must


def number(value):
    """With three digits, or all before the point."""
    if abs(value) >= 1000:
        return "{:,.0f}".format(value)
    return "%.3g" % value
