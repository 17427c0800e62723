"""Tables: parts of a store whose keys and values have types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from darter import _darter
from darter._errors import TableError
from darter._views import Items, Keys, Part, Values
from darter.codecs import Codec, Key, as_key, check_key_type, codec_of, decoded

if TYPE_CHECKING:
    from darter._store import Store, Transaction

__all__ = ["Table", "TableTransaction"]

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
_MISSING: Any = object()


class _Coding(Generic[K, V]):
    """The places and encodings of a table's pairs."""

    def __init__(self, name: str, key: Key, value: type[V] | Codec[V]) -> None:
        check_key_type(key)
        if not isinstance(name, str):
            raise TypeError(f"a table's name is a str, not {type(name).__name__}")
        self.name = name
        self.kind = key
        self.codec: Codec[V] = codec_of(value)
        self.prefix = _darter.pack(name)

    def key(self, key: K) -> bytes:
        return self.prefix + _darter.pack(as_key(self.kind, key))

    def bound(self, key: Any) -> bytes:
        """The place of the end of a range: a tuple may have fewer parts than a key."""
        return self.prefix + _darter.pack(as_key(self.kind, key, partly=True))

    def encode(self, value: V) -> bytes:
        return self.codec.encode(value)

    def decode(self, data: bytes) -> V:
        return decoded(self.codec, self.name, data)

    def key_of(self, place: bytes) -> K:
        key = _darter.unpack(place, len(self.prefix))
        if isinstance(self.kind, tuple) and not isinstance(key, tuple):
            key = (key,)
        try:
            found: K = as_key(self.kind, key)
        except TypeError as why:
            raise TableError(f"table `{self.name}` holds a key of another type: {why}", True) from why
        return found

    def range(self, start: Any, stop: Any) -> tuple[bytes, bytes]:
        """The places from a key to before another. No key's encoding begins with 255."""
        return (
            self.prefix if start is None else self.bound(start),
            self.prefix + b"\xff" if stop is None else self.bound(stop),
        )


class Table(MutableMapping[K, V]):
    """A part of a store whose keys and values have types; `Store.table` returns one.

    It is a mapping, in the order of its keys, with the further methods of a store.

    >>> import darter
    >>> db = darter.open("mem:16M")
    >>> ages = db.table("ages", key=str, value=int)
    >>> ages.update({"Grace": 85, "Ada": 36})
    >>> ages.modify("Ada", lambda age: age + 1)
    37
    >>> dict(ages)
    {'Ada': 37, 'Grace': 85}
    """

    def __init__(self, store: Store, name: str, key: Key, value: type[V] | Codec[V]) -> None:
        self._store = store
        self._coding: _Coding[K, V] = _Coding(name, key, value)

    @property
    def name(self) -> str:
        """The table's name."""
        return self._coding.name

    def __repr__(self) -> str:
        return f"<darter.Table {self.name!r} of {self._store.url}>"

    def __getitem__(self, key: K) -> V:
        value = self._store.get(self._coding.key(key))
        if value is None:
            raise KeyError(key)
        return self._coding.decode(value)

    def __setitem__(self, key: K, value: V) -> None:
        self._store[self._coding.key(key)] = self._coding.encode(value)

    def __delitem__(self, key: K) -> None:
        if not self._store.discard(self._coding.key(key)):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return self._coding.key(key) in self._store  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self._store.count(*self._coding.range(None, None))

    def __bool__(self) -> bool:
        return self.first() is not None

    def __iter__(self) -> Iterator[K]:
        return self._iterate("keys", False)

    def __reversed__(self) -> Iterator[K]:
        return self._iterate("keys", True)

    def _iterate(self, part: Part, reverse: bool) -> Iterator[Any]:
        found = self._store.range(*self._coding.range(None, None), reverse=reverse, part=part)
        if part == "items":
            return self._decoded(found)
        return map(self._coding.key_of if part == "keys" else self._coding.decode, found)

    def _decoded(self, pairs: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[K, V]]:
        coding = self._coding
        return ((coding.key_of(place), coding.decode(value)) for place, value in pairs)

    def keys(self) -> Keys[K]:
        """Returns a view of the keys, in ascending order."""
        return Keys(self)

    def values(self) -> Values[V]:
        """Returns a view of the values, in the order of their keys."""
        return Values(self)

    def items(self) -> Items[K, V]:
        """Returns a view of the pairs, in the order of their keys."""
        return Items(self)

    def range(
        self, start: Any = None, stop: Any = None, *, reverse: bool = False, limit: int | None = None
    ) -> Iterator[tuple[K, V]]:
        """Returns the pairs from the key `start` to before the key `stop`. If keys are tuples, the
        ends can have fewer parts."""
        places = self._coding.range(start, stop)
        return self._decoded(self._store.range(*places, reverse=reverse, limit=limit))

    def prefix(
        self, parts: tuple[Any, ...], *, reverse: bool = False, limit: int | None = None
    ) -> Iterator[tuple[K, V]]:
        """Returns the pairs whose keys are tuples that begin with `parts`.

        >>> import darter
        >>> births = darter.open("mem:16M").table("births", key=(int, str), value=str)
        >>> births.update({(1912, "Alan"): "London", (1815, "Ada"): "London"})
        >>> list(births.prefix((1912,)))
        [((1912, 'Alan'), 'London')]
        """
        start = self._coding.bound(parts)
        pairs = self._store.range(start, start + b"\xff", reverse=reverse, limit=limit)
        return self._decoded(pairs)

    def first(self) -> tuple[K, V] | None:
        """Returns the pair with the smallest key."""
        return next(self.range(limit=1), None)

    def last(self) -> tuple[K, V] | None:
        """Returns the pair with the largest key."""
        return next(self.range(limit=1, reverse=True), None)

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V) -> V: ...
    @overload
    def get(self, key: K, /, default: D) -> V | D: ...
    def get(self, key: K, /, default: Any = None) -> Any:
        """Returns the value of a key, or a default."""
        value = self._store.get(self._coding.key(key))
        return default if value is None else self._coding.decode(value)

    def get_many(self, keys: Iterable[K]) -> list[V | None]:
        """Returns the values of several keys, in the order of the keys."""
        values = self._store.get_many([self._coding.key(key) for key in keys])
        return [None if value is None else self._coding.decode(value) for value in values]

    def setdefault(self, key: K, default: V, /) -> V:
        """Stores a value if the key is absent. Returns the value of the key."""
        return self._coding.decode(self._store.setdefault(self._coding.key(key), self._coding.encode(default)))

    def insert(self, key: K, value: V) -> bool:
        """Stores a value if the key is absent. Returns whether it was."""
        return self._store.insert(self._coding.key(key), self._coding.encode(value))

    def swap(self, key: K, value: V) -> V | None:
        """Stores a value. Returns the former one."""
        old = self._store.swap(self._coding.key(key), self._coding.encode(value))
        return None if old is None else self._coding.decode(old)

    @overload
    def pop(self, key: K, /) -> V: ...
    @overload
    def pop(self, key: K, /, default: V) -> V: ...
    @overload
    def pop(self, key: K, /, default: D) -> V | D: ...
    def pop(self, key: K, /, default: Any = _MISSING) -> Any:
        """Removes a key and returns its value, at one moment."""
        value = self._store.remove(self._coding.key(key))
        if value is not None:
            return self._coding.decode(value)
        if default is _MISSING:
            raise KeyError(key)
        return default

    def popitem(self, last: bool = True) -> tuple[K, V]:
        """Removes the pair with the largest key, or the smallest, and returns it."""
        while pair := self.last() if last else self.first():
            value = self._store.remove(self._coding.key(pair[0]))
            if value is not None:
                return pair[0], self._coding.decode(value)
        raise KeyError("popitem(): the table is empty")

    def discard(self, key: K) -> bool:
        """Removes a key. Returns whether it was present."""
        return self._store.discard(self._coding.key(key))

    def put_many(self, pairs: Mapping[K, V] | Iterable[tuple[K, V]]) -> None:
        """Stores several pairs; others may see some of them before the rest."""
        coding = self._coding
        pairs = pairs.items() if isinstance(pairs, Mapping) else pairs
        self._store.put_many((coding.key(key), coding.encode(value)) for key, value in pairs)

    def update(self, other: Mapping[K, V] | Iterable[tuple[K, V]] = (), /) -> None:  # type: ignore[override]
        """Stores the pairs of a mapping or an iterable, as `put_many` does."""
        self.put_many(other)

    def remove_many(self, keys: Iterable[K]) -> int:
        """Removes several keys. Returns how many were present."""
        return self._store.remove_many(self._coding.key(key) for key in keys)

    def remove_range(self, start: Any = None, stop: Any = None) -> int:
        """Removes the keys from `start` to before `stop`. Returns their number."""
        return self._store.remove_range(*self._coding.range(start, stop))

    def clear(self) -> None:
        """Removes all pairs of the table."""
        self.remove_range()

    def modify(self, key: K, function: Callable[[V | None], V | None]) -> V | None:
        """Replaces a value by the result of a function, as `Store.modify` does."""
        coding = self._coding

        def change(old: bytes | None) -> bytes | None:
            new = function(None if old is None else coding.decode(old))
            return None if new is None else coding.encode(new)

        result = self._store.modify(coding.key(key), change)
        return None if result is None else coding.decode(result)


class TableTransaction(Generic[K, V]):
    """The pairs of a table as a transaction sees and changes them."""

    def __init__(self, transaction: Transaction, table: Table[K, V]) -> None:
        self._transaction = transaction
        self._coding = table._coding

    def __getitem__(self, key: K) -> V:
        value = self._transaction.get(self._coding.key(key))
        if value is None:
            raise KeyError(key)
        return self._coding.decode(value)

    def __setitem__(self, key: K, value: V) -> None:
        self._transaction[self._coding.key(key)] = self._coding.encode(value)

    def __delitem__(self, key: K) -> None:
        if self._transaction.remove(self._coding.key(key)) is None:
            raise KeyError(key)

    def __contains__(self, key: K) -> bool:
        return self._coding.key(key) in self._transaction

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        """Returns the value of a key, or a default."""
        value = self._transaction.get(self._coding.key(key))
        return default if value is None else self._coding.decode(value)

    def discard(self, key: K) -> None:
        """Removes a key, if it is present."""
        self._transaction.discard(self._coding.key(key))
