"""The connections of scale.py and network.py, by the addresses in the environment
(BENCH_*): the proxy to ZooKeeper, sessions of PostgreSQL, and how to wait."""
import json
import os
import subprocess
import sys
import time

import psycopg2

env = os.environ
PATIENCE = 300              # seconds that anything may take


class Proxy:
    """test/lib/proxy.py between ZooKeeper and the instances."""

    def __init__(self):
        self.process = subprocess.Popen(
            ["/usr/bin/python3", "bin/proxy.py"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        self.port = self.ask("link", "zookeeper", int(env["BENCH_ZOOKEEPER"].split(":")[1]))

    def ask(self, *request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline() or "null")
        if answer is None or "error" in answer:
            sys.exit("bench: the proxy: %s" % answer)
        return answer["result"]

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def connect(port):
    connection = psycopg2.connect(host=env["BENCH_SOCKETS"], port=port,
                                  user="postgres", dbname="bench")
    connection.autocommit = True
    return connection.cursor()


def ask(cursor, statement):
    """The first column of the first row, if it has one."""
    cursor.execute(statement)
    return cursor.fetchone()[0] if cursor.description else None


def wait_until(condition, what):
    """Returns when it was so."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            sys.exit("bench: waited %d s without effect: %s" % (PATIENCE, what))
        time.sleep(0.001)
    return time.monotonic()
