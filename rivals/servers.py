"""The servers of the rivals, and the network between them and a client."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

HOST = "127.0.0.1"
STARTUP = 60                    # seconds; more is a failure
JAVA = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1"]


def wait_for(what, condition, seconds=STARTUP):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("waited %d s for %s" % (seconds, what))
        time.sleep(0.02)


def free_port(given=set()):
    """One below those that the kernel gives to clients, and not given before."""
    while True:
        port = random.SystemRandom().randrange(10200, 32000)
        if port in given:
            continue
        given.add(port)
        with socket.socket() as s:
            try:
                s.bind((HOST, port))
                return port
            except OSError:
                pass


def tree(pid):
    """The process and all that descend from it."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open("/proc/%s/stat" % entry, encoding="ascii", errors="replace") as f:
                    parent = int(f.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def signal_all(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


class Server:
    """A server process in a directory of its own."""

    def __init__(self, name, command, port):
        self.name, self.command, self.port = name, command, port
        self.directory = os.path.join(os.getcwd(), name)
        self.process = None

    @property
    def address(self):
        return "%s:%d" % (HOST, self.port)

    def start(self):
        with open(self.directory + ".log", "ab") as log:
            self.process = subprocess.Popen(self.command, cwd=self.directory, stdout=log,
                                            stderr=log, stdin=subprocess.DEVNULL)

    def await_start(self):
        def ready():
            if self.process.poll() is not None:
                raise RuntimeError("%s has ended: see %s.log" % (self.name, self.directory))
            return self.is_ready()

        wait_for(self.name, ready)

    def is_ready(self):
        with socket.socket() as s:
            return s.connect_ex((HOST, self.port)) == 0

    def kill(self):
        """All of its processes at once, as if the machine had gone."""
        signal_all([self.process.pid], signal.SIGSTOP)
        signal_all(tree(self.process.pid), signal.SIGKILL)
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)
        signal_all(tree(self.process.pid), signal.SIGSTOP)

    def resume(self):
        signal_all(reversed(tree(self.process.pid)), signal.SIGCONT)


class Servers:
    """What a lock depends on.  The one that matters most is killed."""

    def __init__(self, servers):
        self.all = servers

    def start(self):
        for server in self.all:
            server.start()
        for server in self.all:
            server.await_start()

    @property
    def addresses(self):
        return [server.address for server in self.all]

    def leader(self):
        return self.all[0]

    def kill_leader(self):
        """Kill it and start it again."""
        leader = self.leader()
        leader.kill()
        leader.start()
        return leader

    def kill(self):
        for server in self.all:
            if server.process:
                server.kill()

    def pause(self):
        for server in self.all:
            server.pause()

    def resume(self):
        for server in self.all:
            server.resume()


class ZooKeeperServer(Server):
    def word(self, word):
        """The answer to a four-letter word."""
        answer = b""
        try:
            with socket.create_connection((HOST, self.port), 1) as s:
                s.sendall(word)
                while chunk := s.recv(4096):
                    answer += chunk
        except OSError:
            pass
        return answer.decode()

    def is_ready(self):
        return "Mode: " in self.word(b"srvr")

    def is_leader(self):
        return "Mode: leader" in self.word(b"srvr")


class Ensemble(Servers):
    """Servers that elect a leader."""

    def leader(self):
        leaders = []

        def elected():
            leaders[:] = [server for server in self.all if server.is_leader()]
            return len(leaders) == 1

        wait_for("a leader", elected)
        return leaders[0]


def zookeeper():
    ports = [(free_port(), free_port(), free_port()) for _ in range(3)]
    jars = ":".join("/usr/share/java/%s.jar" % jar for jar in ("zookeeper", "slf4j-simple"))
    servers = []
    for i, (port, _, _) in enumerate(ports):
        name = "zookeeper%d" % i
        os.makedirs(name + "/data")
        with open(name + "/data/myid", "w", encoding="ascii") as f:
            f.write("%d\n" % i)
        with open(name + "/zoo.cfg", "w", encoding="ascii") as f:
            f.write("dataDir=%s/data\nclientPort=%d\nclientPortAddress=%s\n"
                    "tickTime=500\ninitLimit=40\nsyncLimit=10\nmaxClientCnxns=0\n"
                    "admin.enableServer=false\n4lw.commands.whitelist=*\n"
                    % (os.path.abspath(name), port, HOST))
            for j, (_, follow, elect) in enumerate(ports):
                f.write("server.%d=%s:%d:%d\n" % (j, HOST, follow, elect))
        servers.append(ZooKeeperServer(
            name, JAVA + ["-cp", jars, "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                          "zoo.cfg"], port))
    return Ensemble(servers)


class EtcdServer(Server):
    def is_ready(self):
        try:
            with urllib.request.urlopen("http://%s/health" % self.address, timeout=1) as answer:
                return json.load(answer)["health"] == "true"
        except (OSError, ValueError):
            return False

    def is_leader(self):
        try:
            with urllib.request.urlopen("http://%s/metrics" % self.address, timeout=1) as answer:
                return b"\netcd_server_is_leader 1\n" in answer.read()
        except OSError:
            return False

    def ask(self, what, request):
        """A request by etcd's JSON gateway."""
        with urllib.request.urlopen("http://%s/v3/%s" % (self.address, what),
                                    json.dumps(request).encode(), timeout=5) as answer:
            return json.load(answer)


def etcd():
    ports = [(free_port(), free_port()) for _ in range(3)]
    cluster = ",".join("m%d=http://%s:%d" % (i, HOST, peer) for i, (_, peer) in enumerate(ports))
    servers = []
    for i, (port, peer) in enumerate(ports):
        name = "etcd%d" % i
        os.makedirs(name)
        client_url, peer_url = "http://%s:%d" % (HOST, port), "http://%s:%d" % (HOST, peer)
        servers.append(EtcdServer(
            name, ["etcd", "--data-dir", "data", "--name", "m%d" % i,
                   "--listen-client-urls", client_url, "--advertise-client-urls", client_url,
                   "--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url,
                   "--initial-cluster", cluster], port))
    return Ensemble(servers)


def redis(count):
    """As redis-server is by default: what it has not saved is lost."""
    servers = []
    for _ in range(count):
        port = free_port()
        name = "redis%d" % port
        os.makedirs(name)
        servers.append(Server(name, ["redis-server", "--bind", HOST, "--port", str(port)], port))
    return Servers(servers)


def mariadb():
    port = free_port()
    os.makedirs("mariadb")
    data = os.path.abspath("mariadb/data")
    subprocess.run(["mariadb-install-db", "--no-defaults", "--datadir=" + data, "--skip-test-db",
                    "--skip-name-resolve", "--auth-root-authentication-method=normal"],
                   check=True, stdout=subprocess.DEVNULL)
    return Servers([Server("mariadb", [
        "/usr/sbin/mariadbd", "--no-defaults", "--datadir=" + data, "--bind-address=" + HOST,
        "--port=%d" % port, "--socket=" + os.path.abspath("mariadb/socket"),
        "--skip-name-resolve"], port)])


class Instance(Server):
    """A PostgreSQL instance.  By TCP it takes passwords only."""

    def __init__(self, name, settings):
        port = free_port()
        super().__init__(name, ["postgres", "-D", "."], port)
        if not os.path.exists("template"):
            subprocess.run(["initdb", "-D", "template", "-U", "postgres", "--encoding=UTF8",
                            "--locale=C.UTF-8", "--auth-local=trust",
                            "--auth-host=scram-sha-256", "--no-sync", "--no-instructions"],
                           check=True, stdout=subprocess.DEVNULL)
        shutil.copytree("template", name, symlinks=True)
        with open(name + "/postgresql.conf", "a", encoding="utf-8") as f:
            f.write("listen_addresses = '%s'\nport = %d\nunix_socket_directories = '%s'\n%s\n"
                    % (HOST, port, os.getcwd(), "\n".join(settings)))

    def is_ready(self):
        return subprocess.run(["pg_isready", "-q", "-h", os.getcwd(), "-p", str(self.port)],
                              check=False).returncode == 0

    def psql(self, database, sql):
        """Run a script; what it prints."""
        return subprocess.run(
            ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", os.getcwd(), "-p", str(self.port),
             "-U", "postgres", "-d", database, "-f", "-"],
            input="SET client_min_messages = error;" + sql, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()


class Network:
    """Links by way of proxy.py, which can be cut without either end's being told."""

    def __init__(self, program):
        self.process = subprocess.Popen([sys.executable, "-B", program], text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.one_at_a_time = threading.Lock()
        self.addresses = {}

    def call(self, *request):
        with self.one_at_a_time:
            self.process.stdin.write(json.dumps(request) + "\n")
            answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RuntimeError("proxy: " + answer["error"])
        return answer["result"]

    def link(self, name, server):
        """Where one reaches the server by a link of that name."""
        if name not in self.addresses:
            self.addresses[name] = "%s:%d" % (HOST, self.call("link", name, server.port))
        return self.addresses[name]

    def cut(self, names):
        self.call("freeze", *names)

    def restore(self, names):
        self.call("thaw", *names)

    def close(self):
        self.process.kill()
        self.process.wait()
