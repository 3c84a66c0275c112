"""Traces of the recipe's unit test, which recipe.pml follows.

test_recipe_model plays src/core/lock/recipe.c and succession.c at random on a
ZooKeeper in memory, and prints what the server did and the callers saw.  The
model must be able to show the same.  It must not be able to show a trace that
was altered so that it breaks a rule, nor one of each mutation of the code in
which the unit test's own rules are broken by a grant.
"""

import collections
import itertools
import os
import re
import subprocess

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = 'build/unit/test_recipe_model'

# In the model the counter ends sooner.
LATE, LAST = 30, 60
REAL_LATE, REAL_LAST = 2000000000, 2147483647
NEAR = 25

MUTATIONS = ('recovered_create_owns', 'requeued_owns', 'gap_owns',
             'reconnected_owns', 'collected_owns')
# Of a mutation's plays, how many are taken in which a grant breaks this rule.
RULE, BROKEN = 'nothing that excludes an owner is ahead of it', 3


def number(real):
    if real >= REAL_LAST - NEAR:
        return LAST - (REAL_LAST - real)
    if real >= REAL_LATE - NEAR:
        return LATE + (real - REAL_LATE)
    return real


def play(*arguments):
    """Traces, each a list of (event, contender, number), and the rule broken."""
    with subprocess.Popen((os.path.join(TOP, PROGRAM), 'traces') + arguments,
                          text=True, stdout=subprocess.PIPE) as program:
        trace = []
        for line in program.stdout:
            if line.startswith('END'):
                yield trace, line[4:-1]
                trace = []
            else:
                event, who, real = line.split()
                trace.append((event, int(who), number(int(real))))


def altered(trace):
    """The same trace with one rule broken: the rule, and the trace."""
    for i in range(1, len(trace)):
        (event0, who0, number0), (event, who, n) = trace[i - 1:i + 1]
        swapped = trace[:i - 1] + [trace[i], trace[i - 1]] + trace[i + 1:]
        if (event0, event) == ('NODE_GONE', 'OWNS') and number0 < n:
            yield 'an owner ahead of its turn', swapped
        if (event0, event) == ('NODE_GONE', 'DIR_GONE'):
            yield 'a directory deleted with a child', swapped
        if (event0, event, who0) == ('NODE_GONE', 'NODE_MADE', who):
            yield 'two nodes of one contender', swapped
        if event == 'NODE_MADE':
            yield 'a number left out', (
                trace[:i] + [(event, who, n + 1)] + trace[i + 1:])
        if (event0, event, who0) == ('NODE_MADE', 'OWNS', who) and n < LATE:
            yield 'an owner with a late number', [
                (e, w, x + LATE) if (w, x) == (who, n) else (e, w, x)
                for e, w, x in trace[:i + 1]]


class Traces:
    """All traces of one run of the verifier, which are followed or not."""

    def __init__(self, count):
        subprocess.run(('make', '-s', '-C', TOP, PROGRAM), check=True)
        self.cases = [('true', trace) for trace, _ in play(str(count))]
        for _, trace in self.cases[:count]:
            # the last one of each rule
            self.cases += dict(altered(trace)).items()
        for mutation in MUTATIONS:
            broken = (trace for trace, rule in play('10000', mutation)
                      if rule == RULE)
            self.cases += [(mutation, trace)
                           for trace in itertools.islice(broken, BROKEN)]

    def header(self):
        """trace.h"""
        flat = [event for _, trace in self.cases
                for event in trace + [('END', 0, 0)]]
        starts, at = [], 0
        for _, trace in self.cases:
            starts.append(at)
            at += len(trace) + 1
        firsts = [next((n for event, _, n in trace if event == 'NODE_MADE'), 0)
                  for _, trace in self.cases]
        text = '#define LATE %d\n#define LAST %d\n#define TRACES %d\n' % (
            LATE, LAST, len(self.cases))
        for kind, name, values in (
                ('short', 'start', starts), ('byte', 'first', firsts),
                ('byte', 'event', [e for e, _, _ in flat]),
                ('byte', 'who', [w for _, w, _ in flat]),
                ('byte', 'number', [n for _, _, n in flat])):
            text += 'hidden %s %s[%d] = { %s };\n' % (
                kind, name, len(values), ', '.join(map(str, values)))
        return text

    def judge(self, output):
        """What the verifier's output says: a summary, and what is wrong."""
        followed = set(map(int, re.findall(r'followed (\d+)', output)))
        kinds, wrong = collections.Counter(), ''
        for i, (kind, trace) in enumerate(self.cases):
            kinds[kind] += 1
            if (i in followed) != (kind == 'true'):
                wrong += '%s, %s:\n%s' % (
                    kind, 'followed' if i in followed else 'not followed',
                    ''.join('    %s %d %d\n' % event for event in trace))
        missing = [m for m in MUTATIONS if m not in kinds]
        if missing:
            wrong += 'no trace of %s\n' % ', '.join(missing)
        mutated = sum(kinds[m] for m in MUTATIONS)
        return ('follows %d traces of the code, and none of %d of its mutations '
                'or of %d that are altered' % (
                    kinds['true'], mutated,
                    len(self.cases) - kinds['true'] - mutated), wrong)
