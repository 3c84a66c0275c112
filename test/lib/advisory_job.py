# advisory_job.py CONNINFO FILE ROUNDS
#
# A job as people write them: adds 1 to the number in FILE, so many times, each
# time in a transaction that has taken an advisory lock.  The file knows no
# locks, so what is lost shows in the sum.

import sys

import psycopg2

conninfo, path, rounds = sys.argv[1:]
connection = psycopg2.connect(conninfo)

for i in range(int(rounds)):
    with connection, connection.cursor() as cursor:
        cursor.execute('SELECT pg_advisory_xact_lock(hashtext(%s), %s)',
                       ('invoice numbers', 17))
        with open(path) as f:
            number = int(f.read())
        # as long as a row or two
        cursor.execute('INSERT INTO invoices VALUES (%s)', (number + 1,))
        with open(path, 'w') as f:
            f.write(str(number + 1))
connection.close()
