"""The views that `keys()`, `values()` and `items()` return: they iterate by ranges."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, MappingView, ValuesView
from typing import Any, Literal, Protocol, TypeVar

K = TypeVar("K")
V = TypeVar("V")
Part = Literal["keys", "values", "items"]


class Iterable(Protocol):
    """A mapping that iterates over parts of its pairs."""

    def _iterate(self, part: Part, reverse: bool) -> Iterator[Any]: ...


def _of(view: MappingView, part: Part, reverse: bool = False) -> Iterator[Any]:
    mapping: Iterable = view._mapping  # type: ignore[attr-defined]
    return mapping._iterate(part, reverse)


class Keys(KeysView[K]):
    """The keys, in ascending order."""

    def __reversed__(self) -> Iterator[K]:
        return _of(self, "keys", True)


class Values(ValuesView[V]):
    """The values, in the order of their keys."""

    def __iter__(self) -> Iterator[V]:
        return _of(self, "values")

    def __contains__(self, value: object) -> bool:
        return any(value == other for other in self)

    def __reversed__(self) -> Iterator[V]:
        return _of(self, "values", True)


class Items(ItemsView[K, V]):
    """The pairs, in the order of their keys."""

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return _of(self, "items")

    def __reversed__(self) -> Iterator[tuple[K, V]]:
        return _of(self, "items", True)
