"""Pools on memory nodes."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
from typing import Any

import darter
from test_processes import WRITER, add, forked


def test_operations_ranges_and_transactions(nodes: str) -> None:
    with darter.open(nodes, create=True) as db:
        db.put_many((b"%04d" % number, b"v") for number in range(1000))
        assert len(db) == 1000 and [key for key, _ in db.range(b"0500", limit=2)] == [b"0500", b"0501"]
        with db.transaction() as tx:
            tx[b"a"] = tx[b"0001"]
        assert db[b"a"] == b"v" and db.check()["sound"]
        threads = [threading.Thread(target=add, args=(db, number)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert db[b"count"] == b"150"


def test_children_of_every_kind(nodes: str) -> None:
    with darter.open(nodes, create=True, lease=30.0) as db:
        db[b"parent"] = b""
        for number in range(3):
            assert forked(lambda: add(db, number)) == 0
        for method in ("fork", "spawn"):
            context: Any = multiprocessing.get_context(method)
            process = context.Process(target=add, args=(db, 7))
            process.start()
            process.join()
            assert process.exitcode == 0
        assert db[b"count"] == b"250" and os.getpid() in db.stats()["members"]


def test_a_child_uses_the_thread_that_has_forked(nodes: str) -> None:
    """Its memory of the parent's connections must not disturb either of them."""
    with darter.open(nodes, create=True, lease=30.0) as db:
        end = threading.Event()

        def work() -> None:
            while not end.is_set():
                db[b"thread"] = b"value"

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for _ in range(5):
                db[b"main"] = b"value"
                assert forked(lambda: [add(db, number) for number in range(3)]) == 0
        finally:
            end.set()
            thread.join()
        assert db[b"count"] == b"750"


def test_a_killed_writer_loses_nothing(nodes: str) -> None:
    with darter.open(nodes, create=True, lease=1.0) as db:
        writer = subprocess.Popen([sys.executable, "-c", WRITER, nodes], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(30)]
        writer.kill()
        writer.wait()
        assert len(db.table("log", key=(int, int), value=bytes)) >= int(lines[-1])


def test_asyncio(nodes: str) -> None:
    async def main() -> None:
        async with await darter.aio.open(nodes, create=True) as db:
            await asyncio.gather(*(db.put(b"%d" % number, b"v") for number in range(200)))
            assert await db.count() == 200

    asyncio.run(main())
