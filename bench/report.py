"""Makes README.md and the plots from results.csv, about.txt and failures.txt.

usage: report.py DIRECTORY
"""
import os
import subprocess
import sys
from statistics import median

import bounds
from bounds import number

out = sys.argv[1]
failed = os.path.join(out, "failures.txt")
NAMES = {
    "zklock": "zklock",
    "zklock-h": "zklock, defaults",
    "zklock-0": "zklock, handoff_quantum = 0",
    "curator": "Curator InterProcessMutex",
    "writelock": "ZooKeeper's WriteLock",
    "kazoo": "kazoo Lock",
    "redis": "Redis SET NX PX",
    "etcd": "etcd Mutex",
    "zklock-r": "zklock, retained locks",
    "mariadb": "MariaDB GET_LOCK",
    "advisory": "pg_advisory_xact_lock",
    "claim-renew": "zklock, a claim",
    "claim-use": "zklock, a claim",
    "lease-renew": "a lease in a table",
    "lease-use": "a lease in a table",
    "etcd-renew": "a lease of etcd's",
    "raw": "raw C client, single operations",
    "raw-create": "raw C client, create without the read",
    "raw-multi": "raw C client, multis with reads",
    "raw-blind": "raw C client, multis without reads",
    "raw-blind-2": "the same, two flights at a time",
    "with": "with zklock loaded",
    "without": "without",
}

figures = bounds.Figures.read(os.path.join(out, "results.csv"))


def with_spread(values):
    """The median, and the lowest and highest where there are several."""
    if not values:
        return "-"
    text = number(median(values))
    if len(values) > 1:
        text += " (%s to %s)" % (number(min(values)), number(max(values)))
    return text


def values(*which):
    return figures.values(*which)


def xs(scenario):
    return sorted({x for s, _, x in figures.keys() if s == scenario})


def of(scenario, x=None):
    return [name for name in NAMES if any(
        s == scenario and r == name and x in (None, at) for s, r, at in figures.keys())]


def ratio_rows():
    for row in bounds.ROWS:
        ratio, interval, _ = bounds.row_text(row, bounds.row_values(row, figures))
        yield (bounds.row_what(row, figures), "lower" if row.at_most else "higher", ratio, interval)


def table(header, rows):
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def by_x(scenario, metric, label):
    """A table with a column for each x."""
    return table([label] + [number(x) for x in xs(scenario)],
                 [[NAMES[name]] + [with_spread(values(scenario, name, x, metric))
                                   for x in xs(scenario)] for name in of(scenario)])


def by_metric(scenario, x, **metrics):
    """A table with a column for each metric."""
    return table([""] + list(metrics.values()),
                 [[NAMES[name]] + [with_spread(values(scenario, name, x, metric))
                                   for metric in metrics] for name in of(scenario, x)])


def sections():
    yield "# zklock and its rivals, measured"
    yield ""
    yield "Made by `bench/run`; bench/README.md describes what is measured, and how."
    yield "Figures are medians of the rounds, with the lowest and the highest in parentheses."
    yield "All rounds are in [results.csv](results.csv)."
    yield ""
    with open(os.path.join(out, "about.txt")) as about:
        yield from table(["", ""], [line.rstrip().split(": ", 1) for line in about])
    yield "## Ratios"
    yield ""
    yield "The median of the rounds' ratios, and its 95 % interval by order statistics (from six"
    yield "rounds on; before that, the lowest and the highest)."
    yield "A row is measured until both ends are within 5 % of the median (0.5 % for pgbench), or"
    yield "until its time is over (\"not close\"); without an interval are rows that the machine's"
    yield "load does not change."
    yield ""
    yield from table(["zklock, over what is named", "better is", "ratio", "95 % interval"], ratio_rows())
    if os.path.exists(failed):
        yield "Failed, and therefore not in the figures:"
        yield ""
        with open(failed) as lines:
            yield from ("- `%s`" % line.rstrip() for line in lines)
        yield ""
    yield "## With the defaults"
    yield ""
    yield "Here and below \"zklock\" has `zklock.retain_time = 0`, and so goes through ZooKeeper."
    yield ""
    yield "One client that takes the same lock again and again, with pauses of 10 ms: the cycle, in"
    yield "µs."
    yield ""
    yield from by_metric("usual", 1, cycle_p50="p50", cycle_p99="p99")
    yield "Distinct locks, 64 clients that take their own again at once: cycles a second."
    yield ""
    yield from table(["", "64 clients"],
                     [[NAMES[name], with_spread(values("distinct", name, 64, "rate"))]
                      for name in ("zklock-h", "redis", "advisory")])
    for home, whose in ((90, "nine of ten takes of a name by one"), (25, "all alike")):
        yield "8 clients over four instances, 400 names by Zipf's law, %s." % whose
        yield ""
        yield from by_metric("zipf", home, rate="cycles a second", acquire_p50="acquire p50, µs",
                             acquire_p99="acquire p99, µs")
        yield "The same in a closed loop with more clients than the processors carry."
        yield ""
        yield from by_metric("zipf", home, rate16="16 clients, cycles a second",
                             p99_16="acquire p99, µs", rate64="64 clients", p99_64="p99, µs")
    yield "The first acquire of a name that another instance has taken every 5 ms, in µs."
    yield ""
    yield from by_metric("idle", 2, acquire_p50="p50")
    yield "Names that are never taken again: for each, requests to ZooKeeper, and instructions that"
    yield "the backend executes."
    yield ""
    yield from table(["", "requests", "instructions"],
                     [[NAMES[name], with_spread(values("once", name, 1, "requests")),
                       with_spread(values("once_code", name, 1, "instructions"))]
                      for name in ("zklock-h", "zklock")])
    yield "## A lone client"
    yield ""
    yield "Latencies in µs, with pauses between the cycles."
    yield ""
    yield from by_metric("lone", 1, acquire_p50="acquire p50", acquire_p99="acquire p99",
                         cycle_p50="cycle p50", cycle_p99="cycle p99")
    yield "![latency of a lone acquire](latency.svg)"
    yield ""
    yield "## Distinct locks"
    yield ""
    yield "Cycles a second, by the number of clients. Each takes its own lock again at once. With"
    yield "the default `zklock.handoff_quantum` it takes back a release that has not been sent yet;"
    yield "with 0 every cycle goes through ZooKeeper, as with all the others."
    yield ""
    yield from by_x("distinct", "rate", "clients")
    yield "![throughput against clients](throughput.svg)"
    yield ""
    yield "64 clients that go round 6,400 names, cycles a second."
    yield ""
    yield from by_x("many", "rate", "names")
    if xs("counted"):
        yield "Requests to ZooKeeper for a cycle of zklock there, as a proxy has counted them."
        yield ""
        kinds = figures.metrics("counted", "zklock", xs("counted")[0])
        yield from by_metric("counted", xs("counted")[0], reads="reads", requests="all", **{
            kind: kind[len("kind_"):] for kind in kinds if kind.startswith("kind_")})
    yield "## One hot lock"
    yield ""
    for n in xs("hot"):
        yield "16 clients of %s." % ("one instance (or session)" if n == 1 else
                                     "each of %d instances (or sessions)" % n)
        yield ""
        yield from by_metric("hot", n, rate="cycles a second", share="the smallest one's share",
                             wait_p50="median wait, µs", wait_longest="longest wait, µs",
                             longest="longest over median")
    yield "32 clients of zklock: their waits, in µs."
    yield ""
    yield from table(["instances", "p50", "p99", "longest"],
                     [[number(n)] + [with_spread(values("waits", "zklock", n, metric))
                                     for metric in ("wait_p50", "wait_p99", "wait_longest")]
                      for n in xs("waits")])
    yield "## From one instance to another"
    yield ""
    yield "From the COMMIT (release, delete) of the holder to the grant of the waiter, in µs."
    yield ""
    yield from by_metric("relay", 2, handover_p50="p50", handover_p99="p99")
    yield "One lock that small instances give up after each transaction, 4 clients in each, by the"
    yield "number of instances: µs from a grant to the next one in another instance."
    yield ""
    yield from by_x("crowd", "handover", "instances")
    yield "## ZooKeeper's leader is killed"
    yield ""
    yield "Of three servers: the longest time without a grant, or an acknowledged write, in µs."
    yield ""
    yield from by_metric("leader", 1, gap="median of %d kills" % len(
        values("leader", "zklock", 1, "gap")))
    yield "## A retained lock"
    yield ""
    yield "Cycles a second, by the number of backends, each with a lock of its own."
    yield ""
    yield from by_x("retained", "rate", "backends")
    yield "16 backends, all with the same one."
    yield ""
    yield from by_metric("retained_hot", 16, rate="cycles a second")
    yield "## Claims"
    yield ""
    yield "Renewals a second, by the number of clients, each with a claim or lease of its own."
    yield ""
    yield from by_x("renewed", "rate", "clients")
    yield "Transactions a second that change one row under it."
    yield ""
    yield from by_x("used", "rate", "clients")
    yield "## The demo's inventory"
    yield ""
    yield "Two shops sell the stock of one warehouse, 32 customers in each."
    yield ""
    yield from by_metric("sales", 64, rate="sales a second", sold="sold", oversold="oversold")
    yield "## Cost against scale"
    yield ""
    yield "A lone acquire (p50, µs), by the number of other locks that are held."
    yield ""
    yield from by_x("held", "acquire_p50", "held")
    yield "![cost against held locks](held.svg)"
    yield ""
    yield "Time per grant of one hot lock (µs), by the number of waiters."
    yield ""
    yield from by_x("waiters", "cost", "waiters")
    yield "![cost against waiters](waiters.svg)"
    yield ""
    yield from by_metric("search", 1000, acquire_p999_ms="p99.9 of an acquire beside a search "
                         "for deadlocks, ms")
    for x, where in (0, "with no list of the fleet's locks"), (10000, "beside lists of 10,000"):
        yield ""
        yield from by_metric("fleet", x, acquire_p999_ms="p99.9 of an acquire %s, ms" % where,
                             acquire_max_ms="longest")
    yield ""
    yield "## Who takes no lock"
    yield ""
    yield "`pgbench -S`, transactions a second."
    yield ""
    yield from by_metric("pgbench", 1, rate="transactions a second")


# The same in all plots: colour, and whether the line is dashed
STYLES = {
    "zklock": ("#7b1fa2", False),
    "zklock-h": ("#4a148c", False),
    "zklock-0": ("#7b1fa2", True),
    "curator": ("#2e7d32", False),
    "writelock": ("#9ccc65", False),
    "kazoo": ("#f9a825", False),
    "redis": ("#d32f2f", False),
    "etcd": ("#1e88e5", False),
    "advisory": ("#00838f", False),
    "zklock-r": ("#ce93d8", False),
    "mariadb": ("#8d6e63", False),
    "raw": ("#000000", True),
    "raw-create": ("#444444", True),
    "raw-blind": ("#bbbbbb", True),
    "raw-blind-2": ("#bbbbbb", True),
    "raw-multi": ("#888888", True),
}


def plot(file, title, xlabel, ylabel, lines, *settings):
    """lines: (rival, [(x, y), ...])"""
    lines = [(name, points) for name, points in lines if points]
    if not lines:
        return
    script = ["set terminal svg size 940,450 dynamic noenhanced font 'sans-serif,13'"
              " background '#ffffff'",
              "set output '%s'" % os.path.join(out, file),
              "set title \"%s\"" % title, "set xlabel '%s'" % xlabel, "set ylabel '%s'" % ylabel,
              "set key outside right center Left reverse", "set autoscale xfix",
              "set grid", "set format '%g'", *settings]
    curves = []
    for i, (name, points) in enumerate(lines):
        script += ["$line%d << EOD" % i] + ["%g %g" % point for point in points] + ["EOD"]
        color, dashed = STYLES[name]
        curves.append("$line%d with linespoints lw %d dt %d pt 7 ps 0.5 lc rgb '%s' title \"%s\""
                      % (i, 3 if name == "zklock" else 1, 2 if dashed else 1, color, NAMES[name]))
    script.append("plot " + ", ".join(curves))
    subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=True)


def medians(scenario, metric):
    return [(name, [(x, median(values(scenario, name, x, metric)))
                    for x in xs(scenario) if values(scenario, name, x, metric)])
            for name in of(scenario)]


def quantiles(name):
    return [(median(values("lone", name, 1, metric)), float(metric[1:]))
            for metric in figures.metrics("lone", name, 1) if metric.startswith("q")]


plot("throughput.svg", "Distinct locks", "clients", "cycles a second",
     medians("distinct", "rate"), "set logscale xy")
plot("latency.svg", "A lone acquire", "µs", "% of acquires take no longer",
     [(name, quantiles(name)) for name in of("lone")], "set logscale x", "set yrange [0:100]")
plot("held.svg", "A lone acquire while other locks are held", "locks held", "p50, µs",
     medians("held", "acquire_p50"), "set logscale x", "set yrange [0:]")
plot("waiters.svg", "One hot lock while others wait for it", "waiters", "µs a grant",
     medians("waiters", "cost"), "set logscale xy")
with open(os.path.join(out, "README.md"), "w") as file:
    file.writelines(line + "\n" for line in sections())
