"""Bad input: an exception that says what to do, and nothing lost."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import darter
import pytest
from conftest import Run


@pytest.mark.parametrize("wrong", ["text", 1, 1.5, None, [1], object(), {b"a": b"b"}])
def test_keys_and_values_of_wrong_types_are_refused(db: darter.Store, wrong: Any) -> None:
    calls = [
        lambda: db[wrong],
        lambda: db.get(wrong),
        lambda: wrong in db,
        lambda: db.__setitem__(wrong, b"value"),
        lambda: db.__setitem__(b"key", wrong),
        lambda: db.put_many([(b"key", b"value"), (wrong, b"")]),
        lambda: db.modify(b"key", lambda old: wrong if wrong is not None else 1),
        lambda: db.get_many([wrong]),
        lambda: db.remove_many([wrong]),
        lambda: db.prefix(wrong),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="bytes or other buffers|argument"):
            call()
    with pytest.raises(TypeError):
        db.put_many(5)
    assert not db


def test_options_and_names_are_checked() -> None:
    with pytest.raises(TypeError, match="colour.*accept_copy"):
        darter.open("mem:16M", colour=1)
    with pytest.raises(ValueError, match="index.*quiver or dart"):
        darter.open("mem:16M", index="btree")
    with pytest.raises(TypeError, match="cache_bytes"):
        darter.open("mem:16M", cache_bytes="much")
    with pytest.raises(ValueError, match="lease"):
        darter.open("mem:16M", lease=-1)
    with pytest.raises(darter.UsageError):
        darter.open("bucket:16M")
    with pytest.raises(darter.MissingError, match="size="):
        darter.open("file:/dev/shm/no/such/pool")


def test_a_new_pool_must_not_exist(url: str) -> None:
    darter.open(url).close()
    with pytest.raises(darter.ExistsError) as caught:
        darter.open(url, create_new=True)
    assert caught.value.unsent and isinstance(caught.value, darter.Error)


def test_a_closed_store_raises(db: darter.Store) -> None:
    db.update({b"%d" % number: b"" for number in range(50)})
    pairs, transaction = db.range(), db.transaction()
    assert next(pairs)[0] == b"0"
    transaction[b"x"] = b"y"
    db.close()
    db.close()
    for call in (lambda: db[b"1"], db.stats, lambda: len(db), lambda: list(pairs), db.transaction, db.first):
        with pytest.raises(darter.ClosedError, match="closed; open it again"):
            call()
    with pytest.raises(darter.ClosedError):
        transaction.commit()
    with pytest.raises(darter.ClosedError):
        pickle.dumps(db)
    assert "closed" in repr(db)


def test_what_is_not_a_pool_is_refused(url: str) -> None:
    path = url.removeprefix("file:").split("?")[0]
    with open(path, "wb") as file:
        file.write(b"not a pool" * 1_000_000)
    with pytest.raises(darter.UsageError, match="holds no pool"):
        darter.open(url)


def test_a_pool_of_another_version_is_refused(url: str) -> None:
    darter.open(url).close()
    path = url.removeprefix("file:").split("?")[0]
    versions = bytearray(open(path, "rb").read(64))
    # The version follows the magic number.
    versions[8:16] = (int.from_bytes(versions[8:16], "little") + 1).to_bytes(8, "little")
    with open(path, "r+b") as file:
        file.write(versions)
    with pytest.raises(darter.VersionError, match="version"):
        darter.open(url)


def test_a_full_pool_keeps_what_it_has() -> None:
    with darter.open("mem:8M") as db:
        with pytest.raises(darter.FullError, match="out of space") as caught:
            for number in range(1000):
                db[b"%d" % number] = b"v" * 100_000
        assert caught.value.unsent and len(db) == number
        assert all(value == b"v" * 100_000 for value in db.values())
        del db[b"0"]


def test_keys_and_values_can_be_too_long(db: darter.Store) -> None:
    with pytest.raises(darter.TooLongError, match="65536"):
        db[b"k" * 65_537] = b""
    with pytest.raises(darter.TooLongError):
        db[b"key"] = b"v" * (db.max_value_bytes + 1)
    db[b""] = b"v" * db.max_value_bytes


def test_an_exception_in_modify_changes_nothing(db: darter.Store) -> None:
    db[b"key"] = b"value"

    def fail(old: bytes | None) -> bytes:
        raise LookupError(old)

    for key in (b"key", b"absent"):
        with pytest.raises(LookupError):
            db.modify(key, fail)
    with pytest.raises(TypeError):
        db.modify(b"key", 5)
    assert list(db.items()) == [(b"key", b"value")] and db.check()["sound"]


def test_modify_inside_its_own_function_ends_with_an_exception(db: darter.Store) -> None:
    calls = []

    def again(old: bytes | None) -> bytes | None:
        calls.append(old)
        return db.modify(b"key", again)

    for _ in range(2):
        with pytest.raises(RecursionError, match="return the new value"):
            db.modify(b"key", again)
    assert len(calls) == 32 and not db
    assert db.modify(b"key", lambda old: db.modify(b"other", lambda other: b"inner")) == b"inner"
    assert list(db.items()) == [(b"key", b"inner"), (b"other", b"inner")]


@pytest.mark.parametrize("wrong", [[b"key", b"value"], b"ab", (b"key",), (b"key", b"value", b"more"), 1])
def test_pairs_that_are_none_are_refused(db: darter.Store, wrong: Any) -> None:
    with pytest.raises(TypeError, match="put_many takes a mapping, or tuples"):
        db.put_many([(b"first", b"value"), wrong])
    assert not db


def test_names_of_wrong_types_are_refused(db: darter.Store, tmp_path: Path) -> None:
    for name in (tmp_path / "pool", b"mem:16M", 5, None):
        with pytest.raises(TypeError, match="name is a str such as `file:"):
            darter.open(name)  # type: ignore[arg-type]
    with pytest.raises(darter.UsageError, match="NUL"):
        darter.open(f"file:{tmp_path}/a\0b?size=16M")
    for table in (b"name", 5, None):
        with pytest.raises(TypeError, match="table's name is a str, not"):
            db.table(table)  # type: ignore[call-overload]


def test_limits_are_checked(db: darter.Store) -> None:
    db[b"key"] = b"value"
    for wrong in (-1, 2**64):
        with pytest.raises(ValueError, match=f"limit={wrong}: use a number"):
            db.range(limit=wrong)
        with pytest.raises(ValueError, match=f"limit={wrong}: use a number"):
            db.prefix(b"k", limit=wrong)
    with pytest.raises(TypeError, match="limit"):
        db.range(limit="many")  # type: ignore[arg-type]
    assert list(db.range(limit=0)) == [] and len(list(db.range(limit=2**63))) == 1


def test_options_say_once_which_is_wrong() -> None:
    with pytest.raises(TypeError, match="^option `token`: a token is bytes, not str; `token_file`"):
        darter.open("mem:16M", token="secret")  # type: ignore[arg-type]
    with pytest.raises(OverflowError, match="^option `cache_bytes`: can't convert"):
        darter.open("mem:16M", cache_bytes=-1)


def test_files_of_backups_that_are_not_there_are_named(db: darter.Store, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(FileNotFoundError) as caught:
        db.restore(missing)
    assert caught.value.filename == str(missing) and caught.value.errno == errno.ENOENT
    with pytest.raises(FileNotFoundError, match="missing/fruit"):
        db.backup(missing / "fruit")
    with pytest.raises(IsADirectoryError):
        db.backup(tmp_path)


def test_exceptions_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(darter.ConflictError("conflict", True)))
    assert type(error) is darter.ConflictError and error.unsent and str(error) == "conflict"


def test_an_iterator_that_raises_stores_whole_batches_only(db: darter.Store) -> None:
    def pairs() -> Any:
        yield b"key", b"value"
        raise LookupError

    with pytest.raises(LookupError):
        db.put_many(pairs())
    assert not db


# A program that a shell has started in the background ignores SIGINT.
INTERRUPTED = """
import itertools, signal, sys, darter
signal.signal(signal.SIGINT, signal.default_int_handler)
db = darter.open(sys.argv[1])
db.put_many((b"%06d" % number, b"") for number in range(100_000))
try:
    print("ready", flush=True)
    while True:
        CALL
except KeyboardInterrupt:
    print("interrupted", len(db), flush=True)
"""


@pytest.mark.parametrize(
    "call",
    [
        "len(db)",
        "list(db)",
        "db.stats()",
        "db.check()",
        "sum(1 for _ in db.items())",
        "db.get(b'1')",
        "db.get_many(b'%06d' % number for number in range(100_000))",
        "db.transaction().get_many(b'%06d' % number for number in itertools.count())",
        "db.put_many((b'%06d' % number, b'') for number in range(100_000))",
    ],
)
def test_ctrl_c_ends_a_long_call(call: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED.replace("CALL", call), "mem:256M"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert (output, process.returncode) == ("interrupted 100000\n", 0)


def test_the_interpreter_ends_with_open_iterators_and_transactions(run: Run) -> None:
    done = run(
        "import darter\n"
        "db = darter.open('mem:64M'); db.update({b'%d' % n: b'' for n in range(100)})\n"
        "pairs, tx = db.items().__iter__(), db.transaction(); next(pairs); tx[b'a'] = b'b'\n"
        "import sys; sys.keep = (db, pairs, tx)\n"
        "print('end')"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_the_interpreter_ends_while_daemon_threads_work(run: Run) -> None:
    done = run(
        "import darter, threading, time\n"
        "db = darter.open('mem:64M'); db.update({b'%d' % n: b'' for n in range(1000)})\n"
        "def work():\n"
        "    while True:\n"
        "        try:\n"
        "            list(db.items()); db[b'key'] = b'value'; db.modify(b'count', lambda old: b'1')\n"
        "        except darter.ClosedError: time.sleep(0.001)\n"
        "for _ in range(4): threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(0.1); print('end')"
    )
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_a_store_is_closed_when_it_is_collected(url: str) -> None:
    for _ in range(100):
        darter.open(url)[b"key"] = b"value"
    assert os.path.exists(url.removeprefix("file:").split("?")[0])
