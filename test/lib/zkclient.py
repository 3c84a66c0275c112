#!/usr/bin/python3
"""A ZooKeeper client for ZooKeeper.pm: zkclient.py SERVERS TIMEOUT

Reads requests from stdin, one JSON array ["method", argument, ...] a line,
and answers each with a line {"result": ...} or {"error": ...}.  The end of
input closes the session.
"""

import json
import logging
import re
import socket
import struct
import sys
import time
import uuid

from kazoo import security
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout, NodeExistsError, NoNodeError
from kazoo.retry import KazooRetry

PATTERNS = ['-lock-', '-__READ__', '-__WRIT__']

# What a lost connection may have lost without harm, and is asked again.
READS = {'ls', 'get', 'get_acl', 'exists', 'contenders', 'position'}

ACLS = {
    'open': security.OPEN_ACL_UNSAFE,
    'creator': security.CREATOR_ALL_ACL,
    'read': security.READ_ACL_UNSAFE,
    'no delete': [security.make_acl('world', 'anyone', read=True, write=True,
                                    create=True, admin=True)],
}


# In "-lock-0000000001" the last dash is no sign, in "-lock--2147483648" it is.
SEQUENCE = re.compile(r'(?:-lock-|__)(-?\d{10})$|(\d{10})$')


def in_order(children):
    """The children that stand in a lock's queue, in its order."""
    numbers = {}
    for child in children:
        found = SEQUENCE.search(child)
        if found:
            numbers[child] = int(found[1] or found[2])
    return sorted(numbers, key=numbers.get)


def session_password(session_id):
    """What ZooKeeperServer.generatePasswd() makes of a session id:
    java.util.Random(id ^ superSecret).nextBytes(16)"""
    seed = ((session_id ^ 0xB3415C00) ^ 0x5DEECE66D) & ((1 << 48) - 1)
    password = b''
    for _ in range(4):
        seed = (seed * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        password += (seed >> 16).to_bytes(4, 'little')
    return password


class Client:
    def __init__(self, servers, timeout):
        self._servers = servers
        # A server that is just starting may leave a connection unanswered for
        # good.  kazoo gives up after the timeout by the number of hosts, so
        # name each several times, and go on trying at a steady pace.
        self._zk = KazooClient(
            hosts=','.join([servers] * 10), timeout=timeout,
            connection_retry={'max_tries': -1, 'max_delay': 0.5})
        self._zk.start(timeout=60)
        self._locks = {}

    def session(self):
        return self._zk.client_id[0]

    def ls(self, path):
        return sorted(self._zk.get_children(path))

    def get(self, path):
        data, stat = self._zk.get(path)
        return {
            'data': (data or b'').decode(),
            'czxid': stat.czxid,
            'mzxid': stat.mzxid,
            'version': stat.version,
            'ephemeralOwner': stat.ephemeralOwner,
            'numChildren': stat.numChildren,
        }

    def exists(self, path):
        return self._zk.exists(path) is not None

    def create(self, path, options):
        return self._zk.create(
            path,
            bytes.fromhex(options['hex']) if 'hex' in options
            else options.get('data', '').encode(),
            acl=ACLS[options.get('acl', 'open')],
            ephemeral=bool(options.get('ephemeral')),
            sequence=bool(options.get('sequence')),
            makepath=bool(options.get('makepath')))

    def create_all(self, paths, data):
        """Ephemeral nodes, with many requests under way at a time."""
        results = [self._zk.create_async(path, data.encode(), ephemeral=True)
                   for path in paths]
        for result in results:
            result.get(timeout=180)

    def _crowd(self, pattern, first, n, act):
        """Acts on pattern % first, pattern % (first + 1), and so on, many in
        each request; returns the paths of requests that have failed."""
        requests = []
        for start in range(first, first + n, 500):
            paths = [pattern % i
                     for i in range(start, min(start + 500, first + n))]
            request = self._zk.transaction()
            for path in paths:
                act(request, path)
            requests.append((paths, request.commit_async()))
        return [paths for paths, result in requests
                if any(isinstance(part, Exception)
                       for part in result.get(timeout=180))]

    def create_crowd(self, pattern, first, n, data=''):
        if self._crowd(pattern, first, n,
                       lambda request, path: request.create(
                           path, data.encode(), ephemeral=data != '')):
            raise NodeExistsError

    def delete_crowd(self, pattern, first, n):
        # an instance may have deleted one of them
        for paths in self._crowd(pattern, first, n,
                                 lambda request, path: request.delete(path)):
            for path in paths:
                try:
                    self._zk.delete(path)
                except NoNodeError:
                    pass

    def delete_all(self, paths):
        results = [self._zk.delete_async(path) for path in paths]
        for result in results:
            result.get(timeout=180)

    def set(self, path, data):
        self._zk.set(path, data.encode())

    def set_hex(self, path, digits):
        self._zk.set(path, bytes.fromhex(digits))

    def set_acl(self, path, acl):
        self._zk.set_acls(path, ACLS[acl])

    def get_acl(self, path):
        """Who may do what, as ZooKeeper's shell writes it."""
        return sorted('%s:%s' % (acl.id.id.split(':')[0], ''.join(
            letter for bit, letter in enumerate('rwcda') if acl.perms >> bit & 1))
            for acl in self._zk.get_acls(path)[0])

    def delete(self, path):
        self._zk.delete(path)

    def add_auth(self, scheme, credentials):
        self._zk.add_auth(scheme, credentials)

    def kill_session(self, session_id):
        """Attach to the session and close it, in one breath: its owner would
        come back for it."""
        session_id = int(str(session_id), 0)
        password = session_password(session_id)
        connect = struct.pack('>iqiqi16s?', 0, 0, 10000, session_id,
                              len(password), password, False)
        close = struct.pack('>ii', 1, -11)
        attempts = 0            # that reached a server and had no answer
        for server in self._servers.split(',') * 50:
            answer = b''
            unanswered = False
            try:
                with socket.create_connection(server.split(':'), 10) as s:
                    s.sendall(b''.join(struct.pack('>i', len(request)) + request
                                       for request in (connect, close)))
                    # a busy server may close the connection, or reset it,
                    # ahead of its answer
                    unanswered = True
                    while chunk := s.recv(4096):
                        answer += chunk
            except OSError:
                pass
            if len(answer) >= 12:
                # what is granted is a timeout of 0 if there is no such
                # session: then an attempt before this one has closed it
                granted = struct.unpack_from('>iii', answer)[2]
                return granted > 0 or attempts > 0
            attempts += unanswered
            time.sleep(0.05)
        raise ConnectionError('no server answers')

    def create_in_session(self, session_id, path):
        """Attach to the session, make an ephemeral sequential node in it, and
        leave: as a create does that its owner takes for failed."""
        def string(text):
            return struct.pack('>i', len(text)) + text

        session_id = int(str(session_id), 0)
        requests = (
            struct.pack('>iqiq', 0, 0, 10000, session_id) +
            string(session_password(session_id)) + b'\0',
            struct.pack('>ii', 1, 1) + string(path.encode()) + string(b'') +
            struct.pack('>ii', 1, 31) + string(b'world') + string(b'anyone') +
            struct.pack('>i', 3))
        for server in self._servers.split(',') * 50:
            try:
                with socket.create_connection(server.split(':'), 10) as s:
                    s.sendall(b''.join(string(request) for request in requests))
                    with s.makefile('rb') as answers:
                        for _ in requests:
                            size = struct.unpack('>i', answers.read(4))[0]
                            answer = answers.read(size)
                error = struct.unpack_from('>iqi', answer)[2]
                if error:
                    raise ValueError('the create failed with %d' % error)
                return answer[20:].decode()
            except (OSError, struct.error):
                time.sleep(0.05)    # the owner has come back ahead of that
        raise ConnectionError('no server answers')

    def enqueue(self, directory, kind):
        while True:
            self._zk.ensure_path(directory)
            try:
                return self._zk.create(
                    '%s/_c_%s%s' % (directory, uuid.uuid4(), kind),
                    b'foreign contender', ephemeral=True, sequence=True)
            except NoNodeError:
                pass            # an idle directory was just collected

    def enqueue_each(self, directories, kind):
        """The same for many directories that are there, all at once."""
        results = [self._zk.create_async(
            '%s/_c_%s%s' % (directory, uuid.uuid4(), kind),
            b'foreign contender', ephemeral=True, sequence=True)
            for directory in directories]
        return [result.get(60) for result in results]

    def contenders(self, directory):
        return in_order(self._zk.get_children(directory))

    def position(self, node):
        directory, name = node.rsplit('/', 1)
        return self.contenders(directory).index(name)

    def sweep(self, root):
        """Delete what is empty below the root, as the collector of containers
        does."""
        paths = [root + '/' + child for child in self._zk.get_children(root)]
        paths = [path + sub for sub in ('/locks', '/leases', '') for path in paths]
        results = [self._zk.delete_async(path) for path in paths]
        for result in results:
            result.wait(60)
        return sum(result.successful() for result in results)

    def kazoo_lock(self, directory, timeout):
        while True:
            lock = self._zk.Lock(directory, extra_lock_patterns=PATTERNS)
            self._locks[directory] = lock
            try:
                return lock.acquire(timeout=timeout)
            except LockTimeout:
                return False
            except NoNodeError:
                pass            # an idle directory was just collected

    def kazoo_unlock(self, directory):
        return self._locks.pop(directory).release()

    def close(self):
        self._zk.stop()
        self._zk.close()


def main():
    logging.basicConfig(level=logging.CRITICAL)
    client = Client(sys.argv[1], float(sys.argv[2]))
    retry = KazooRetry(max_tries=-1, max_delay=0.2, deadline=60)
    for line in sys.stdin:
        method, *args = json.loads(line)
        call = getattr(client, method)
        try:
            answer = {'result': retry(call, *args) if method in READS
                      else call(*args)}
        except Exception as e:
            answer = {'error': ('%s %s' % (type(e).__name__, e)).strip()}
        print(json.dumps(answer), flush=True)
    client.close()


if __name__ == '__main__':
    main()
