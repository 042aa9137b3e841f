"""Words that speak of a cause whatever program writes them and however: the last to be asked.

`NEEDLES` are plain words of lines that are worth a look; `ROWS` are (code, pattern), the first that
matches is what the line hints at. Nobody has seen these lines: a hint is weaker than any wording
of the other tables.
"""

# ruff: noqa: E501 (one row is one line; two string pieces in one row are one pattern)

from __future__ import annotations

NEEDLES = (
    "nough ", "ot found", "xceed", "nvalid", "nknown", "nsupported", "ot supported", "issing",
    "orrupt", "imed out", "imeout", "nsufficient", "UT_OF", "ut of ", "o such ", "nable to",
    "in use", "too l", "xited", "xit_code", "ERROR", "o kernel", "nough space", "ASSERT", "erminated",
)  # fmt: skip
"""Words beside those of any error."""

_NOT = r"(?:cannot|can't|can ?not|could ?n[o']t|unable to|failed to|fails? to|failure to|error)"
_GPU = r"(?:GPU|CUDA|ROCm|HIP|Vulkan|SYCL|Level.?Zero|OpenCL|Metal|NVML|device|kernel)"

ROWS: tuple[tuple[str, str], ...] = (
    (
        "hint_lost",
        rf"{_GPU}\W{{0,3}}.{{0,40}}\b(?:lost|hung|hang|removed|wedged|watchdog)\b|(?:DEVICE|QUEUE|CONTEXT)_(?:LOST|HUNG|REMOVED)|watchdog.{{0,40}}{_GPU}",
    ),
    (
        "hint_split",
        r"(?:split|shard)s?\b.{0,60}(?:missing|not found|invalid|illegal|incomplete|expected)|(?:missing|not found|invalid|illegal|incomplete).{0,40}\b(?:split|shard)",
    ),
    (
        "hint_draft",
        r"draft.{0,80}(?:vocab|tokenizer|incompatib|mismatch|not compatible)|(?:vocab|tokenizer).{0,60}draft",
    ),
    (
        "hint_batch",
        r"(?:physical|micro).?batch.{0,60}(?:too small|exceed|increase|larger)|(?:exceed|larger|bigger|increase|too large).{0,80}(?:physical batch|n_ubatch|ubatch)",
    ),
    (
        "hint_cells",
        r"KV (?:cache|slots?).{0,40}(?:full|exhausted|no (?:free )?space)|no (?:free |available )+(?:KV )?(?:cells|slots?)\b",
    ),
    (
        "hint_context",
        r"(?:exceed|too (?:long|large|many|big)|longer than|larger than|more than|greater than|over).{0,80}(?:context|n_ctx|max\w{0,10} tokens|token limit|model_len)|(?:context|n_ctx)\b.{0,60}(?:exceed|overflow|too (?:small|short)|is full)|prompt (?:is )?too long|too many tokens",
    ),
    (
        "hint_oom",
        (
            r"out.?of.?(?:\w{1,10}.)?(?:memory|ram|vram)\b|(?:not|n't)(?: have)? enough (?:\w{1,12} ){0,3}(?:memory|v?ram)\b|(?:insufficient|low) (?:\w{1,12} ){0,2}(?:memory|v?ram)\b|OUT_OF_\w{0,10}MEMORY|\bE?NOMEM\b|MemoryError|OutOfMemory|"
            rf"{_NOT}.{{0,40}}(?:\bm?alloc(?:at|ed|ation|\b)|reserve.{{0,20}}memory)|alloc(?:ation|ating)?\b.{{0,60}}fail|exceeds (?:available|free|total).{{0,20}}(?:memory|v?ram)"
        ),
    ),
    ("hint_flash", r"(?:requires?|needs?|without|enable|must).{0,30}flash.?att"),
    (
        "hint_option",
        r"(?:unknown|unrecogni[sz]ed|invalid|unexpected|illegal|unsupported|bad|ambiguous) (?:command.line )?(?:argument|option|flag|parameter|switch|value (?:for|of))s?\b|(?:argument|option|flag) \S{1,40}.{0,30}(?:unknown|not recogni[sz]ed|expected|requires|invalid|missing)|no such option",
    ),
    (
        "hint_port",
        rf"(?:address|port\b).{{0,60}}(?:in use|taken|occupied|unavailable|not available)|EADDRINUSE|EADDRNOTAVAIL|{_NOT}.{{0,40}}\bbind(?:ing)?\b|attempting to bind|bind(?:ing)?\b.{{0,40}}(?:failed|error|denied)|assign requested address|WSAEADDRINUSE|\b10048\b",
    ),
    (
        "hint_arch",
        r"(?:unknown|unsupported|unrecogni[sz]ed|invalid|not support\w{0,3}).{0,40}(?:architecture|model type|model family|projector|pre-?tokenizer|quantization type|ggml type|tensor type)|(?:architecture|model type|projector type|pre-?tokenizer).{0,60}(?:not (?:yet )?(?:supported|implemented|recogni[sz]ed)|unknown|unsupported)|error loading model architecture",
    ),
    (
        "hint_tensor",
        r"tensor.{0,80}(?:not found|missing|wrong|mismatch|unexpected|does not match)|(?:missing|wrong|unexpected|no) tensors?\b|wrong number of tensors|key not found in model",
    ),
    (
        "hint_corrupt",
        r"corrupt|truncated|bad magic|invalid (?:file )?magic|magic (?:number|invalid|mismatch|bytes)|expected magic|checksum|(?:hash|digest|size|sha256) mismatch|unexpected end of|premature end|unexpectedly reached end|not a (?:valid )?(?:GGUF|GGML|model)|(?:invalid|incomplete|damaged|malformed) (?:GGUF|GGML|model|file|header)\b(?! type)|file is (?:incomplete|empty)",
    ),
    (
        "hint_library",
        (
            r"(?:\.so(?:\.\d+)*|\.dll|\.dylib|\.pyd|shared librar\w{1,3}|shared object)\b.{0,120}(?:not found|cannot|can't|could not|fail|missing|no such|invalid)|(?:not found|cannot|could not|unable to|failed to|missing).{0,120}(?:\.so\b|\.dll\b|\.dylib\b|shared librar|dynamic librar|backend librar)|ModuleNotFoundError|ImportError|command not found|(?:process|binary|executable|runtime|runner|backend)s?(?: file)? not found|"
            rf"{_NOT} (?:find|locate) .{{0,60}}(?:binary|executable|runtime|runner|backend|library)\b|(?:native|shared|dynamic) librar\w{{1,3}}.{{0,120}}(?:cannot|could not|can't|not) be|DllNotFound|is not recognized as an internal"
        ),
    ),
    (
        "hint_file",
        (
            r"(?:no such file|cannot find the (?:file|path)|(?:file|path|model|blob)\b.{0,120}(?:not found|does not exist|doesn't exist|missing)|FileNotFound|ENOENT|"
            rf"{_NOT} (?:open|read|find|access|stat)\b).{{0,200}}|permission denied"
        ),
    ),
    (
        "hint_driver",
        rf"driver.{{0,80}}(?:insufficient|old|outdated|mismatch|incompatib|not (?:found|installed|loaded|supported)|fail|error)|(?:\bno\b|not find|without|find any|any) (?:\w{{1,12}} ){{0,2}}(?:GPU|device|adapter)s?\b.{{0,20}}(?:found|detect|available|support|$)|initiali[sz]\w{{0,4}}.{{0,40}}{_GPU}.{{0,60}}(?:fail|error)|{_NOT} (?:\w{{1,12}} )?initiali[sz]e.{{0,40}}{_GPU}|No kernel named|VK_ERROR_(?:INITIALIZATION|EXTENSION|FEATURE|LAYER|FORMAT)|BUILD_PROGRAM_FAILURE|(?:compil|build)\w{{0,5}}.{{0,30}}(?:shader|kernel|pipeline|program).{{0,30}}(?:fail|error)|(?:shader|kernel|pipeline|program).{{0,30}}(?:compil|build|creat)\w{{0,5}}.{{0,30}}(?:fail|error)|(?:not supported|unsupported).{{0,40}}{_GPU}|{_GPU}.{{0,40}}(?:is |are )?(?:not supported|unsupported)",
    ),
    (
        "hint_hang",
        r"time[ds]?.?out\b.{0,40}(?:wait|load|start|respond|runner|server|model)|(?:wait|load|start|respond).{0,60}time[ds]?.?out|time[ds]?.?out after\b|not respond|stopped responding|took too long",
    ),
    (
        "hint_crash",
        r"exit(?:ed|s)?\W{0,2}(?:with )?(?:code|status)\W{0,8}(?:some\W)?(?!0\b)-?(?:0x)?[\da-f]{1,20}|access violation|abnormal(?:ly)? (?:exit|terminat)|\baborted?\b|core dump|\bpanic\b|\bcrash(?:ed|es)?\b|fatal (?:error|exception|signal)|unhandled exception|assert(?:ion)?\b.{0,60}fail|GGML_ASSERT|(?:runner|process|server|engine) (?:has |was |process )*terminated|unexpected error|not enough space in the context's memory pool|signal \d{1,2}\b",
    ),
)
