#!/usr/bin/python3
"""A ZooKeeper that cannot be trusted: fuzz_server.py SEED PORTS

Listens on so many ports of 127.0.0.1 and prints them, with commas.  It keeps a
tree and sessions well enough for locks to be had, but every few answers it
makes one that no client expects: errors that are none, names, lists and stats
of nonsense, events of nothing; more seldom, since the client breaks the
connection or dies of it, wrong numbers, and bytes that are cut, overlong,
negative or random.  Every second it drops all connections, and mostly lets
their sessions expire, since nothing moves any more when a contender is left
behind by a lie.  The end of input ends it; then it prints how many answers
there were and, of each sort, how many were wrong.
"""

import collections
import random
import socket
import struct
import sys
import threading
import time

CREATE, DELETE, EXISTS, GET, SET, CHILDREN, SYNC, PING = 1, 2, 3, 4, 5, 8, 9, 11
CHILDREN2, CHECK, MULTI, CREATE2, REMOVE, CONTAINER = 12, 13, 14, 15, 18, 19
AUTH, SET_WATCHES, SET_WATCHES2, CLOSE = 100, 101, 105, -11
NAMES = {
    CREATE: 'create', DELETE: 'delete', EXISTS: 'exists', GET: 'getData',
    SET: 'setData', CHILDREN: 'getChildren', SYNC: 'sync', PING: 'ping',
    CHILDREN2: 'getChildren2', MULTI: 'multi', CREATE2: 'create2',
    REMOVE: 'removeWatches', CONTAINER: 'createContainer', AUTH: 'auth',
    SET_WATCHES: 'setWatches', SET_WATCHES2: 'setWatches2', CLOSE: 'closeSession',
}
NO_NODE, NODE_EXISTS = -101, -110
INTS = (-1, -2, -2**31, 2**31 - 1, 2**31 - 5, 0, 1, 1000000, 2**24)

lock = threading.RLock()
rng = random.Random(int(sys.argv[1]))
counts = collections.Counter()
tree = {}                       # path: [data, czxid, owner, version, counter]
connections = set()
zxid = 0
last_session = 0x1000


def string(text):
    if isinstance(text, str):
        text = text.encode()
    return struct.pack('>i', len(text)) + text


def stat(node):
    data, czxid, owner, version, counter = node
    return struct.pack('>qqqqiiiqiiq', czxid, czxid, 1600000000000, 1600000000000,
                       version, counter, 0, owner, len(data), 0, czxid)


class Request:
    """The fields of a request, one after the other."""

    def __init__(self, body):
        self.body, self.at = body, 0

    def number(self, form='i'):
        value = struct.unpack_from('>' + form, self.body, self.at)[0]
        self.at += struct.calcsize('>' + form)
        return value

    def bytes(self):
        size = self.number()
        if size < 0:
            return b''
        self.at += size
        return self.body[self.at - size:self.at]

    def string(self):
        return self.bytes().decode()

    def acls(self):
        for _ in range(self.number()):
            self.number(), self.string(), self.string()


def parent_of(path):
    return path.rsplit('/', 1)[0] or '/'


def children(path):
    prefix = path.rstrip('/') + '/'
    return [p[len(prefix):] for p in tree
            if p.startswith(prefix) and '/' not in p[len(prefix):]]


def fire(path, event):
    for connection in list(connections):
        if path in connection.watched:
            connection.watched.discard(path)
            connection.push(struct.pack('>iqi', -1, -1, 0) +
                            struct.pack('>ii', event, 3) + string(path))


def create(path, data, flags, session):
    parent = parent_of(path)
    if parent != '/' and parent not in tree:
        return NO_NODE, None
    if flags in (2, 3, 6):
        counter = tree[parent][4] if parent in tree else 0
        path = '%s%010d' % (path, counter)
    if path in tree:
        return NODE_EXISTS, None
    if parent in tree:
        tree[parent][4] += 1
    tree[path] = [data, zxid, session if flags in (1, 3) else 0, 0, 0]
    fire(parent, 4)
    return 0, path


def delete(path):
    if path not in tree:
        return NO_NODE
    del tree[path]
    fire(path, 2)
    fire(parent_of(path), 4)
    return 0


class Odd:
    """Whether and how the answers of a connection are wrong."""

    NAMES = ('', '/', 'a/b', '.', 'x' * 5000, '\x01\xff\xfe', 'locks', 'leases',
             '0000000000', '9999999999', '2147483647', '-2147483648',
             '_c_-lock-0000000000', '_c_-__READ__-000000001', 'n' * 70000)
    ERRORS = (1, 2, 3, 7, 100, 2**31 - 1, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10,
              -13, -100, -101, -102, -103, -108, -110, -111, -112, -113, -114,
              -115, -116, -117, -118, -119, -120, -121, -122, -123, -124, -125,
              -126, -127, -128, -999, -2**31)

    @staticmethod
    def name(names):
        kind = rng.randrange(4)
        if kind == 0 or not names:
            return rng.choice(Odd.NAMES)
        name = rng.choice(names)
        if kind == 1:
            return name[:rng.randrange(len(name) + 1)]
        if kind == 2:
            return name[:-10] + '%010d' % rng.randrange(2**31)
        return name

    @staticmethod
    def list(names):
        names = [n for n in names if rng.random() < 0.7]
        for _ in range(rng.choice((0, 1, 3, 50))):
            names.append(Odd.name(names))
        rng.shuffle(names)
        return names

    @staticmethod
    def node(node):
        return [node[0] if rng.random() < 0.7 else rng.choice(
                    (b'__REVOKE__', b'x retain=yes', b'\xff' * 5000, b'\x00', b'z' * 10**6)),
                rng.choice((node[1], 0, -1, 2**63 - 1, -2**63)),
                rng.choice((node[2], 0, -1, 12345)), node[3], node[4]]

    @staticmethod
    def mangle(body):
        """Wrong in its bytes."""
        kind = rng.choice(('cut', 'cut', 'overlong', 'number', 'random', 'tail'))
        if kind == 'cut':
            body = body[:rng.randrange(len(body) + 1)]
        elif kind == 'overlong':
            body += rng.randbytes(rng.choice((1, 4, 1000, 100000)))
        elif kind == 'number' and len(body) >= 20:
            at = rng.randrange(16, len(body) - 3)
            at -= at % 4
            body = body[:at] + struct.pack('>i', rng.choice(INTS)) + body[at + 4:]
        elif kind == 'random':
            body = body[:16] + rng.randbytes(rng.choice((1, 4, 8, 20, 100, 300)))
        else:
            at = rng.randrange(16, max(17, len(body)))
            body = body[:at] + rng.randbytes(max(len(body) - at, 0))
        return kind, body


class Connection:
    def __init__(self, sock):
        self.sock = sock
        self.watched = set()
        self.answers = 0

    def push(self, body):
        try:
            self.sock.sendall(struct.pack('>i', len(body)) + body)
        except OSError:
            pass

    def read(self):
        size = b''
        while len(size) < 4:
            more = self.sock.recv(4 - len(size))
            if not more:
                raise EOFError
            size += more
        size = struct.unpack('>i', size)[0]
        body = b''
        while len(body) < size:
            more = self.sock.recv(size - len(body))
            if not more:
                raise EOFError
            body += more
        return Request(body)

    def greet(self):
        """The handshake; it may be odd, too."""
        global last_session
        request = self.read()
        request.number(), request.number('q'), request.number()
        session = request.number('q')
        timeout, password = 1000, b'p' * 16
        if session == 0:
            last_session += 1
            session = last_session
        elif rng.random() < 0.8:
            session, timeout = 0, 0         # expired
            for path in [p for p in tree if tree[p][2]]:
                delete(path)
            counts['expired'] += 1
        self.session = session
        body = struct.pack('>iiq', 0, timeout, session) + string(password) + b'\0'
        if rng.random() < 0.08:
            kind = rng.choice(('cut', 'timeout', 'id', 'password', 'random', 'readonly'))
            counts['connect ' + kind] += 1
            if kind == 'cut':
                body = body[:rng.randrange(len(body))]
            elif kind == 'timeout':
                body = body[:4] + struct.pack('>i', rng.choice(INTS)) + body[8:]
            elif kind == 'id':
                body = body[:8] + struct.pack('>q', rng.choice((0, -1, 77))) + body[16:]
            elif kind == 'password':
                body = body[:16] + string(b'q' * rng.choice((0, 1, 40))) + b'\0'
            elif kind == 'readonly':
                body = body[:-1] + b'\1'
            else:
                body = rng.randbytes(rng.choice((4, 37, 100)))
            self.sock.settimeout(0.3)
        self.push(body)

    def answer(self, kind, request, odd):
        """Error and body of the answer to one request."""
        global zxid
        zxid += 1
        if kind in (CREATE, CREATE2, CONTAINER):
            path, data = request.string(), request.bytes()
            request.acls()
            error, path = create(path, data, request.number(), self.session)
            if error:
                return error, b''
            node = tree[path]
            if odd:
                path, node = parent_of(path) + '/' + Odd.name([path]), Odd.node(node)
            return 0, string(path) + (b'' if kind == CREATE else stat(node))
        if kind == DELETE:
            return delete(request.string()), b''
        if kind in (EXISTS, GET, CHILDREN, CHILDREN2):
            path, watch = request.string(), request.number('b')
            node = tree.get(path)
            if node is None:
                return NO_NODE, b''
            if watch:
                self.watched.add(path)
            names = children(path)
            if odd:
                names, node = Odd.list(names), Odd.node(node)
            if kind == EXISTS:
                return 0, stat(node)
            if kind == GET:
                return 0, string(node[0]) + stat(node)
            return 0, (struct.pack('>i', len(names)) + b''.join(map(string, names)) +
                       (stat(node) if kind == CHILDREN2 else b''))
        if kind == SET:
            path, data = request.string(), request.bytes()
            if path not in tree:
                return NO_NODE, b''
            tree[path][0] = data
            tree[path][3] += 1
            fire(path, 3)
            return 0, stat(tree[path])
        if kind == SYNC:
            return 0, string(request.string())
        if kind == MULTI:
            return self.multi(request, odd)
        return 0, b''

    def multi(self, request, odd):
        body, failed = b'', False
        parts = []
        while True:
            kind, done = request.number(), request.number('b')
            request.number()
            if done:
                break
            if kind == CHECK:
                request.string(), request.number()
                parts.append((kind, b''))
            elif kind == DELETE:
                path = request.string()
                request.number()
                if path in tree:
                    delete(path)
                else:
                    failed = True
                parts.append((kind, b''))
            elif kind in (CREATE, CREATE2):
                path, data = request.string(), request.bytes()
                request.acls()
                error, path = create(path, data, request.number(), self.session)
                if error:
                    failed = True
                elif odd:
                    path = parent_of(path) + '/' + Odd.name([path])
                parts.append((kind, string(path or '')))
            else:
                return -6, b''
        for kind, part in parts:
            if failed or (odd and rng.random() < 0.3):
                error = rng.choice(Odd.ERRORS) if odd else -2
                body += struct.pack('>ibi', -1, 0, error) + struct.pack('>i', error)
            else:
                body += struct.pack('>ibi', kind, 0, 0) + part
        return 0, body + struct.pack('>ibi', -1, 1, -1)

    def event(self):
        """One that nobody waits for, or somebody."""
        paths = list(self.watched) + list(tree)[:20] + ['/', '', 'x', '/nowhere', '/' + 'y' * 9000]
        body = struct.pack('>iqi', -1, -1, 0) + struct.pack(
            '>ii', rng.choice((1, 2, 3, 4, 4, 2, -2, 5, 99)),
            rng.choice((3, 3, 3, 0, 1, 5, 77))) + string(rng.choice(paths))
        counts['event odd'] += 1
        self.push(body)

    def hard(self, name, body):
        """What the client cannot survive, or breaks the connection for."""
        kind = rng.choice(('bytes', 'bytes', 'bytes', 'bytes', 'xid', 'length',
                           'unasked', 'event', 'session', 'auth'))
        if kind == 'bytes':
            kind, body = Odd.mangle(body)
        elif kind == 'xid':
            body = struct.pack('>i', rng.choice(INTS + (-4, -8, -7))) + body[4:]
        elif kind == 'unasked':
            self.push(body)
            body = struct.pack('>i', 2**30) + body[4:]
        elif kind == 'event':
            self.push(struct.pack('>iqi', -1, -1, 0) + rng.randbytes(rng.choice((0, 3, 8, 11, 30))))
        elif kind == 'session':
            self.push(struct.pack('>iqi', -1, -1, 0) + struct.pack(
                '>ii', -1, rng.choice((-112, -113, 0, 3, 5, 999, 77, -1))) + string(''))
        elif kind == 'auth':
            self.push(struct.pack('>iqi', -4, 0, rng.choice((0, -115, 3))))
        counts['%s %s' % (name, kind)] += 1
        if kind == 'length':
            try:
                self.sock.sendall(struct.pack('>i', rng.choice(INTS[:4])) + body)
            except OSError:
                pass
            self.sock.settimeout(0.1)
        else:
            self.push(body)

    def serve(self):
        with self.sock:
            try:
                with lock:
                    pass
                self.greet()
                with lock:
                    connections.add(self)
                while True:
                    request = self.read()
                    with lock:
                        self.one(request)
            except (OSError, EOFError, struct.error, UnicodeDecodeError):
                pass
            finally:
                with lock:
                    connections.discard(self)

    def one(self, request):
        xid, kind = request.number(), request.number()
        name = NAMES.get(kind, 'type %d' % kind)
        odd = rng.random() < 0.15
        error, body = self.answer(kind, request, odd and kind != PING)
        if kind == CLOSE:
            for path in [p for p in tree if tree[p][2] == self.session]:
                delete(path)
        if odd and kind != PING and rng.random() < 0.4:
            error = rng.choice(Odd.ERRORS)
            body = b'' if rng.random() < 0.8 else body
            counts['%s error' % name] += 1
        elif odd:
            counts['%s odd' % name] += 1
        number = zxid if not odd else rng.choice((zxid, -1, 0))
        body = struct.pack('>iqi', xid, number, error) + body
        self.answers += 1
        counts['answers'] += 1
        if counts['answers'] % 1000 == 0:
            print('answers:', counts['answers'], flush=True)
        if self.answers > 60 and rng.random() < 0.01:
            self.hard(name, body)
        else:
            self.push(body)
        if rng.random() < 0.05:
            self.event()


def drop():
    while True:
        time.sleep(1)
        with lock:
            for connection in connections:
                try:
                    connection.sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


def accept(listener):
    while True:
        sock = listener.accept()[0]
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=Connection(sock).serve, daemon=True).start()


def main():
    listeners = [socket.create_server(('127.0.0.1', 0)) for _ in range(int(sys.argv[2]))]
    for listener in listeners:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
    threading.Thread(target=drop, daemon=True).start()
    print(','.join(str(l.getsockname()[1]) for l in listeners), flush=True)
    sys.stdin.read()
    with lock:
        for name in sorted(counts):
            print(name + ':', counts[name], flush=True)


if __name__ == '__main__':
    main()
