"""Typed tables: the order of keys, codecs, and what the Rust library writes."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import Any

import darter
import pytest
from darter import codecs
from darter._darter import pack, unpack
from hypothesis import given
from hypothesis import strategies as st

INTEGERS = st.integers(-(2**63), 2**63 - 1)
SCALARS = [INTEGERS, st.floats(allow_nan=False), st.text(), st.binary()]


@pytest.mark.parametrize("keys", [*SCALARS, st.tuples(st.text(), INTEGERS), st.tuples(st.binary(), st.text())])
def test_encodings_keep_order(keys: st.SearchStrategy[Any]) -> None:
    @given(keys, keys)
    def check(a: Any, b: Any) -> None:
        if a != b:
            assert (pack(a) < pack(b)) == (a < b)
        found = unpack(pack(a), 0)
        assert (found == a or found == (a,)) and type(found) is type(a)

    check()


def test_encodings_are_those_of_foundationdb() -> None:
    assert pack("F\0B") == b"\x02F\x00\xffB\x00" and pack(b"a") == b"\x01a\x00"
    assert pack(-5551212) == b"\x11\xabK\x93" and pack(0) == b"\x14"
    assert pack(("a", (1, None), True)) == b"\x02a\x00\x05\x15\x01\x00\xff\x00\x27"
    assert pack(-42.0) == b"\x21\x3f\xba\xff\xff\xff\xff\xff\xff"
    for wrong in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            pack(wrong)
    with pytest.raises(TypeError, match="tuples of them, not list"):
        pack([1])


def test_a_table_is_a_mapping_in_key_order(db: darter.Store) -> None:
    ages = db.table("ages", key=str, value=int)
    other = db.table("ages\0", key=str, value=int)
    ages.update({"Grace": 85, "Ada": 36, "Alan": 41})
    other["x"] = -1
    assert list(ages) == ["Ada", "Alan", "Grace"] and len(ages) == 3 and "Ada" in ages
    assert list(reversed(ages.items()))[0] == ("Grace", 85) and list(ages.values()) == [36, 41, 85]
    assert ages.first() == ("Ada", 36) and ages.last() == ("Grace", 85)
    assert ages.get("Bob") is None and ages.get("Bob", 7) == 7 and ages.get_many(["Ada", "Bob"]) == [36, None]
    assert ages.setdefault("Ada", 1) == 36 and ages.insert("Bob", 1) and ages.swap("Bob", 2) == 1
    assert ages.pop("Bob") == 2 and ages.pop("Bob", None) is None
    assert ages.modify("Ada", lambda age: (age or 0) + 1) == 37
    assert dict(ages.range("Al", "B")) == {"Alan": 41} and ages == {"Ada": 37, "Alan": 41, "Grace": 85}
    assert ages.remove_many(["Ada", "?"]) == 1 and ages.popitem() == ("Grace", 85)
    assert db.tables() == ["ages", "ages\0"]
    ages.clear()
    assert not ages and other["x"] == -1 and db.tables() == ["ages\0"]
    for call in (lambda: ages["x"], lambda: ages.__delitem__("x"), lambda: ages.pop("x"), ages.popitem):
        with pytest.raises(KeyError):
            call()


def test_tuples_have_prefixes(db: darter.Store) -> None:
    table = db.table("visits", key=(str, int), value=codecs.JSON)
    table.put_many([(("b", 2), [1]), (("b", -1), {"x": None}), (("a", 7), "é"), (("ba", 0), 1.5)])
    assert [key for key, _ in table.items()] == [("a", 7), ("b", -1), ("b", 2), ("ba", 0)]
    assert list(table.prefix(("b",))) == [(("b", -1), {"x": None}), (("b", 2), [1])]
    assert [key for key, _ in table.range(("b", 0))] == [("b", 2), ("ba", 0)]
    assert list(table.range(("b",), ("b", 0), reverse=True)) == [(("b", -1), {"x": None})]
    assert table.remove_range(("b",), ("ba",)) == 2


def test_wrong_types_are_refused(db: darter.Store) -> None:
    table: Any = db.table("t", key=int, value=str)
    for key in ("1", 1.0, True, None, (1,)):
        with pytest.raises(TypeError, match="keys of this table"):
            table[key] = "x"
    with pytest.raises(TypeError, match="values of this table are str, not int"):
        table[1] = 1
    pairs: Any = db.table("pairs", key=(int, str))
    for key in (1, (1,), (1, 2), (1, "a", "b")):
        with pytest.raises(TypeError):
            pairs[key] = 0
    with pytest.raises(TypeError, match="key="):
        db.table("t", key=list)
    with pytest.raises(TypeError, match="value="):
        db.table("t", key=int, value=dict)
    table[1] = "x"
    with pytest.raises(darter.TableError, match="table `t` holds a value"):
        db.table("t", key=int, value=float)[1]
    with pytest.raises(darter.TableError, match="table `t` holds a key"):
        list(db.table("t", key=str, value=str))


@pytest.mark.parametrize(
    ("codec", "values"),
    [
        (codecs.PICKLE, [None, {1: (2, b"3")}, "é"]),
        (codecs.JSON, [None, {"a": [1, 2.5, "é"]}]),
        (codecs.MSGPACK, [None, {"a": [1, b"x"]}]),
        (codecs.RAW, [b"", b"value"]),
        (bytes, [b"", b"v" * 300]),
        (str, ["", "é" * 100]),
        (int, [0, -1, 63, 64, 2**63 - 1, -(2**63)]),
        (float, [0.0, -1.5, math.inf]),
        (bool, [True, False]),
    ],
)
def test_values_are_read_as_written(db: darter.Store, codec: Any, values: list[Any]) -> None:
    if codec is codecs.MSGPACK:
        pytest.importorskip("msgpack")
    table = db.table("values", key=int, value=codec)
    table.update(enumerate(values))
    assert list(table.values()) == values
    assert [type(value) for value in table.values()] == [type(value) for value in values]


def test_values_of_types_are_those_of_rust(db: darter.Store) -> None:
    encoded = {str: ("hé", b"\x03h\xc3\xa9"), bytes: (b"ab", b"\x02ab"), int: (-1, b"\x01"), bool: (True, b"\x01")}
    for kind, (value, expected) in encoded.items():
        db.table("rust", key=int, value=kind)[300] = value
        assert db[b"\x02rust\x00\x16\x01\x2c"] == expected


def test_rust_and_python_read_each_others_tables(url: str) -> None:
    program = os.environ.get("DARTER_TEST_TABLES")
    if program is None:
        pytest.skip("DARTER_TEST_TABLES does not name the program of tables.rs")
    numbers = {-(2**63): "", -5551212: "minus", 0: "h\u00e9\0", 2**63 - 1: "max"}
    people = {("Ada", -1): -(2**63), ("Ada\0", 300): 2**63 - 1}
    flags = {False: -0.5, True: sys.float_info.max}

    def tables(db: darter.Store) -> list[tuple[Any, dict[Any, Any]]]:
        return [
            (db.table("numbers", key=int, value=str), numbers),
            (db.table("people", key=(str, int), value=int), people),
            (db.table("flags", key=bool, value=float), flags),
            (db.table("blobs", key=str, value=bool), {"yes": True}),
        ]

    darter.open(url).close()
    subprocess.run([program, "write", url], check=True, timeout=300)
    with darter.open(url) as db:
        for table, pairs in tables(db):
            assert list(table.items()) == list(pairs.items())
        db.clear()
        for table, pairs in tables(db):
            table.update(pairs)
    subprocess.run([program, "check", url], check=True, timeout=300)


def test_arrays(db: darter.Store) -> None:
    numpy = pytest.importorskip("numpy")
    table = db.table("matrices", key=str, value=codecs.array("<f8", (2, -1)))
    table["m"] = numpy.arange(6.0)
    assert table["m"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_transaction_spans_tables(db: darter.Store) -> None:
    users = db.table("users", key=int, value=str)
    by_name = db.table("by name", key=str, value=int)

    def register(tx: darter.Transaction, number: int, name: str) -> bool:
        if name in tx.table(by_name):
            return False
        tx.table(users)[number] = name
        tx.table(by_name)[name] = number
        return tx.table(users).get(number) == name

    assert db.transact(lambda tx: register(tx, 1, "Ada")) and not db.transact(lambda tx: register(tx, 2, "Ada"))
    assert dict(users) == {1: "Ada"} and dict(by_name) == {"Ada": 1}
    with db.transaction() as tx:
        del tx.table(users)[1]
        tx.table(by_name).discard("Ada")
        with pytest.raises(KeyError):
            tx.table(users)[1]
    assert not users and not by_name
