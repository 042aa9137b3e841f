"""Lines that repeat or sum up what another line says better: read last."""

# ruff: noqa: E501, ISC004 (one row is one line; two string pieces in one row are one pattern)

from __future__ import annotations

from kvwise.engine.wordings import Wording

ROWS: tuple[Wording, ...] = (
    ("fit", "cannot be used with --fit", r"(?P<reason>\S.{2,80} cannot be used with --fit)"),
    ("fit", "failed to fit params",
     r"failed to fit params(?: to (?:free )?(?:device )?memory)?: (?P<reason>.{1,300})"),
    ("fit", "encountered an error while trying to fit",
     r"(?P<error>encountered an error) while trying to fit params to free device memory: (?P<reason>.{1,300})"),
    ("input_above_ubatch", "n_ubatch >= n_tokens", r"requires n_ubatch >= n_tokens"),
    ("swa_reprocessed", "full prompt re-processing", r"full prompt re-processing"),
    ("swa_reprocessed", "truncate tokens", r"failed to truncate tokens (?:with position|beginning at)"),
    ("layer_elsewhere", "is assigned to device",
     r"layer (?P<layer>\d{1,6}) is assigned to device (?P<device>\S+) but (?P<what>.{1,120}?) "
     r"(?:tensor )?is assigned to device (?P<other>\S+)"),
    ("mlock", "failed to mlock", r"failed to mlock (?P<bytes>\d{1,20})-byte buffer"),
    ("mlock", "VirtualLock", r"failed to VirtualLock (?P<bytes>\d{1,20})-byte buffer"),
    ("mlock", "RLIMIT_MEMLOCK", r"RLIMIT_MEMLOCK"),
    ("swa_full", "using full-size SWA cache", r"using full-size SWA cache"),
    ("tokenizer_degraded", "GENERATION QUALITY WILL BE DEGRADED", r"QUALITY WILL BE DEGRADED"),
    ("context_init", "failed to initialize the context",
     r"ailed to initialize the context: (?P<reason>.{1,300})"),
    ("model_load", "error loading model", r"error loading model: (?P<reason>.{1,300})"),
    ("model_load", "failed to load model", r"failed to load model(?: '(?P<path>[^']{0,300})')?"),
    ("model_load", "ould not load model", r"could not load model: (?P<reason>.{1,300})"),
    ("model_load", "ailed to load model: ", r"Failed to load model: (?P<reason>.{1,300})"),
    ("model_load", "Could not load", r"Could not load (?:Llama |text )?model(?: from path)?:? ?(?P<reason>.{1,300})"),
    ("model_load", "ailed to load model from file", r"(?P<reason>Failed to load model from file.{0,200})"),
    ("context_made", "ailed to create", r"[Ff]ailed to create[ _](?:(?:the|a|llama) |llama_)?context(?: with model(?: '(?P<path>[^']{0,300})')?)?"),
    ("server_exit", "exiting due to", r"exiting due to (?P<reason>.{1,120})"),
)  # fmt: skip
