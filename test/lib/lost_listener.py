# lost_listener.py CONNINFO
#
# A session that listens on channel zklock_lost.  It runs each line of its input
# as a statement, and is idle otherwise.  It prints "pid PID" at first, then for
# each statement "ok" or "error SQLSTATE", and for each notification its payload,
# in UTF-8, when it arrives.

import os
import select
import sys

import psycopg2

connection = psycopg2.connect(sys.argv[1])
connection.autocommit = True
connection.set_client_encoding('UTF8')
cursor = connection.cursor()
cursor.execute('LISTEN zklock_lost')
pending = b''


def say(line):
    sys.stdout.buffer.write(line.encode() + b'\n')
    sys.stdout.buffer.flush()


say('pid %d' % connection.info.backend_pid)
while True:
    ready = select.select([connection, 0], [], [])[0]
    if connection in ready:
        connection.poll()
    if 0 in ready:
        data = os.read(0, 65536)
        if not data:
            break
        pending += data
        *lines, pending = pending.split(b'\n')
        for line in lines:
            try:
                cursor.execute(line.decode())
                say('ok')
            except psycopg2.Error as error:
                say('error ' + error.pgcode)
    for notify in connection.notifies:
        say(notify.payload)
    connection.notifies.clear()
