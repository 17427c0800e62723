"""The operations of a store, one by one."""

from __future__ import annotations

import array
import copy
import threading
import time
from collections.abc import MutableMapping
from pathlib import Path

import darter
import pytest


def test_a_store_is_a_mapping(db: darter.Store) -> None:
    assert isinstance(db, MutableMapping)
    assert not db and len(db) == 0
    db[b"b"] = b"2"
    db.update({b"a": b"1", b"c": b"3"})
    assert db and len(db) == 3 and b"a" in db and b"x" not in db
    assert list(db) == [b"a", b"b", b"c"] and list(reversed(db)) == [b"c", b"b", b"a"]
    assert list(db.items()) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    assert list(db.keys()) == [b"a", b"b", b"c"] and db.keys() & {b"a", b"z"} == {b"a"}
    assert list(db.values()) == [b"1", b"2", b"3"] and b"2" in db.values()
    assert list(reversed(db.items()))[0] == (b"c", b"3")
    assert (b"a", b"1") in db.items() and len(db.values()) == 3
    assert db.pop(b"a") == b"1" and db.pop(b"a", None) is None
    assert db.popitem() == (b"c", b"3") and db.popitem(last=False) == (b"b", b"2")
    for call in (db.popitem, lambda: db.pop(b"a"), lambda: db[b"a"], lambda: db.__delitem__(b"a")):
        with pytest.raises(KeyError):
            call()
    assert dict(db) == {}


def test_ranges_have_ends_directions_and_limits(db: darter.Store) -> None:
    keys = [b"%04d" % number for number in range(3000)]
    db.put_many((key, key[::-1]) for key in keys)
    assert [key for key, _ in db.range()] == keys and len(db) == 3000
    assert [key for key, _ in db.range(b"0100", b"0200")] == keys[100:200]
    assert [key for key, _ in db.range(b"0100", b"2000", reverse=True)] == keys[1999:99:-1]
    assert [key for key, _ in db.range(b"1", limit=600)] == keys[1000:1600]
    assert list(db.range(b"1", limit=2, part="keys")) == keys[1000:1002]
    assert list(db.prefix(b"012", part="values", reverse=True)) == [key[::-1] for key in keys[129:119:-1]]
    assert list(db.range(b"5", b"1")) == [] and list(db.range(limit=0)) == []
    assert db.count(b"1", b"2") == 1000
    assert db.remove_range(b"1", b"2") == 1000 and db.remove_many(keys[:10] + [b"x"]) == 10
    assert db.first() == (b"0010", b"0100") and db.last() == (b"2999", b"9992")
    db.clear()
    assert db.first() is None


def test_a_range_continues_while_keys_change(db: darter.Store) -> None:
    db.put_many((b"%04d" % number, b"") for number in range(2000))
    seen = 0
    for key, _ in db.range():
        del db[key]
        seen += 1
    assert seen == 2000 and not db


def test_buffers_are_keys_and_values(db: darter.Store) -> None:
    numpy = pytest.importorskip("numpy")
    db[bytearray(b"key")] = memoryview(b"value")[1:3]
    db[b"array"] = array.array("H", [1, 2])
    db[b"strided"] = memoryview(bytes(range(10)))[::3]
    db[b"numpy"] = numpy.arange(3, dtype="<i8")
    assert db[memoryview(b"key")] == b"al" and db[b"array"] == array.array("H", [1, 2]).tobytes()
    assert db[b"strided"] == bytes([0, 3, 6, 9])
    assert numpy.frombuffer(db[b"numpy"], "<i8").tolist() == [0, 1, 2]
    db[b""] = b""
    assert db[b""] == b"" and type(db[b"key"]) is bytes


def test_writes_have_conditions(db: darter.Store) -> None:
    assert db.insert(b"k", b"1") and not db.insert(b"k", b"2")
    assert db.swap(b"k", b"2") == b"1" and db.swap(b"new", b"") is None
    assert db.setdefault(b"k", b"3") == b"2" and db.setdefault(b"d", b"3") == b"3"
    assert db.compare_exchange(b"k", b"2", b"4") and not db.compare_exchange(b"k", b"2", b"5")
    assert db.compare_exchange(b"n", None, b"1") and not db.compare_exchange(b"n", None, b"1")
    assert not db.compare_exchange(b"n", b"2", None) and db.compare_exchange(b"n", b"1", None)
    assert b"n" not in db and db.compare_exchange(b"n", None, None)
    assert db.discard(b"k") and not db.discard(b"k")
    assert db.remove(b"d") == b"3" and db.remove(b"d") is None


def test_many_keys_are_read_at_once(db: darter.Store) -> None:
    db[b"a"] = b"1"
    assert db.get_many([b"a", b"b"]) == [b"1", None]
    assert db.get_many({b"a": 1}) == [b"1"] and db.get_many(key for key in ()) == []
    assert db.get_many([b"b"], b"-") == [b"-"] and db.get(b"b", 7) == 7


def test_modify_counts_in_threads(db: darter.Store) -> None:
    def count() -> None:
        for _ in range(200):
            db.modify(b"count", lambda old: b"%d" % (int(old or b"0") + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert db[b"count"] == b"800"
    assert db.modify(b"count", lambda old: None) is None and b"count" not in db


def test_modify_calls_the_store_again(db: darter.Store) -> None:
    db[b"other"] = b"2"
    assert db.modify(b"key", lambda old: db[b"other"] + b"!") == b"2!"


def test_stats_and_check(db: darter.Store) -> None:
    db.put_many((b"%d" % number, b"v" * 100) for number in range(100))
    stats = db.stats()
    assert stats["keys"] == 100 and stats["index"] == "quiver"
    assert 0 < stats["used_bytes"] < stats["pool_bytes"] and len(stats["members"]) == 1
    check = db.check()
    assert check["sound"] and check["leaked_bytes"] == 0 and check["keys"] == 100
    assert db.check(repair=True)["sound"] and db.notes() is not None
    db.persist()


def test_a_backup_is_restored(db: darter.Store, tmp_path: Path) -> None:
    db.put_many((b"%d" % number, b"v" * 100) for number in range(1000))
    db.table("ages", key=str)["Ada"] = 36
    backup = db.backup(tmp_path / "backup")
    assert backup["pairs"] == len(db) and abs(backup["taken_at"] - time.time()) < 3600
    with darter.open("mem:32M", index="dart") as other:
        assert other.restore(str(tmp_path / "backup")) == backup
        assert list(other.items()) == list(db.items()) and other.table("ages", key=str)["Ada"] == 36
        with pytest.raises(darter.ExistsError, match="not empty"):
            other.restore(tmp_path / "backup")
    whole = (tmp_path / "backup").read_bytes()
    with darter.open("mem:32M") as other:
        for damaged in (whole[:-1], whole[:5000] + b"?" + whole[5001:], whole[:60]):
            (tmp_path / "damaged").write_bytes(damaged)
            with pytest.raises(darter.DamagedError):
                other.restore(tmp_path / "damaged")
        (tmp_path / "other").write_bytes(b"pear")
        with pytest.raises(darter.VersionError, match="no backup"):
            other.restore(tmp_path / "other")
        with pytest.raises(FileNotFoundError):
            other.restore(tmp_path / "absent")
        assert len(other) == 0
    with pytest.raises(FileNotFoundError):
        db.backup(tmp_path / "absent" / "backup")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["backup", "damaged", "other"]


def test_a_file_is_opened_again(url: str) -> None:
    with darter.open(url, lease=5.0, index="dart") as db:
        db[b"key"] = b"value"
        assert db.url == url and not db.closed
    assert db.closed
    with darter.open(url.split("?")[0], create=False) as db, copy.copy(db) as other:
        assert other[b"key"] == b"value" and db.stats()["index"] == "dart"
    with darter.open(url, read_only=True) as db:
        assert db[b"key"] == b"value"
        with pytest.raises(darter.ReadOnlyError):
            db[b"key"] = b"other"


def test_get_many_of_more_keys_than_a_batch(db: darter.Store) -> None:
    db.put_many((b"%d" % number, b"%d" % -number) for number in range(0, 10_000, 2))
    values = db.get_many((b"%d" % number for number in range(10_000)), b"none")
    assert values == [b"none" if number % 2 else b"%d" % -number for number in range(10_000)]
    assert db.transact(lambda tx: tx.get_many(b"%d" % number for number in range(4098)))[4095:] == [None, b"-4096", None]
    assert db.get_many([]) == []
