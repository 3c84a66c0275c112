"""kazoo's Lock: kazoorival.py SERVERS

See bench/README.md for the requests.  Python runs one thread at a time, so
the clients, which are threads, are spread over as many processes as there are
processors, or "instances" if those are more; a process has one session.
"""
import logging
import os
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout


def now():
    return time.monotonic_ns() // 1000


def lock_names(r, client):
    return ["%s%d" % (r["prefix"], i)
            for i in range(client % r["locks"], r["locks"], r["clients"])]


def acquire(lock, end):
    """False if time is over."""
    try:
        return lock.acquire(timeout=max(0.001, (end - now()) / 1e6))
    except LockTimeout:
        return False


def cycles(r, zk, client, clock):
    locks = [zk.Lock("/kazoo/" + name) for name in lock_names(r, client)]
    samples = []
    begin, end = clock()
    while True:
        for lock in locks:
            asked = now()
            if asked >= end:
                return samples
            if not acquire(lock, end):
                return samples
            acquired = now()
            lock.release()
            released = now()
            if begin <= released < end:
                samples.append((client, asked, acquired, released))
            if r["pause"]:
                time.sleep(r["pause"] / 1e6)


def sell(_r, zk, client, clock):
    """Sells in one of the shops until the stock is gone, or the time is over."""
    import psycopg2

    shops = os.environ["BENCH_SHOPS"].split(",")
    shop = psycopg2.connect(host="127.0.0.1", port=shops[client % len(shops)],
                            user="shop", dbname="shop")
    shop.autocommit = True
    cursor = shop.cursor()
    lock = zk.Lock("/kazoo/lamp")
    samples = []
    end = clock()[1]
    sold = True
    while sold and now() < end:
        asked = now()
        if not acquire(lock, end):
            break
        acquired = now()
        cursor.execute("CALL sell('lamp')")
        sold = cursor.fetchone()[0]
        lock.release()
        if sold:
            samples.append((client, asked, acquired, now()))
    shop.close()
    return samples


class Process:
    """Some of the clients, in a process of their own."""

    def __init__(self, servers, r, numbers):
        start = os.pipe()
        out = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                self.child(servers, r, numbers, start[0], out[1])
                status = 0
            finally:
                os._exit(status)
        os.close(start[0])
        os.close(out[1])
        self.start = start[1]
        self.out = os.fdopen(out[0])

    @staticmethod
    def child(servers, r, numbers, start, out):
        def failed(args):
            sys.__excepthook__(*args[:3])
            os._exit(1)

        threading.excepthook = failed
        results = []
        zk = KazooClient(hosts=servers, timeout=30)
        zk.start()
        out = os.fdopen(out, "w")
        ready = threading.Barrier(len(numbers) + 1)
        go = threading.Event()
        times = []

        def clock():
            ready.wait()
            go.wait()
            return times

        def client(number):
            run = {"lock": cycles, "sell": sell}[r["kind"]]
            results.extend(run(r, zk, number, clock))

        threads = [threading.Thread(target=client, args=(n,)) for n in numbers]
        for thread in threads:
            thread.start()
        ready.wait()
        print("ready", file=out, flush=True)
        begin = int(os.read(start, 32))
        times += [begin, begin + r["ms"] * 1000]
        go.set()
        for thread in threads:
            thread.join()
        for sample in results:
            print(*sample, file=out)
        out.flush()
        zk.stop()


def answer(servers, r):
    n = min(max(os.cpu_count(), r["instances"]), r["clients"])
    processes = [Process(servers, r, range(i, r["clients"], n)) for i in range(n)]
    for process in processes:
        if process.out.readline() != "ready\n":
            sys.exit("kazoo: a process has failed")
    begin = now() + r["warmup"] * 1000
    for process in processes:
        os.write(process.start, b"%d" % begin)
    for process in processes:
        sys.stdout.write(process.out.read())
        if os.waitpid(process.pid, 0)[1] != 0:
            sys.exit("kazoo: a process has failed")


def main():
    logging.basicConfig(level=logging.CRITICAL)
    for line in sys.stdin:
        words = line.split()
        r = {"kind": words[0], "prefix": "p", "clients": 1, "instances": 1, "locks": 1,
             "ms": 0, "warmup": 0, "pause": 0}
        for word in words[1:]:
            key, value = word.split("=")
            r[key] = value if key == "prefix" else int(value)
        answer(sys.argv[1], r)
        print("done", flush=True)


if __name__ == "__main__":
    main()
