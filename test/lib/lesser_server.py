#!/usr/bin/python3
"""A server with less than ZooKeeper has: lesser_server.py PORT WORD...

Prints the port of 127.0.0.1 that it listens on, and passes on to the ZooKeeper
server at PORT what it is sent, except for the WORDs:

refuse:N  it answers a request of type N that it has no such request, and closes
          the connection, as ZooKeeper does;
close:N   it only closes the connection, as others do; close:N:M the first M
          times only;
forget    it begins a session for a client that wants to resume one.

The end of input ends it.
"""

import socket
import struct
import sys
import threading

EXISTS = 3
UNIMPLEMENTED = -6


class Closed(Exception):
    pass


def receive(connection):
    size = connection.recv(4, socket.MSG_WAITALL)
    if len(size) < 4:
        raise Closed
    return connection.recv(struct.unpack('>i', size)[0], socket.MSG_WAITALL)


def send(connection, packet):
    connection.sendall(struct.pack('>i', len(packet)) + packet)


class Lack:
    """What the server has less."""

    def __init__(self, words):
        self.forgets = 'forget' in words
        self._refused = set()
        self._closed = {}           # how often, by type
        for word, *numbers in (word.split(':') for word in words):
            if word == 'refuse':
                self._refused.add(int(numbers[0]))
            elif word == 'close':
                self._closed[int(numbers[0])] = float(numbers[1] if numbers[1:] else 'inf')

    def refuses(self, kind):
        return kind in self._refused

    def closes(self, kind):
        left = self._closed.get(kind, 0)
        self._closed[kind] = left - 1
        return left > 0


class Relay:
    """A connection of a client."""

    def __init__(self, client, port, lack):
        self._client = client
        self._server = socket.create_connection(('127.0.0.1', port))
        self._lack = lack
        self._refused = set()       # by their xids
        for target in self._requests, self._answers:
            threading.Thread(target=self._run, args=(target,), daemon=True).start()

    def _run(self, target):
        try:
            target()
        except (Closed, OSError):
            pass
        for connection in self._client, self._server:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _requests(self):
        greeting = receive(self._client)    # version, zxid, timeout, session, password
        if self._lack.forgets:
            greeting = greeting[:16] + bytes(8) + greeting[24:28] + bytes(16) + greeting[44:]
        send(self._server, greeting)
        while True:
            request = receive(self._client)
            xid, kind = struct.unpack_from('>ii', request)
            if self._lack.closes(kind):
                raise Closed
            if self._lack.refuses(kind):
                # another one in its place keeps the order of the answers
                self._refused.add(xid)
                request = struct.pack('>iii1s?', xid, EXISTS, 1, b'/', False)
            send(self._server, request)

    def _answers(self):
        send(self._client, receive(self._server))
        while True:
            answer = receive(self._server)
            xid, zxid = struct.unpack_from('>iq', answer)
            if xid in self._refused:
                send(self._client, struct.pack('>iqi', xid, zxid, UNIMPLEMENTED))
                raise Closed
            send(self._client, answer)


def accept(listener, port, lack):
    while True:
        client = listener.accept()[0]
        try:
            Relay(client, port, lack)
        except OSError:
            client.close()


def main():
    listener = socket.create_server(('127.0.0.1', 0))
    threading.Thread(target=accept, args=(listener, int(sys.argv[1]), Lack(sys.argv[2:])),
                     daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    sys.stdin.read()


if __name__ == '__main__':
    main()
