"""Runs cases: drive.py all SEED [RIVAL...] | quick SEED | case RIVAL FAULT SEED [fenced]

In the work directory of rivals/run, which makes it and starts this.
"""

import json
import sys
import threading
import time
import traceback

import faults
import locks
from sale import Case

# What runs at the same time as other rows has servers of its own; the last row
# comes when all others have ended, since its faults are those of the warehouse.
ROWS = [["zklock", "zklock-app", "curator", "kazoo"], ["etcd", "redis", "redlock", "mariadb"]]
LAST = ["advisory"]

# The faults by which locks differ most.
QUICK = ["none", "client-paused", "commit-slow", "commit-paused", "client-killed"]

# Where zklock may sell twice: doc/guarantees.md, "What remains".
REMAINS = ["commit-paused"]


def run(world, name, fault, seed, fenced=False, trace=None):
    case = Case(locks.ALL[name](world), fault, seed, fenced, trace)
    try:
        case.begin()
        faults.ALL[fault](case)
    finally:
        case.end()
    return case


def describe(case):
    return {
        "rival": case.rival.name, "fault": case.fault, "seed": case.seed,
        "fenced": case.fenced, "oversold": case.oversold, "overlaps": case.overlaps,
        "lost": case.lost, "refused": case.refused, "a_waited": case.a_waited,
        "waited": case.waited_for_a,
        "grant": case.grant and round(case.grant, 2), "stop": round(case.stop, 2),
        "seconds": round(case.seconds, 1)}


class Run:
    """All cases of some rivals.  One that fails is reported, and the rest go on."""

    def __init__(self, seed, rivals, of=None):
        self.seed = seed
        self.faults = of or list(faults.ALL)
        self.rivals = rivals or list(locks.ALL)
        self.begun = time.monotonic()
        self.world = locks.World()
        self.writing = threading.Lock()
        self.results = []
        self.failed = 0

    def case(self, name, fault, fenced=False):
        try:
            case = run(self.world, name, fault, self.seed, fenced)
        except Exception:
            with self.writing:
                traceback.print_exc()
                print("failed: %s %s" % (name, fault), flush=True)
                self.failed += 1
            return None
        with self.writing:
            self.results.append(describe(case))
            print("%5.0f s  %s" % (time.monotonic() - self.begun, json.dumps(self.results[-1])),
                  flush=True)
            if case.oversold and (fenced or
                                  name.startswith("zklock") and fault not in REMAINS):
                print("failed: %s %s: it sold twice" % (name, fault), flush=True)
                self.failed += 1
        return case

    def row(self, names):
        for name in names:
            rival = locks.ALL[name]
            for fault in self.faults if name in self.rivals else ():
                if fault in rival.same_as or fault == "unlock-first" and not rival.unlocks:
                    continue
                case = self.case(name, fault)
                if case and case.oversold and rival.has_token:
                    self.case(name, fault, fenced=True)

    def all(self):
        rows = [threading.Thread(target=self.row, args=(names,)) for names in ROWS]
        for row in rows:
            row.start()
        for row in rows:
            row.join()
        self.row(LAST)
        self.world.network.close()
        with open("results.json", "w", encoding="utf-8") as f:
            json.dump(self.results, f, indent=0)


def main():
    if sys.argv[1] == "case":
        name, fault, seed = sys.argv[2:5]
        world = locks.World()
        case = run(world, name, fault, int(seed), len(sys.argv) > 5, sys.stdout)
        world.network.close()
        print(json.dumps(describe(case), indent=1))
    else:
        cases = Run(int(sys.argv[2]), sys.argv[3:],
                    QUICK if sys.argv[1] == "quick" else None)
        cases.all()
        sys.exit(1 if cases.failed else 0)


if __name__ == "__main__":
    main()
