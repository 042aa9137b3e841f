"""Do two vocabularies agree as speculation with a draft model needs it? From the headers alone.

The engine decides after both models are loaded and says the same sentence for every reason; two of
its five checks are logged at debug level only. Here each check has its values, its verdict and its
source: common/speculative.cpp common_speculative_are_compatible, and src/llama-vocab.cpp
llama_vocab::impl::load for what a file leaves unsaid; both b10605.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from kvwise.gguf.header import ArrayInfo, Header
from kvwise.text import Phrase, phrase

TOKENS = "tokenizer.ggml.tokens"
"""The array to keep when a header is opened to be compared."""

MOST_DIFFERENCE = 128  # SPEC_VOCAB_MAX_SIZE_DIFFERENCE
FIRST_CHECKED = 5  # SPEC_VOCAB_CHECK_START_TOKEN_ID
CHECKS = "common/speculative.cpp common_speculative_are_compatible, b10605"

Subject = Literal["type", "bos", "eos", "size", "tokens"]


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a tokenizer begins with before the file's own keys are read; None = no such token."""

    name: str
    bos: int | None
    eos: int | None
    add_bos: bool = False
    add_eos: bool = False


_BPE = _Kind("BPE", 11, 11)
_KINDS = {
    "llama": _Kind("SPM", 1, 2, add_bos=True),
    "bert": _Kind("WPM", 101, None, add_bos=True),
    "gpt2": _BPE,
    "hybriddna": _BPE,
    "whitespace": _BPE,
    "gemma4": _Kind("BPE", None, None),
    "t5": _Kind("UGM", None, 1, add_eos=True),
    "rwkv": _Kind("RWKV", None, None),
    "plamo2": _Kind("PLAMO2", 1, 2),
    "none": _Kind("none", None, None),
    "no_vocab": _Kind("none", None, None),
}
_ADD_BOS = frozenset({
    "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
    "jina-v5-nano", "tekken", "chameleon",
})  # fmt: skip
"""Ways of cutting text before BPE that switch the first token on."""
_NO_BOS = frozenset({"glm4", "chatglm-bpe"})
_ALWAYS_BOS = frozenset({"gemma4", "granite-embed-multi-311m"})


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What counts for the comparison. `bos` and `eos` None = no such token; `texts` None = the
    header at hand has only their number, `known` False = it is none of a file and tells nothing."""

    type: str
    add_bos: bool
    bos: int | None
    add_eos: bool
    eos: int | None
    size: int
    texts: tuple[str, ...] | None
    known: bool = True

    @classmethod
    def of(cls, header: Header) -> Vocabulary:
        """The vocabulary as the engine would load it; `header` should keep the array TOKENS."""
        data = header.metadata
        model = str(data.get("tokenizer.ggml.model", "none"))
        pre = "gemma4" if model == "gemma4" else str(data.get("tokenizer.ggml.pre", ""))
        kind = _KINDS.get(model, _Kind(model, None, None))
        cut = pre if kind.name == "BPE" else ""
        listed = data.get(TOKENS)
        size = len(listed) if isinstance(listed, tuple | ArrayInfo) else _dummies(header)
        add_bos = _flag(data.get("tokenizer.ggml.add_bos_token"), kind.add_bos or cut in _ADD_BOS)
        bos = None if cut in _NO_BOS else kind.bos
        return cls(
            type=kind.name,
            add_bos=add_bos or cut in _ALWAYS_BOS,
            bos=_token(data.get("tokenizer.ggml.bos_token_id"), bos, size),
            add_eos=_flag(data.get("tokenizer.ggml.add_eos_token"), kind.add_eos),
            eos=_token(data.get("tokenizer.ggml.eos_token_id"), kind.eos, size),
            size=size,
            texts=tuple(str(each) for each in listed) if isinstance(listed, tuple) else None,
            known=kind.name != "none" or not header.path.endswith((".json", ".json.gz")),
        )

    def text(self, number: int) -> str:
        """A token's text as the engine compares it: an empty one gets a name, NUL ends it."""
        text = self.texts[number] if self.texts else ""
        return text.partition("\0")[0] if text else f"[EMPTY_{number}]"


def _dummies(header: Header) -> int:
    """A model without a tokenizer counts as many nameless tokens as it says."""
    said = header.metadata.get(f"{header.architecture}.vocab_size", 0)
    return said if isinstance(said, int) else 0


def _flag(said: Any, otherwise: bool) -> bool:
    return said if isinstance(said, bool) else otherwise


def _token(said: Any, otherwise: int | None, size: int) -> int | None:
    """An id of the file if it is one of the vocabulary's, else the kind's, if that is."""
    if isinstance(said, int) and not isinstance(said, bool) and 0 <= said < size:
        return said
    return otherwise if otherwise is not None and otherwise < size else None


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what each model has, and whether that agrees (None = not known from here).

    `difference` is for tokens: the first id whose texts differ, with both texts.
    """

    subject: Subject
    target: str
    draft: str
    agrees: bool | None
    sentence: Phrase
    difference: tuple[int, str, str] | None = None


@dataclass(frozen=True, slots=True)
class Compatibility:
    """All checks, in the engine's order; the engine stops at the first that fails."""

    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool | None:
        """True = speculation starts, False = it does not, None = a check could not be made."""
        verdicts = [check.agrees for check in self.checks]
        if False in verdicts:
            return False
        return None if None in verdicts else True

    @property
    def failed(self) -> Check | None:
        """The check at which the engine gives up."""
        return next((check for check in self.checks if check.agrees is False), None)


def compare(target: Vocabulary, draft: Vocabulary) -> Compatibility:
    """Every check, also those behind the first that fails."""
    checks = tuple(_checks(target, draft))
    if not (target.known and draft.known):
        checks = tuple(
            check if check.subject == "size" else replace(check, agrees=None) for check in checks
        )
    return Compatibility(checks)


def _checks(target: Vocabulary, draft: Vocabulary) -> Iterator[Check]:
    yield Check(
        "type", target.type, draft.type, target.type == draft.type,
        phrase("both vocabularies must be of the same type"),
    )  # fmt: skip
    edges: tuple[tuple[Literal["bos", "eos"], bool, int | None, bool, int | None], ...] = (
        ("bos", target.add_bos, target.bos, draft.add_bos, draft.bos),
        ("eos", target.add_eos, target.eos, draft.add_eos, draft.eos),
    )
    for subject, adds, token, draft_adds, draft_token in edges:
        agrees = adds == draft_adds and (not adds or token == draft_token)
        yield Check(
            subject, _edge(adds, token), _edge(draft_adds, draft_token), agrees,
            phrase("both must add the same {edge} token, or none", edge=subject.upper()),
        )  # fmt: skip
    difference = abs(target.size - draft.size)
    yield Check(
        "size", str(target.size), str(draft.size), difference <= MOST_DIFFERENCE,
        phrase("their sizes may differ by {most} tokens at most", most=MOST_DIFFERENCE),
    )  # fmt: skip
    yield _texts(target, draft)


def _edge(adds: bool, token: int | None) -> str:
    return f"{'+' if adds else '-'} {'none' if token is None else token}"


def _texts(target: Vocabulary, draft: Vocabulary) -> Check:
    sentence = phrase("from token {first} on every text must be the same", first=FIRST_CHECKED)
    shared = min(target.size, draft.size)
    if target.type == draft.type == "none":
        return Check("tokens", "", "", True, sentence)
    if target.texts is None or draft.texts is None:
        return Check("tokens", "?", "?", None, sentence)
    if target.texts[FIRST_CHECKED:shared] == draft.texts[FIRST_CHECKED:shared]:
        return Check("tokens", str(shared), str(shared), True, sentence)
    for number in range(FIRST_CHECKED, shared):
        one, other = target.text(number), draft.text(number)
        if one != other:
            return Check("tokens", one, other, False, sentence, (number, one, other))
    return Check("tokens", str(shared), str(shared), True, sentence)
