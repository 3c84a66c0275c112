"""What runs programs and servers: for drive.py and against.py."""
import os
import subprocess
import time

env = os.environ
ANSWER_LIMIT = 120          # seconds after which a rival counts as hung


class Failed(Exception):
    pass


class Hangs(Failed):
    """It would take as long each time."""


def run_command(command, **options):
    """Its output; Failed with what it has written if it fails."""
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           check=False, **options)
    if ended.returncode != 0:
        raise Failed("%s: %s: %s" % (" ".join(command), ending(ended.returncode),
                                     last_words(ended.stderr or ended.stdout)))
    return ended.stdout.strip()


def ending(status):
    return "killed by signal %d" % -status if status < 0 else "exit status %d" % status


def last_words(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-3:]) or "no message"


def wait_until(condition, what):
    end = time.monotonic() + ANSWER_LIMIT
    while not condition():
        if time.monotonic() > end:
            raise Failed("waited %d s without success: %s" % (ANSWER_LIMIT, what))
        time.sleep(0.02)


def pg_ctl(action, directory, *settings, before=(), program="pg_ctl"):
    command = [*before, program, action, "-w", "-t", "180", "-m", "fast", "-D", directory,
               "-l", directory + ".log"]
    if settings:
        command += ["-o", " ".join("-c " + s for s in settings)]
    # the server that it starts must not keep a pipe open
    with open(directory + ".pg_ctl.log", "w+") as log:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log,
                                stderr=subprocess.STDOUT, check=False).returncode
        if status != 0:
            log.seek(0)
            why = last_words(log.read())
            with open(directory + ".log", errors="replace") as server_log:
                why += ": " + last_words(server_log.read())
            raise Failed("%s: %s: %s" % (" ".join(command), ending(status), why))


def pgbench_line(port, *options):
    return ["pgbench", "-h", env["BENCH_SOCKETS"], "-p", port, "-U", "postgres",
            *options, "postgres"]


class Counting:
    """A server under valgrind, which counts the instructions that its server
    processes execute outside the kernel; nothing disturbs that."""

    def __init__(self, directory, port, label, *settings, postgres="postgres"):
        self.directory = directory
        self.port = port
        self.label = "callgrind.%s.%s" % (directory, label)
        self.log = directory + ".valgrind.log"
        self.settings = settings
        self.postgres = postgres

    def start(self, _=None):
        # its processes each write a file when they end
        with open(self.log, "w") as log:
            subprocess.Popen(
                ["valgrind", "-q", "--trace-children=yes", "--tool=callgrind",
                 "--callgrind-out-file=%s.%%p" % self.label, self.postgres, "-D", self.directory,
                 *(word for setting in ["log_disconnections=on", "log_line_prefix=%p %a ",
                                        *self.settings]
                   for word in ("-c", setting))],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        wait_until(self.accepts, "the server under valgrind starts")

    def accepts(self):
        return subprocess.run(["pg_isready", "-q", "-h", env["BENCH_SOCKETS"],
                               "-p", self.port], check=False).returncode == 0

    def ended(self):
        """The server processes of pgbench that have gone."""
        with open(self.log, errors="replace") as log:
            return [line.split()[0] for line in log
                    if " disconnection: " in line and line.split()[1] == "pgbench"]

    @staticmethod
    def total(file_name):
        try:
            with open(file_name) as file:
                return next((int(line.split()[1]) for line in file
                             if line.startswith("totals:")), 0)
        except FileNotFoundError:
            return 0

    def executed(self, run, options):
        """By the server processes of a run: pgbench has two, one after the other.
        The first looks at its tables, which is the same in each run."""
        before = len(self.ended())
        run_command(pgbench_line(self.port, "--random-seed=1", "-n", "-D", "run=%d" % run,
                                 *options))
        wait_until(lambda: len(self.ended()) == before + 2, "both are disconnected")
        files = ["%s.%s" % (self.label, pid) for pid in self.ended()[before:]]
        wait_until(lambda: all(map(self.total, files)), "the counts of the server processes")
        return sum(map(self.total, files))

    def of_a_transaction(self, counted, *options):
        """The difference of two runs, so that only transactions count; a run ahead
        of them fills caches.  The runs have numbers of as many digits."""
        _, short, long = (self.executed(n, [*options, "-t", str(counted * n)])
                          for n in (2, 1, 3))
        return (long - short) / (2 * counted)
