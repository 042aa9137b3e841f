"""A running generator whose prompts are counted exactly before they are sent.

A prompt is the model's chat template around an instruction and a text of strangers. The template is
asked from the server once, with a mark where the text goes; its parts are tokenised with special
tokens, the text without, so that nothing in a document can end the user's turn. What is sent are
these tokens, and what is counted is what is sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kvwise.device import Device, Host
from kvwise.digest.reading import readable
from kvwise.engine.find import Engine
from kvwise.engine.process import Limits
from kvwise.engine.server import SILENCE_S, Server
from kvwise.engine.settings import Run
from kvwise.errors import EngineError, UsageError
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.plan.choose import plan
from kvwise.plan.goal import Goal

_MARK = "\u2402TEXT\u2403"
_TEMPLATE = "tokenizer.chat_template"
_GOES_ON = "\nAnswer:"
"""Where a model without a template of its own goes on: it was trained to go on with a text, and the
server's general template holds tokens that it has never seen, so that it repeats them."""
DEFAULT_CONTEXT = 4096


@dataclass(frozen=True, slots=True)
class Answer:
    """What was generated. `cut` = it stopped at the token limit, not at its own end."""

    text: str
    prompt_tokens: int
    tokens: int
    cut: bool


def launch_of(model: Model, context: int | None, devices: Sequence[Device], host: Host) -> Launch:
    """Settings from the planner for a context of so many tokens. Raises DoesNotFit, UsageError for
    a model that does not generate."""
    if not model.has_decoder or model.family == "none":
        raise UsageError(
            "{name} makes vectors only, it cannot write", name=model.called,
            hint="--model names a generator",
        )  # fmt: skip
    trained = model.n_ctx_train or DEFAULT_CONTEXT
    wanted = context or min(DEFAULT_CONTEXT, trained)
    base = Launch(model=model.path, n_ctx=wanted, n_seq_max=1, n_outputs_max=1)
    made = plan(model, list(devices), Goal("document", prompt_tokens=max(1, wanted // 2)),
                launch=base, fixed={"n_ctx", "n_seq_max"}, host=host)  # fmt: skip
    return made.choice.ledger.launch


class Generator:
    """Use as a context manager. Raises EngineError when it does not come up."""

    def __init__(
        self, model: Model, launch: Launch, engine: Engine, log: Path, threads: int = 0
    ) -> None:
        self.model, self.launch = model, launch
        self._server = Server.start(
            model.path, launch, engine=engine, run=Run(threads=threads), log=log,
            limits=Limits(silence_s=SILENCE_S),
        )  # fmt: skip
        try:
            slot = self._server.props().get("default_generation_settings", {}).get("n_ctx")
            self.context = int(slot or launch.n_ctx)
            self.chats = isinstance(model.header.get(_TEMPLATE), str)
            self._before, self._behind = self._template() if self.chats else ("", _GOES_ON)
        except BaseException:
            self.close()
            raise

    def _template(self) -> tuple[str, str]:
        message = [{"role": "user", "content": _MARK}]
        body = {"messages": message, "chat_template_kwargs": {"enable_thinking": False}}
        prompt = str(self._server.post("/apply-template", body).get("prompt", ""))
        before, mark, behind = prompt.partition(_MARK)
        if not mark:
            raise EngineError("the model's chat template leaves the message out")
        return before, behind

    def tokens(self, text: str) -> int:
        """Of a text of strangers by itself."""
        return len(self._ids(text, add=False, special=False))

    def prompt(self, instruction: str, text: str, after: str = "") -> list[int]:
        """The tokens of the whole prompt: an instruction, a text, what comes `after` it."""
        return [
            *self._ids(f"{self._before}{instruction}\n\n", add=True, special=True),
            *self._ids(text.rstrip() if after else text, add=False, special=False),
            *self._ids(f"{after}{self._behind}", add=False, special=True),
        ]

    def room(self, instruction: str, answer_tokens: int, after: str = "") -> int:
        """Tokens that a text may have. Raises UsageError when there is none."""
        left = self.context - len(self.prompt(instruction, "", after)) - answer_tokens
        if left < 1:
            raise UsageError(
                "a context of {context} tokens has no room for a text beside an answer of {answer}",
                context=self.context, answer=answer_tokens,
                hint="give --budget more tokens, or --answer-tokens fewer",
            )  # fmt: skip
        return left

    def write(self, prompt: Sequence[int], most: int, **more: Any) -> Answer:
        """Generate at temperature 0. Raises UsageError for a prompt that does not fit."""
        if len(prompt) + most > self.context:
            raise UsageError(
                "{prompt} and {answer} tokens are more than the context of {context}",
                prompt=len(prompt), answer=most, context=self.context,
                hint="give --budget more tokens, or make chunks smaller with --chunk-tokens",
            )  # fmt: skip
        ends = {} if self.chats else {"stop": ["\n\n", "\nQuestion:"]}
        done = self._server.complete(list(prompt), most, **ends, **more)
        cut = done.truncated or done.raw.get("stop_type") == "limit"
        return Answer(_thought_away(done.text), done.prompt_tokens, done.tokens, cut)

    def _ids(self, text: str, *, add: bool, special: bool) -> list[int]:
        if not text and not add:
            return []
        return self._server.tokenize(readable(text), add_special=add, parse_special=special)

    def close(self) -> None:
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _thought_away(text: str) -> str:
    """The answer without what a reasoning model thought before it."""
    _, mark, answer = text.partition("</think>")
    return (answer if mark else text).strip()


def unit_key(kind: str, maker: Sequence[Any], prompt: Sequence[int], most: int) -> str:
    """The key of one generated text: the same model, prompt and limit give the same one."""
    words = [kind, *map(str, maker), str(most), ",".join(map(str, prompt))]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]
