#!/usr/bin/python3
"""A TCP proxy for ZkProxy.pm: networks that lose, delay and cut.

Reads requests from stdin, one JSON array ["method", argument, ...] a line,
and answers each with a line {"result": ...} or {"error": ...}.  The end of
input ends the process.
"""

import asyncio
import json
import re
import socket
import struct
import sys

HOST = '127.0.0.1'
CHUNK = 65536

# SOCKS 5, RFC 1928: requests to connect to an IPv4 address, nothing else.
SOCKS_NO_AUTHENTICATION = b'\x05\x00'
SOCKS_CONNECT = b'\x05\x01\x00\x01'
SOCKS_GRANTED = b'\x05\x00\x00\x01' + bytes(6)
SOCKS_REFUSED = b'\x05\x05\x00\x01' + bytes(6)

# Kinds of requests to ZooKeeper, by their numbers.
REQUESTS = {
    -11: 'close', 1: 'create', 2: 'delete', 3: 'exists', 4: 'get', 5: 'set',
    7: 'set_acl', 8: 'children', 9: 'sync', 11: 'ping', 12: 'children',
    14: 'multi', 15: 'create', 18: 'remove_watches', 19: 'create_container',
    100: 'auth', 101: 'set_watches', 105: 'set_watches',
}
MULTI_CHECK = 13


class RequestReader:
    """Counts and measures the requests in what a ZooKeeper client sends on a
    connection."""

    def __init__(self, counts, lengths):
        self._counts = counts
        self._lengths = lengths
        self._data = bytearray()
        self._greeted = False

    def feed(self, data):
        self._data += data
        while len(self._data) >= 4:
            end = 4 + int.from_bytes(self._data[:4], 'big')
            if len(self._data) < end:
                break
            kind = self._kind(bytes(self._data[4:end]))
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._lengths[kind] = max(self._lengths.get(kind, 0), end)
            del self._data[:end]

    def _kind(self, request):
        if not self._greeted:
            self._greeted = True
            return 'connect'
        number = struct.unpack_from('>i', request, 4)[0]
        kind = REQUESTS.get(number, str(number))
        return 'check' if kind == 'multi' and only_checks(request) else kind


def only_checks(request):
    """Does this multi change nothing?"""
    at = 8
    while True:
        kind, done = struct.unpack_from('>i?', request, at)
        if done:
            return True
        if kind != MULTI_CHECK:
            return False
        at += 9
        at += 4 + struct.unpack_from('>i', request, at)[0] + 4


class Link:
    """What goes from one place to another: connections, and what the network
    does to them."""

    def __init__(self):
        self.delay = 0
        self.refusing = False
        self.forgery = None
        self.connections = set()
        self.requests = None
        self.lengths = None
        self._listener = self._port = None
        self._open = asyncio.Event()
        self._open.set()
        self._loud = asyncio.Event()
        self._loud.set()

    async def passable(self, answers=False):
        await self._open.wait()
        if answers:
            await self._loud.wait()

    def mute(self):
        self._loud.clear()

    def freeze(self):
        self._open.clear()

    async def refuse(self):
        self.refusing = True
        if self._listener:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        await self.reset()
        self._open.set()

    def thaw(self):
        self.refusing = False
        self._loud.set()
        if self._port and not self._listener:
            self._listen()
        self._open.set()

    async def reset(self):
        tasks = [connection.reset() for connection in self.connections]
        await asyncio.gather(*tasks, return_exceptions=True)

    def listen(self, target):
        # This one never listens, it keeps the port for us while we refuse.
        self._reserved = bound_socket(0)
        self._port = self._reserved.getsockname()[1]
        self._target = target
        self._listen()
        return self._port

    def _listen(self):
        self._listener = bound_socket(self._port)
        self._listener.listen(128)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self):
        try:
            client = self._listener.accept()[0]
        except OSError:
            return              # it has gone again
        Connection(self, client, self._target)


class Connection:
    """A connection through a link, of two sockets."""

    def __init__(self, link, client, target, socks=False):
        client.setblocking(False)
        self._link = link
        self._client = client
        self._server = socket.socket()
        self._server.setblocking(False)
        link.connections.add(self)
        self._task = asyncio.create_task(self._run(target, socks))

    def reset(self):
        self._task.cancel()
        return self._task

    async def _run(self, target, socks):
        # Unless both sides close it, it ends with a reset.
        linger = struct.pack('ii', 1, 0)
        counts = self._link.requests
        reader = None if counts is None else RequestReader(counts, self._link.lengths)
        try:
            await self._connect(target, socks)
            async with asyncio.TaskGroup() as group:
                for source, sink, reader in (
                        (self._client, self._server, reader),
                        (self._server, self._client, None)):
                    under_way = asyncio.Queue(64)
                    group.create_task(self._read(source, under_way, reader))
                    group.create_task(self._write(sink, under_way, sink is self._client))
            linger = struct.pack('ii', 0, 0)
        except* OSError:
            pass
        finally:
            self._link.connections.discard(self)
            for s in (self._client, self._server):
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                s.close()

    async def _connect(self, target, socks):
        loop = asyncio.get_running_loop()
        await self._link.passable()
        for s in (self._client, self._server):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await loop.sock_connect(self._server, (HOST, target))
        except OSError:
            if socks:
                await loop.sock_sendall(self._client, SOCKS_REFUSED)
            raise
        if socks:
            await loop.sock_sendall(self._client, SOCKS_GRANTED)

    # Read and write are apart, so that a delay limits no throughput, and what
    # a client sends is counted also while nothing passes.

    async def _read(self, source, under_way, reader):
        loop = asyncio.get_running_loop()
        data = True
        while data:
            try:
                data = await loop.sock_recv(source, CHUNK)
            except OSError:
                await self._link.passable()
                raise
            if reader:
                reader.feed(data)
            await under_way.put((loop.time() + self._link.delay, data))

    async def _write(self, sink, under_way, answers):
        loop = asyncio.get_running_loop()
        data = True
        while data:
            due, data = await under_way.get()
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            await self._link.passable(answers)
            if answers and self._link.forgery:
                data = re.sub(*self._link.forgery, data)
            if data:
                await loop.sock_sendall(sink, data)
            else:
                sink.shutdown(socket.SHUT_WR)


def bound_socket(port):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((HOST, port))
    s.setblocking(False)
    return s


class Proxy:
    def __init__(self):
        self._links = {}
        self._tasks = []        # would be collected otherwise

    def _named(self, names):
        for name in names:
            if name not in self._links:
                raise ValueError('there is no link "%s"' % name)
        return [self._links[name] for name in names or self._links]

    def link(self, name, target):
        if name in self._links:
            raise ValueError('link "%s" is already there' % name)
        self._links[name] = Link()
        return self._links[name].listen(target)

    async def socks(self, links):
        """A SOCKS server for one process: what it sends to these ports goes
        through these links."""
        links = {int(port): name for port, name in links.items()}
        for name in links.values():
            self._links.setdefault(name, Link())

        async def serve(client):
            loop = asyncio.get_running_loop()

            async def read(n):
                data = b''
                while len(data) < n:
                    more = await loop.sock_recv(client, n - len(data))
                    if not more:
                        raise ConnectionError
                    data += more
                return data

            try:
                await read((await read(2))[1])
                await loop.sock_sendall(client, SOCKS_NO_AUTHENTICATION)
                request = await read(10)
                port = int.from_bytes(request[8:], 'big')
                link = self._links.get(links.get(port))
                if request[:4] == SOCKS_CONNECT and link and not link.refusing:
                    Connection(link, client, port, True)
                    return
                await loop.sock_sendall(client, SOCKS_REFUSED)
            except OSError:
                pass
            client.close()

        async def accept(s):
            loop = asyncio.get_running_loop()
            tasks = set()
            while True:
                client, _ = await loop.sock_accept(s)
                client.setblocking(False)
                task = asyncio.create_task(serve(client))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        s = bound_socket(0)
        s.listen(128)
        self._tasks.append(asyncio.create_task(accept(s)))
        return s.getsockname()[1]

    def freeze(self, *names):
        for link in self._named(names):
            link.freeze()

    def mute(self, *names):
        for link in self._named(names):
            link.mute()

    def thaw(self, *names):
        for link in self._named(names):
            link.thaw()

    async def reset(self, *names):
        for link in self._named(names):
            await link.reset()

    async def refuse(self, *names):
        for link in self._named(names):
            await link.refuse()

    def delay(self, ms, *names):
        for link in self._named(names):
            link.delay = ms / 1000

    def forge(self, name, old, new):
        self._links[name].forgery = (old.encode(), new.encode())

    def count(self, *names):
        for link in self._named(names):
            link.requests = {}
            link.lengths = {}

    def requests(self, name):
        return self._links[name].requests

    def longest(self, name):
        return self._links[name].lengths

    def connections(self, *names):
        return sum(len(link.connections) for link in self._named(names))


async def main():
    loop = asyncio.get_running_loop()
    requests = asyncio.StreamReader()
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    proxy = Proxy()
    while line := await requests.readline():
        method, *args = json.loads(line)
        try:
            result = getattr(proxy, method)(*args)
            if asyncio.iscoroutine(result):
                result = await result
            answer = {'result': result}
        except Exception as e:
            answer = {'error': ('%s %s' % (type(e).__name__, e)).strip()}
        print(json.dumps(answer), flush=True)


if __name__ == '__main__':
    asyncio.run(main())
