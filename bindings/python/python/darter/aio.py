"""A store for asyncio: the same operations as coroutines, which run in a pool of threads.

Any number of operations can be in progress at once, up to `threads` of them in the pool. If a task
is cancelled while it awaits one, the operation still completes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, overload

from darter._errors import ClosedError

if TYPE_CHECKING:
    import darter
    from os import PathLike

    from darter._darter import Backup, Check, Options, Stats
    from typing_extensions import Buffer, Self, Unpack

__all__ = ["Store", "open"]

R = TypeVar("R")
D = TypeVar("D")
Bytes = TypeVar("Bytes", bound="Buffer")

#: Number of pairs that a range takes from its thread at a time.
_PAGE = 256


async def open(url: str, *, threads: int = 32, **options: Unpack[Options]) -> Store:
    """Opens the pool that `url` names, as `darter.open` does.

    >>> import asyncio
    >>> async def main():
    ...     async with await open("mem:16M") as db:
    ...         await asyncio.gather(*(db.put(b"%d" % n, b"value") for n in range(100)))
    ...         return [key async for key, _ in db.prefix(b"9")]
    >>> len(asyncio.run(main()))
    11
    """
    import darter

    executor = ThreadPoolExecutor(threads, thread_name_prefix="darter")
    loop = asyncio.get_running_loop()
    try:
        store = await loop.run_in_executor(executor, lambda: darter.open(url, **options))
    except BaseException:
        executor.shutdown(wait=False)
        raise
    return Store(store, executor, threads)


class Store:
    """A `darter.Store` whose operations are coroutines."""

    def __init__(self, store: darter.Store, executor: ThreadPoolExecutor, threads: int) -> None:
        self.blocking = store
        self._executor = executor
        self._threads = threads
        self._process = os.getpid()

    async def run(self, function: Callable[..., R], *arguments: Any, **options: Any) -> R:
        """Calls a function in a thread of this store, for operations that have no twin here."""
        if self.blocking.closed:
            raise ClosedError("the store is closed; open it again", True)
        if self._process != os.getpid():  # a child process has no threads of its parent
            self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="darter")
            self._process = os.getpid()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: function(*arguments, **options))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the store. Operations in progress complete."""
        if not self.blocking.closed:
            await self.run(self.blocking.close)
        if self._process == os.getpid():
            self._executor.shutdown(wait=False)

    @overload
    async def get(self, key: Buffer) -> bytes | None: ...
    @overload
    async def get(self, key: Buffer, default: D) -> bytes | D: ...
    async def get(self, key: Buffer, default: Any = None) -> Any:
        """Returns the value of a key, or a default."""
        return await self.run(self.blocking.get, key, default)

    async def get_many(self, keys: Iterable[Buffer]) -> list[bytes | None]:
        """Returns the values of several keys, in the order of the keys."""
        return await self.run(self.blocking.get_many, list(keys))

    async def contains(self, key: Buffer) -> bool:
        """Returns whether a key is present."""
        return await self.run(self.blocking.__contains__, key)

    async def put(self, key: Buffer, value: Buffer) -> None:
        """Stores a value under a key."""
        await self.run(self.blocking.__setitem__, key, value)

    async def put_many(self, pairs: Mapping[Bytes, Buffer] | Iterable[tuple[Buffer, Buffer]]) -> None:
        """Stores several pairs; others may see some of them before the rest."""
        await self.run(self.blocking.put_many, pairs)

    async def insert(self, key: Buffer, value: Buffer) -> bool:
        """Stores a value if the key is absent. Returns whether it was."""
        return await self.run(self.blocking.insert, key, value)

    async def setdefault(self, key: Buffer, default: Buffer) -> bytes:
        """Stores a value if the key is absent. Returns the value of the key."""
        return await self.run(self.blocking.setdefault, key, default)

    async def swap(self, key: Buffer, value: Buffer) -> bytes | None:
        """Stores a value. Returns the former one."""
        return await self.run(self.blocking.swap, key, value)

    async def compare_exchange(self, key: Buffer, expected: Buffer | None, value: Buffer | None) -> bool:
        """Replaces a value if it is `expected`, as `darter.Store.compare_exchange` does."""
        return await self.run(self.blocking.compare_exchange, key, expected, value)

    async def modify(self, key: Buffer, function: Callable[[bytes | None], Buffer | None]) -> bytes | None:
        """Replaces a value by the result of a function, which is called in a thread."""
        return await self.run(self.blocking.modify, key, function)

    async def remove(self, key: Buffer) -> bytes | None:
        """Removes a key. Returns its value; `None` if it was absent."""
        return await self.run(self.blocking.remove, key)

    async def remove_many(self, keys: Iterable[Buffer]) -> int:
        """Removes several keys. Returns how many were present."""
        return await self.run(self.blocking.remove_many, keys)

    async def remove_range(self, start: Buffer | None = None, stop: Buffer | None = None) -> int:
        """Removes the keys from `start` to before `stop`. Returns their number."""
        return await self.run(self.blocking.remove_range, start, stop)

    async def first(self) -> tuple[bytes, bytes] | None:
        """Returns the pair with the smallest key."""
        return await self.run(self.blocking.first)

    async def last(self) -> tuple[bytes, bytes] | None:
        """Returns the pair with the largest key."""
        return await self.run(self.blocking.last)

    async def count(self, start: Buffer | None = None, stop: Buffer | None = None) -> int:
        """Returns the number of keys from `start` to before `stop`, by a walk."""
        return await self.run(self.blocking.count, start, stop)

    async def range(
        self,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """Returns the pairs from the key `start` to before the key `stop`, for `async for`."""
        pairs = self.blocking.range(start, stop, reverse=reverse, limit=limit)
        while page := await self.run(lambda: list(islice(pairs, _PAGE))):
            for pair in page:
                yield pair

    async def prefix(
        self, prefix: Buffer, *, reverse: bool = False, limit: int | None = None
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """Returns the pairs whose keys begin with `prefix`, for `async for`."""
        pairs = self.blocking.prefix(prefix, reverse=reverse, limit=limit)
        while page := await self.run(lambda: list(islice(pairs, _PAGE))):
            for pair in page:
                yield pair

    async def transact(self, body: Callable[[darter.Transaction], R], /) -> R:
        """Runs a transaction in a thread, as `darter.Store.transact` does."""
        return await self.run(self.blocking.transact, body)

    async def stats(self) -> Stats:
        """Returns counts and sizes, by a walk of the whole index."""
        return await self.run(self.blocking.stats)

    async def backup(self, path: str | PathLike[str], /) -> Backup:
        """Writes a backup to a file, as `darter.Store.backup` does."""
        return await self.run(self.blocking.backup, path)

    async def restore(self, path: str | PathLike[str], /) -> Backup:
        """Restores a backup from a file, as `darter.Store.restore` does."""
        return await self.run(self.blocking.restore, path)

    async def check(self, *, repair: bool = False) -> Check:
        """Verifies every invariant, as `darter.Store.check` does."""
        return await self.run(self.blocking.check, repair=repair)
