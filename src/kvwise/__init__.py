"""kvwise: what fits, how long a context, at what speed and quality, and why it crashed."""

from __future__ import annotations

__version__ = "0.1.0"
