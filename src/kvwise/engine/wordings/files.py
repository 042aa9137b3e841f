"""Model files that cannot be read, or not by this engine."""

# ruff: noqa: E501, ISC004 (one row is one line; two string pieces in one row are one pattern)

from __future__ import annotations

from kvwise.engine.wordings import Wording

ROWS: tuple[Wording, ...] = (
    ("split_missing", "failed to load GGUF split", r"failed to load GGUF split from (?P<path>.+)$"),
    ("split_missing", "-of-", r"failed to open (?:GGUF file )?'?(?P<path>[^']{0,300}-\d{5}-of-\d{5}\.gguf)"),
    ("split_illegal", "illegal split file idx", r"illegal split file idx: (?P<index>\d+)"),
    ("split_illegal", "invalid split", r"invalid split (?P<what>count|file name|file idx|file)"),
    ("split_illegal", "must be loaded with the first split", r"must be loaded with the first split"),
    ("file_open", "failed to open GGUF file", r"failed to open GGUF file '(?P<path>[^']*)'"),
    ("file_open", "No such file or directory",
     r"(?:failed to open|cannot open|could not open|unable to open|opening) (?:model )?(?:file )?"
     r"'?(?P<path>[^':]{1,300}\.(?:gguf|bin|ggml))"),
    ("file_open", "odel path does not exist", r"[Mm]odel path does not exist: (?P<path>.{1,300})"),
    ("file_open", "model file not found", r"model file not found"),
    ("not_gguf", "invalid magic characters", r"invalid magic characters:? (?P<magic>.{1,40})"),
    ("not_gguf", "(magic, version) combination", r"unknown \(magic, version\) combination: (?P<magic>.{1,40})"),
    ("not_gguf", "invalid magic number", r"invalid magic number:? (?P<magic>\w{1,20})"),
    ("not_gguf", "GGUF", r"GGUF magic invalid|[Ii]nvalid GGUF magic|[Nn]ot a (?:valid )?GGUF"),
    ("not_gguf", "bad magic", r"(?:bad|invalid|wrong) magic\b"),
    ("not_gguf", "invalid file magic", r"invalid file magic"),
    ("header_cut", "gguf_init_from",
     r"gguf_init_from\w*: failed to read (?P<what>magic|header|key-value pairs|tensor info|tensor data)"),
    ("data_cut", "not within the file bounds",
     r"tensor '(?P<tensor>[^']{1,200})' data is not within the file bounds"),
    ("data_cut", "within the file bounds", r"data is not within the file bounds"),
    ("data_cut", "unexpectedly reached end of file", r"unexpectedly reached end of file"),
    ("data_cut", "failed to read tensor data", r"failed to read tensor data"),
    ("data_cut", "has invalid data", r"tensor '(?P<tensor>[^']{1,200})' has invalid data"),
    ("data_cut", "digest mismatch", r"digest mismatch"),
    ("data_cut", "read error: ", r"(?:model|load|read)\w*.{0,80}\bread error: (?P<reason>.{1,120})"),
    ("data_cut", "has offset ", r"tensor '(?P<tensor>[^']{1,200})' has offset \d+, expected \d+"),
    ("data_cut", "model is corrupted", r"model is corrupted"),
    ("file_version", "GGUFv1 is no longer supported", r"GGUFv1 is no longer supported"),
    ("file_version", "only supports up to version", r"this GGUF file is version (?P<version>\d+)"),
    ("file_endian", "host and model endianness", r"mismatch between the host and model endianness"),
    ("architecture_unknown", "model architecture: '",
     r"(?:unknown|unsupported) model architecture: '(?P<arch>[^']{0,100})'"),
    ("architecture_unknown", "model architecture", r"(?:unknown|unsupported) model architecture"),
    ("architecture_unknown", "odel architecture ",
     r"[Mm]odel architecture '?(?P<arch>[\w.-]{1,60})'? (?:is )?not (?:yet )?supported"),
    ("architecture_unknown", "nknown projector type", r"[Uu]nknown projector type(?:: ?(?P<arch>\S{1,60})?)?"),
    ("architecture_unknown", "support projector", r"(?:don't|does not|doesn't|not) support projector"),
    ("architecture_unknown", "rchitecture", r"(?:not recognize this|[Uu]nsupported|[Uu]nrecognized|[Uu]nknown) (?:model )?architecture"),
    ("tokenizer_unknown", "unknown tokenizer", r"unknown tokenizer: '(?P<name>[^']{0,100})'"),
    ("tokenizer_unknown", "unknown pre-tokenizer", r"unknown pre-tokenizer type: '(?P<name>[^']{0,100})'"),
    ("tensor_type_unknown", "invalid ggml type",
     r"(?:tensor '(?P<tensor>[^']{1,200})' (?:of type|has) )?invalid ggml type (?P<type>-?\d{1,9})"),
    ("tensor_missing", "missing tensor", r"missing tensor '(?P<tensor>[^']{1,200})'"),
    ("tensor_missing", "unable to find tensor", r"unable to find tensor (?P<tensor>\S{1,200})"),
    ("tensor_missing", "tensor '", r"check_tensor_dims: tensor '(?P<tensor>[^']{1,200})' not found"),
    ("tensor_missing", "tensor '", r"tensor '(?P<tensor>[^']{1,200})' not found"),
    ("tensor_shape", "has wrong shape", r"tensor '(?P<tensor>[^']{1,200})' has wrong shape; expected (?P<want>[^;]{1,60}?), got (?P<got>.{1,60})"),
    ("tensor_count", "wrong number of tensors", r"wrong number of tensors;\s+expected (?P<want>\d+), "
     r"got (?P<got>\d+)"),
    ("key_missing", "key not found in model", r"key not found in model: (?P<key>\S{1,120})"),
    ("clip_as_model", "CLIP cannot be used as main model", r"CLIP cannot be used as main model"),
    ("mmap", "mmap failed", r"mmap failed: (?P<reason>(?!Cannot allocate memory).{1,200})"),
)  # fmt: skip
