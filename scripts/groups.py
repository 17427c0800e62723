"""Memory groups on this machine, each replica a process that is started again when it ends, with gateways and, on request,
three etcd servers that keep the groups' views and a network whose links can be cut. The other scripts here break them and
measure.

Everything listens on loopback, or in network namespaces that only this machine reaches (root creates them, with `ip`):

  bridge 10.213.N.254 (clients, gateways) ──┬── 10.213.N.1  replica 0 …
                                            └── 10.213.N.51 etcd 0 …
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Seconds that a server may take to start, and replicas to become members again.
PATIENCE = 120


def arguments_of(doc, suspect_after):
    """Returns a parser of the arguments that all scripts over groups take."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suspect-after", type=float, default=suspect_after,
                        help="seconds that replicas wait for each other")
    parser.add_argument("--logs", type=pathlib.Path, help="keep what each process logs in this directory")
    parser.add_argument("--program", type=pathlib.Path, help="do not build, but take this program")
    return parser


def built(program):
    """Returns the program to run."""
    if not program:
        subprocess.run(["cargo", "build", "--release", "--quiet", "--package", "darter-cli"], cwd=ROOT, check=True)
        program = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/darter"
    return program.resolve()


def free_addresses(count):
    """Returns unused addresses on loopback."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = ["127.0.0.1:%d" % each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return addresses


class Network:
    """A bridge, and a namespace with a link to it for each host."""

    def __init__(self):
        if os.geteuid() != 0 or not shutil.which("ip"):
            sys.exit("links can only be cut by root, with `ip` (iproute2)")
        self.name, self.subnet, self.hosts = f"drt{os.getpid() % 1_000_000}", os.getpid() % 251, []
        self.ip("link", "add", f"{self.name}b", "type", "bridge")
        self.ip("addr", "add", f"10.213.{self.subnet}.254/24", "dev", f"{self.name}b")
        self.ip("link", "set", f"{self.name}b", "up")

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    def add(self, host):
        """Creates a host. Returns its address."""
        space = link = f"{self.name}-{host}"
        self.ip("netns", "add", space)
        self.hosts.append(host)
        self.ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
        self.heal(host)
        self.ip("-n", space, "addr", "add", f"10.213.{self.subnet}.{host}/24", "dev", "eth0")
        self.ip("-n", space, "link", "set", "eth0", "up")
        self.ip("-n", space, "link", "set", "lo", "up")
        return f"10.213.{self.subnet}.{host}"

    def inside(self, host):
        return ["ip", "netns", "exec", f"{self.name}-{host}"]

    def cut(self, host):
        """Takes the link off the bridge: packets vanish, and neither end gets an error."""
        self.ip("link", "set", f"{self.name}-{host}", "nomaster")

    def heal(self, host):
        self.ip("link", "set", f"{self.name}-{host}", "master", f"{self.name}b", "up")

    def end(self):
        for host in self.hosts:
            self.ip("netns", "del", f"{self.name}-{host}")
        self.ip("link", "del", f"{self.name}b")


class Etcd:
    """Three servers, of which one or two can be lost."""

    def __init__(self, directory, network, log):
        if not shutil.which("etcd"):
            sys.exit("etcd is not installed; scripts/test-tools installs it")
        self.directory, self.log, self.is_over = directory, log, threading.Event()
        self.counts = {"killed": 0, "stopped": 0}
        # Held while a server is down.
        self.lock = threading.Lock()
        if network:
            hosts = [network.add(51 + at) for at in range(3)]
            self.clients, self.peers = [[f"{host}:{port}" for host in hosts] for port in (2379, 2380)]
            self.inside = [network.inside(51 + at) for at in range(3)]
        else:
            addresses = free_addresses(6)
            self.clients, self.peers, self.inside = addresses[:3], addresses[3:], [[], [], []]
        self.url = f"etcd://{','.join(self.clients)}/darter"
        self.servers = [self.start(at) for at in range(3)]
        self.thread = threading.Thread(target=self.disturb, daemon=True)

    def start(self, at):
        client, peer = f"http://{self.clients[at]}", f"http://{self.peers[at]}"
        cluster = ",".join(f"etcd{at}=http://{peer}" for at, peer in enumerate(self.peers))
        return subprocess.Popen(
            [*self.inside[at], "etcd", "--name", f"etcd{at}", "--data-dir", f"{self.directory}/etcd{at}",
             "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
             "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster, "--log-level", "error"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log(f"etcd{at}"),
        )

    def wait(self, at):
        """Waits until a server works together with others."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"http://{self.clients[at]}/health", timeout=1) as reply:
                    if json.load(reply)["health"] == "true":
                        return
            except OSError:
                pass
            time.sleep(0.1)
        raise RuntimeError(f"etcd {at} does not work")

    def disturb(self):
        """Kills one server after another, or stops it for a while, until the run is over."""
        dice, at = random.Random(2), 0
        while not self.is_over.wait(1):
            with self.lock:
                if dice.randrange(2):
                    self.counts["killed"] += 1
                    self.servers[at].kill()
                    self.servers[at].wait()
                    time.sleep(dice.uniform(0, 2))
                    self.servers[at] = self.start(at)
                else:
                    self.counts["stopped"] += 1
                    self.servers[at].send_signal(signal.SIGSTOP)
                    time.sleep(dice.uniform(1, 4))
                    self.servers[at].send_signal(signal.SIGCONT)
                self.wait(at)
            at = (at + 1) % 3

    def stop_two(self, seconds):
        """Stops two servers for a while, so that the third can do nothing. Returns at once."""
        self.lock.acquire()
        two = self.servers[:2]
        for server in two:
            server.send_signal(signal.SIGSTOP)

        def go_on():
            time.sleep(seconds)
            for server in two:
                server.send_signal(signal.SIGCONT)
            self.lock.release()

        threading.Thread(target=go_on).start()

    def end(self):
        self.is_over.set()
        if self.thread.is_alive():
            self.thread.join()
        for server in self.servers:
            server.kill()
            server.wait()


class Replica(threading.Thread):
    """A process that is started again, empty, when it ends."""

    def __init__(self, command, metrics, log):
        super().__init__(daemon=True)
        self.command, self.metrics, self.log, self.is_over = [*command, "--metrics", metrics], metrics, log, False
        # While cleared, a process that has ended is not started again.
        self.may_start = threading.Event()
        self.may_start.set()
        self.process = self.launch()

    def launch(self):
        # The process ends when its stdin is closed, whose other end is held here.
        return subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self.log)

    def run(self):
        while True:
            self.process.wait()
            self.may_start.wait()
            if self.is_over:
                return
            self.process = self.launch()
            if self.is_over:
                self.process.terminate()

    def gauge(self, name):
        """Returns one of its metrics; `None` if it does not reply."""
        try:
            with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=1) as reply:
                lines = reply.read().decode().splitlines()
        except OSError:
            return None
        return next((float(line.split()[-1]) for line in lines if line.split()[0] == name), None)

    def end(self):
        self.is_over = True
        self.may_start.set()
        self.process.terminate()
        self.join()


class Groups:
    """A pool over memory groups of two replicas, and gateways to it."""

    def __init__(self, arguments, size, nodes=1, gateways=0, has_etcd=False, has_network=False, options=()):
        self.program = built(arguments.program)
        self.logs = arguments.logs
        if self.logs:
            self.logs.mkdir(parents=True, exist_ok=True)
        # Processes that were started are then ended, too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        self.directory = tempfile.TemporaryDirectory()
        self.replicas, self.gateways, self.etcd, self.network = {}, [], None, None
        try:
            self.network = Network() if has_network else None
            self.etcd = Etcd(self.directory.name, self.network, self.log) if has_etcd else None
            self.start(arguments, size, nodes, gateways, options)
        except BaseException:
            self.end()
            raise

    def start(self, arguments, size, nodes, gateways, options):
        if self.etcd:
            for at in range(3):
                self.etcd.wait(at)
        if self.network:
            addresses = [f"{self.network.add(1 + at)}:7000" for at in range(2 * nodes)]
            metrics = [address.replace(":7000", ":7001") for address in addresses]
        else:
            addresses = free_addresses(4 * nodes)
            addresses, metrics = addresses[: 2 * nodes], addresses[2 * nodes :]
        views = self.etcd.url if self.etcd else f"file:{self.directory.name}/views"
        groups = [addresses[at : at + 2] for at in range(0, 2 * nodes, 2)]
        for at, address in enumerate(addresses):
            inside = self.network.inside(1 + at) if self.network else []
            self.replicas[address] = Replica(
                [*inside, self.program, "memnode", "--listen", address, "--size", size, "--until-stdin-closes",
                 "--replicas", "+".join(groups[at // 2]), "--group", str(at // 2), "--views", views,
                 "--suspect-after", str(arguments.suspect_after), *options],
                metrics[at], self.log(f"replica{at}"),
            )
            self.replicas[address].start()
        self.url = "tcp://" + ",".join("+".join(group) for group in groups)
        self.run("pool", "create", check=True)
        for at in range(gateways):
            command = [self.program, "serve", "--resp", "127.0.0.1:0", "--pool", self.url, "--until-stdin-closes",
                       "--group-patience", "60"]
            self.gateways.append(subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log(f"gateway{at}"), text=True
            ))
        self.resp = [gateway.stdout.readline().strip().removeprefix("redis://") for gateway in self.gateways]

    def log(self, name):
        return open(self.logs / name, "ab") if self.logs else subprocess.DEVNULL

    def run(self, *words, check=False):
        """Runs a command of the program on the pool."""
        return subprocess.run([self.program, *words, "--pool", self.url], capture_output=True, text=True, check=check)

    def status(self):
        """Returns the replicas that reply, by memory node; none while the pool cannot be opened."""
        said = self.run("pool", "status", "--json")
        return [node["replicas"] for node in json.loads(said.stdout)["nodes"]] if said.returncode == 0 else []

    def settled(self, is_level=False, interval=0.1):
        """Waits until all replicas are members of their groups."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            nodes = self.status()
            whole = nodes and all(
                {replica["role"] for replica in node} == {"primary", "backup"}
                and len({replica["view"] for replica in node}) == 1
                and (not is_level or len({replica["record"] for replica in node}) == 1)
                for node in nodes
            )
            if whole:
                return nodes
            time.sleep(interval)
        sys.exit(f"replicas do not come back: {nodes}")

    def host(self, address):
        """Returns the number of a replica's host in the network."""
        return 1 + list(self.replicas).index(address)

    def end(self):
        for gateway in self.gateways:
            gateway.terminate()
        for gateway in self.gateways:
            gateway.wait()
        for replica in self.replicas.values():
            replica.process.send_signal(signal.SIGCONT)
            replica.end()
        if self.etcd:
            self.etcd.end()
        if self.network:
            self.network.end()
        self.directory.cleanup()
