"""One class per lie that a GGUF header can tell.

    HeaderError
     |- the file      NotGGUF  EmptyFile  Truncated  UnsupportedVersion  HeaderTooLarge
     |- counts        TooManyKeys  TooManyTensors  ArrayTooLong  LengthBeyondFile  StringTooLong
     |- metadata      EmptyKey  KeyTooLong  DuplicateKey  BadText  BadBool  UnknownValueType
     |                NestedArray  WrongValueType  BadAlignment
     |- tensors       EmptyTensorName  TensorNameTooLong  DuplicateTensor  TooManyDimensions
     |                ZeroDimension  TensorTooLarge  UnknownTensorType  PartialBlock
     |- offsets       MisalignedOffset  OverlappingTensors  UnexpectedOffset  TensorBeyondFile
     |- split files   BadSplitName  ShardMismatch
     `- zoo JSON      BadZoo

A sentence names the thing, the figure it claims and the figure that would be possible. All text
that comes from the file passes `clip` first: control characters are escaped, length is bounded.
"""

from __future__ import annotations

from kvwise.errors import HeaderError

SHOWN = 80
"""Characters of a hostile name that a sentence shows at most."""


def plain(text: str) -> str:
    """Text with control characters, and what is no text at all, written as escapes."""
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else ch.encode("unicode_escape").decode() for ch in text)


def clip(text: str | bytes) -> str:
    """Text from a file, safe and short enough for a one-line sentence."""
    if isinstance(text, bytes):
        text = text[: 4 * SHOWN].decode("utf-8", "backslashreplace")
    return plain(text if len(text) <= SHOWN else text[: SHOWN - 3] + "...")


class NotGGUF(HeaderError):
    """The first four bytes are not `GGUF`."""


class EmptyFile(HeaderError):
    """A file of no bytes."""


class Truncated(HeaderError):
    """The bytes end inside the header."""


class UnsupportedVersion(HeaderError):
    """Neither version 2 nor version 3."""


class HeaderTooLarge(HeaderError):
    """The header goes on beyond the ceiling for the whole of it."""


class TooManyKeys(HeaderError):
    """More key-value pairs than the bytes can hold, or than the ceiling."""


class TooManyTensors(HeaderError):
    """More tensors than the bytes can hold, or than the ceiling."""


class ArrayTooLong(HeaderError):
    """More array elements than the bytes can hold, or than the ceiling."""


class LengthBeyondFile(HeaderError):
    """A string that would end after the last byte of the file."""


class StringTooLong(HeaderError):
    """A string that is longer than the ceiling for one value."""


class EmptyKey(HeaderError):
    """A key of no characters."""


class KeyTooLong(HeaderError):
    """A key of more than 65,535 bytes, the limit of the format."""


class DuplicateKey(HeaderError):
    """Two values for one key."""


class BadText(HeaderError):
    """A string that is not UTF-8, or a name with a NUL in it."""


class BadBool(HeaderError):
    """A bool that is neither 0 nor 1."""


class UnknownValueType(HeaderError):
    """A metadata type that the format does not have."""


class NestedArray(HeaderError):
    """An array of arrays, which llama.cpp does not read either."""


class WrongValueType(HeaderError):
    """A key of the format itself with a value of another type than it must have."""


class BadAlignment(HeaderError):
    """`general.alignment` is not a power of two."""


class EmptyTensorName(HeaderError):
    """A tensor without a name."""


class TensorNameTooLong(HeaderError):
    """A tensor name of 64 bytes or more (GGML_MAX_NAME)."""


class DuplicateTensor(HeaderError):
    """Two tensors of one name."""


class TooManyDimensions(HeaderError):
    """More than four dimensions (GGML_MAX_DIMS)."""


class ZeroDimension(HeaderError):
    """A dimension of no elements."""


class TensorTooLarge(HeaderError):
    """More elements or bytes than a signed 64-bit integer counts."""


class UnknownTensorType(HeaderError):
    """A ggml type that this version of kvwise has no row for."""


class PartialBlock(HeaderError):
    """A row that is not a whole number of the type's blocks."""


class MisalignedOffset(HeaderError):
    """A tensor that does not start at a multiple of the alignment."""


class OverlappingTensors(HeaderError):
    """Two tensors that claim the same bytes."""


class UnexpectedOffset(HeaderError):
    """A tensor that does not follow the one before it (llama.cpp refuses gaps)."""


class TensorBeyondFile(HeaderError):
    """A tensor that would end after the last byte of the file."""


class BadSplitName(HeaderError):
    """One of several files, and its name does not say which."""


class ShardMismatch(HeaderError):
    """Files that do not belong together: number, count or tensors disagree."""


class BadZoo(HeaderError):
    """A zoo JSON that does not describe a header."""
