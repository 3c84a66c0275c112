#!/usr/bin/python3
"""What must be true of the image and of compose.yaml in packaging/oci.

test/images/run calls this when it has made the images, where podman has a network
and a storage of its own.  Prints a line for each check, figures, and a summary.
"""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROJECT = 'zklock'
COMPOSE = ['podman-compose', '-p', PROJECT, '-f', f'{TOP}/packaging/oci/compose.yaml']
NETWORK = f'{PROJECT}_default'
DATABASES = ['db1', 'db2']
ENSEMBLE = ['zk1', 'zk2', 'zk3']
LIMIT = 180                     # seconds that only a broken system takes

BASE = os.environ['POSTGRES_IMAGE']
IMAGE = os.environ['ZKLOCK_IMAGE']
OLDER = os.environ['OLDER_IMAGE']

# What the image has and its base has not.
ADDED = [
    r'usr/lib/postgresql/\d+/lib/zklock\.so',
    r'usr/share/postgresql/\d+/extension/zklock\.control',
    r'usr/share/postgresql/\d+/extension/zklock--[\d.-]+\.sql',
    r'usr/share/doc/postgresql-\d+-zklock/copyright',
    r'usr/lib/[^/]+/libzookeeper_mt\.so\.2',
    r'usr/lib/[^/]+/libzookeeper_mt\.so\.2\.[\d.]+',
    r'usr/share/doc/libzookeeper-mt2(t64)?/copyright',
    r'var/lib/dpkg/status\.d/libzookeeper-mt2(t64)?',
]

passed = failed = 0


def equal(got, expected, what):
    """Count and print one check: is a value what it must be?"""
    global passed, failed
    if got == expected:
        passed += 1
        print(f'ok - {what}', flush=True)
    else:
        failed += 1
        print(f'not ok - {what}\n#   got {got!r}\n#   expected {expected!r}', flush=True)


def too_late(_signal, _frame):
    """End the program: a statement has not come to its end."""
    raise TimeoutError('result of a statement')


def wait_for(condition, what):
    """Wait until the condition holds, or end the program."""
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.1)


def podman(*args):
    """Run podman, and return what it prints."""
    return subprocess.run(['podman', *args], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip()


def compose(*args, image=IMAGE):
    """Run podman-compose, which prints what it does."""
    subprocess.run([*COMPOSE, *args], check=True, stdout=sys.stderr,
                   env={**os.environ, 'ZKLOCK_IMAGE': image})


def container(service):
    """The container of a service."""
    return f'{PROJECT}_{service}_1'


def healthy(*services):
    """Do the health checks of compose.yaml succeed for all of these?"""
    return all(subprocess.run(['podman', 'healthcheck', 'run', container(service)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              check=False).returncode == 0
               for service in services)


def psql(service, *options):
    """The command that runs psql in a database's container; by TCP, as health checks."""
    return ['podman', 'exec', '-i', container(service), 'psql', '-XAtq',
            '-h', '127.0.0.1', '-U', 'postgres', '-v', 'VERBOSITY=sqlstate', *options]


def sql(service, query):
    """The result of one query, or its error."""
    return subprocess.run(psql(service, '-c', query), check=False, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT).stdout.strip()


class Session:
    """A psql that stays open."""

    def __init__(self, service):
        self.process = subprocess.Popen(psql(service), text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def send(self, statement):
        """Begin a statement."""
        self.process.stdin.write(f'{statement};\n\\echo done\n')
        self.process.stdin.flush()

    def result(self):
        """Wait for the statement, and return its rows or its error."""
        lines = []
        signal.alarm(LIMIT)
        for line in self.process.stdout:
            if line == 'done\n':
                break
            lines.append(line)
        else:
            lines.append('(psql has ended)')
        signal.alarm(0)
        return ''.join(lines).strip()

    def run(self, statement):
        """Run a statement."""
        self.send(statement)
        return self.result()

    def close(self):
        """End the session, if it has not ended by itself."""
        self.process.kill()
        self.process.communicate()


def take_and_queue(holder, waiter, name):
    """Have a transaction of one server hold a lock, and one of the other wait for it."""
    first, second = Session(holder), Session(waiter)
    first.run('BEGIN')
    equal(first.run(f"SELECT zk_lock('{name}')"), '', f'{holder} has the lock "{name}"')
    second.run('BEGIN')
    second.send(f"SELECT zk_lock('{name}')")
    wait_for(lambda: sql(waiter, f"SELECT count(*) FROM zk_queue('{name}')") == '2',
             f'{waiter} in the queue of "{name}"')
    return first, second


def close(*sessions):
    """End sessions."""
    for session in sessions:
        session.close()


def leader():
    """The ZooKeeper server that leads, or None."""
    for service in ENSEMBLE:
        answer = subprocess.run(
            ['podman', 'exec', container(service), 'bash', '-c',
             'exec 3<>/dev/tcp/127.0.0.1/2181; echo srvr >&3; cat <&3'],
            check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        if 'Mode: leader' in answer:
            return service
    return None


def how_it_runs(image):
    """The part of an image's configuration that decides how it is run."""
    config = json.loads(podman('image', 'inspect', image))[0]['Config']
    return {key: config.get(key) for key in (
        'User', 'Env', 'Entrypoint', 'Cmd', 'Volumes', 'WorkingDir', 'StopSignal',
        'ExposedPorts')}


def files(image):
    """All that is in an image: for each path, its mode, owner, size and target."""
    found = {}
    root = podman('image', 'mount', image)
    for directory, folders, names in os.walk(root):
        for name in folders + names:
            path = os.path.join(directory, name)
            it = os.lstat(path)
            found[os.path.relpath(path, root)] = (
                stat.filemode(it.st_mode), it.st_uid, it.st_gid,
                0 if stat.S_ISDIR(it.st_mode) else it.st_size,
                os.readlink(path) if stat.S_ISLNK(it.st_mode) else '')
    podman('image', 'unmount', image)
    return found


def check_image():
    """The image is its base with zklock and the client library, and nothing else."""
    equal(how_it_runs(IMAGE), how_it_runs(BASE), 'the image runs as its base does')

    base, image = files(BASE), files(IMAGE)
    equal([path for path in base if image.get(path) != base[path]], [],
          'everything in the base is as it was')
    added = {path: it for path, it in image.items() if path not in base}
    names = [path for path, it in added.items() if it[0][0] != 'd']
    equal([name for name in names if not any(re.fullmatch(one, name) for one in ADDED)], [],
          'it has nothing more than zklock and the client library')
    equal([one for one in ADDED if not any(re.fullmatch(one, name) for name in names)], [],
          'it has all of both')
    equal([path for path, it in added.items()
           if it[1:3] != (0, 0) or it[0][0] != 'l' and 'w' in it[0][5] + it[0][8]], [],
          'that belongs to root, and nobody else may write to it')
    print(f'# {sum(it[3] for it in added.values()) / 1e6:.2f} MB in {len(names)} files', flush=True)


def check_start():
    """From nothing to a lock that both databases know: README.md's smoke test."""
    began = time.monotonic()
    compose('up', '-d')
    for service in DATABASES:
        wait_for(lambda: sql(service, 'SELECT state FROM zk_session') == 'connected',
                 f'connection of {service}')
    first = Session('db1')
    first.run("SELECT zk_lock('smoke test', session => true)")
    answer = sql('db2', "SELECT zk_try_lock('smoke test')")
    took = time.monotonic() - began
    equal(answer, 'f', 'the servers share their locks')
    print(f'# {took:.1f} s from "up" to the answer of the smoke test', flush=True)
    close(first)

    wait_for(lambda: healthy(*ENSEMBLE, *DATABASES), 'health of all')
    equal(sql('db2', 'SELECT string_agg(cluster_name, $$ $$ ORDER BY cluster_name) FROM zk_fleet()'),
          'db1 db2', 'each sees the other in zk_fleet()')


def check_kill_database():
    """A database's container is killed while it has a lock."""
    first, second = take_and_queue('db1', 'db2', 'killed')
    equal(first.run('CREATE TABLE uncommitted ()'), '', 'it has changed something')
    podman('kill', container('db1'))
    podman('start', container('db1'))
    equal(second.result(), '', 'after a kill of its container, db2 has the lock')
    close(first, second)
    wait_for(lambda: healthy('db1'), 'health of db1')
    equal(sql('db1', "SELECT to_regclass('uncommitted')"), '', 'what it had changed is gone')
    log = subprocess.run(['podman', 'logs', container('db1')], check=True, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    equal(len(re.findall('LOG: +ending ZooKeeper session .* from before the crash', log)), 1,
          'the container that starts again ends its old session')


def check_kill_leader():
    """The ZooKeeper server that leads is killed while locks are held."""
    first, second = take_and_queue('db1', 'db2', 'leader')
    killed = leader()
    podman('kill', container(killed))
    wait_for(lambda: leader() not in (None, killed), 'another leader')
    equal(first.run('COMMIT'), '', f'without {killed}, the leader, db1 commits under its lock')
    equal(second.result(), '', 'and db2 gets it')
    equal(second.run('COMMIT'), '', 'and commits')
    close(first, second)
    podman('start', container(killed))
    wait_for(lambda: healthy(*ENSEMBLE), 'health of the ensemble')


def check_network():
    """A database is cut off from the network while it has a lock."""
    first, second = take_and_queue('db1', 'db2', 'cut')
    # a COMMIT that has nothing to write is not checked
    equal(first.run('CREATE TABLE cut ()'), '', 'it has changed something')
    podman('network', 'disconnect', NETWORK, container('db1'))
    equal(second.result(), '', 'when db1 is cut off, db2 gets the lock')
    equal(second.run('COMMIT'), '', 'and commits')
    first.send('COMMIT')
    wait_for(lambda: not healthy('db1'), 'failing health check of db1')
    podman('network', 'connect', NETWORK, container('db1'))
    equal(first.result(), 'ERROR:  40001', 'db1 could not commit')
    wait_for(lambda: healthy('db1'), 'health of db1')
    close(first, second)
    first, second = take_and_queue('db2', 'db1', 'connected')
    equal(first.run('COMMIT'), '', 'connected again, db1 waits for db2')
    equal(second.result(), '', 'and gets the lock')
    close(first, second)


def check_upgrade():
    """The databases get a newer image, one after the other, and keep their data."""
    compose('up', '-d', image=OLDER)
    wait_for(lambda: healthy(*ENSEMBLE, *DATABASES), 'health of all')
    for service in DATABASES:
        equal(sql(service, 'CREATE TABLE kept AS SELECT 1 AS id'), '',
              f'{service} has data, with an older zklock')
    for upgraded, other in (DATABASES, reversed(DATABASES)):
        first, second = take_and_queue(upgraded, other, f'upgrade of {upgraded}')
        compose('stop', upgraded)
        equal(second.result(), '', f'{upgraded} is stopped, and {other} gets its lock')
        podman('rm', container(upgraded))
        compose('up', '-d', upgraded)
        wait_for(lambda: healthy(upgraded), f'health of {upgraded}')
        equal(podman('inspect', container(upgraded), '--format', '{{.ImageName}}'), IMAGE,
              f'{upgraded} has the newer image')
        equal(sql(upgraded, 'SELECT id FROM kept'), '1', 'its data are there')
        equal(sql(upgraded, f"SELECT zk_try_lock('upgrade of {upgraded}')"), 'f',
              f'and {other} still has the lock')
        close(first, second)


def main():
    """All checks, and what the containers have logged if one fails."""
    signal.signal(signal.SIGALRM, too_late)
    try:
        check_image()
        check_start()
        check_kill_database()
        check_kill_leader()
        check_network()
        compose('down', '-v')
        check_upgrade()
        compose('down', '-v')
    except Exception as error:      # pylint: disable=broad-except
        equal(repr(error), None, 'no check breaks down')
    if failed:
        for service in ENSEMBLE + DATABASES:
            print(f'== {service}', file=sys.stderr, flush=True)
            subprocess.run(['podman', 'logs', '--tail', '60', container(service)], check=False,
                           stdout=sys.stderr)
    print(f'zklock: {passed} passed, {failed} failed')
    return failed != 0


sys.exit(main())
