"""Files that cannot be read, or not by this build."""

from __future__ import annotations

import re

from kvwise.diagnose.case import Case, Seen
from kvwise.diagnose.finding import FAIR, POSSIBLE, SURE, Hit, Rule
from kvwise.diagnose.rules.asking import remedy, seen, speaks
from kvwise.diagnose.rules.remedies import (
    NEWER_FILE,
    PARTS_TOGETHER,
    SAY_MORE,
)
from kvwise.text import template

_PIECE = re.compile(r"\.gguf[.-](?:part-?\w{1,6}|split-[a-z]{1,2})$", re.ASCII)


def _missing(case: Case) -> Hit | None:
    lines = case.all("file_open")
    if not lines or case.has("split_missing", "split_illegal"):
        return None
    return Hit(0.9, tuple(lines[:2]), dict(lines[0].fields))


def _far_off(each: Seen) -> bool:
    """So many tensors more than the engine has use for: another program's file, or lost parts."""
    want, got = int(each.fields["want"]), int(each.fields["got"])
    return max(want, got) > 1.5 * min(want, got)


def _refused(case: Case) -> Hit | None:
    """The engine says why, in words that no other rule knows."""
    lines = [each for each in case.all("model_load") if _gives_reason(each)]
    ended = case.has("context_made", "server_exit")
    lines += [
        each
        for each in case.all("context_init")  # fitting says so too, of drafts, and goes on
        if _gives_reason(each)
        and not (each.fitting or case.complete)
        and (ended or "normal during memory fitting" not in each.text)
    ]
    if not lines:
        return None
    return Hit(POSSIBLE, tuple(lines[:4]), {"reason": lines[0].fields["reason"]})


_NO_REASON = re.compile(
    r"(?:Failed to load model from file\b.*|"
    r"(?:\S.{0,300}[/\\])?\S{1,200}\.(?:gguf|bin|ggml)\S{0,3}|"
    r"\S{0,3}[Ff]ailed to load (?:the )?model\b.{0,200}|[Ll]oad failed\W*|[Uu]nknown error\W*|"
    r"rpc error: code = \w+ desc =\s*(?:failed loading model)?\W*)\Z"
)
"""What stands where a reason should: the file's name, or once more that it failed."""


def _gives_reason(each: Seen) -> bool:
    reason = each.fields.get("reason", "").strip()
    return bool(reason) and not _NO_REASON.match(reason)


_LEAST = 0.25
"""Below all rules that give a reason."""


def _unsaid(case: Case) -> Hit | None:
    lines = [each for each in case.all("model_load", "server_exit") if speaks(case, each)]
    return Hit(_LEAST, tuple(lines[:3])) if lines else None


def _merged(case: Case) -> Hit | None:
    lines = case.all("split_count")
    if lines:
        return Hit(SURE, tuple(lines[:2]), dict(lines[0].fields))
    lines = [each for each in case.all("tensor_count") if _far_off(each)]
    return Hit(FAIR, tuple(lines[:2]), dict(lines[0].fields)) if lines else None


def _cut(case: Case) -> Hit | None:
    """The header ends early; not where a build stops at a type that it does not know."""
    if case.has("tensor_type_unknown"):
        return None
    return seen("data_cut", "header_cut", confidence=SURE)(case)


def _unjoined(case: Case) -> Hit | None:
    """A piece of a file was opened as if it were the whole."""
    pieces = case.all("joined_part")
    lines = case.all("data_cut", "header_cut", "not_gguf")
    opened = [load.path for load in case.loaded.models if _PIECE.search(load.path)]
    names = [each.fields["path"] for each in pieces] + opened
    if not names or not lines:
        return None
    return Hit(0.97, (*pieces[:1], *lines[:2]), {"path": names[0]})


_AGAIN = remedy("compare size and sha256 with the source, download again")
_NEWER = remedy("take a newer build, or choose the newest runtime in the application")

RULES: tuple[Rule, ...] = (
    Rule(
        "cut",
        "file-corrupt",
        _cut,
        template(
            "the file is shorter than its own table says, or damaged: the download or the copy "
            "was cut"
        ),
        (_AGAIN,),
    ),
    Rule(
        "magic",
        "file-corrupt",
        seen("not_gguf", confidence=0.9),
        template(
            "the file does not begin as a GGUF file does: it is another format, a web page or a "
            "pointer instead of the file"
        ),
        (_AGAIN,),
    ),
    Rule(
        "unread",
        "file-corrupt",
        seen("header_unread", confidence=FAIR),
        template(
            "the file's header could not be read: the file is damaged, cut off, or another format"
        ),
        (_AGAIN, _NEWER),
    ),
    Rule(
        "endian",
        "file-corrupt",
        seen("file_endian", confidence=0.9),
        template(
            "the header makes no sense in this byte order: the file was made for another kind "
            "of processor, or is damaged"
        ),
        (_AGAIN,),
    ),
    Rule(
        "missing",
        "file-missing",
        _missing,
        template("there is no file {path}, or it may not be read"),
        (
            remedy("check path and rights", "-m FILE"),
            remedy("in a container: is the folder mounted?"),
        ),
    ),
    Rule(
        "part",
        "split-missing",
        seen("split_missing", confidence=0.97),
        template("a part of a split model is missing"),
        (PARTS_TOGETHER,),
    ),
    Rule(
        "first-part",
        "split-missing",
        seen("split_illegal", confidence=0.97),
        template(
            "the model was opened by a part that is not the first, or the parts do not belong "
            "together"
        ),
        (
            remedy("give the file that ends in 00001-of-0000N", "-m MODEL-00001-of-0000N.gguf"),
            PARTS_TOGETHER,
        ),
    ),
    Rule(
        "merged",
        "split-missing",
        _merged,
        template(
            "the file says {want} tensors and holds {got}: parts are missing or were joined in "
            "the wrong way"
        ),
        (remedy("join parts with llama-gguf-split --merge, or give the first of them"),),
    ),
    Rule(
        "unjoined",
        "split-missing",
        _unjoined,
        template("{path} is one piece of a file that was cut up; the pieces were not put together"),
        (
            remedy("put the pieces together in their order", "cat MODEL.gguf.part* > MODEL.gguf"),
            remedy("or take a model split into 00001-of-0000N.gguf files"),
        ),
    ),
    Rule(
        "architecture",
        "arch-unknown",
        seen("architecture_unknown", confidence=SURE),
        template("this build does not know the model's architecture: it is older than the model"),
        (_NEWER,),
    ),
    Rule(
        "tokenizer",
        "arch-unknown",
        seen("tokenizer_unknown", confidence=0.9),
        template(
            "this build does not know the model's tokenizer: it is older than the model, or the "
            "file was converted wrongly"
        ),
        (_NEWER, remedy("take another conversion")),
    ),
    Rule(
        "tensor-type",
        "arch-unknown",
        seen("tensor_type_unknown", confidence=0.9),
        template(
            "a tensor has a type that this build does not know: the file is newer than the build"
        ),
        (_NEWER,),
    ),
    Rule(
        "file-version",
        "arch-unknown",
        seen("file_version", confidence=0.9),
        template("the version of the file's format and this build do not go together"),
        (_NEWER, NEWER_FILE),
    ),
    Rule(
        "tensor",
        "missing-tensor",
        seen("tensor_missing", confidence=SURE),
        template(
            "the file lacks a tensor that this build expects: file and build are of different ages"
        ),
        (_NEWER, NEWER_FILE, _AGAIN),
    ),
    Rule(
        "tensor-count",
        "missing-tensor",
        seen("tensor_count", confidence=0.9),
        template(
            "the build expects {want} tensors and used {got}: file and build are of different ages"
        ),
        (_NEWER, NEWER_FILE),
    ),
    Rule(
        "tensor-shape",
        "missing-tensor",
        seen("tensor_shape", confidence=0.9),
        template(
            "a tensor has another shape than this build expects: file and build are of different "
            "ages"
        ),
        (_NEWER, NEWER_FILE),
    ),
    Rule(
        "key",
        "missing-tensor",
        seen("key_missing", confidence=0.8),
        template("the file lacks a setting that this build needs: {key}"),
        (NEWER_FILE, _NEWER),
    ),
    Rule(
        "clip",
        "option-refused",
        seen("clip_as_model", confidence=SURE),
        template("this file is a vision projector, not a model"),
        (remedy("give it beside its model", "--mmproj FILE"),),
    ),
    Rule(
        "mapping",
        "file-corrupt",
        seen("mmap", confidence=0.7),
        template("the file could not be mapped: {reason}"),
        (remedy("read it instead of mapping it", "--no-mmap"), _AGAIN),
    ),
    Rule(
        "degraded",
        "tokenizer-degraded",
        seen("tokenizer_degraded", confidence=FAIR),
        template("the file does not say how its text is cut into words: answers will be worse"),
        (NEWER_FILE,),
    ),
    Rule(
        "load",
        "model-refused",
        _refused,
        template("the engine refused the model: {reason}"),
        (_NEWER, _AGAIN),
    ),
    Rule(
        "unsaid",
        "model-refused",
        _unsaid,
        template(
            "the model was not loaded, and no line says why: the reason is in lines before these, "
            "or in the log of the engine itself"
        ),
        (
            SAY_MORE,
            remedy("start llama-server by hand with the same model, and read its first error"),
            _NEWER,
            _AGAIN,
            remedy(
                "see whether it is memory: a short context, no layer on the GPU",
                "-c 2048",
                "-ngl 0",
            ),
        ),
        tells_why=False,
    ),
)
