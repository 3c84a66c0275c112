"""Makes README.md and the plots from results.csv, about.txt and failures.txt,
and removes the latter two.

usage: report.py DIRECTORY
"""
import csv
import os
import subprocess
import sys
from collections import defaultdict
from statistics import median

out = sys.argv[1]
failed = os.path.join(out, "failures.txt")
NAMES = {
    "zklock": "zklock",
    "zklock-0": "zklock, handoff_quantum = 0",
    "curator": "Curator InterProcessMutex",
    "writelock": "ZooKeeper's WriteLock",
    "kazoo": "kazoo Lock",
    "redis": "Redis SET NX PX",
    "etcd": "etcd Mutex",
    "advisory": "pg_advisory_xact_lock",
    "raw": "raw C client, single operations",
    "raw-multi": "raw C client, multis",
    "with": "with zklock loaded",
    "without": "without",
}

# figures[scenario, rival, x][metric] = {round: value}
figures = defaultdict(lambda: defaultdict(dict))
with open(os.path.join(out, "results.csv")) as file:
    for row in csv.DictReader(file):
        figures[row["scenario"], row["rival"], int(row["x"])][row["metric"]][
            row["round"]] = float(row["value"])


def number(value):
    if abs(value) >= 1000:
        return "{:,.0f}".format(value)
    return "%.3g" % value


def with_spread(values):
    """The median, and the lowest and highest where there are several."""
    if not values:
        return "-"
    text = number(median(values))
    if len(values) > 1:
        text += " (%s to %s)" % (number(min(values)), number(max(values)))
    return text


def rounds(scenario, rival, x, metric):
    return figures[scenario, rival, x][metric] if (scenario, rival, x) in figures else {}


def values(*which):
    return list(rounds(*which).values())


def ratio(a, b):
    """Round by round, as the two were measured one after the other."""
    below = rounds(*b)
    return [x / below[turn] for turn, x in rounds(*a).items() if below.get(turn)]


def xs(scenario):
    return sorted({x for s, _, x in figures if s == scenario})


def of(scenario):
    return [name for name in NAMES if any(s == scenario and r == name for s, r, _ in figures)]


def largest(scenario):
    return max(xs(scenario), default=0)


def smallest(scenario):
    return min(xs(scenario), default=0)


NO_HANDOFF = "for comparison: the same with handoff_quantum = 0, each cycle through ZooKeeper"


def bounds():
    """Rows of the table of bounds: what, must be, toward, measured, is it met."""
    at_most, at_least = (lambda v, b: v <= b), (lambda v, b: v >= b)
    big, small = largest("held"), smallest("held")
    rows = [
        ("lone acquire p50, over the raw pipelined client", at_most, 1.4, "1.15",
         ratio(("lone", "zklock", 1, "acquire_p50"), ("lone", "raw", 1, "acquire_p50"))),
        ("lone acquire to end of transaction, over Curator acquire + release", at_most, 0.65, "0.5",
         ratio(("lone", "zklock", 1, "cycle_p50"), ("lone", "curator", 1, "cycle_p50"))),
        ("64 backends on distinct locks, over Curator with 64 threads", at_least, 2.5, "4",
         ratio(("distinct", "zklock", 64, "rate"), ("distinct", "curator", 64, "rate"))),
        (NO_HANDOFF, None, None, "",
         ratio(("distinct", "zklock-0", 64, "rate"), ("distinct", "curator", 64, "rate"))),
        ("64 backends on distinct locks, over the raw client's single operations", at_least, 2, "4",
         ratio(("distinct", "zklock", 64, "rate"), ("distinct", "raw", 64, "rate"))),
        (NO_HANDOFF, None, None, "",
         ratio(("distinct", "zklock-0", 64, "rate"), ("distinct", "raw", 64, "rate"))),
        ("one hot lock, 16 backends of one cluster, over Curator with 16 threads", at_least, 15,
         "30", ratio(("hot", "zklock", 16, "rate"), ("hot", "curator", 16, "rate"))),
        ("the same over pg_advisory_xact_lock", at_least, 0.6, "0.9",
         ratio(("hot", "zklock", 16, "rate"), ("hot", "advisory", 16, "rate"))),
    ]
    for n in (1, 16):
        rows.append(
            ("retained lock, %s, over pg_advisory_xact_lock"
             % ("1 backend" if n == 1 else "%d backends, each its own" % n),
             at_least, 0.8, "1",
             ratio(("retained", "zklock", n, "rate"), ("retained", "advisory", n, "rate"))))
    rows += [
        ("the same, 16 backends on one retained lock", at_least, 0.8, "1",
         ratio(("retained_hot", "zklock", 16, "rate"), ("retained_hot", "advisory", 16, "rate"))),
        ("COMMIT in one cluster to grant in another, over the raw delete-to-watch", at_most, 1.6,
         "1.2", ratio(("relay", "zklock", 2, "handover_p50"), ("relay", "raw", 2, "handover_p50"))),
        ("hot lock over two clusters, 16 backends each: smaller cluster's share", at_least, 0.4,
         "0.5", values("spread", "zklock", 2, "share")),
        ("the same: longest wait over the median", at_most, 10, "3",
         values("spread", "zklock", 2, "longest")),
        ("pgbench -S with zklock loaded over without", at_least, 0.99, "1",
         ratio(("pgbench", "with", 2, "rate"), ("pgbench", "without", 2, "rate"))),
        ("bytes of shared memory a slot", at_most, 512, "", values("slot", "zklock", 1, "bytes")),
        ("acquire p50 with %s held locks over that with %s" % (number(big), number(small)),
         at_most, 1.2, "", ratio(("held", "zklock", big, "acquire_p50"),
                                 ("held", "zklock", small, "acquire_p50"))),
    ]
    for what, test, must, toward, measured in rows:
        bound = met = ""
        if test:
            bound = ("≤ " if test is at_most else "≥ ") + "%g" % must
            if measured:
                met = "yes" if test(median(measured), must) else "**no**"
        yield what, bound, toward, with_spread(measured) if measured else "not available", met


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
                                   for metric in metrics] for name in of(scenario)])


def sections():
    yield "# zklock and its rivals, measured"
    yield ""
    yield "Made by `bench/run`; bench/README.md tells what is measured, and how."
    yield "Figures are medians of the rounds, with the lowest and the highest in parentheses."
    yield "All rounds are in [results.csv](results.csv)."
    yield ""
    with open(os.path.join(out, "about.txt")) as about:
        yield from table(["", ""], [line.rstrip().split(": ", 1) for line in about])
    yield "## What must be true"
    yield ""
    yield from table(["", "must be", "toward", "measured", "met"], bounds())
    if os.path.exists(failed):
        yield "Failed, and therefore not in the figures:"
        yield ""
        with open(failed) as lines:
            yield from ("- `%s`" % line.rstrip() for line in lines)
        yield ""
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
    yield "## One hot lock"
    yield ""
    yield "16 clients of one cluster (or session)."
    yield ""
    yield from by_metric("hot", 16, rate="cycles a second", cycle_p50="cycle p50, µs",
                         cycle_p99="cycle p99, µs")
    for n in xs("spread"):
        yield "%d clusters (or sessions), 16 clients each." % n
        yield ""
        yield from by_metric("spread", n, rate="cycles a second", share="the smallest one's share",
                             wait_p50="median wait, µs", wait_longest="longest wait, µs",
                             longest="longest over median")
    yield "## From one cluster to another"
    yield ""
    yield "From the COMMIT (release, delete) of the holder to the grant of the waiter, in µs."
    yield ""
    yield from by_metric("relay", 2, handover_p50="p50", handover_p99="p99")
    yield "## A retained lock"
    yield ""
    if xs("retained"):
        yield "Cycles a second, by the number of backends, each with a lock of its own."
        yield ""
        yield from by_x("retained", "rate", "backends")
        yield "16 backends, all with the same one."
        yield ""
        yield from by_metric("retained_hot", 16, rate="cycles a second")
    else:
        yield "Not available: this zklock has no `zklock.retain_time`."
        yield ""
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
    yield "## Who takes no lock"
    yield ""
    yield "`pgbench -S`, transactions a second."
    yield ""
    yield from by_metric("pgbench", 2, rate="transactions a second")


# The same in all plots: colour, and whether the line is dashed
STYLES = {
    "zklock": ("#7b1fa2", False),
    "zklock-0": ("#7b1fa2", True),
    "curator": ("#2e7d32", False),
    "writelock": ("#9ccc65", False),
    "kazoo": ("#f9a825", False),
    "redis": ("#d32f2f", False),
    "etcd": ("#1e88e5", False),
    "advisory": ("#00838f", False),
    "raw": ("#000000", True),
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
    metrics = figures["lone", name, 1]
    return [(median(metrics[metric].values()), float(metric[1:]))
            for metric in metrics if metric.startswith("q")]


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
os.remove(os.path.join(out, "about.txt"))
if os.path.exists(failed):
    os.remove(failed)
