"""What programs around llama.cpp say when it fails: Ollama, LocalAI, llama-swap, Docker, and others.

Asked after the engine's own words: these repeat them, or say only that it ended. Sources: the
messages of Ollama, llama-swap, LocalAI, RamaLama, Lemonade, Docker Model Runner, llama-cpp-python,
node-llama-cpp and LLamaSharp as of August 2026, and public issues.
"""

# ruff: noqa: E501 (one row is one line; two string pieces in one row are one pattern)

from __future__ import annotations

from kvwise.engine.wordings import Wording

_PROCESS = r"(?:backend|runner|upstream|server|engine|worker|sub-?process|child|llama\S{0,30}|process|command|sidecar|service|container|daemon)"
_GGUF = r"(?:GGUF|gguf|[Tt]ensor)"

ROWS: tuple[Wording, ...] = (
    # -- ended, or ended by somebody -----------------------------------------------------------------
    ("killed", "SIGKILL", r"(?:[Kk]illed|terminated|exited|ended|died|stopped|got|received)\b.{0,60}\bSIGKILL\b"),
    ("killed", "signal", r"(?:[Kk]illed|terminated|exited|ended|died|stopped|got|received)\b.{0,60}\bsignal:? (?:9\b|killed)"),
    ("killed", "9/KILL", r"\bstatus=9/KILL\b"),
    ("crashed", "/SEGV", r"\bstatus=(?P<what>11/SEGV)\b"),
    ("crashed", "/ABRT", r"\bstatus=(?P<what>6/ABRT)\b"),
    ("crashed", "/BUS", r"\bstatus=(?P<what>7/BUS)\b"),
    ("crashed", "/TRAP", r"\bstatus=(?P<what>5/TRAP)\b"),
    ("cpu_instructions", "4/ILL", r"\bstatus=4/ILL\b"),
    ("weights_alloc", "out-of-memory during startup", r"reported out-of-memory during startup(?:: (?P<reason>.{1,300}))?"),
    ("weights_alloc", "nough GPU memory to load", r"[Nn]ot enough GPU memory to load the model"),
    ("weights_alloc", "load full model on GPU", r"unable to load full model on GPU"),
    ("gpu_oom", "OOM detected", r"(?:runtime|GPU|CUDA|VRAM) OOM detected"),
    ("crashed", "prematurely", rf"{_PROCESS}\b.{{0,40}}\bprematurely\b"),
    ("crashed", "died", rf"{_PROCESS}\b.{{0,80}}\bdied\b(?! down)"),
    ("crashed", "before becoming ready", r"exited before becoming ready"),
    ("crashed", "quit unexpectedly", rf"{_PROCESS}\b.{{0,40}}\bquit unexpectedly"),
    ("crashed", "ncountered while running the model", r"an error was encountered while running the model"),
    ("crashed", "ggml_abort", r"\bggml_abort\b"),
    ("crashed", "bort was called at", r"\bAbort was called at\b"),
    ("exited", "xited with", rf"{_PROCESS}\b.{{0,80}}\bexited with (?:an? )?(?:exit |error |status )?(?:code|status):? ?1\b(?!\.\d)"),
    ("exited", "exited with status", r"instance name=\S{1,200} exited with status (?!0\b)-?\d"),
    ("exited", "=exited", r"\bcode=exited, status=1/FAILURE"),
    ("crashed", "xited with", rf"{_PROCESS}\b.{{0,80}}\bexited with (?:an? )?(?:exit |error |status )?(?:code|status):? ?-?(?!0\b|1[34]\d\b)\d"),
    ("load_timeout", "timed out after", r"(?:[Hh]ealth.?check|container|server|runner|model|backend)\b.{0,80}\btimed out after\b"),
    ("load_timeout", "to start within", r"failed to start within (?:the )?(?:timeout|\d+)"),
    ("load_timeout", "deadline exceeded", r"(?:model|runner|server|load\w*|ready|backend)\b.{0,120}\bcontext deadline exceeded"),
    ("load_timeout", "finished loading", r"client connection closed before \S{1,30} finished loading"),
    ("load_timeout", "within timeout", r"(?:ready|healthy|started?|respond\w*) within timeout"),
    # -- what is missing -----------------------------------------------------------------------------
    ("library_missing", "fork/exec", r"fork/exec (?P<library>\S{1,200}?): (?:no such file|permission denied|exec format)"),
    ("library_missing", "executable file not found", r"(?P<library>[^\s:]{1,200}?)\"?: executable file not found"),
    ("library_missing", "step EXEC", r"Failed at step EXEC spawning (?P<library>\S{1,200}?): "),
    ("library_missing", "NoBinaryFound", r"NoBinaryFound\w*"),
    ("library_missing", "backend not", r"\bbackend (?:is )?not (?:installed|found)(?:: (?P<library>\S{1,200}))?"),
    ("library_missing", "no grpc backend found", r"no grpc backend found for (?P<library>\S{1,200})"),
    ("library_missing", "engine variant", r"(?P<library>[Dd]efault engine variant \S{0,60}.{0,20}is not set)"),
    ("library_missing", "nstallation failed", r"(?P<library>[Bb]ackend) installation failed"),
    ("library_missing", "rebuilt binaries found", r"No prebuilt binaries found"),
    ("no_gpu", "devices detected", r"\bno (?:nvidia|NVIDIA|amd|AMD|intel|Intel|CUDA|ROCm|Vulkan) (?:devices|GPUs|gpus) detected"),
    ("no_gpu", "Count failed: ", r"\b(?:cu|hip)DeviceGetCount failed: |\b(?:cuda|hip)GetDeviceCount failed: "),
    ("no_gpu", "vkEnumeratePhysicalDevices", r"vkEnumeratePhysicalDevices\b.{0,20}(?:failed|unavailable)"),
    ("no_gpu", "vulkan-1.dll", r"no host vulkan-1\.dll"),
    ("no_kernel", "rocBLAS error: ", r"rocBLAS error: .{0,80}Tensile"),
    # -- files -------------------------------------------------------------------------------------------
    ("file_open", "no such file", r"\b(?:stat|open|lstat|read) (?P<path>\S{0,300}(?:\.gguf|/models/|/blobs/|\\models\\|\\blobs\\)\S{0,200}?): no such file"),
    ("file_open", "ENOENT", r"ENOENT: .{0,60}(?P<path>[^'\"]{1,300}\.gguf)"),
    ("file_open", "rrno 2]", r"\[Errno 2\] .{0,60}(?P<path>[^'\"]{1,300}\.gguf)"),
    ("file_open", "o model f", r"\b[Nn]o model (?:file )?found (?:at|in)? ?\"?(?P<path>[^\s\"]{1,300})"),
    ("file_open", "model", r"\bmodels? [`'\"\\]{0,3}(?P<path>[\w./:@+-]{1,200})[`'\"\\]{0,3} (?:was )?not found\b"),
    ("file_open", "such model", r"\b[Nn]o such model\b:? ?(?P<path>[\w./:@+-]{0,200})"),
    ("file_open", "not readable", r"[Mm]odel file '(?P<path>[^']{1,300})' is not readable"),
    ("not_gguf", "ot in GGUF format", r"\bnot in GGUF format"),
    ("not_gguf", "invalid format for", r"due to invalid format for \S{1,200}"),
    ("data_cut", "exceeds maximum", rf"\b{_GGUF}\b.{{0,80}} exceeds maximum \d"),
    ("data_cut", "exceeds file size", rf"\b{_GGUF}\b.{{0,200}} exceeds file size"),
    ("data_cut", "overflow", rf"\b{_GGUF}\b.{{0,80}} overflows?\b"),
    ("data_cut", "gguf", r"unexpected gguf (?:integer|string|array) type|unsupported gguf (?:value|array|item) type"),
    ("file_version", "GGUF version", r"GGUF version (?P<version>\d+) is (?:not supported|no longer supported|unsupported)"),
    ("split_illegal", "split GGUF", r"\b(?:duplicate shard|empty split GGUF|split GGUF .{0,60}(?:requires all|pattern))"),
    # -- requests ----------------------------------------------------------------------------------------
    ("no_cells", "NoKv", r"\bNoKv\w*Slot\b"),
    ("input_above_ubatch", "exceed batch size of", r"tokens \((?P<tokens>\d{1,12})\) exceed batch size of (?P<ubatch>\d{1,9})"),
    ("input_above_ubatch", "batch size must be equal to ubatch", r"non-causal models, batch size must be equal to ubatch size"),
    ("context_exceeded", "context buffer sizes", r"Check your context buffer sizes"),
    ("request_bad", "maximum pending requests", r"(?P<reason>maximum pending requests exceeded)"),
    # -- that it was not loaded, and no more ----------------------------------------------------------------
    ("model_load", "nable to load model", r"unable to load model: "),
    ("model_load", "model failed to load", r"\bmodel failed to load\b"),
    ("model_load", "llama-server failed to start", r"llama-server failed to start"),
    ("model_load", "nable to load runner", r"unable to (?:load|start) runner"),
    ("model_load", "backend runner", r"Unable to start backend runner|Backend runner initialization failed"),
    ("model_load", "llama_model_load_from_file", r"Unknown error when calling \"llama_model_load_from_file\""),
)  # fmt: skip
