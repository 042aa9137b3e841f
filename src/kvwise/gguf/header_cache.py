"""Headers that were fetched before, one file per URL, valid while the server's ETag is the same.

A cached file that is damaged counts as absent; one that cannot be written is done without.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kvwise.paths import cache_dir


@dataclass(frozen=True, slots=True)
class Kept:
    """The first bytes of a file of `size` bytes that had this ETag."""

    etag: str
    size: int
    data: bytes


def load(url: str) -> Kept | None:
    """What is kept for a URL, or None."""
    try:
        line, _, data = _place(url).read_bytes().partition(b"\n")
        about = json.loads(line)
        kept = Kept(str(about["etag"]), int(about["size"]), data)
        sound = about["sha256"] == hashlib.sha256(data).hexdigest()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return kept if sound and kept.etag and len(data) <= kept.size else None


def save(url: str, etag: str, size: int, data: bytes | bytearray) -> None:
    """Keep the first bytes of a URL's file."""
    about = {"etag": etag, "size": size, "sha256": hashlib.sha256(data).hexdigest()}
    place = _place(url)
    part = place.with_suffix(f".{os.getpid()}.part")
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(json.dumps(about).encode() + b"\n")
            file.write(data)
        part.replace(place)


def _place(url: str) -> Path:
    # The name is a hash: a URL can hold a token.
    return cache_dir() / "headers" / hashlib.sha256(url.encode("utf-8", "replace")).hexdigest()
