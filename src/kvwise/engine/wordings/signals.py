"""Words that speak of a cause whatever program writes them and however: the last to be asked.

`NEEDLES` are plain words of lines that are worth a look. A signal is a combination of cues: what it
is about, and what happened to it, in any order; the first whose cues are all in the line is what the
line hints at. Nobody has seen these lines: a hint is weaker than any wording of the other tables.
"""

# ruff: noqa: E501, ISC004 (one cue is one line; two string pieces in a row are one cue)

from __future__ import annotations

from typing import NamedTuple

NEEDLES = (
    "nough ", "ot found", "xceed", "nvalid", "nknown", "nsupported", "ot supported", "issing",
    "orrupt", "imed out", "imeout", "nsufficient", "UT_OF", "ut of ", "o such ", "nable to",
    "in use", "too l", "xited", "xit_code", "ERROR", "o kernel", "nough space", "ASSERT", "erminat",
    "o longer", "ot permitted", "nexpected", "ismatch", "not match", "equires", "must be", "efused",
    "nreachable", "ncompatible", "Fails", "exceeds", "reset", "oesn't", "oes not", "ot enabled",
    "runcat", "rimmed", "eprocess", "NaN", " nan", "mlock", "MLOCK", "orking set", "ispatch",
    "horten", "ibberish", "arger than", "reater than", "not compiled", "without", "annot",
    "WinError", "ost connection", "onnection", "arbage", "pill", "disabled", "uplicate", "per slot", "each slot",
    "ould not", "n't ", "context window", "context length", "of null", "of undefined", "ealth check", "ot enough", "is not None", "what():", "untime found", "at row ", "id not", "CRASH", "oes not support", "went wrong", "OOM", "s not set", "but not", "not for ", "not enabled", "space left", "xited", "does not", "ot be ", "out of range", "oo deep", "==", "too small", "too old", "ot respond", "rashed", "ncomplete", "no adapters", "pointer", "untime error", "s empty", "s not a", "onnect to", "hannel Error", "too quickly", "eturned -", "TypeError", "slot available", "till waiting",
)  # fmt: skip
"""Words beside those of any error."""


SAYS_NO_MORE = frozenset({"hint_refused"})
"""Codes that add nothing to a line that a wording knows."""


class Signal(NamedTuple):
    """A code, the cues that must all be in a line, and words with which it means nothing."""

    code: str
    cues: tuple[str, ...]
    but: str = ""


NOT = r"(?:cannot|can't|can ?not|could ?n[o']t|unable to|failed to|fails? to|failure to|error)"
FAILED = rf"(?:{NOT}|fail(?:ed|s|ure)?\b|error|refused|denied|rejected|abort)"
GONE = r"(?:not found|no such|missing|doesn't exist|does not exist|(?:not|n't|unable to|failed to|cannot) (?:find|locate|open|read|access|stat)|FileNotFound|ENOENT|not available)"
WRONG = r"(?:wrong|mismatch|incompatib|differ|invalid|unexpected|incorrect|not (?:match|compatible)|does(?:n't| not) match|must (?:have|match)|out of range|expected\b.{0,60}\bgot)"
UNKNOWN = r"(?:unknown|unrecogni[sz]ed|unsupported|not (?:yet |currently )?(?:supported|implemented|recogni[sz]ed)|not support|don't support|doesn't support)"
GPU = r"(?:GPU|CUDA|\bNvRm\w*|\bnvmap\b|PI_ERROR|UR_RESULT|ZE_RESULT|cu(?:Init|da[A-Z])\w*|ROCm|\bHIP\b|Vulkan|\bvk[A-Z]|SYCL|Level.?Zero|OpenCL|\bMetal\b|MUSA|\bCANN\b|NVML|device|kernel)"
GOES_ON = r"warn(?:ing)?\b|switching to\b|proceeding\b|continuing\b|fall(?:ing|s)? ?back|ignor(?:ed|ing)\b|skipp(?:ed|ing)|\binstead\b|disabling|deprecated|retrying|clamping|using default|\bmanually\b"
"""The line itself says that the program goes on without."""
_IN_TEMPLATE = r"at row \d+, column|for function \w+ at\b"
"""Where a chat template failed."""
_BROKE_OFF = (
    r"(?:decode|encode|compute|eval)\w*\(\) failed|failed to (?:process|decode|encode|compute|eval)"
)
"""Work on a request that was good broke off."""
_SKIPS = r"skipping|disabling|ignor(?:ed|ing)\b"

ADVICE = (
    r"\b(?:common|possible|probable|likely|typical|potential) (?:causes|reasons)\b|"
    r"^\W*(?:tips?|suggestions?|possible fix(?:es)?)\s?:|"
    r"\bif\b[^.]{1,60}\b(?:will|may|might|could|would) (?:\w+ )?(?:crash|fail|hang|run out|be killed)\b"
)
"""The line lists what may be, not what was."""

NO_MEMORY = (
    r"needs? .{1,30}\bmemory and .{1,30}\bavailable|\bmiss \S+ \w{1,3} on\b|"
    r"out.?of.?(?:\w{1,10}.)?(?:memory|ram|vram)\b|(?-i:\bOOM(?:ed)?\b)|(?:not|n't)(?: have)? enough (?:\w{1,12} ){0,3}(?:memory|v?ram)\b|(?:insufficient|low|short) (?:\w{1,12} ){0,2}(?:memory|v?ram)\b|OUT_OF_\w{0,10}MEMORY|\bE?NOMEM\b|MemoryError|OutOfMemory|OutOf(?:Device|Host)Memory|"
    rf"{NOT}.{{0,40}}(?:\bm?alloc(?:at\w{{1,4}}|\b)|reserve.{{0,20}}memory)|\b\w{{0,12}}alloc(?:ation|ating|Host)?\b.{{0,60}}fail|exceeds (?:available|free|total).{{0,20}}(?:memory|v?ram)|(?:more|exceed\w*|larger|bigger).{{0,40}}(?:memory|v?ram)\b.{{0,30}}(?:available|free|has\b|have\b)|memory (?:is )?(?:exhausted|full)\b"
)
_OBJECTS = (
    ("hint_oom_state", r"\brs (?:cache|buffer)|recurrent|compressor state|ssm state"),
    ("hint_oom_kv", r"\bkv\b|\bK/V\b|kv.?cache|self-attention cache|context (?:memory|size|length|window)"),
    ("hint_oom_compute", r"\bcompute|\bgraph|gallocr|scratch|ubatch|\blogits|work(?:ing)? buffer"),
    ("hint_oom_weights", r"\bweights?\b|load\w{0,3} (?:the )?(?:model|tensors?)|\btensors?\b|\blayers?\b|model (?:requires|needs|buffer|is too)"),
)  # fmt: skip
"""What the memory was for, where the line says so."""

SIGNALS: tuple[Signal, ...] = (
    Signal("hint_lost", (GPU, r"\b(?:lost|hung|hang|removed|wedged|watchdog)\b|_(?:LOST|HUNG|REMOVED)\b|device fault|waitForFences|\bring\b.{0,40}(?:timeout|reset)|\bTDR\b|GPU reset")),
    Signal("hint_lost", (r"(?:DEVICE|QUEUE|CONTEXT)_(?:LOST|HUNG|REMOVED)",)),
    Signal("hint_rpc", (r"\bRPC\b|\bHELLO\b|parse endpoint|remote (?:server|host|backend)|resolve host|host address", rf"{FAILED}|{GONE}|{WRONG}|lost|closed|crashed|update client|upgrade"), r"rpc error: code|HTTP|RPC (?:backend|handler)|Endpoint=|huggingface"),
    Signal("hint_fit", (r"\bfit(?:ting)?\b.{0,20}(?:params|memory|parameters)|fit_params|params_fit", rf"{FAILED}|exception")),
    Signal("hint_split", (r"\bsays it is file \S+ of\b|\bis one of \S+ files of a model|missing of this model",)),
    Signal("hint_split", (r"\b(?:split|shard)s?\b", rf"{GONE}|{WRONG}|illegal|incomplete|expected"), r"split.?mode|split (?:buffers|ops|inputs)|tensor.?split"),
    Signal("hint_split", (r"\bGGUF|model", r"incomplete|partial(?:ly)?\b|not all", r"\bload|\bparts?\b|\bfiles\b|\bof \d+\b"), rf"{GOES_ON}|download|offload|layers"),
    Signal("hint_draft", (r"draft", r"vocab|tokeni[sz]er|incompatib|mismatch|not compatible|must match")),
    Signal("hint_batch", (r"physical batch|micro.?batch|n_ubatch|\bubatch\b", r"too (?:small|large|long)|exceed|increase|larger|bigger|>="), r"alloc|memory"),
    Signal("hint_batch", (r"\b(?:tokens?|input|text)\b.{0,60}\bexceeds? (?:the )?(?:n_?u?batch\w*|batch size)",), r"alloc|memory"),
    Signal("hint_block", (r"buffer|alloc\w*|tensor|\bblock\b|size", r"exceed|larger|greater|above|over\b|bigger|too large", r"(?:max\w{0,4}|device)\W{0,3}(?:\w+\W){0,3}(?:limit|buffer\w*|alloc\w*)|\blimit of\b|max(?:Buffer|StorageBuffer|MemoryAlloc)\w*|\b4 ?Gi?B\b|per.allocation"), r"context|n_ctx|batch|prompt|cache size|free memory|available memory"),
    Signal("hint_cells", (r"\bKV\b|memory slot|free slot|a slot for|cells?\b", r"\bfull\b|exhausted|no (?:free |available |more )+|\bno (?:\w+ ){0,2}(?:slot|cell|space)s? (?:is |are )?(?:available|left|free|found)|(?:not|n't|failed to|unable to) find|not enough (?:cells|slots|space)"), r"tensor|file|alloc"),
    *(Signal(code, (NO_MEMORY, about), GOES_ON) for code, about in _OBJECTS),
    Signal("hint_oom", (NO_MEMORY,), GOES_ON),
    Signal("hint_oom_weights", (r"model", r"(?:too (?:large|big)|does(?:n't| not) fit|won't fit)", r"memory|ram\b|gpu|device"), GOES_ON),
    Signal("hint_context", (r"\btokens?\b", r"context (?:window|length|size|limit)|\bn(?:um)?_ctx\b", r"\bbut\b|\bonly\b|exceed|larger|longer|greater|\babove\b|\bover\b|too (?:long|large|many|big)|do(?:es)?(?:n't| not) fit|truncat"), r"training context|n_ctx_train|\b[KMG]i?B\b|memory|cache|batch"),
    Signal("hint_context", (r"(?:exceed|too (?:long|large|many|big)|longer than|larger than|more than|greater than|over)\b.{0,80}(?:context|n_ctx|max\w{0,10} tokens|token limit|model_len)|(?:context|n_ctx)\b.{0,60}(?:exceed|overflow|too (?:small|short)|is full)|prompt (?:is )?too long|too many tokens|does(?:n't| not) fit.{0,40}context|context.{0,20}\bfull\b|(?:exceed|over)\w* the (?:context|n_ctx)|exceed\w*.{0,60}(?:context|n_ctx)",), r"training context|context type|n_ctx_train|deadline"),
    Signal("hint_oom_compute", (r"compute buffers? beside them do(?:es)? not|compute buffers?\b.{0,40}not fit",)),
    Signal("hint_oom_kv", (r"cache beside them does not|\bcache\b.{0,20}not fit",)),
    Signal("hint_oom_weights", (r"does not fit; missing on|\bweights\b.{0,40}not fit|\bweights alone\b",)),
    Signal("hint_oom_kv", (r"\btokens?\b|\bcontext\b|\bslots?\b", r"\bdo(?:es)?(?:n't| not) fit\b"), r"physical batch|fit (?:in|into) (?:the|one) (?:context|slot)"),
    Signal("hint_cache_type", (r"cache.?types?\b|\b-?-?ct[kv]\b|type_[kv]\b", rf"{UNKNOWN}|{WRONG}|is not a|does not divide|refused|no type"), GOES_ON),
    Signal("hint_request", (r"\bcode[\"']?\s?[:=]?\s?4\d\d\b", r"message|_error\b")),
    Signal("hint_request", (r"\bn_tokens ==? 0\b|\binput is (?:not set|empty|missing)|\bempty (?:prompt|input|query|batch)\b|(?:fail\w*|error|unable|could not) (?:to )?tokeni[sz]\w*|tokeni[sz]\w* (?:failed|error)",), r"vocab|merges|gguf"),
    Signal("hint_request", (r"\b(?:embeddings?|re-?rank\w*|rank\w*|pooling|multimodal\w*|logprobs|logits|media|inputs?|parallel\w*|shifting|speculative decoding|tools?|functions?|tool calls?|thinking|reasoning|vision|images?|audio|completions?|infill|insert|chat|generate)\b", r"(?:does(?:n't| not)|do(?:n't| not)) support\b|\bnot supported\b|\bunsupported\b|\b(?:is|are|was|were) not (?:enabled|available|allowed)\b|supporting only|\bis not (?:an? |for )?(?:embed|generat|chat|vision|rerank|completion|instruct)\w*|must be (?:created|loaded|started|built|initiali[sz]ed) with|to call this"), rf"{GOES_ON}|alloc|memory|backend|device|architecture|tensor|driver|GPU"),
    Signal("hint_state", (r"\b(?:load|sav|restor)\w* (?:the )?(?:slot |session )?state\b|\bstate (?:file|could not be|cannot be)", rf"{FAILED}|{WRONG}"), r"alloc|memory|model state|error state"),
    Signal("hint_state", (r"mismatched (?:layer|key|value|GQA|[rs]) |incompatible [VsRS] transposition|sequence state|session file|slot save|\brestor",  rf"{FAILED}|{WRONG}|mismatched|did not|count"), r"alloc|memory"),
    Signal("hint_cut", (r"\b(?:prompt|input|messages?|history|conversation|document)\b", r"truncat|shortened|trimmed|cut off|dropped|discard"), r"file|\bno\b|not truncat|truncated[\W]{0,3}(?:0|false)"),
    Signal("hint_reprocess", (r"prompt|cache|tokens", r"re-?process|re-?evaluat|from scratch|cache (?:was )?(?:miss|invalidated)"), r"failed|error"),
    Signal("hint_spill", (r"(?:shared|system|host|unified) (?:GPU )?memory|sysmem|\bGTT\b|paging", r"spill|oversubscri|fall(?:s|ing)? ?back|swapp|migrat|evict"), r"pinned|malloc|buffer"),
    Signal("hint_garbage", (r"\bNaNs?\b|\bgibberish\b|\bgarbage\b|\bgarbled\b", r"detect|found|logits?|output|tensor|text|token|sampl|answer|contain"), r"imatrix|bailing"),
    Signal("hint_flash_off", (r"flash.?att\w*", r"disabl|switch\w* off|turn\w* off|not (?:supported|available)|unavailable"), r"requires|_EXT"),
    Signal("hint_flash", (r"flash.?att\w*", r"requires?|needs?|without|enable|must"), r"_EXT"),
    Signal("hint_option", (r"(?:unknown|unrecogni[sz]ed|invalid|unexpected|illegal|unsupported|bad|ambiguous) (?:command.line )?(?:keyword )?(?:argument|option|flag|parameter|switch|value (?:for|of))s?\b|(?:argument|option|flag) \S{1,40}.{0,30}(?:unknown|not recogni[sz]ed|expected|requires|invalid|missing)|no such option|extra_forbidden|not permitted|KV override|must be (?:between|one of|finite|greater|at least|non-negative)|cannot both be|invalid (?:repeat|dry|top|min|temp|n)[-_]\w+ ?=|requires (?:the )?--\w|template is not supported|not (?:compiled|built) (?:for|with)|(?:compiled|built) without|exclude each other|\bneeds a value|was removed from|\bgiven twice|one word too many|^\S+ is (?:not one of|neither|no whole) ",), rf"{GOES_ON}|{_IN_TEMPLATE}"),
    Signal("hint_port", (rf"(?:address|port\b)(?! 0x).{{0,60}}(?:in use|taken|occupied|unavailable|not available)|EADDRINUSE|EADDRNOTAVAIL|{NOT}.{{0,40}}\bbind(?:ing)?\b|attempting to bind|bind(?:ing)?\b.{{0,40}}(?:failed|error|denied)|assign requested address|WSAEADDRINUSE|\b10048\b|create server socket|listen\b.{{0,20}}(?:failed|tcp.{{0,40}}in use)",)),
    Signal("hint_adapter", (r"\ba?loras?\b|\blora_|control.?vector|'adapter'|mmproj|multimodal model|CLIP model|projector", rf"{FAILED}|{GONE}|{WRONG}|not transposed|expect"), rf"alloc|memory|{GOES_ON}|unknown|unsupported|exist"),
    Signal("hint_state", (r"\bstate\b|session", r"(?:error|fail\w*|unable to|could not) (?:\w+ ){0,2}(?:restor|sav|load|get)\w*|magic"), r"alloc|memory|model|error state|GPU"),
    Signal("hint_quantize", (r"imatrix|importance matrix|requantiz|failed to quantize", rf"{FAILED}|requires|missing|disabled|non-finite")),
    Signal("hint_corrupt", (r"\bgguf\b", r"\bpars(?:e|ing)\b", rf"{FAILED}"), rf"{GOES_ON}|update|label"),
    Signal("hint_arch", (r"\bgguf\b.{0,20}\bversion\b", rf"{UNKNOWN}|newer|too new"), GOES_ON),
    Signal("hint_corrupt", (r"\bgguf\b", r"\b(?:array|tensor|header|key|value|type|count|length|rank|nest\w*|offset|dimensions?|alignment|string|magic|metadata)", r"out of range|too (?:deep|large|long|many|small|short)|overflow|unknown|unexpected|invalid|negative|not numeric|mismatch|truncat|exceeds?\b.{0,40}(?:range|limit|maximum)|\bbad\b"), rf"{GOES_ON}|vocab|tokenizer|hyperparameters"),
    Signal("hint_arch", (r"not a supported model\b|(?:unknown|unsupported|unrecogni[sz]ed|invalid|not support\w{0,3}).{0,40}(?:architecture|model type|model family|projector|pre-?tokenizer|quantization type|ggml type|tensor type)|(?:architecture|model type|projector type|pre-?tokenizer).{0,60}(?:not (?:\w{1,12} )?(?:supported|implemented|recogni[sz]ed)|unknown|unsupported)|error loading model architecture|does(?:n't| not) know the architecture|not know the model",), rf"{GOES_ON}|for device|GPU architecture|CUDA arch"),
    Signal("hint_tensor", (r"\btensors?\b|\b\w+\.(?:weight|bias)\b", rf"{GONE}|{WRONG}|\bno tensors?\b|too many|has shape|unexpected suffix|already loaded|is empty"), rf"{GOES_ON}|tensor.?split|\bcore|operation|buffer for|buffer type|out of bounds|data region|no CUDA"),
    Signal("hint_tensor", (r"key not found|\bkey\b.{0,80}(?:wrong|missing|not found|invalid|expected|is not an?)|(?:model|loading).{0,20}(?:hyperparameters|vocabulary)|error loading model vocab|(?:not|n't) find .{1,60} in (?:the )?model|(?:model|architecture) (?:requires|needs to define|cannot have)|requires .{1,40} in GGUF|load (?:the )?vocabulary|invalid gguf (?:type|element)|unordered_map|\bmap::at\b|out_of_range|_M_range_check|reconvert|metadata.{0,40}(?:missing|invalid|wrong)|must be > 0|invalid n_\w+: |[Kk]ey '?[a-z]\w*\.[\w.]+'? (?:is|must|has)|array '[\w.]+' (?:has|is)",), GOES_ON),
    Signal("hint_corrupt", (r"corrupt|truncated|bad magic|invalid (?:file )?magic|magic (?:number|invalid|mismatch|bytes)|expected magic|checksum|(?:hash|digest|size|sha\d*|sum|md5)\b.{0,40}(?:mismatch|differ|not match|!=)|unexpected end of|premature end|unexpectedly reached end|not a (?:valid )?(?:GGUF|GGML|model)|(?:invalid|incomplete|damaged|malformed) (?:GGUF|GGML|model|file|header)\b(?! (?:type|path|name))|file is (?:incomplete|empty)|\bduplicated\b|\bdamaged\b|\bends? inside\b|is not sound|claims \S{1,30} (?:keys|tensors|bytes|elements|strings)|there twice|not within (?:the )?(?:file|bounds)|gguf_init_from\w*: |gguf_read\w*: ",), rf"{GOES_ON}|output buffer|truncated = |heap|memory is corrupt|memory corrupt|free list|double free|buffer overflow|unexpected end of (?:input|rule|json)|prompt|cache\b"),
    Signal("hint_library", (r"\b(?:start|spawn|exec|launch|run)\w*\b", r"llama-server|llama-cli|\bbinary\b|\bexecutable\b|\bcommand\b|\bprocess\b|\brunner\b", r"permission denied|no such file|os error (?:2|8|13)\b"), rf"{GOES_ON}|\.gguf['\"]?:"),
    Signal("hint_library", (r"\bno (?:\w+ ){0,3}(?:runtime|engine)s?\b.{0,12}\b(?:found|installed|available|selected)\b",), GOES_ON),
    Signal("hint_library", (r"\b(?:backend|implementation|binary|executable|engine|runtime)s?\b", r"\bmissing\b|not (?:\w+ or not )?(?:found|installed)\b|(?:could ?n[o']t|failed to|unable to|cannot|can't) (?:find|locate)\b|no .{0,30}\bimplementation"), rf"{GOES_ON}|\bdevice|\bmodel\b|memory|context|\bstorage|buffer|ggml_backend_init in"),
    Signal("hint_library", (r"\blibrar\w+|\.so\b|\.dll\b|\.dylib\b", r"\bbut not\b|(?:does not|doesn't) contain"), GOES_ON),
    Signal("hint_library", (
        r"(?:\.so(?:\.\d+)*|\.dll|\.dylib|\.pyd|\.node|shared librar\w{1,3}|shared object)\b.{0,120}(?:not found|cannot|can't|could not|could not be|fail|missing|no such|invalid)|(?:not found|cannot|could not|unable to|failed to|missing).{0,120}(?:\.so\b|\.dll\b|\.dylib\b|\.node\b|shared librar|dynamic librar|backend librar|LLM engine)|ModuleNotFoundError|ImportError|AttributeError: function|command not found|(?:process|binary|executable|runtime|runner|backend)s?(?: file)? (?:not|could not be|cannot be) found|find an interpreter|"
        rf"{NOT} (?:find|locate) .{{0,60}}(?:binary|executable|runtime|runner|backend|library)\b|(?:native|shared|dynamic) librar\w{{1,3}}.{{0,120}}(?:cannot|could not|can't|not) be|DllNotFound|is not recognized as an internal|incompatible API version|procedure (?:entry point|could not be found)|os error (?:126|127|193)\b|runtime lib\w*\?|is not a program\b|is not installed|\bllama-\w+ (?:was )?not found\b|\bnot runnable\b",
    ), rf"{GOES_ON}|ggml_backend_init in"),
    Signal("hint_library", (r"(?:native|shared|dynamic|backend) librar|\.so\b|\.dll\b|\.dylib\b|\bassembly '|native (?:module|binding)|NativeApi", r"(?:failed|could ?n[o']t|cannot|can't|unable) (?:to )?(?:be )?(?:\w+ )?load|failed loading|no implementation|initializer\b.{0,80}threw"), rf"{GOES_ON}|ggml_backend_init in"),
    Signal("hint_library", (r"has no attribute\b", r"\b_?(?:llama|ggml|mtmd|llava)_")),
    Signal("hint_library", (r"UnsatisfiedLinkError|TypeLoadException|EntryPointNotFound|BadImageFormat|ERR_DLOPEN|\bdlopen\b.{0,120}(?:fail|error|no such)|cannot load library|(?:property|properties of|reading) \W?\w*(?:context|llama|model)\w*\W.{0,12}\bof (?:null|undefined)|of (?:null|undefined) \(reading '\w*(?:context|llama|model)",), GOES_ON),
    Signal("hint_request", (_IN_TEMPLATE,)),
    Signal("hint_request", (r"\bjinja\b|chat.?template|\btemplate\b.{0,60}(?:pars|render|exception)|FilterExpression|CallExpression|at row \d+, column \d+|is not callable|raise_exception|json.?schema|\bgrammar\b|tool_calls?\b|failed to (?:tokenize|format|parse) (?:the )?(?:prompt|input|body|messages|request)", rf"{FAILED}|{UNKNOWN}|{WRONG}|exception|not callable|undefined|While executing|requires|must be"), rf"{GOES_ON}|GGML_ASSERT"),
    Signal("hint_download", (r"no space left on device|\bENOSPC\b|\bdisk (?:is )?full\b|(?:not enough|insufficient) disk space",)),
    Signal("hint_download", (r"\bdownload|huggingface|\bHF\b|\bhttps?://|\bURL\b|docker manifest|\brepository\b|\brepo\b|(?-i:\bGET\b) (?!\W?/)|offline mode|\bOCI\b|HTTPLIB", rf"{FAILED}|{GONE}|{WRONG}|no GGUF|status(?: code)?:? ?[45]\d\d|not supported"), rf"{GOES_ON}|127\.0\.0\.1|localhost|_error\b|HEAD invalid|github\.com|fetch model metadata"),
    Signal("hint_file", (
        r"(?:no such file|\bno file\b|cannot find the (?:file|path)|(?:file|path|model|blob|directory|variant|gguf|quant\w*|repo\w*)\b.{0,120}(?:not found|does not exist|doesn't exist|missing)|FileNotFound|ENOENT|"
        rf"{NOT} (?:open|read|find|locate|access|stat)\b|(?:not|n't) be (?:found|located|opened)).{{0,200}}|permission denied|does this file exist",
    ), rf"{GOES_ON}|propert(?:y|ies) of|of (?:null|undefined)|/proc/|/sys/|NvRm|nvmap|/dev/(?:dri|nvidia|kfd|nvhost)|sysdeps/|symbol table|affinity|priority|fadvise|madvise|munmap|munlock|lookup cache|asset|\bbuffer\b|\bstream\b|ggml_backend_init in"),
    Signal("hint_request", (r"inconsistent sequence|sequence \d+ .{0,60}(?:position|coupled|diverg|sets)|\bseq_id\b|input batch|mtmd chunk", rf"{FAILED}|{WRONG}|inconsistent|not (?:allowed|continuous)|>=|decreasing|diver")),
    Signal("hint_request", (r"\bcode[\"']?\s?[:=]?\s?5\d\d\b", r"message|_error\b"), rf"Loading model|load (?:the )?model|failed to load|{_BROKE_OFF}"),
    Signal("hint_request", (r"^\s*[\"']message[\"']\s*:", rf"{FAILED}|{WRONG}|{UNKNOWN}")),
    Signal("hint_request", (r"(?:invalid_request|server|not_supported|authentication|permission|not_found|unavailable)_error|[45]\d\d:? (?:Internal Server Error|Bad Request)",), rf"Loading model|load (?:the )?model|do load|\bEOF\b|failed to load|llama runner|process has terminated|{_BROKE_OFF}"),
    Signal("hint_device", (r"(?:invalid|no such|unknown) (?:\w+ ){0,2}device\b(?! (?:function|pointer|symbol|ordinal))|device\b.{0,40}(?:not found|out of range|does not exist)|no (?:device|GPU) (?:matching|named|called|is called)|(?:does not|doesn't) (?:report|have|list|see|know) (?:an? |the )?(?:\S+ )?device\b|requested (?:\w+ ){0,2}GPUs?\b.{0,60}(?:not|exceed)|names no device",), r"no devices? found|buffer"),
    Signal("hint_driver", (
        rf"driver.{{0,80}}(?:insufficient|old|outdated|mismatch|incompatib|not (?:found|installed|loaded|supported)|fail|error)|(?:\bno\b|not find|without|find any|any) (?:\w{{1,12}} ){{0,2}}(?:GPU|device|adapter|platform)s?\b.{{0,20}}(?:found|detect|available|support|match|$)|initiali[sz]\w{{0,4}}.{{0,40}}{GPU}.{{0,60}}(?:fail|error)|{NOT} (?:\w{{1,12}} )?initiali[sz]e.{{0,40}}{GPU}|No kernel named|VK_ERROR_(?:INITIALIZATION|EXTENSION|FEATURE|LAYER|FORMAT)|BUILD_PROGRAM_FAILURE|(?:compil|build)\w{{0,5}}.{{0,30}}(?:shader|kernel|pipeline|program|source).{{0,30}}(?:fail|error)|(?:shader|kernel|pipeline|program).{{0,30}}(?:compil|build|creat)\w{{0,5}}.{{0,30}}(?:fail|error)|{NOT} (?:create|compile)\w{{0,3}}.{{0,30}}(?:shader|pipeline|command queue|metal library|program|source)|error (?:compiling|creating) (?:source|program)|(?:not supported|unsupported).{{0,40}}{GPU}|{GPU}.{{0,40}}(?:is |are )?(?:not supported|unsupported)|(?:compute capability|gfx\d+|sm_\d+).{{0,60}}(?:not supported|unsupported|not compatible)|platform IDs not available|{NOT} (?:retrieve|query|enumerate|detect|list|get|probe)\b.{{0,40}}\b(?:GPU|CUDA|ROCm|Vulkan|Metal)\b.{{0,20}}(?:devices?|info|properties)|(?:runtime|processor|CPU|browser|platform|system|machine|hardware)\b.{{0,30}}\b(?:does not|doesn't) support\b|not supported (?:on|by) (?:this|your) (?:\w+ )?(?:platform|system|hardware|CPU|GPU|machine|browser|processor)|device ?list is empty|\bNvRm\w+ failed|(?:PI_ERROR|UR_RESULT_ERROR|ZE_RESULT_ERROR)_(?:BUILD_PROGRAM|DEVICE_NOT|UNSUPPORTED|INVALID_(?:BINARY|KERNEL|DEVICE)|COMPILER)\w*|/dev/(?:dri|nvidia|kfd|nvhost)\S*.{{0,40}}(?:denied|no such)|unsupported op\b|\bop\b (?:= )?\S+ (?:is )?not (?:implemented|supported)|failed to create library",
    ), rf"falling back to \w*malloc|\bmanually\b|{_SKIPS}|drop unsupported|unsupported ops|create node|NSString|kernel_\w+ +\(not supported\)|does not support \w+ with|tensor API|unsupported type\b"),
    Signal("hint_hang", (r"health.?check failed\b(?!.{0,60}(?:retry|503|refused))|health.?check\b.{0,60}(?:fail\w*|time\w*.?out)\b.{0,20}\bafter\b|(?:not|never) (?:\w+ )?(?:ready|healthy|available) (?:after|within|in)\b|(?:did not|didn't|never|failed to) (?:become|get) (?:ready|healthy|available)|time[ds]?.?out\b.{0,40}(?:wait|load|start|respond|runner|server|model)|(?:wait|load|start|respond).{0,60}time[ds]?.?out|(?:start|load|initiali[sz]|ready|respond|healthy|launch|come up)\w*\b.{0,30}\b(?:within|after) \d[\d.,]* ?(?:s|sec\w*|m|min\w*|ms)\b|become ready\b|time[ds]?.?out after\b|not respond|stopped responding|took too long|did not (?:start|become ready|respond)|didn't (?:start|respond)",), r"stop-timeout|keep.?alive|\btimeout[:= ]{1,3}\d+\s?m?s?\)"),
    Signal("hint_driver", (r"\bcontext\b", r"(?:fail\w*|error).{0,40}creat", r"\b0x(?!8007000[8e]|c0000017|c000009a)[89a-f][0-9a-f]{7}\b")),
    Signal("hint_oom_context", (r"\bcontext\b", r"(?:fail\w*|could ?n[o']t|cannot|can't|unable) (?:to )?(?:be )?(?:\w+ ){0,2}(?:creat|allocat|initiali[sz]|construct)\w*|null (?:reference|pointer)"), rf"{GOES_ON}|CUDA|GPU|device|\bmodel with|request|prompt|grammar|sampl|image|vision"),
    Signal("hint_crash", (r"\berror\b", r"(?:server|process|runner|engine|backend)\b.{0,40}\bexited\b"), r"without error|no error"),
    Signal("hint_hang", (r"\bstill waiting for\b.{0,40}(?:server|model|runner|engine)",)),
    Signal("hint_hang", (r"\btimed out\b|\bTimeoutE\w+\b|\bReadTimeout\b",), r"retry|\block\b|download|connect"),
    Signal("hint_crash", (r"\b(?:runner|process|server|engine|backend|llama-\w+)\b.{0,60}\bexited\b(?! (?:0|normally|cleanly|successfully|with (?:code|status) 0))",), r"\bplugin|force exited"),
    Signal("hint_crash", (r"exit(?:ed|s)?\W{0,2}(?:with )?(?:code|status)\W{0,8}(?:some\W)?(?!0\b)-?(?:0x)?[\da-f]{1,20}|access ?violation|protected memory|abnormal(?:ly)? (?:exit|terminat)|\baborted?\b|core dump|\bpanic\b|nil pointer|null pointer|invalid memory (?:address|reference)|runtime error\b|\b(?:Type|Reference)Error\b|Null(?:Reference|Pointer)Exception|\w*crash(?:ed|es)?\b|fatal (?:error|exception|signal)|unhandled exception|uncaught exception|WinError -\d|Windows Error 0x|http client error|(?:connection|stream|pipe)\b.{0,20}(?:reset|closed|broken|aborted)|broken pipe|Memory (?:critical error|access fault)|assert(?:ion)?\b.{0,200}fail|failed assert|GGML_ASSERT|(?:runner|process|server|engine) (?:has |was |process )*(?:terminated|no longer running)|unexpected error|not enough space in the (?:context's memory pool|buffer)|signal \d{1,2}\b|something went wrong|(?<!or an )\binternal error\b|\bread propert(?:y|ies) of (?:null|undefined)|\bChannel Error\b|repeated too quickly|not connect to \S{1,30}(?: app| server)?\b.{0,40}|terminating (?:due|with)|rpc error: code = (?:Unavailable|Internal|Aborted)|(?:graph_compute|decode|encode)\w*(?:\(\w*\))?.{0,20}(?:failed|error|returned -\d)|failed to (?:decode|encode|compute|eval(?:uate)?)\b|compute status: -?[1-9]|(?-i:\bcuda[A-Z]\w+ failed|\b(?!ERROR\b|WARN|INFO\b|DEBUG\b|FATAL\b)[A-Z_]{3,} failed\b)|out.of.bounds|backend is in error state|\bexecution failed",), r"falling back|switching to|proceeding without|retrying with"),
    Signal("hint_refused", (r"\bmodels?\b|\bweights?\b|\bgguf\b|\bLLM\b|ModelLoad\w*|WeightsFailed", r"(?:fail\w*|error|could ?n[o']t|cannot|can't|can ?not|unable|refus\w*) (?:to )?(?:be )?(?:\w+ ){0,3}(?:load|instantiat|initiali[sz]|start|creat|open|run|import)\w*|(?:load|start|initiali[sz]|instantiat)\w* (?:\w+ ){0,4}(?:fail|unsuccessful)|LoadWeightsFailed|model is not None|ModelLoadError"), rf"{GOES_ON}|metadata|\bicon|image model|draft|speculat"),
)  # fmt: skip
