"""The page of a run: report.py results.json VERSIONS >doc/bench/rivals.md

The text is report.md; here are its tables.
"""

import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

# By column: the rival, its heading, and the one whose cells it has where a fault
# is the same for both.
COLUMNS = [
    ("zklock", "zklock, instance", None), ("zklock-app", "zklock, program", "zklock"),
    ("curator", "Curator", None), ("kazoo", "kazoo", None), ("etcd", "etcd", None),
    ("redis", "Redis", None), ("redlock", "Redlock", None), ("mariadb", "MariaDB", None),
    ("advisory", "PostgreSQL", None)]
FAULTS = [
    "none", "unlock-first", "client-paused", "commit-slow", "commit-paused", "network-cut",
    "taken-away", "server-killed", "servers-paused", "client-killed", "machine-lost"]
A_IS_GONE = ("client-killed", "machine-lost")


def outcome(case):
    """What became of a's sale."""
    if case["overlaps"] != case["oversold"]:
        return "**%d oversold, %d overlap**" % (case["oversold"], case["overlaps"])
    if case["oversold"]:
        return "**sold twice**"
    if case["fault"] in A_IS_GONE:
        return "once" if case["grant"] is not None else "not at all"
    return "once" + ", *a* refused" * case["refused"] + ", *a* waited" * case["a_waited"]


def wait(case):
    """When b had the lock."""
    if case["grant"] is None:
        return "**never**"
    if case["waited"]:
        return "behind *a*"
    return "%.1f" % max(0, case["grant"])


def stop(case):
    return "%.1f" % case["stop"]


def column(cases, name, other):
    """The cases of a rival, by fault; None where there is none."""
    return [cases.get((name, fault)) or cases.get((other, fault)) for fault in FAULTS]


def summary(cases):
    lines = []
    for name, heading, other in COLUMNS:
        own = list(filter(None, column(cases, name, other)))
        lines.append("| %s | %d | %d | %d | %d | %d | %.1f |" % (
            heading, len(own), sum(c["oversold"] > 0 for c in own), sum(c["lost"] for c in own),
            sum(c["refused"] and not c["lost"] for c in own),
            sum(c["grant"] is None for c in own), max(c["stop"] for c in own)))
    return "\n".join(lines)


def table(cases, cell):
    lines = ["| fault | " + " | ".join(heading for _, heading, _ in COLUMNS) + " |",
             "|---" * (len(COLUMNS) + 1) + "|"]
    columns = [column(cases, name, other) for name, _, other in COLUMNS]
    for fault, row in zip(FAULTS, zip(*columns)):
        lines.append("| `%s` | %s |" % (
            fault, " | ".join(cell(case) if case else "–" for case in row)))
    return "\n".join(lines)


def fenced(cases):
    """Those that sold twice, again with a fencing token."""
    return "\n".join("| %s | `%s` | %s | %s |" % (heading, case["fault"], outcome(case), wait(case))
                     for name, heading, _ in COLUMNS
                     for case in filter(None, column(cases, name, None)))


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        results = json.load(f)
    plain = {(r["rival"], r["fault"]): r for r in results if not r["fenced"]}
    with_token = {(r["rival"], r["fault"]): r for r in results if r["fenced"]}
    with open(sys.argv[2], encoding="utf-8") as f:
        versions = f.read().strip()
    values = {"summary": summary(plain), "outcomes": table(plain, outcome), "waits": table(plain, wait),
              "stops": table(plain, stop), "fenced": fenced(with_token), "versions": versions,
              "seed": str(results[0]["seed"]), "cases": str(len(results)),
              "seconds": "%d" % sum(r["seconds"] for r in results)}
    with open(os.path.join(HERE, "report.md"), encoding="utf-8") as f:
        print(re.sub(r"@(\w+)@", lambda m: values[m[1]], f.read()), end="")


if __name__ == "__main__":
    main()
