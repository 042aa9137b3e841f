"""What a plan must reach: the request of a person, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from kvwise.errors import UsageError
from kvwise.plan.quality import QUALITIES

_SHORTEST_ANSWER = 256  # tokens kept for an answer when -n does not say
_USUAL_ANSWER = 1024
_NEARLY = 0.9
_USUAL_TURN = 512  # tokens of a question and its answer
_USUAL_TURNS = 16

MOST_TOKENS = 1 << 30
"""More than any model was trained for; a purpose whose enough is beyond it wants all there is."""


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a use needs, per slot, in tokens.

    `least` must be reached (when no prompt says more), `enough` is worth giving up GPU speed or
    nothing for; `floor` is the quality it asks for; `order` names what is compared first.
    """

    least: int
    enough: int
    floor: str
    order: tuple[str, ...]
    grow: bool = True  # what is left of the memory goes into a longer context


_BALANCED = (
    "resident", "on_gpu", "enough", "quick", "aside", "quality", "fast", "ubatch", "pipelined",
    "context", "swift", "frugal",
)  # fmt: skip

PURPOSES: dict[str, Purpose] = {
    "chat": Purpose(4096, 16384, "high", _BALANCED),
    "document": Purpose(8192, 32768, "high", _BALANCED),
    "code": Purpose(8192, 65536, "high", _BALANCED),
    "multi-turn": Purpose(8192, 32768, "high", _BALANCED),
    "max-context": Purpose(
        512, 2 * MOST_TOKENS, "medium", ("context", "fast", "aside", "quality", "ubatch", "frugal")
    ),
    "max-speed": Purpose(
        2048,
        4096,
        "high",
        ("resident", "fast", "aside", "plain", "swift", "ubatch", "quality", "context"),
    ),
    "min-memory": Purpose(
        4096, 4096, "medium", ("resident", "on_gpu", "frugal", "quality"), grow=False
    ),
}


@dataclass(frozen=True, slots=True)
class Goal:
    """What the launch is for. Counts are tokens per slot; None = not said.

    A conversation of `turns` questions and answers, `tokens_per_turn` both together, stays in the
    context as a whole, behind the prompt if there is one. `min_quality` None takes the purpose's
    own floor. Raises UsageError for an unknown name or a count that cannot be meant.
    """

    purpose: str = "chat"
    prompt_tokens: int | None = None
    predict_tokens: int | None = None
    slots: int | None = None
    min_quality: str | None = None
    never_offload: bool = False
    turns: int | None = None
    tokens_per_turn: int | None = None

    def __post_init__(self) -> None:
        _one_of("goal", self.purpose, PURPOSES)
        if self.min_quality is not None:
            _one_of("min-quality", self.min_quality, QUALITIES)
        _at_least("--prompt-tokens", self.prompt_tokens, 0)
        _at_least("-n", self.predict_tokens, 1)
        _at_least("--slots", self.slots, 1)
        _at_least("--turns", self.turns, 1)
        _at_least("--tokens-per-turn", self.tokens_per_turn, 1)

    @property
    def terms(self) -> Purpose:
        return PURPOSES[self.purpose]

    @property
    def floor(self) -> str:
        return self.min_quality or self.terms.floor

    @property
    def turn_tokens(self) -> int | None:
        """Tokens of one question and its answer; None without a conversation."""
        if self.turns is None and self.tokens_per_turn is None:
            return None
        return self.tokens_per_turn or _USUAL_TURN

    @property
    def conversation(self) -> int | None:
        """Tokens of prompt and all turns together; None without a conversation."""
        if self.turn_tokens is None:
            return None
        said = (self.turns or _USUAL_TURNS) * self.turn_tokens
        return (self.prompt_tokens or 0) + max(said, self.predict_tokens or 0)

    def least(self, trained: int) -> int:
        """Tokens that a slot must hold, or the request is not met.

        What the purpose alone would like never exceeds what the model was `trained` for.
        """
        if self.conversation is not None:
            return self.conversation
        if self.prompt_tokens is None:
            return max(min(self.terms.least, trained), self.predict_tokens or 0)
        return self.prompt_tokens + (self.predict_tokens or _SHORTEST_ANSWER)

    @property
    def enough(self) -> int:
        """Tokens per slot from which on more context is no reason to give up anything else."""
        if self.conversation is not None:
            return self.conversation
        if self.prompt_tokens is None:
            return max(self.terms.enough, self.terms.least, self.predict_tokens or 0)
        asked = self.prompt_tokens + (self.predict_tokens or _USUAL_ANSWER)
        return max(asked, self.terms.enough if self.terms.grow else asked)

    @property
    def nearly(self) -> int:
        """Tokens per slot so close to enough that they count as enough."""
        return round(self.enough * _NEARLY)


def _one_of(name: str, value: str, legal: object) -> None:
    known = list(legal)  # type: ignore[call-overload]
    if value not in known:
        raise UsageError(
            "--{name} does not know {value!r}",
            name=name,
            value=value,
            values=", ".join(known),
            hint="one of: {values}",
        )


def _at_least(flag: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise UsageError(
            "{flag} {value} is too small; it starts at {least}",
            flag=flag,
            value=value,
            least=least,
        )
