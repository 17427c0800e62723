"""A store: the operations of the extension module, and those that need no Rust."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from darter import _darter
from darter._errors import ConflictError
from darter._table import Table, TableTransaction
from darter._views import Items, Keys, Part, Values
from darter.codecs import PICKLE, Codec, Key

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer, Self, Unpack

    from darter._darter import Backup, Options

__all__ = ["Store", "Transaction", "open"]

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
Bytes = TypeVar("Bytes", bound="Buffer")
_MISSING: Any = object()

#: Times that a transaction is run before its conflict is raised.
RUNS_MAX = 1000
#: The unit of the pause before a transaction is run again, in seconds.
PAUSE_STEP = 20e-6

os.register_at_fork(after_in_child=_darter.forked)
_stores: weakref.WeakSet[Store] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for store in list(_stores):
        store.close()


def open(url: str, **options: Unpack[Options]) -> Store:
    """Opens the pool that `url` names.

    By default, a pool is created if the name is `mem:`, or if the file is absent or empty and the
    name has `?size=`.

    >>> with open("mem:16M") as db:
    ...     db[b"pear"] = b"green"
    ...     db[b"pear"]
    b'green'

    Options: `create`, `create_new`, `truncate`, `read_only`, `durable`, `index` (`"quiver"` or
    `"dart"`), `cache_bytes`, `lease` (in seconds), `block_bytes`, `sweep`, `rejoin`,
    `accept_new_pool`, `accept_copy`, and `token` (of memory nodes) or `token_file`, a file with it
    that is read again when it changes. They mean what they mean in `StoreOptions` of the Rust
    library.
    """
    return Store(url, **options)


class Transaction(_darter.Transaction):
    """Changes of several keys that take effect at one moment, or not at all.

    `Store.transaction` returns one. At the end of a `with` block it is committed; if the block
    raises, it is rolled back. A commit raises `ConflictError` if another client has changed a key
    that was read.

    >>> db = open("mem:16M")
    >>> with db.transaction() as tx:
    ...     tx[b"a"], tx[b"b"] = b"1", b"2"
    >>> len(db)
    2
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.rollback()
        elif not self.ended:
            self.commit()

    def table(self, table: Table[K, V]) -> TableTransaction[K, V]:
        """Returns the pairs of a table as this transaction sees and changes them.

        >>> db = open("mem:16M")
        >>> ages = db.table("ages", key=str, value=int)
        >>> with db.transaction() as tx:
        ...     tx.table(ages)["Ada"] = 36
        >>> ages["Ada"]
        36
        """
        return TableTransaction(self, table)


class Store(_darter.Store):
    """An ordered map of bytes in a pool, shared by threads and processes.

    Keys and values are `bytes` or other buffers; results are `bytes`. All methods work from any
    thread, and release the GIL while they work. A store that a child process inherits or
    unpickles opens its pool again at the first use.

    >>> db = open("mem:16M")
    >>> db[b"pear"] = b"green"
    >>> db.setdefault(b"plum", b"blue")
    b'blue'
    >>> b"plum" in db, db.get(b"fig"), len(db)
    (True, None, 2)
    >>> list(db.range(b"a", b"plum"))
    [(b'pear', b'green')]
    """

    def __init__(self, url: str, **options: Unpack[Options]) -> None:
        _stores.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<darter.Store {self.url}{' (closed)' if self.closed else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (type(self), self.url, self._options)

    def _iterate(self, part: Part, reverse: bool) -> Iterator[Any]:
        return self.range(reverse=reverse, part=part)

    def keys(self) -> Keys[bytes]:
        """Returns a view of the keys, in ascending order."""
        return Keys(self)

    def values(self) -> Values[bytes]:
        """Returns a view of the values, in the order of their keys."""
        return Values(self)

    def items(self) -> Items[bytes, bytes]:
        """Returns a view of the pairs, in the order of their keys.

        >>> db = open("mem:16M")
        >>> db.update({b"b": b"2", b"a": b"1"})
        >>> list(db.items())
        [(b'a', b'1'), (b'b', b'2')]
        >>> list(reversed(db.keys()))
        [b'b', b'a']
        """
        return Items(self)

    @overload
    def pop(self, key: Buffer, /) -> bytes: ...
    @overload
    def pop(self, key: Buffer, /, default: bytes) -> bytes: ...
    @overload
    def pop(self, key: Buffer, /, default: R) -> bytes | R: ...
    def pop(self, key: Buffer, /, default: Any = _MISSING) -> Any:
        """Removes a key and returns its value, at one moment: of several clients, one gets it.

        >>> db = open("mem:16M")
        >>> db[b"job"] = b"4711"
        >>> db.pop(b"job"), db.pop(b"job", None)
        (b'4711', None)
        """
        value = self.remove(key)
        if value is not None:
            return value
        if default is _MISSING:
            raise KeyError(key)
        return default

    def update(  # type: ignore[override]
        self, other: Mapping[Bytes, Buffer] | Iterable[tuple[Buffer, Buffer]] = (), /
    ) -> None:
        """Stores the pairs of a mapping or an iterable, as `put_many` does."""
        self.put_many(other)

    def transaction(self) -> Transaction:
        """Begins a transaction. `transact` runs one again after a conflict.

        >>> db = open("mem:16M")
        >>> db[b"pear"] = b"green"
        >>> with db.transaction() as tx:
        ...     tx[b"plum"] = tx[b"pear"]
        ...     del tx[b"pear"]
        >>> list(db.items())
        [(b'plum', b'green')]
        """
        return Transaction(self)

    def transact(self, body: Callable[[Transaction], R], /) -> R:
        """Calls `body` with a transaction and commits it; does both again after a conflict.
        Returns the result of `body`. If `body` raises, nothing has changed.

        >>> db = open("mem:16M")
        >>> db[b"alice"], db[b"bob"] = b"10", b"0"
        >>> def transfer(tx, amount=3):
        ...     alice, bob = int(tx[b"alice"]), int(tx[b"bob"])
        ...     tx[b"alice"], tx[b"bob"] = b"%d" % (alice - amount), b"%d" % (bob + amount)
        ...     return alice - amount
        >>> db.transact(transfer)
        7
        """
        for attempt in range(RUNS_MAX):
            tx = Transaction(self, attempt)
            with tx:
                result = body(tx)
                try:
                    if not tx.ended:
                        tx.commit()
                    return result
                except ConflictError:
                    if attempt == RUNS_MAX - 1:
                        raise
            time.sleep(PAUSE_STEP * random.randrange(2 ** min(attempt + 1, 7)))
        raise AssertionError("the last attempt returns or raises")

    @overload
    def table(self, name: str, *, key: tuple[type[A], type[B]], value: type[V] | Codec[V]) -> Table[tuple[A, B], V]: ...
    @overload
    def table(self, name: str, *, key: tuple[type[A], type[B]]) -> Table[tuple[A, B], Any]: ...
    @overload
    def table(
        self, name: str, *, key: tuple[type[A], type[B], type[C]], value: type[V] | Codec[V]
    ) -> Table[tuple[A, B, C], V]: ...
    @overload
    def table(self, name: str, *, key: tuple[type[A], type[B], type[C]]) -> Table[tuple[A, B, C], Any]: ...
    @overload
    def table(self, name: str, *, key: type[K], value: type[V] | Codec[V]) -> Table[K, V]: ...
    @overload
    def table(self, name: str, *, key: type[K]) -> Table[K, Any]: ...
    @overload
    def table(self, name: str, *, key: Key = ..., value: type[V] | Codec[V]) -> Table[Any, V]: ...
    @overload
    def table(self, name: str, *, key: Key = ...) -> Table[Any, Any]: ...
    def table(self, name: str, *, key: Any = None, value: Any = PICKLE) -> Table[Any, Any]:
        """Returns a part of the store whose keys and values have types. Nothing is stored yet.

        Keys are of type `bytes`, `str`, `int`, `float`, `bool`, or tuples of these, in the order of
        their type; `None` allows any. Values are of type `bytes`, `str`, `int`, `float` or `bool`,
        or have a codec of `darter.codecs`; the default is pickle. Rust programs read the same
        tables if the values are of a type.

        >>> db = open("mem:16M")
        >>> births = db.table("births", key=(int, str), value=str)
        >>> births[1815, "Ada"] = "London"
        >>> births[1912, "Alan"] = "London"
        >>> list(births.range((1900,)))
        [((1912, 'Alan'), 'London')]
        """
        return Table(self, name, key, value)

    def backup(self, path: str | os.PathLike[str], /) -> Backup:
        """Writes all pairs of the pool as of this moment to a file, which is replaced when the backup
        is complete. Other processes go on writing meanwhile. `restore` and `darter restore - < FILE`
        read it.

        `taken_at` is the moment of the backup, in seconds since 1970.

        >>> import tempfile
        >>> db = open("mem:16M")
        >>> db[b"pear"] = b"green"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     backup = db.backup(folder + "/fruit.backup")
        >>> backup["pairs"], backup["bytes"]
        (1, 9)
        """
        if os.path.exists(path) and not os.path.isfile(path):
            return self._backup(path)  # a pipe or a device
        draft = f"{os.fspath(path)}.{os.getpid()}.draft"
        try:
            backup = self._backup(draft)
            os.replace(draft, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(draft)
            raise
        return backup

    def tables(self) -> list[str]:
        """Returns the names of the tables that have pairs.

        >>> db = open("mem:16M")
        >>> db.table("ages", key=str)["Ada"] = 36
        >>> db.tables()
        ['ages']
        """
        names = []
        at = b"\x02"
        while found := next(self.range(at, b"\x03", limit=1), None):
            try:
                end = found[0].index(b"\0", 1)
                while found[0][end + 1 : end + 2] == b"\xff":
                    end = found[0].index(b"\0", end + 1)
                names.append(_darter.unpack(found[0][: end + 1], 0))
            except ValueError:
                at = found[0] + b"\0"
            else:
                at = found[0][: end + 1] + b"\xff"
        return names


def _reopen(kind: type[Store], url: str, options: Options) -> Store:
    return kind(url, **options)


MutableMapping.register(Store)
