# Copyright (c) 2026, zklock developers

"""Clients that open a red envelope, as doc/patterns.md has it, under one of
three locks: zk_lock, one of SET NX PX, and one of SETNX and GETSET.

usage: envelope.py LOCK REDIS DSN ENVELOPE pause|go CLIENT...
LOCK is one of the classes, REDIS the port of a redis-server.  Prints a line for
each client: its name, and its share, None or the SQLSTATE.  With "pause" the
process stops itself (SIGSTOP) where a client has read and not yet written, as if
its machine were paused.
"""
import os
import random
import signal
import socket
import sys
import time
import uuid

import psycopg2

SECONDS = 2                     # that a lock in Redis lasts

RELEASE = """if redis.call('get', KEYS[1]) == ARGV[1] then
                 return redis.call('del', KEYS[1])
             end
             return 0"""


class RedisLock:
    """A key of Redis with a random value, that expires: SET NX PX, and a script."""

    def __init__(self, redis, name, seconds):
        self.redis, self.name, self.seconds = redis, name, seconds

    def try_acquire(self):
        self.token = str(uuid.uuid4())
        return bool(self.redis.set(self.name, self.token, nx=True,
                                   px=int(self.seconds * 1000)))

    def acquire(self):
        while not self.try_acquire():
            time.sleep(random.uniform(0.01, 0.02))

    def release(self):
        self.redis.eval(RELEASE, 1, self.name, self.token)


class ExpiringLock:
    """A key of Redis, whose value is the time when the lock expires."""

    def __init__(self, redis, name, seconds):
        self.redis, self.name, self.seconds = redis, name, seconds

    def try_acquire(self):
        self.until = time.time() + self.seconds
        if self.redis.setnx(self.name, self.until):
            return True
        held = self.redis.get(self.name)            # by one who has died?
        return (held is not None and float(held) < time.time()
                and self.redis.getset(self.name, self.until) == held)

    def acquire(self):
        while not self.try_acquire():
            time.sleep(random.uniform(0.01, 0.02))

    def release(self):
        if time.time() < self.until:                # else it may be another's
            self.redis.delete(self.name)


class ZkLock:
    def __init__(self, db, name):
        self.db, self.name = db, name

    def acquire(self):
        with self.db.cursor() as cursor:            # begins the transaction
            cursor.execute('SELECT zk_lock(%s)', (self.name,))

    def release(self):
        pass                                        # COMMIT has done so


def open_envelope(lock, db, what, who):
    lock.acquire()
    try:
        with db, db.cursor() as cursor:             # COMMIT at its end
            cursor.execute('SELECT next_share(%s, %s)', (what, who))
            share, = cursor.fetchone()
            if share is not None:
                cursor.execute('INSERT INTO shares_given VALUES (%s, %s, %s)',
                               (what, who, share))
            return share
    finally:
        lock.release()


class Redis:
    """As much of redis-py's client as the locks call."""

    def __init__(self, port):
        self._file = socket.create_connection(('127.0.0.1', port)).makefile('rwb')

    def _call(self, *words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self._file.write(b'*%d\r\n' % len(words))
        for word in words:
            self._file.write(b'$%d\r\n%s\r\n' % (len(word), word))
        self._file.flush()
        kind, rest = self._file.read(1), self._file.readline().strip()
        if kind == b'-':
            raise RuntimeError(rest.decode())
        if kind == b':':
            return int(rest)
        if kind == b'$':
            return None if rest == b'-1' else self._file.read(int(rest) + 2)[:-2]
        return rest

    def setnx(self, name, value):
        return self._call('SETNX', name, value) == 1

    def get(self, name):
        return self._call('GET', name)

    def getset(self, name, value):
        return self._call('GETSET', name, value)

    def delete(self, name):
        return self._call('DEL', name)

    def set(self, name, value, nx, px):
        return self._call('SET', name, value, 'PX', px, *(['NX'] if nx else [])) is not None

    def eval(self, script, number, *words):
        return self._call('EVAL', script, number, *words)


class Pausing(psycopg2.extensions.cursor):
    def execute(self, query, values=None):
        super().execute(query, values)
        if query.startswith('SELECT next_share'):
            os.kill(os.getpid(), signal.SIGSTOP)


def main(kind, port, dsn, envelope, pause, *clients):
    db = psycopg2.connect(dsn)
    if pause == 'pause':
        db.cursor_factory = Pausing
    name = 'envelope:' + envelope
    if kind == 'ZkLock':
        lock = ZkLock(db, name)
    else:
        lock = globals()[kind](Redis(int(port)), name, SECONDS)
    for who in clients:
        try:
            share = open_envelope(lock, db, envelope, who)
        except psycopg2.Error as error:
            share = error.pgcode
        print(who, share, flush=True)


main(*sys.argv[1:])
