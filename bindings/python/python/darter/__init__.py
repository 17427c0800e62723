"""An ordered map of bytes that many processes write at once.

A pool is a file, shared memory, this process's memory, or the memory of memory nodes. Any process
can be killed at any instant: no acknowledged write is lost, and no other process waits.

>>> import darter
>>> with darter.open("mem:16M") as db:  # or file:/dev/shm/fruit.pool?size=64M
...     db[b"pear"] = b"green"
...     list(db.prefix(b"p"))
[(b'pear', b'green')]
"""

from darter import aio, codecs
from darter._errors import (
    ClosedError,
    ConflictError,
    DamagedError,
    DisconnectedError,
    Error,
    ExistsError,
    ForkedError,
    FullError,
    HeldBackError,
    InterruptedError,
    MissingError,
    ReadOnlyError,
    ShutOutError,
    SnapshotError,
    TableError,
    TooLongError,
    UsageError,
    VersionError,
)
from darter._store import Store, Transaction, open
from darter._table import Table, TableTransaction

__all__ = [
    "ClosedError",
    "ConflictError",
    "DamagedError",
    "DisconnectedError",
    "Error",
    "ExistsError",
    "ForkedError",
    "FullError",
    "HeldBackError",
    "InterruptedError",
    "MissingError",
    "ReadOnlyError",
    "ShutOutError",
    "SnapshotError",
    "Store",
    "Table",
    "TableError",
    "TableTransaction",
    "TooLongError",
    "Transaction",
    "UsageError",
    "VersionError",
    "aio",
    "codecs",
    "open",
]
