"""Measures darter next to other stores that Python programs use, in one run.

  python bench/run.py [--seconds S] [--rounds R] [--keys N] [--targets A,B] [--directory D]

Prints a table in Markdown: operations a second of all processes together, the median of the rounds.
In each round every store is measured once, so that slow phases of the machine affect all of them.
Values have 64 bytes, keys 16. Stores that are not installed are left out.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VALUE = b"v" * 64
RANGE = 100
BATCH = 1000


def key(number: int) -> bytes:
    """Spreads the keys over the key space."""
    return (number * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8, "big") + number.to_bytes(8, "big")


class Target:
    """A store. `share` prepares what processes share, `open` is called in each process."""

    has_ranges = True
    shared = True

    def __init__(self, directory: Path, keys: int) -> None:
        self.directory, self.keys = directory, keys

    def share(self) -> None: ...

    def end(self) -> None: ...

    def range(self, start: bytes) -> int:
        raise NotImplementedError


class Darter(Target):
    def open(self) -> None:
        import darter

        # Room for the pairs and for what later puts add.
        self.db = darter.open(f"file:{self.directory}/pool?size={256 + self.keys // 1000}M")
        self.get = self.db.get
        self.put = self.db.__setitem__
        self.put_many = self.db.put_many

    def range(self, start: bytes) -> int:
        return len(list(self.db.range(start, limit=RANGE)))


class SortedDict(Target):
    shared = False

    def open(self) -> None:
        import sortedcontainers

        self.map = sortedcontainers.SortedDict()
        self.get = self.map.get
        self.put = self.map.__setitem__
        self.put_many = self.map.update

    def range(self, start: bytes) -> int:
        pairs = []
        for key in self.map.irange(start):
            pairs.append((key, self.map[key]))
            if len(pairs) == RANGE:
                break
        return len(pairs)


class Lmdb(Target):
    def open(self) -> None:
        import lmdb

        self.env = lmdb.open(f"{self.directory}/lmdb", map_size=4 << 30, sync=False, writemap=True)

    def get(self, key: bytes) -> bytes:
        with self.env.begin() as tx:
            return tx.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        with self.env.begin(write=True) as tx:
            tx.put(key, value)

    def put_many(self, pairs: list[tuple[bytes, bytes]]) -> None:
        with self.env.begin(write=True) as tx:
            tx.cursor().putmulti(pairs)

    def range(self, start: bytes) -> int:
        with self.env.begin() as tx:
            cursor = tx.cursor()
            if not cursor.set_range(start):
                return 0
            pairs = []
            for pair in cursor:
                pairs.append(pair)
                if len(pairs) == RANGE:
                    break
            return len(pairs)


class Sqlite(Target):
    def open(self) -> None:
        import sqlite3

        self.db = sqlite3.connect(f"{self.directory}/sqlite", timeout=60, isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=OFF")
        self.db.execute("CREATE TABLE IF NOT EXISTS pairs (k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID")

    def get(self, key: bytes) -> bytes:
        return self.db.execute("SELECT v FROM pairs WHERE k = ?", (key,)).fetchone()[0]

    def put(self, key: bytes, value: bytes) -> None:
        self.db.execute("INSERT OR REPLACE INTO pairs VALUES (?, ?)", (key, value))

    def put_many(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        self.db.executemany("INSERT OR REPLACE INTO pairs VALUES (?, ?)", pairs)
        self.db.execute("COMMIT")

    def range(self, start: bytes) -> int:
        found = self.db.execute("SELECT k, v FROM pairs WHERE k >= ? ORDER BY k LIMIT ?", (start, RANGE))
        return len(found.fetchall())


class DiskCache(Target):
    has_ranges = False

    def open(self) -> None:
        import diskcache

        self.cache = diskcache.Cache(f"{self.directory}/diskcache", size_limit=1 << 34)
        self.get = self.cache.get
        self.put = self.cache.__setitem__

    def put_many(self, pairs: list[tuple[bytes, bytes]]) -> None:
        with self.cache.transact():
            for key, value in pairs:
                self.cache[key] = value


class ManagerDict(Target):
    has_ranges = False

    def share(self) -> None:
        self.manager = multiprocessing.Manager()
        self.map = self.manager.dict()

    def open(self) -> None:
        self.get = self.map.get
        self.put = self.map.__setitem__
        self.put_many = self.map.update

    def end(self) -> None:
        self.manager.shutdown()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "manager"}


class Redis(Target):
    has_ranges = False

    def share(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise ImportError("redis-server")
        self.socket = f"{self.directory}/redis.sock"
        arguments = ["--port", "0", "--unixsocket", self.socket, "--save", "", "--dir", str(self.directory)]
        self.server = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL)
        while not Path(self.socket).exists():
            time.sleep(0.01)

    def open(self) -> None:
        import redis

        self.client = redis.Redis(unix_socket_path=self.socket)
        self.get = self.client.get
        self.put = self.client.set

    def put_many(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self.client.mset(dict(pairs))

    def end(self) -> None:
        self.server.kill()
        self.server.wait()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "server"}


TARGETS = {
    "darter": Darter,
    "lmdb": Lmdb,
    "sqlite3": Sqlite,
    "diskcache": DiskCache,
    "Manager().dict()": ManagerDict,
    "redis-py": Redis,
    "SortedDict": SortedDict,
}
OPERATIONS = ["get", "put", "range of 100", "put_many of 1,000"]


def measure(target: Target, operation: str, seconds: float, seed: int) -> float:
    """Returns operations a second."""
    drawn = random.Random(seed)
    keys = [key(drawn.randrange(target.keys)) for _ in range(4096)]
    if operation == "get":
        call, arguments = target.get, [(key,) for key in keys]
    elif operation == "put":
        call, arguments = target.put, [(key, VALUE) for key in keys]
    elif operation == "range of 100":
        call, arguments = target.range, [(key,) for key in keys]
    else:
        batches = [[(key(drawn.randrange(target.keys)), VALUE) for _ in range(BATCH)] for _ in range(8)]
        call, arguments = target.put_many, [(batch,) for batch in batches]
    done, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        for argument in arguments[done % len(arguments) :][:64]:
            call(*argument)
            done += 1
            if operation == OPERATIONS[3]:
                break
    return done / elapsed


def process(target: Target, seconds: float, seed: int, barrier: object, results: object) -> None:
    target.open()
    for operation in OPERATIONS:
        if operation == "range of 100" and not target.has_ranges:
            continue
        barrier.wait()
        results.put((operation, measure(target, operation, seconds, seed)))


def round_of(kind: type[Target], processes: int, options: argparse.Namespace) -> dict[str, float]:
    """Returns the operations a second of one store, by operation."""
    context = multiprocessing.get_context("spawn")
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        target = kind(Path(directory), options.keys)
        target.share()
        try:
            if kind.shared:
                loader = context.Process(target=load, args=(target,))
                loader.start()
                loader.join()
            barrier, results = context.Barrier(processes), context.Queue()
            arguments = [(target, options.seconds, seed, barrier, results) for seed in range(processes)]
            if kind.shared:
                workers = [context.Process(target=process, args=each) for each in arguments]
            else:
                workers = [context.Process(target=alone, args=each) for each in arguments]
            for worker in workers:
                worker.start()
            expected = processes * (len(OPERATIONS) - (0 if kind.has_ranges else 1))
            for _ in range(expected):
                operation, rate = results.get(timeout=120)
                rates[operation] = rates.get(operation, 0) + rate
            for worker in workers:
                worker.join()
        finally:
            target.end()
    return rates


def load(target: Target) -> None:
    target.open()
    fill(target)


def fill(target: Target) -> None:
    pairs = [(key(number), VALUE) for number in range(target.keys)]
    for at in range(0, len(pairs), BATCH):
        target.put_many(pairs[at : at + BATCH])


def alone(target: Target, seconds: float, seed: int, barrier: object, results: object) -> None:
    opened = target.open
    target.open = lambda: (opened(), fill(target))
    process(target, seconds, seed, barrier, results)


def is_installed(name: str) -> bool:
    modules = {"redis-py": "redis", "SortedDict": "sortedcontainers", "Manager().dict()": "multiprocessing"}
    try:
        __import__(modules.get(name, name))
    except ImportError:
        return False
    return name != "redis-py" or shutil.which("redis-server") is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--directory", default="/dev/shm")
    options = parser.parse_args()
    names = [name for name in options.targets.split(",") if is_installed(name)]
    for processes in map(int, options.processes.split(",")):
        chosen = [name for name in names if processes == 1 or TARGETS[name].shared]
        rates: dict[tuple[str, str], list[float]] = {}
        for number in range(options.rounds):
            for name in chosen:
                print(f"{processes} processes, round {number + 1}: {name}", file=sys.stderr)
                for operation, rate in round_of(TARGETS[name], processes, options).items():
                    rates.setdefault((name, operation), []).append(rate)
        print(f"\n| {processes} process{'es' if processes > 1 else ''} | " + " | ".join(OPERATIONS) + " |")
        print("|---|" + "---|" * len(OPERATIONS))
        for name in chosen:
            found = [rates.get((name, operation)) for operation in OPERATIONS]
            cells = ["–" if each is None else f"{statistics.median(each):,.0f}" for each in found]
            print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
