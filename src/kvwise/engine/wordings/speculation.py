"""Speculative decoding that does not start."""

# ruff: noqa: E501 (one row is one line; two string pieces in one row are one pattern)

from __future__ import annotations

from kvwise.engine.wordings import Wording

ROWS: tuple[Wording, ...] = (
    ("draft_vocab", "to use speculation", r"draft (?:model )?(?:vocab|bos|eos|special|add_bos).*must.*match"),
    ("draft_vocab", "draft vocab", r"draft vocab.{0,80}(?:must|does not|doesn't).{0,40}match"),
    ("draft_vocab", "draft vocab size", r"target vocab size \d+ does not match draft vocab size \d+"),
    ("draft_vocab", "vocabs are not compatible", r"vocabs are not compatible"),
    ("draft_vocab", "draft model", r"[Dd]raft model.{0,60}(?:tokenizer|vocabulary|vocab).{0,60}(?:incompatible|mismatch|differ|not match)"),
    ("draft_vocab", "not compatible with the target model", r"[Dd]raft.{0,60}not compatible with the target model"),
    ("draft_load", "failed to load draft model", r"failed to load draft model, '(?P<path>[^']{0,300})'"),
    ("draft_kind", "draft model is not eagle3", r"draft model is not eagle3"),
    ("draft_kind", "requires a draft context", r"draft-simple requires a draft context"),
    ("draft_kind", "number of sequences is incompatible", r"draft model number of sequences is incompatible"),
    ("mtp_missing", "contain MTP layers", r"MTP requested but model doesn't contain MTP layers"),
    ("mtp_context", "failed to create MTP", r"failed to create MTP (?:draft )?context"),
    ("speculation_off", "common_speculative_", r"common_speculative_\w+: (?!failed to (?:create|load))(?P<reason>.{0,160}(?:\brequire[sd]?\b|\bfailed\b|\b[Ii]nvalid\b|contains no|\bis an MTP|only support|\bexactly\b|not a complete|\bmissing\b).{0,120})"),
    ("draft_context", "draft context", r"[Ff]ailed to create (?:the )?draft context"),
    ("spec_type", "unknown speculative type", r"unknown speculative type: (?P<type>\S{1,60})"),
    ("speculation_unsupported", "speculative decoding not supported by this context",
     r"speculative decoding not supported by this context"),
    ("speculation_off", "failed to initialize speculative decoding",
     r"failed to initialize speculative decoding context: (?P<reason>.{1,300})"),
)  # fmt: skip
