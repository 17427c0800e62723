"""A tour of the operations, with their types; docs/python.md quotes it."""

import asyncio

import darter
from darter import codecs


def mapping(db: darter.Store) -> None:
    db[b"pear"] = b"green"
    db.update({b"plum": b"blue", b"fig": b"brown"})
    assert db.get(b"kiwi") is None and db.setdefault(b"kiwi", b"brown") == b"brown"
    assert [key for key, _ in db.range(b"a", b"l")] == [b"fig", b"kiwi"]
    assert list(db.prefix(b"p", reverse=True, limit=1)) == [(b"plum", b"blue")]
    assert db.pop(b"fig") == b"brown" and b"fig" not in db


def conditions(db: darter.Store) -> None:
    assert db.insert(b"lock", b"process 1") and not db.insert(b"lock", b"process 2")
    assert not db.compare_exchange(b"lock", b"process 2", None)
    assert db.compare_exchange(b"lock", b"process 1", None), "None removes the key"
    assert db.modify(b"count", lambda old: b"%d" % (int(old or b"0") + 1)) == b"1"


def transactions(db: darter.Store) -> None:
    db.update({b"alice": b"10", b"bob": b"0"})

    def transfer(tx: darter.Transaction) -> int:
        rest = int(tx[b"alice"]) - 3
        tx[b"alice"], tx[b"bob"] = b"%d" % rest, b"%d" % (int(tx[b"bob"]) + 3)
        return rest

    assert db.transact(transfer) == 7
    with db.transaction() as tx:  # ConflictError if another client changes what was read
        del tx[b"alice"], tx[b"bob"]


def tables(db: darter.Store) -> None:
    people = db.table("people", key=(str, int), value=int)  # by city and year
    people.update({("Berne", 2000): 122_484, ("Berne", 2020): 134_591, ("Biel", 2020): 55_206})
    assert [year for (_, year), _ in people.prefix(("Berne",))] == [2000, 2020]
    events = db.table("events", key=float, value=codecs.JSON)
    events[1.5] = {"kind": "login"}
    with db.transaction() as tx:
        tx.table(people)["Biel", 2021] = 55_386
    assert people.last() == (("Biel", 2021), 55_386) and db.tables() == ["events", "people"]


async def tasks() -> None:
    async with await darter.aio.open("mem:64M") as db:
        await asyncio.gather(*(db.put(b"%d" % number, b"") for number in range(100)))
        assert [key async for key, _ in db.prefix(b"9")][:2] == [b"9", b"90"]


if __name__ == "__main__":
    with darter.open("mem:64M") as db:
        mapping(db)
        conditions(db)
        transactions(db)
        tables(db)
        assert db.check()["sound"]
    asyncio.run(tasks())
