"""Documents of any size through a small card: chunks that are exact, vectors that are durable."""

from __future__ import annotations

from kvwise.digest.chunker import Chunk, Chunker, Rules
from kvwise.digest.fitting import Settings, settings
from kvwise.digest.pool import Pooled, pool
from kvwise.digest.run import Digest, Pace, Summary
from kvwise.digest.shelf import Document, Row, Shelf
from kvwise.digest.sources import Source, sources

__all__ = [
    "Chunk", "Chunker", "Digest", "Document", "Pace", "Pooled", "Row", "Rules", "Settings", "Shelf",
    "Source", "Summary", "pool", "settings", "sources",
]  # fmt: skip
