"""One case: two clients sell the units of a stock under one rival's lock, and a
fault hits client a at a place that is the same each time.

A client does what it is told, one step at a time; so the places of a fault are
between two steps, and not a matter of time.  A sale is: take the lock; BEGIN;
write the fencing token, if the case has one; read what is sold; ask whether the
lock is still held; INSERT; COMMIT; unlock.
"""

import os
import queue
import random
import re
import signal
import subprocess
import threading
import time

import psycopg2

from locks import TTL
from servers import signal_all, wait_for

PATIENCE = 2 * TTL              # who is not let in by then waits for the holder
RETRY = 0.1                     # between two attempts of b
ANSWER = 60                     # seconds; a step that takes longer is a failure


class Gone(Exception):
    """The client has ended, cannot go on, or has given no answer in time."""


class Client:
    def __init__(self, case, name):
        self.case, self.name = case, name
        rival = case.rival
        self.answers = queue.Queue()
        self.process = subprocess.Popen(
            rival.command, text=True, bufsize=1, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=case.log,
            env={**os.environ, **rival.environment(name, case.lock)})
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.answers.put((time.monotonic(), line.strip()))
        self.answers.put((time.monotonic(), None))

    def send(self, command):
        self.case.note("%s < %s" % (self.name, command))
        try:
            self.process.stdin.write(command + "\n")
        except BrokenPipeError:
            pass                # its end is read

    def answer(self, seconds=ANSWER):
        """The time and the answer; Gone if there is none."""
        try:
            at, line = self.answers.get(timeout=seconds)
        except queue.Empty:
            raise Gone("no answer") from None
        if line is None:
            self.answers.put((at, line))
            raise Gone("it has ended")
        self.case.note("%s > %s" % (self.name, line))
        return at, line

    def ask(self, command, seconds=ANSWER):
        self.send(command)
        return self.answer(seconds)[1]

    def ask_for_lock(self):
        if self.case.rival.begins_first:
            self.ask("sql BEGIN")
        self.send("lock")

    def enter(self, answer):
        """What was sold, as this client reads it under the lock; None if it could
        not."""
        rival = self.case.rival
        if not rival.begins_first:
            self.ask("sql BEGIN")
        if self.case.fenced:
            token = answer.split()[1]
            fence = self.ask("sql UPDATE fence SET token = %s WHERE token <= %s RETURNING token"
                             % (token, token))
            if fence != "ok " + token:
                return None
        read = re.match(r"ok (\d+)/(\d+)$",
                        self.ask("sql SELECT coalesce(max(number), 0) || '/' || count(*) FROM sale"))
        if read is None:
            return None
        self.number, sold = int(read[1]), int(read[2])
        return sold

    def write(self):
        return self.ask("sql INSERT INTO sale VALUES (%d, '%s')"
                        % (self.number + 1, self.name)).startswith("ok")

    def tell(self, command, last):
        """After the last command nobody reads answers."""
        self.send(command)
        if not last:
            self.answer()

    def unlock(self, last=False):
        if not self.case.rival.begins_first:
            self.tell("unlock", last)

    def commit(self):
        """Send COMMIT, and whether it was done."""
        self.send("sql COMMIT")
        return self.committed()

    def committed(self):
        at, answer = self.answer()
        # PostgreSQL answers a COMMIT of a failed transaction with ROLLBACK
        done = answer.startswith("ok") and self.case.is_sold(self.number + 1, self.name)
        if done:
            self.case.commits.append(at)
        return done

    def give_up(self, last=False):
        self.tell("sql ROLLBACK", last)
        self.unlock(last)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Case:
    """The stock, its clients, and what is counted."""

    def __init__(self, rival, fault, seed, fenced=False, trace=None):
        self.rival, self.fault, self.seed, self.fenced = rival, fault, seed, fenced
        self.warehouse = rival.world.warehouse
        self.trace = trace
        self.begun = time.monotonic()
        self.lock = "lamp-%s-%s-%d%s" % (rival.name, fault, seed, "-fenced" if fenced else "")
        self.log = open(self.lock + ".log", "w", encoding="utf-8")
        # what the seed decides: how many sales precede the fault
        self.sales_before = 1 + random.Random(seed).randrange(4)
        self.units = self.sales_before + 1
        self.commits = []
        self.a = self.b = self.b_thread = None
        self.fault_at = self.begun
        self.over = False
        self.b_is_done = threading.Event()
        self.a_has_decided = threading.Event()  # it has sold, or not
        self.granted_at = None      # when b got the lock
        self.lost = False           # b got it while a had not come to an end
        self.refused = False        # a's sale was rolled back, or its COMMIT failed
        self.a_waited = False       # a could not go on while the fault lasted
        self.waited_for_a = False   # b got in only when a had come to its end

    def note(self, text):
        line = "%8.3f %s" % (time.monotonic() - self.begun, text)
        print(line, file=self.log, flush=True)
        if self.trace:
            print(line, file=self.trace, flush=True)

    def sql(self, text):
        return self.warehouse.psql(self.rival.stock, text)

    def is_sold(self, number, client):
        return self.sql("SELECT count(*) FROM sale WHERE number = %d AND client = '%s'"
                        % (number, client)) != "0"

    # The steps that faults are made of

    def sell_one(self, client, answer):
        """A sale of a client that has the lock: "sold", "failed", or "none left"."""
        sold = client.enter(answer)
        if sold is not None and sold >= self.units:
            client.give_up()
            return "none left"
        if (sold is not None and client.ask("check").startswith("ok") and client.write() and
                client.commit()):
            client.unlock()
            return "sold"
        client.give_up()
        return "failed"

    def begin(self):
        """Sell all units but one; then a has the lock and has read, and b waits."""
        self.sql("TRUNCATE sale, fence; INSERT INTO fence VALUES (0)")
        self.a, self.b = Client(self, "a"), Client(self, "b")
        for client in (self.a, self.b):
            client.answer()
        for i in range(self.sales_before):
            client = (self.a, self.b)[i % 2]
            client.ask_for_lock()
            if self.sell_one(client, client.answer()[1]) != "sold":
                raise RuntimeError("a sale before the fault failed")
        self.a.ask_for_lock()
        if self.a.enter(self.a.answer()[1]) is None:
            raise RuntimeError("client a could not begin")
        self.b.ask_for_lock()
        self.fault_at = time.monotonic()
        self.b_thread = threading.Thread(target=self.run_b, daemon=True)
        self.b_thread.start()

    def run_b(self):
        """Sell what is left; if the program ends, or its call fails, start again."""
        while not self.over:
            try:
                at, answer = self.b.answer()
                if not answer.startswith("ok"):
                    raise Gone(answer)
                if self.granted_at is None:
                    self.granted_at = at
                outcome = self.sell_one(self.b, answer)
                if outcome == "none left":
                    self.b_is_done.set()
                    return
                if outcome == "failed":
                    time.sleep(RETRY)
                self.b.ask_for_lock()
            except Gone:
                self.b.kill()
                if not self.over:
                    self.restart_b()

    def restart_b(self):
        self.b = Client(self, "b")
        try:
            self.b.answer()
            self.b.ask_for_lock()
        except Gone:
            time.sleep(RETRY)

    def let_b_in(self):
        """While a has not come to an end: wait until b has the lock, and has sold, or
        goes on waiting."""
        self.b_is_done.wait(PATIENCE)
        self.lost = self.granted_at is not None
        self.waited_for_a = not self.lost

    def heard(self, seconds=TTL):
        """a's library has so long to hear of what has happened; may a go on?"""
        end = time.monotonic() + (0 if self.rival.checks_commit else seconds)
        while self.a.ask("check").startswith("ok"):
            if time.monotonic() > end:
                return True
            time.sleep(0.02)
        return False

    def finish_a(self, may_go_on=True):
        """The rest of a's sale."""
        try:
            self.refused = not (may_go_on and self.a.write() and self.a.commit())
        except Gone as e:
            self.note("a: %s" % e)
            self.refused = True
        self.a_has_decided.set()
        if self.refused:
            self.a.give_up(last=True)
        else:
            self.a.unlock(last=True)

    def a_has_ended(self):
        """From now on b must get in."""
        self.b_is_done.wait(PATIENCE)

    def pause_a(self):
        server = self.rival.machine()
        self.note("a is stopped")
        if server:
            server.pause()
        else:
            signal_all([self.a.process.pid], signal.SIGSTOP)

    def resume_a(self):
        server = self.rival.machine()
        self.note("a goes on")
        if server:
            server.resume()
        else:
            signal_all([self.a.process.pid], signal.SIGCONT)

    def kill_a(self):
        self.note("a is killed")
        server = self.rival.machine()
        if server:
            server.kill()
        else:
            self.a.kill()

    def hold_up_commit(self):
        """a's COMMIT is on its way, and does not come to its end until what this
        returns is called."""
        holder = psycopg2.connect(host=os.getcwd(), port=self.warehouse.port,
                                  user="postgres", dbname=self.rival.stock)
        holder.cursor().execute("SELECT pg_advisory_lock(1)")
        self.a.write()
        self.a.send("sql COMMIT")
        wait_for("a's COMMIT", lambda: self.sql(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND objid = 1 AND classid = 0 AND database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())") != "0")
        self.fault_at = time.monotonic()
        return holder.close

    # The end

    def end(self):
        """Back to what was before, and count."""
        self.over = True
        ended_at = time.monotonic()
        for client in filter(None, (self.a, self.b)):
            client.kill()
        if self.b_thread:
            self.b_thread.join()
            self.b.kill()           # which may have started again meanwhile
        self.rival.restore()
        clients = "pg_stat_activity WHERE usename = 'sale' AND datname = current_database()"
        self.sql("SELECT pg_terminate_backend(pid) FROM " + clients)
        wait_for("the end of all transactions", lambda: self.sql(
            "SELECT count(*) FROM " + clients) == "0")
        sold, numbers = map(int, self.sql(
            "SELECT count(*), count(DISTINCT number) FROM sale").split("|"))
        self.sold, self.overlaps = sold, sold - numbers
        self.oversold = max(0, sold - self.units)
        self.grant = self.granted_at and self.granted_at - self.fault_at
        # the longest time with no COMMIT
        times = sorted(self.commits + [self.fault_at] +
                       ([] if self.b_is_done.is_set() else [ended_at]))
        self.stop = max([b - a for a, b in zip(times, times[1:])], default=0)
        self.seconds = time.monotonic() - self.begun
        self.log.close()
