#!/usr/bin/python3
"""A server that is none: odd_server.py MANNER

Prints the port of 127.0.0.1 that it listens on.  It grants every session, as
ZooKeeper does, and, unless it is mute, answers the first request.  Then, with
the MANNER

mute      it answers pings only;
unasked   it sends an answer that nobody has asked for;
refuse    no znode exists; when the client begins to create the parents of a
          lock directory below another root than /zklock, where clusters tell of
          themselves, it says that it refuses the credentials: once;
repeat    each list has the directories of a semaphore 50 times, or, below one of
          them, a contender.

The end of input ends it.
"""

import socket
import struct
import sys
import threading

CREATE, EXISTS, GET, CHILDREN, CHECK, MULTI = 1, 3, 4, 8, 13, 14
AUTH_XID, PING_XID = -4, -2
NO_NODE, AUTH_FAILED = -101, -115

refused = False


def packet(body):
    return struct.pack('>i', len(body)) + body


def answer(xid, error, body=b''):
    return packet(struct.pack('>iqi', xid, 1, error) + body)


def receive(connection):
    size = struct.unpack('>i', connection.recv(4, socket.MSG_WAITALL))[0]
    return connection.recv(size, socket.MSG_WAITALL)


def greet(connection):
    request = receive(connection)       # version, zxid, timeout, session, password
    session = struct.unpack_from('>q', request, 16)[0] or 0x1234
    connection.sendall(packet(
        struct.pack('>iiqi', 0, 4000, session, 16) + b'p' * 16 + b'\0'))


def unasked(connection):
    xid = struct.unpack_from('>i', receive(connection))[0]
    connection.sendall(answer(xid, 0, struct.pack('>i', 1) + b'/') + answer(5, 0))
    connection.recv(4096)


def mute(connection):
    while True:
        xid = struct.unpack_from('>i', receive(connection))[0]
        if xid in (AUTH_XID, PING_XID):
            connection.sendall(answer(xid, 0))


def refuse(connection):
    global refused
    while True:
        request = receive(connection)
        xid, kind = struct.unpack_from('>ii', request)
        if kind == CREATE and not refused and b'/zklock' not in request:
            refused = True
            reply = answer(AUTH_XID, AUTH_FAILED)
        elif kind == MULTI and struct.unpack_from('>i', request, 8)[0] == CHECK:
            reply = answer(xid, 0, struct.pack('>ibiibi', CHECK, 0, 0, -1, 1, -1))
        else:
            reply = answer(xid, 0 if xid in (AUTH_XID, PING_XID) else NO_NODE)
        connection.sendall(reply)


def names(path):
    if path.endswith((b'/leases', b'/locks')):
        return [b'_c_01234567-0123-4123-8123-0123456789ab-lease-0000000000']
    return [b'leases', b'locks'] * 50


def repeat(connection):
    stat = struct.pack('>qqqqiiiqiiq', 9, 9, 0, 0, 0, 0, 0, 0x1234, 0, 0, 9)
    while True:
        request = receive(connection)
        xid, kind, size = struct.unpack_from('>iii', request + bytes(4))
        if kind == CHILDREN:
            found = names(request[12:12 + size])
            reply = answer(xid, 0, struct.pack('>i', len(found)) + b''.join(
                struct.pack('>i', len(name)) + name for name in found))
        elif kind == EXISTS:
            reply = answer(xid, 0, stat)
        elif kind == GET:
            reply = answer(xid, 0, struct.pack('>i', 0) + stat)
        elif kind == MULTI and size == CHECK:
            reply = answer(xid, 0, struct.pack('>ibiibi', CHECK, 0, 0, -1, 1, -1))
        else:
            reply = answer(xid, 0 if xid in (AUTH_XID, PING_XID) else NO_NODE)
        connection.sendall(reply)


def serve(connection, manner):
    with connection:
        try:
            greet(connection)
            manner(connection)
        except (OSError, struct.error):
            pass


def accept(listener, manner):
    while True:
        serve(listener.accept()[0], manner)


def main():
    manner = {'mute': mute, 'unasked': unasked, 'refuse': refuse, 'repeat': repeat}[sys.argv[1]]
    listener = socket.create_server(('127.0.0.1', 0))
    threading.Thread(target=accept, args=(listener, manner), daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    sys.stdin.read()


if __name__ == '__main__':
    main()
