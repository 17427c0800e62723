"""The store of asyncio."""

from __future__ import annotations

import asyncio
import threading

import darter
import pytest


def test_operations_are_coroutines(url: str) -> None:
    async def main() -> None:
        async with await darter.aio.open(url, lease=10.0) as db:
            await asyncio.gather(*(db.put(b"%03d" % number, b"v") for number in range(600)))
            assert await db.count() == 600 and await db.get(b"001") == b"v" and await db.get(b"x", 1) == 1
            assert [key async for key, _ in db.range(b"100", b"500")] == [b"%03d" % n for n in range(100, 500)]
            assert [key async for key, _ in db.prefix(b"00", reverse=True, limit=2)] == [b"009", b"008"]
            assert await db.insert(b"a", b"1") and await db.swap(b"a", b"2") == b"1"
            assert await db.compare_exchange(b"a", b"2", b"3") and await db.setdefault(b"a", b"4") == b"3"
            assert await db.modify(b"a", lambda old: b"4") == b"4" and await db.contains(b"a")
            assert await db.get_many([b"a", b"x"]) == [b"4", None]
            assert await db.transact(lambda tx: tx.remove(b"a")) == b"4" and await db.remove(b"a") is None
            await db.put_many({b"x": b"", b"y": b""})
            assert await db.remove_many([b"x"]) == 1 and await db.remove_range(b"y") == 1
            assert await db.first() == (b"000", b"v") and await db.last() == (b"599", b"v")
            assert (await db.stats())["keys"] == 600 and (await db.check())["sound"]
        assert db.blocking.closed

    asyncio.run(main())


def test_an_operation_that_waits_delays_no_other(db: darter.Store) -> None:
    async def main() -> None:
        store = await darter.aio.open("mem:16M")
        begun, end = threading.Event(), threading.Event()

        def change(old: bytes | None) -> bytes:
            begun.set()
            end.wait(60)
            return b"done"

        slow = asyncio.create_task(store.modify(b"slow", change))
        await asyncio.to_thread(begun.wait)
        await store.put(b"fast", b"1")
        assert await store.get(b"fast") == b"1" and not slow.done()
        end.set()
        assert await slow == b"done"
        await store.close()

    asyncio.run(main())


def test_errors_and_cancellation() -> None:
    async def main() -> None:
        with pytest.raises(darter.MissingError):
            await darter.aio.open("file:/dev/shm/no/such/pool")
        store = await darter.aio.open("mem:16M", threads=2)
        task = asyncio.create_task(store.put(b"key", b"value"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await store.put(b"other", b"value")
        await store.close()
        await store.close()
        with pytest.raises(darter.ClosedError, match="open it again"):
            await store.get(b"key")
        with pytest.raises(darter.ClosedError, match="open it again"):
            async for _ in store.prefix(b""):
                pass

    asyncio.run(main())
