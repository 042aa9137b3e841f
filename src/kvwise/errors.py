"""Everything that kvwise raises on purpose.

    KvwiseError                     exit 1, unless a branch says otherwise
     |- UsageError                  exit 2: the request itself is wrong
     |   `- Ambiguous                it can mean several things (has them as candidates)
     |- SourceError                 the bytes cannot be had (no file, no network, a folder...)
     |- HeaderError                 the bytes can be had and are not a sound GGUF header
     |   `- (one class per lie, in gguf/lies.py)
     |- ModelError                  the header is sound and does not describe a usable model
     |- EngineError                 the engine failed, with what it said
     |- Refused                     exit 3: llama.cpp would refuse this setting (has a code)
     |- DoesNotFit                  exit 3: the work was done and the answer is no
     `- Interrupted                 exit 130

Each carries a sentence as a template with fields (see `text.py`), and may carry a hint.
"""

from __future__ import annotations

from kvwise.text import Phrase


class KvwiseError(Exception):
    """A failure that has a sentence for the user: what, where, and (hint) what to do."""

    exit_code = 1

    def __init__(
        self, template: str, /, *, hint: str | Phrase | None = None, **fields: object
    ) -> None:
        self.phrase = Phrase(template, fields)
        self.hint = Phrase(hint, fields) if isinstance(hint, str) else hint
        super().__init__(template)

    def __str__(self) -> str:
        return str(self.phrase)

    @property
    def kind(self) -> str:
        """Stable name of the error for JSON: the class name."""
        return type(self).__name__


class UsageError(KvwiseError):
    """The request itself is wrong."""

    exit_code = 2


class Ambiguous(UsageError):
    """`asked` can mean each of `candidates`, which are written as they can be given instead."""

    def __init__(
        self, template: str, /, *, asked: str, candidates: tuple[str, ...], **fields: object
    ) -> None:
        names = ", ".join(f'"{name}"' for name in candidates[:12])
        names += " ..." if len(candidates) > 12 else ""
        super().__init__(
            template, hint="say which: {names}", asked=asked, names=names, count=len(candidates),
            **fields,
        )  # fmt: skip
        self.asked, self.candidates = asked, candidates


class SourceError(KvwiseError):
    """The bytes of a model cannot be had."""


class HeaderError(KvwiseError):
    """The bytes are not a sound GGUF header."""


class ModelError(KvwiseError):
    """A sound header that does not describe a model we can account for."""


class EngineError(KvwiseError):
    """The engine failed; the sentence says what it said."""


class Refused(KvwiseError):
    """llama.cpp would refuse this setting. `code` is one of zoo/README.md's codes."""

    exit_code = 3

    def __init__(
        self,
        code: str,
        template: str,
        /,
        *,
        hint: str | Phrase | None = None,
        **fields: object,
    ) -> None:
        super().__init__(template, hint=hint, **fields)
        self.code = code


class DoesNotFit(KvwiseError):
    """The work was done and the answer is no."""

    exit_code = 3


class Interrupted(KvwiseError):
    """The user stopped it."""

    exit_code = 130
