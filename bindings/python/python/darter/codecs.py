"""Codecs of the values of tables, and the types of their keys.

Values of the types `bytes`, `str`, `int`, `float` and `bool` have the encoding of the Rust
library's tables (postcard): a `Table<String, i64>` of Rust is a table with `key=str, value=int`.
"""

from __future__ import annotations

import json
import pickle
import struct
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from darter._errors import TableError

if TYPE_CHECKING:
    import numpy
    from numpy.typing import DTypeLike

__all__ = ["JSON", "MSGPACK", "PICKLE", "RAW", "Codec", "array"]

T = TypeVar("T")
#: The type of a table's keys: a type, a tuple of types, or `None` for any.
Key = type[Any] | tuple[Any, ...] | None

_KEY_TYPES = (bytes, str, int, float, bool)


class Codec(ABC, Generic[T]):
    """The encoding of a type of values.

    >>> import darter
    >>> class Reverse(Codec[str]):
    ...     def encode(self, value): return value[::-1].encode()
    ...     def decode(self, data): return data.decode()[::-1]
    >>> db = darter.open("mem:16M")
    >>> words = db.table("words", key=int, value=Reverse())
    >>> words[1] = "pear"
    >>> words[1]
    'pear'
    """

    @abstractmethod
    def encode(self, value: T) -> bytes:
        """Returns the bytes of a value."""

    @abstractmethod
    def decode(self, data: bytes) -> T:
        """Returns the value of bytes. May raise any `Exception` if they are of another type."""


class _Pickle(Codec[Any]):
    def encode(self, value: Any) -> bytes:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)

    def decode(self, data: bytes) -> Any:
        return pickle.loads(data)


class _Json(Codec[Any]):
    def encode(self, value: Any) -> bytes:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

    def decode(self, data: bytes) -> Any:
        return json.loads(data)


class _MessagePack(Codec[Any]):
    def encode(self, value: Any) -> bytes:
        import msgpack  # type: ignore[import-untyped,unused-ignore]

        return bytes(msgpack.packb(value))

    def decode(self, data: bytes) -> Any:
        import msgpack

        return msgpack.unpackb(data)


class _Raw(Codec[bytes]):
    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes) -> bytes:
        return data


class _Array(Codec["numpy.ndarray[Any, Any]"]):
    def __init__(self, dtype: DTypeLike, shape: tuple[int, ...]) -> None:
        import numpy

        self._numpy = numpy
        self._dtype = numpy.dtype(dtype)
        self._shape = shape

    def encode(self, value: numpy.ndarray[Any, Any]) -> bytes:
        return self._numpy.ascontiguousarray(value, self._dtype).reshape(self._shape).tobytes()

    def decode(self, data: bytes) -> numpy.ndarray[Any, Any]:
        return self._numpy.frombuffer(data, self._dtype).reshape(self._shape)


#: Any object, by `pickle`. Reading a value runs code that its writer chose: only for pools whose
#: writers are trusted.
PICKLE: Codec[Any] = _Pickle()
#: What JSON can express.
JSON: Codec[Any] = _Json()
#: What MessagePack can express; needs the package `msgpack`.
MSGPACK: Codec[Any] = _MessagePack()
#: Bytes as they are, without a length before them.
RAW: Codec[bytes] = _Raw()


def array(dtype: DTypeLike, shape: tuple[int, ...] = (-1,)) -> Codec[numpy.ndarray[Any, Any]]:
    """Returns the codec of numpy arrays of one element type and shape. Arrays that are read share
    the memory of the bytes, and cannot be written to.

    >>> import darter, numpy
    >>> db = darter.open("mem:16M")
    >>> vectors = db.table("vectors", key=str, value=array("f4"))
    >>> vectors["x"] = numpy.array([1, 2.5])
    >>> vectors["x"].tolist()
    [1.0, 2.5]
    """
    return _Array(dtype, shape)


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _read_varint(data: bytes) -> tuple[int, int]:
    number = 0
    for at, byte in enumerate(data[:10]):
        number |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            return number, at + 1
    raise ValueError("an integer has no end")


class _Type(Codec[Any]):
    """A type, in postcard's encoding."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind

    def encode(self, value: Any) -> bytes:
        kind = self._kind
        if kind is float and type(value) is int:
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise TypeError(f"values of this table are {kind.__name__}, not {type(value).__name__}")
        if kind is bytes:
            return _varint(len(value)) + bytes(value)
        if kind is str:
            data: bytes = value.encode()
            return _varint(len(data)) + data
        if kind is int:
            if not -(1 << 63) <= value < 1 << 63:
                raise OverflowError("integers in values have at most 64 bits, signed")
            return _varint((value << 1) ^ (value >> 63))
        if kind is float:
            return struct.pack("<d", value)
        return bytes([value])

    def decode(self, data: bytes) -> Any:
        if self._kind is float:
            return struct.unpack("<d", data)[0]
        if self._kind is bool:
            return {b"\0": False, b"\1": True}[data]
        number, start = _read_varint(data)
        if self._kind is int:
            if start != len(data):
                raise ValueError("bytes are left over")
            return (number >> 1) ^ -(number & 1)
        if len(data) != start + number:
            raise ValueError(f"{len(data) - start} bytes instead of {number}")
        return data[start:] if self._kind is bytes else data[start:].decode()


def codec_of(value: type[Any] | Codec[Any]) -> Codec[Any]:
    """Returns the codec of a type, or a codec itself."""
    if isinstance(value, Codec):
        return value
    if value in _KEY_TYPES:
        return _Type(value)
    raise TypeError(f"value={value!r}: use bytes, str, int, float, bool, or a codec of darter.codecs")


def check_key_type(kind: Key) -> None:
    """Raises `TypeError` unless `kind` is a type of keys."""
    if isinstance(kind, tuple) and kind:
        for part in kind:
            check_key_type(part)
    elif kind is not None and kind not in _KEY_TYPES:
        raise TypeError(f"key={kind!r}: use bytes, str, int, float, bool, a tuple of these, or None for any")


def as_key(kind: Key, key: Any, *, partly: bool = False) -> Any:
    """Returns a key as it is encoded; raises `TypeError` if its type is not `kind`. With `partly`,
    a tuple may have fewer parts, for the ends of ranges."""
    if kind is None or type(key) is kind:
        return key
    if isinstance(kind, tuple):
        if isinstance(key, tuple) and (len(key) == len(kind) or partly and len(key) < len(kind)):
            return tuple(map(as_key, kind, key))
    elif kind is float and type(key) is int:
        return float(key)
    elif isinstance(key, kind) and not isinstance(key, bool):
        return key
    raise TypeError(f"keys of this table are {kind!r}, not {key!r}")


def decoded(codec: Codec[T], table: str, data: bytes) -> T:
    """Returns the value of bytes of a table."""
    try:
        return codec.decode(data)
    except Exception as why:
        raise TableError(f"table `{table}` holds a value of another type: {why}; use the types that it was written with", True) from why
