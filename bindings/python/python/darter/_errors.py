"""The exceptions of a store. They mirror `darter::Error` of the Rust library."""

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
    "TableError",
    "TooLongError",
    "UsageError",
    "VersionError",
]


class Error(Exception):
    """An error of a store. Data stored before it is intact.

    `unsent` is true if the operation has not taken effect, so that it can be repeated. If it is
    false, an operation that changes data may have taken effect or not.

    >>> import darter
    >>> try:
    ...     darter.open("file:/dev/shm/no/such/pool")
    ... except darter.Error as error:
    ...     print(type(error).__name__, error.unsent)
    MissingError True
    """

    unsent: bool

    def __init__(self, message: str, unsent: bool = False) -> None:
        super().__init__(message)
        self.unsent = unsent


class UsageError(Error, ValueError):
    """The request cannot be carried out, for example because a name is malformed."""


class MissingError(UsageError):
    """The pool does not exist, and its name does not say how large to create it."""


class ExistsError(UsageError):
    """A new pool was requested, but it exists."""


class ReadOnlyError(UsageError):
    """The store was opened with `read_only=True`, and the operation writes."""


class TooLongError(UsageError):
    """A key, a value or a transaction is larger than the pool allows."""


class ClosedError(Error, ValueError):
    """The store was closed, or the transaction has ended."""


class ForkedError(Error):
    """The pool is in the memory of the parent process."""


class FullError(Error):
    """The pool is full. Everything stored is intact and readable."""


class HeldBackError(FullError):
    """The pool has no room until a process that is stopped continues or ends; the message names it."""


class ConflictError(Error):
    """Another client changed a key that the transaction had read. Nothing has changed."""


class DisconnectedError(Error):
    """A memory node cannot be reached."""


class ShutOutError(Error):
    """The pool has ended this process's membership; the store joins again by itself."""


class InterruptedError(ShutOutError):
    """The membership ended during the operation, which took effect or not."""


class SnapshotError(Error):
    """A backup cannot begin at this moment, or the pool has become too full for it."""


class DamagedError(Error):
    """The file or the memory is not a sound pool."""


class VersionError(Error):
    """The pool has another format than this version of darter reads."""


class TableError(Error):
    """A table holds a key or a value of another type."""
