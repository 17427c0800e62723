"""Random operations on a store, compared with a dictionary that is sorted when it is read.

`DARTER_TEST_EXAMPLES` is the number of sequences of operations; the default is 20.
"""

from __future__ import annotations

import os
import tempfile
from itertools import islice
from typing import Any

import darter
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

# Short keys with few different bytes meet often; 0 and 255 are the ends of the key space.
KEYS = st.one_of(
    st.binary(max_size=3),
    st.lists(st.sampled_from([0, 1, 97, 255]), max_size=5).map(bytes),
    st.binary(min_size=30, max_size=40),
)
VALUES = st.binary(max_size=80)
ENDS = st.one_of(st.none(), KEYS)


class Operations(RuleBasedStateMachine):
    """The same operations on a store and on the model."""

    def __init__(self) -> None:
        super().__init__()
        self.db = self.opened()
        self.model: dict[bytes, bytes] = {}

    def opened(self) -> darter.Store:
        return darter.open("mem:16M")

    def teardown(self) -> None:
        assert self.db.check()["sound"]
        self.db.close()

    def between(self, start: bytes | None, stop: bytes | None) -> list[tuple[bytes, bytes]]:
        return [
            pair
            for pair in sorted(self.model.items())
            if (start is None or pair[0] >= start) and (stop is None or pair[0] < stop)
        ]

    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: bytes) -> None:
        assert self.db.swap(key, value) == self.model.get(key)
        self.model[key] = value

    @rule(key=KEYS)
    def remove(self, key: bytes) -> None:
        assert self.db.pop(key, None) == self.model.pop(key, None)

    @rule(key=KEYS, value=VALUES)
    def setdefault(self, key: bytes, value: bytes) -> None:
        assert self.db.setdefault(key, value) == self.model.setdefault(key, value)

    @rule(key=KEYS, expected=st.one_of(st.none(), VALUES), value=st.one_of(st.none(), VALUES), same=st.booleans())
    def compare_exchange(self, key: bytes, expected: bytes | None, value: bytes | None, same: bool) -> None:
        expected = self.model.get(key) if same else expected
        holds = self.model.get(key) == expected
        assert self.db.compare_exchange(key, expected, value) == holds
        if holds:
            self.set(key, value)

    def set(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.model.pop(key, None)
        else:
            self.model[key] = value

    @rule(key=KEYS, value=st.one_of(st.none(), VALUES))
    def modify(self, key: bytes, value: bytes | None) -> None:
        assert self.db.modify(key, lambda old: value if old is None else old + b"!") == (
            value if key not in self.model else self.model[key] + b"!"
        )
        self.set(key, value if key not in self.model else self.model[key] + b"!")

    @rule(pairs=st.dictionaries(KEYS, VALUES, max_size=40))
    def put_many(self, pairs: dict[bytes, bytes]) -> None:
        self.db.put_many(pairs)
        self.model.update(pairs)

    @rule(keys=st.lists(KEYS, max_size=20))
    def get_many(self, keys: list[bytes]) -> None:
        assert self.db.get_many(keys) == [self.model.get(key) for key in keys]

    @rule(changes=st.dictionaries(KEYS, st.one_of(st.none(), VALUES), max_size=5), commits=st.booleans())
    def transaction(self, changes: dict[bytes, bytes | None], commits: bool) -> None:
        try:
            with self.db.transaction() as tx:
                for key, value in changes.items():
                    assert tx.get(key) == self.model.get(key)
                    if value is None:
                        tx.discard(key)
                    else:
                        tx[key] = value
                    assert tx.get(key) == value
                if not commits:
                    raise LookupError
        except LookupError:
            return
        for key, value in changes.items():
            self.set(key, value)

    @rule(start=ENDS, stop=ENDS, reverse=st.booleans(), limit=st.one_of(st.none(), st.integers(0, 20)))
    def range(self, start: bytes | None, stop: bytes | None, reverse: bool, limit: int | None) -> None:
        expected = self.between(start, stop)
        expected = expected[::-1] if reverse else expected
        assert list(self.db.range(start, stop, reverse=reverse, limit=limit)) == list(islice(expected, limit))

    @rule(prefix=KEYS)
    def prefix(self, prefix: bytes) -> None:
        expected = [pair for pair in sorted(self.model.items()) if pair[0].startswith(prefix)]
        assert list(self.db.prefix(prefix)) == expected

    @rule(start=KEYS, stop=KEYS)
    def remove_range(self, start: bytes, stop: bytes) -> None:
        gone = self.between(start, stop)
        assert self.db.remove_range(start, stop) == len(gone)
        for key, _ in gone:
            del self.model[key]

    @invariant()
    def is_equal(self) -> None:
        assert list(self.db.items()) == sorted(self.model.items())
        assert self.db.first() == min(self.model.items(), default=None)
        assert self.db.last() == max(self.model.items(), default=None)


class OnAFile(Operations):
    """The same, with the store opened again at any time."""

    def opened(self) -> darter.Store:
        self.directory: Any = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.url = f"file:{self.directory.name}/pool?size=16M"
        return darter.open(self.url)

    @rule()
    def reopen(self) -> None:
        self.db.close()
        self.db = darter.open(self.url, create=False)

    def teardown(self) -> None:
        super().teardown()
        self.directory.cleanup()


EXAMPLES = int(os.environ.get("DARTER_TEST_EXAMPLES", "20"))
settings.register_profile("darter", max_examples=EXAMPLES, stateful_step_count=20, deadline=None)
settings.load_profile("darter")
TestInMemory = Operations.TestCase
TestOnAFile = OnAFile.TestCase
