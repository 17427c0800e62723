"""Transactions."""

from __future__ import annotations

import threading

import darter
import pytest


def test_all_changes_or_none(db: darter.Store) -> None:
    with db.transaction() as tx:
        tx[b"a"] = b"1"
        tx.put(b"b", b"2")
        assert b"a" in tx and tx.get_many([b"a", b"x"]) == [b"1", None]
        assert b"a" not in db
    assert list(db.items()) == [(b"a", b"1"), (b"b", b"2")] and tx.ended
    with pytest.raises(LookupError), db.transaction() as tx:
        del tx[b"a"]
        raise LookupError
    with db.transaction() as tx:
        tx.discard(b"a")
        tx.rollback()
    assert len(db) == 2
    for call in (tx.commit, lambda: tx.get(b"a"), lambda: tx.put(b"a", b"")):
        with pytest.raises(darter.ClosedError, match="ended"):
            call()


def test_a_transaction_has_key_errors(db: darter.Store) -> None:
    with pytest.raises(KeyError), db.transaction() as tx:
        tx[b"x"]
    with pytest.raises(KeyError), db.transaction() as tx:
        del tx[b"x"]


def test_a_conflict_changes_nothing(db: darter.Store) -> None:
    db[b"a"] = b"1"
    with pytest.raises(darter.ConflictError, match="run the transaction again") as caught:
        with db.transaction() as tx:
            tx[b"b"] = tx[b"a"]
            db[b"a"] = b"2"
    assert caught.value.unsent and b"b" not in db


def test_transact_moves_without_loss(db: darter.Store) -> None:
    accounts = [b"account %d" % number for number in range(4)]
    db.update({account: b"100" for account in accounts})

    def move(tx: darter.Transaction, source: bytes, target: bytes) -> None:
        tx[source], tx[target] = b"%d" % (int(tx[source]) - 1), b"%d" % (int(tx[target]) + 1)

    def work(number: int) -> None:
        for step in range(100):
            source, target = accounts[(number + step) % 4], accounts[(number + 2 * step + 1) % 4]
            if source != target:
                db.transact(lambda tx: move(tx, source, target))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(map(int, db.values())) == 400


def test_transact_returns_and_raises(db: darter.Store) -> None:
    assert db.transact(lambda tx: tx.put(b"a", b"1") or 7) == 7
    runs = 0

    def body(tx: darter.Transaction) -> None:
        nonlocal runs
        runs += 1
        tx[b"a"] = tx[b"a"] + b"!"
        if runs < 3:
            db[b"a"] = b"other %d" % runs

    db.transact(body)
    assert runs == 3 and db[b"a"] == b"other 2!"
    with pytest.raises(ZeroDivisionError):
        db.transact(lambda tx: tx.put(b"a", b"2") or 1 // 0)
    assert db[b"a"] == b"other 2!"
