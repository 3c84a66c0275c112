#!/usr/bin/python3
"""A server that is none: odd_server.py

Prints the port of 127.0.0.1 that it listens on.  It grants every session, as
ZooKeeper does, answers the first request, and then sends an answer that
nobody has asked for.  The end of input ends it.
"""

import socket
import struct
import sys
import threading


def packet(body):
    return struct.pack('>i', len(body)) + body


def serve(connection):
    with connection:
        try:
            connection.recv(4096)       # version, timeout of 4 s, session, password
            connection.sendall(packet(
                struct.pack('>iiqi', 0, 4000, 0x1234, 16) + b'p' * 16 + b'\0'))
            xid = struct.unpack_from('>ii', connection.recv(4096))[1]
            answer = struct.pack('>iqii', xid, 1, 0, 1) + b'/'
            connection.sendall(packet(answer) +
                               packet(struct.pack('>iqi', 5, 1, 0)))
            connection.recv(4096)
        except (OSError, struct.error):
            pass


def accept(listener):
    while True:
        serve(listener.accept()[0])


def main():
    listener = socket.create_server(('127.0.0.1', 0))
    threading.Thread(target=accept, args=(listener,), daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    sys.stdin.read()


if __name__ == '__main__':
    main()
