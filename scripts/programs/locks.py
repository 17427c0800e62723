"""limits and redlock: exact counts and exclusive locks, of which one belongs to a killed process."""

import multiprocessing
import os
import signal

from common import HOST, PORT, expect, until, url
from limits import parse, strategies
from limits.storage import storage_from_string
from redis import Redis
from redlock import Redlock

connection = Redis(HOST, PORT, db=5)


def take(strategy, results):
    limiter = getattr(strategies, strategy)(storage_from_string(url(5)))
    limit = parse("100/hour")
    results.put(sum(limiter.hit(limit, strategy) for _ in range(60)))


def count(rounds):
    """Increments a counter under a lock; without it, increments would be lost."""
    locks = Redlock([{"host": HOST, "port": PORT, "db": 5}], retry_count=10_000, retry_delay=0.01)
    connection = Redis(HOST, PORT, db=5)
    for _ in range(rounds):
        lock = locks.lock("counter", 60_000)
        assert lock
        number = int(connection.get("counted") or 0)
        connection.set("counted", number + 1)
        locks.unlock(lock)


def hold():
    Redlock([{"host": HOST, "port": PORT, "db": 5}]).lock("held", 2000)
    connection.set("is held", 1)
    signal.pause()


for strategy in ["FixedWindowRateLimiter", "MovingWindowRateLimiter", "SlidingWindowCounterRateLimiter"]:
    results = multiprocessing.Queue()
    takers = [multiprocessing.Process(target=take, args=(strategy, results)) for _ in range(3)]
    [taker.start() for taker in takers]
    allowed = sum(results.get() for _ in takers)
    [taker.join() for taker in takers]
    expect(f"hits of {strategy}", allowed, 100)

counters = [multiprocessing.Process(target=count, args=(50,)) for _ in range(3)]
[counter.start() for counter in counters]
[counter.join() for counter in counters]
expect("increments under a lock", connection.get("counted"), b"150")

holder = multiprocessing.Process(target=hold)
holder.start()
until("the lock was held", lambda: connection.get("is held"))
os.kill(holder.pid, signal.SIGKILL)
holder.join()
locks = Redlock([{"host": HOST, "port": PORT, "db": 5}], retry_count=1)
until("the lock of the killed process expired", lambda: locks.lock("held", 1000))
