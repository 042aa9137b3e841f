"""What the system says when it refuses something, as a sentence that can be put into a language.

Python hands out the C library's English text. The usual ones are known here by their number, in the
words of glibc; so are SQLite's. Any other is passed on as it is.
"""

from __future__ import annotations

import errno
import socket

from kvwise.text import Phrase, phrase

_SAID: dict[int, Phrase] = {
    errno.ENOENT: phrase("No such file or directory"),
    errno.EACCES: phrase("Permission denied"),
    errno.EPERM: phrase("Operation not permitted"),
    errno.EISDIR: phrase("Is a directory"),
    errno.ENOTDIR: phrase("Not a directory"),
    errno.EEXIST: phrase("File exists"),
    errno.ENOTEMPTY: phrase("Directory not empty"),
    errno.ENOSPC: phrase("No space left on device"),
    errno.EDQUOT: phrase("Disk quota exceeded"),
    errno.EFBIG: phrase("File too large"),
    errno.EROFS: phrase("Read-only file system"),
    errno.EIO: phrase("Input/output error"),
    errno.ENXIO: phrase("No such device or address"),
    errno.ENODEV: phrase("No such device"),
    errno.EMFILE: phrase("Too many open files"),
    errno.ENFILE: phrase("Too many open files in system"),
    errno.ENAMETOOLONG: phrase("File name too long"),
    errno.ELOOP: phrase("Too many levels of symbolic links"),
    errno.EBUSY: phrase("Device or resource busy"),
    errno.ETXTBSY: phrase("Text file busy"),
    errno.ENOEXEC: phrase("Exec format error"),
    errno.EXDEV: phrase("Invalid cross-device link"),
    errno.ESTALE: phrase("Stale file handle"),
    errno.EINVAL: phrase("Invalid argument"),
    errno.ENOMEM: phrase("Cannot allocate memory"),
    errno.EAGAIN: phrase("Resource temporarily unavailable"),
    errno.EPIPE: phrase("Broken pipe"),
    errno.EADDRINUSE: phrase("Address already in use"),
    errno.EADDRNOTAVAIL: phrase("Cannot assign requested address"),
    errno.ECONNREFUSED: phrase("Connection refused"),
    errno.ECONNRESET: phrase("Connection reset by peer"),
    errno.ETIMEDOUT: phrase("Connection timed out"),
    errno.EHOSTUNREACH: phrase("No route to host"),
    errno.ENETUNREACH: phrase("Network is unreachable"),
}
_LOOKED_UP: dict[int, Phrase] = {
    socket.EAI_NONAME: phrase("Name or service not known"),
    socket.EAI_AGAIN: phrase("Temporary failure in name resolution"),
}
_BY_TEXT: dict[str, Phrase] = {
    each.template: each
    for each in (
        phrase("unable to open database file"),
        phrase("database is locked"),
        phrase("disk I/O error"),
        phrase("attempt to write a readonly database"),
        phrase("database or disk is full"),
        phrase("file is not a database"),
        phrase("database disk image is malformed"),
    )
}
"""SQLite's own. Source: sqlite3ErrStr in its src/main.c."""


def reason_of(error: BaseException) -> Phrase | str:
    """Why something could not be done: the system's word behind `error`, or its own text.

    A library's error is often about one of the system's, which stands behind it as its cause.
    """
    behind: BaseException | None = error
    while behind is not None:
        known = _LOOKED_UP if isinstance(behind, socket.gaierror) else _SAID
        if isinstance(behind, OSError) and behind.errno in known:
            return known[behind.errno]
        behind = behind.__cause__ or behind.__context__
    text = error.strerror if isinstance(error, OSError) else None
    text = text or str(error) or type(error).__name__
    return _BY_TEXT.get(text, text)


def reason_for(number: int) -> Phrase:
    """The same for one of `errno`'s numbers that is known here."""
    return _SAID[number]


__all__ = ["reason_for", "reason_of"]
