#!/usr/bin/python3
"""kazoo's recipes for Foreign.pm: kazooclient.py SERVERS TIMEOUT

Speaks as CuratorClient.java does: each lock has a thread, where its operations
run.
"""

import json
import logging
import os
import queue
import subprocess
import sys
import threading
import traceback

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from kazoo.recipe.lock import Lock, ReadLock, Semaphore, WriteLock

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(__file__), '../../doc/kazoo'))
from common_lock import CommonLock, CommonReadLock, CommonWriteLock

# What all others call their contenders, in kazoo's words.
ALL = ['-lock-', '-__READ__', '-__WRIT__']

KINDS = {
    # kazoo's own; the option "extra" is their extra_lock_patterns
    'Lock': Lock,
    'ReadLock': ReadLock,
    'WriteLock': WriteLock,
    'CommonLock': CommonLock,
    'CommonReadLock': CommonReadLock,
    'CommonWriteLock': CommonWriteLock,
}


class Actor:
    def __init__(self):
        self._todo = queue.Queue()
        self._ended = threading.Event()
        self._answer = None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            method, args = self._todo.get()
            try:
                self._answer = {'result': getattr(self, method)(*args)}
            except Exception as e:
                traceback.print_exc()
                self._answer = {'error': ('%s %s' % (type(e).__name__, e)).strip()}
            self._ended.set()

    def begin(self, method, *args):
        self._ended.clear()
        self._todo.put((method, args))

    def done(self):
        return self._ended.is_set()

    def end(self):
        self._ended.wait()
        return self._answer


class LockActor(Actor):
    def __init__(self, lock):
        super().__init__()
        self._lock = lock

    def acquire(self, timeout=None):
        if timeout == 0:
            return self._lock.acquire(blocking=False)
        try:
            return self._lock.acquire(timeout=timeout)
        except LockTimeout:
            return False

    def release(self):
        self._lock.release()

    def participants(self):
        return self._lock.contenders()

    def prove(self):
        client, node = self._lock.client, self._lock.path + '/' + self._lock.node
        check = client.transaction()
        check.check(node, -1)
        for result in check.commit():
            if isinstance(result, Exception):
                raise result
        return client.exists(node).czxid

    def tidy(self):
        # a lost connection may have kept acquire() from it
        client = self._lock.client
        client.retry(client.sync, self._lock.path)
        for child in client.retry(client.get_children, self._lock.path):
            if child.startswith(self._lock.prefix):
                client.retry(client.delete, self._lock.path + '/' + child)


class Load(Actor):
    """As in CuratorClient.java."""

    def __init__(self, new_lock, options):
        super().__init__()
        self._new_lock = new_lock
        self._options = options
        self._sections = [0] * options['threads']
        self._errors = []

    def _work(self, number):
        lock = self._new_lock()
        query = self._options['query'].replace('%d', str(number)) + ';\n'
        answer = 't'
        try:
            with subprocess.Popen(self._options['psql'], text=True,
                                  stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE) as psql:
                while answer == 't':
                    with lock:
                        psql.stdin.write(query)
                        psql.stdin.flush()
                        answer = psql.stdout.readline().rstrip('\n')
                    if not answer:
                        raise EOFError('psql has ended')
                    self._sections[number - 1] += 1
        except Exception as e:
            traceback.print_exc()
            self._errors.append(e)

    def run(self):
        threads = [threading.Thread(target=self._work, args=(i + 1,), daemon=True)
                   for i in range(len(self._sections))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for error in self._errors:
            raise error
        return self._sections


class Client:
    def __init__(self, servers, timeout):
        self._zk = KazooClient(hosts=servers, timeout=timeout)
        self._zk.start(timeout=60)
        self._actors = []

    def session(self):
        return self._zk.client_id[0]

    def _new_lock(self, kind, path, options):
        if kind == 'Semaphore':
            return Semaphore(self._zk, path, 'kazoo', options['permits'])
        return KINDS[kind](self._zk, path, 'kazoo',
                           extra_lock_patterns=options.get('extra', []))

    def make(self, kind, path, options):
        self._actors.append(LockActor(self._new_lock(kind, path, options)))
        return len(self._actors) - 1

    def load(self, kind, path, options):
        self._actors.append(
            Load(lambda: self._new_lock(kind, path, options), options))
        return len(self._actors) - 1

    def begin(self, number, *operation):
        self._actors[number].begin(*operation)

    def done(self, number):
        return self._actors[number].done()

    def close(self):
        self._zk.stop()
        self._zk.close()

    def answer(self, method, *args):
        if method == 'end':
            return self._actors[args[0]].end()
        return {'result': getattr(self, method)(*args)}


def main():
    logging.basicConfig(level=logging.CRITICAL)
    client = Client(sys.argv[1], float(sys.argv[2]))
    for line in sys.stdin:
        try:
            answer = client.answer(*json.loads(line))
        except Exception as e:
            answer = {'error': ('%s %s' % (type(e).__name__, e)).strip()}
        print(json.dumps(answer), flush=True)
    client.close()


if __name__ == '__main__':
    main()
