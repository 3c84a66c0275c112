"""Puts the figures of a full run into the table of doc/performance.md.

usage: performance.py RESULTS.CSV PERFORMANCE.MD
"""
import sys
from statistics import median

import bounds

HEADER = "| | zklock | compared with | | ratio |\n|---|---|---|---|---|\n"
CURATOR_2 = "Curator, two sessions, 16 threads each"
# what, zklock's figure, compared with, its figure
TABLE = [
    ("a lock that one session takes every 10 ms, with the defaults (p50, µs)",
     ("usual", "zklock-h", 1, "cycle_p50"),
     "Curator, acquire and release", ("usual", "curator", 1, "cycle_p50")),
    ("the same", ("usual", "zklock-h", 1, "cycle_p50"),
     "Redis, SET NX PX and its release", ("usual", "redis", 1, "cycle_p50")),
    ("the same", ("usual", "zklock-h", 1, "cycle_p50"),
     "`pg_advisory_xact_lock`", ("usual", "advisory", 1, "cycle_p50")),
    ("64 sessions, a lock each, with the defaults (cycles/s)",
     ("distinct", "zklock-h", 64, "rate"), "Redis", ("distinct", "redis", 64, "rate")),
    ("8 sessions over four instances, nine of ten takes of a name by one, with the defaults"
     " (cycles/s)", ("zipf", "zklock-h", 90, "rate"),
     "the same with `retain_time = 0`", ("zipf", "zklock", 90, "rate")),
    ("a lone lock, until it is granted (p50, µs)", ("lone", "zklock", 1, "acquire_p50"),
     "ZooKeeper's C client, nothing around it", ("lone", "raw", 1, "acquire_p50")),
    ("64 sessions, a lock each, with `retain_time = 0` (cycles/s)",
     ("distinct", "zklock", 64, "rate"),
     "Curator, 64 threads", ("distinct", "curator", 64, "rate")),
    ("one lock, 16 sessions of one instance (cycles/s)", ("hot", "zklock", 1, "rate"),
     "Curator, 16 threads", ("hot", "curator", 1, "rate")),
    ("the same", ("hot", "zklock", 1, "rate"),
     "`pg_advisory_xact_lock`", ("hot", "advisory", 1, "rate")),
    ("retained locks, 16 sessions, a lock each (cycles/s)",
     ("retained", "zklock-r", 16, "rate"),
     "`pg_advisory_xact_lock`", ("retained", "advisory", 16, "rate")),
    ("one lock over two instances, 16 sessions each (cycles/s)", ("hot", "zklock", 2, "rate"),
     CURATOR_2, ("hot", "curator", 2, "rate")),
    ("from COMMIT in one instance to the lock in another (p50, µs)",
     ("relay", "zklock", 2, "handover_p50"),
     "ZooKeeper's C client, delete to watch", ("relay", "raw", 2, "handover_p50")),
    ("16 claims (renewals/s)", ("renewed", "claim-renew", 16, "rate"),
     "leases in a table, by UPDATE", ("renewed", "lease-renew", 16, "rate")),
    ("the same", ("renewed", "claim-renew", 16, "rate"),
     "etcd's leases", ("renewed", "etcd-renew", 16, "rate")),
    ("the [demo](../demo/README.md)'s inventory, two instances (sales/s)",
     ("sales", "zklock", 64, "rate"), "Curator", ("sales", "curator", 64, "rate")),
    ("`pgbench -S`, no zk lock (transactions/s)", ("pgbench", "with", 1, "rate"),
     "without zklock loaded", ("pgbench", "without", 1, "rate")),
]


ALIKE = 0.02                # how far from 1 a ratio must be for one side to be the better one


def line(figures, what, ours, other, theirs):
    """The ratio is the median of the rounds' ratios: the report's, if it has
    that row.  The better side is bold: the lower time, or the higher rate."""
    needs = [ours, theirs]
    if ours[0] == "pgbench":
        needs = [(*ours[:3], "over_without")]
    ratio = median(bounds.row_values(bounds.row("", "", ">= 0", "", needs), figures))
    better = None if abs(ratio - 1) <= ALIKE else (ratio < 1) == ours[3].endswith("_p50")
    return "| %s | %s | %s | %s | %s |\n" % (
        what, figure(median(figures.values(*ours)), better is True), other,
        figure(median(figures.values(*theirs)), better is False), bounds.number(ratio))


def figure(value, is_better):
    return ("**%s**" if is_better else "%s") % bounds.number(value)


def main(results, document):
    figures = bounds.Figures.read(results)
    with open(document) as file:
        text = file.read()
    before, _, rest = text.partition(HEADER)
    if not rest:
        sys.exit("performance.py: %s has no table of figures" % document)
    after = rest[rest.index("\n\n") + 1:]
    with open(document, "w") as file:
        file.write(before + HEADER + "".join(line(figures, *entry) for entry in TABLE) + after)


main(*sys.argv[1:])
