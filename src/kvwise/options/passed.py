"""Rows of the options that set no field of Launch: they are passed on as they are.

One line each: kind (F flag, S switch, I whole number, N tokens, T text, P two words), tools
(S llama-server, C llama-cli, B llama-bench alone), spellings, `/` those that switch it off,
`|` kind and spellings in llama-bench, `$` environment, `*` when it can take memory that the
ledger does not count, `+` when every mention counts and not only the last, `@` the newest build
known to lack it and the oldest known to have it. Secrets (HF_TOKEN,
LLAMA_API_KEY) are not read from the environment: they would show in printed commands.

Read off common/arg.cpp and tools/llama-bench/llama-bench.cpp, b10605 and b11549.
"""

from __future__ import annotations

from kvwise.options.kinds import COUNT, FLAG, INT, PAIR, SWITCH, TEXT
from kvwise.options.row import BENCH, CLI, SERVER, Option

_KINDS = {"F": FLAG, "S": SWITCH, "I": INT, "N": COUNT, "T": TEXT, "P": PAIR}
_TOOLS = {"S": SERVER, "C": CLI, "B": BENCH}

_TABLE = """
F SC -h --help --usage | F -h --help
F SC --version
F SC -cl --cache-list
F SC --completion-bash
T C --server-base
F C --verbose-prompt
S C --display-prompt / --no-display-prompt
T C -co --color
I SC -t --threads | T -t --threads $LLAMA_ARG_THREADS
I SC -tb --threads-batch
T SC -C --cpu-mask | T -C --cpu-mask
T SC -Cr --cpu-range
T SC --cpu-strict | T --cpu-strict
I SC --prio | I --prio
T SC --poll | T --poll
T SC -Cb --cpu-mask-batch
T SC -Crb --cpu-range-batch
I SC --cpu-strict-batch
I SC --prio-batch
I SC --poll-batch
T S -lcs --lookup-cache-static
T S -lcd --lookup-cache-dynamic
N SC -n --predict --n-predict $LLAMA_ARG_N_PREDICT
I SC --keep
I SC -ctxcp --ctx-checkpoints --swa-checkpoints $LLAMA_ARG_CTX_CHECKPOINTS
I S -cms --checkpoint-min-step $LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT
I SC -cram --cache-ram $LLAMA_ARG_CACHE_RAM
S S --cache-idle-slots / --no-cache-idle-slots $LLAMA_ARG_CACHE_IDLE_SLOTS *
S SC --context-shift / --no-context-shift $LLAMA_ARG_CONTEXT_SHIFT
T C -p --prompt
T C -sys --system-prompt
S SC --perf / --no-perf $LLAMA_ARG_PERF
S C --show-timings / --no-show-timings $LLAMA_ARG_SHOW_TIMINGS
T C -f --file
T C -sysf --system-prompt-file
T C -bf --binary-file
S SC -e --escape / --no-escape
T SC -r --reverse-prompt +
F SC -sp --special
F C -st --single-turn
F C -mli --multiline-input
S SC --warmup / --no-warmup | F --no-warmup
F S --spm-infill
T SC --samplers
T SC -s --seed
T SC --sampler-seq --sampling-seq
F SC --ignore-eos
T SC --temp --temperature
I SC --top-k $LLAMA_ARG_TOP_K
T SC --top-p
T SC --min-p
T SC --top-nsigma --top-n-sigma
T SC --xtc-probability
T SC --xtc-threshold
T SC --typical --typical-p
I SC --repeat-last-n
T SC --repeat-penalty
T SC --presence-penalty
T SC --frequency-penalty
T SC --dry-multiplier
T SC --dry-base
I SC --dry-allowed-length
I SC --dry-penalty-last-n
T SC --dry-sequence-breaker +
T SC --adaptive-target
T SC --adaptive-decay
T SC --dynatemp-range
T SC --dynatemp-exp
I SC --mirostat
T SC --mirostat-lr
T SC --mirostat-ent
T SC -l --logit-bias +
T SC --grammar
T SC --grammar-file
T SC -j --json-schema
T SC -jf --json-schema-file
F SC -bs --backend-sampling $LLAMA_ARG_BACKEND_SAMPLING *
T SC --rope-scaling $LLAMA_ARG_ROPE_SCALING_TYPE
T SC --rope-scale $LLAMA_ARG_ROPE_SCALE
T SC --rope-freq-base $LLAMA_ARG_ROPE_FREQ_BASE
T SC --rope-freq-scale $LLAMA_ARG_ROPE_FREQ_SCALE
I SC --yarn-orig-ctx $LLAMA_ARG_YARN_ORIG_CTX
T SC --yarn-ext-factor $LLAMA_ARG_YARN_EXT_FACTOR
T SC --yarn-attn-factor $LLAMA_ARG_YARN_ATTN_FACTOR
T SC --yarn-beta-slow $LLAMA_ARG_YARN_BETA_SLOW
T SC --yarn-beta-fast $LLAMA_ARG_YARN_BETA_FAST
F SC --no-host | T --no-host $LLAMA_ARG_NO_HOST *
T SC -dt --defrag-thold $LLAMA_ARG_DEFRAG_THOLD
S S -cb --cont-batching / -nocb --no-cont-batching $LLAMA_ARG_CONT_BATCHING
S SC --mmproj-auto / --no-mmproj --no-mmproj-auto $LLAMA_ARG_MMPROJ_AUTO *
S SC --mmproj-offload / --no-mmproj-offload $LLAMA_ARG_MMPROJ_OFFLOAD
T SC -mmdev --mmproj-device $MTMD_BACKEND_DEVICE
T C --image --audio --video +
I SC --image-min-tokens $LLAMA_ARG_IMAGE_MIN_TOKENS
I SC --image-max-tokens $LLAMA_ARG_IMAGE_MAX_TOKENS
I S --mtmd-batch-max-tokens $LLAMA_ARG_MTMD_BATCH_MAX_TOKENS
T SC --rpc | T -rpc --rpc $LLAMA_ARG_RPC *
T SC --numa | T --numa $LLAMA_ARG_NUMA
F SC --list-devices | F --list-devices
T SC -fitt --fit-target | T -fitt --fit-target $LLAMA_ARG_FIT_TARGET *
I SC -fitc --fit-ctx | T -fitc --fit-ctx $LLAMA_ARG_FIT_CTX *
F SC --check-tensors
T SC --override-kv * +
T SC --lora +
T SC --lora-scaled +
T SC --control-vector * +
T SC --control-vector-scaled * +
P SC --control-vector-layer-range
T S -a --alias $LLAMA_ARG_ALIAS +
T S --tags $LLAMA_ARG_TAGS +
T SC -hft --hf-token | T -hft --hf-token
T C -o --output --output-file | T -o --output
I S --embd-normalize
T S --host $LLAMA_ARG_HOST
I S --port $LLAMA_ARG_PORT
F S --reuse-port $LLAMA_ARG_REUSE_PORT
T S --path $LLAMA_ARG_STATIC_PATH
T S --cors-origins $LLAMA_ARG_CORS_ORIGINS
T S --cors-methods $LLAMA_ARG_CORS_METHODS
T S --cors-headers $LLAMA_ARG_CORS_HEADERS
S S --cors-credentials / --no-cors-credentials $LLAMA_ARG_CORS_CREDENTIALS
T S --api-prefix $LLAMA_ARG_API_PREFIX
T S --ui-config --webui-config $LLAMA_ARG_UI_CONFIG
T S --ui-config-file --webui-config-file $LLAMA_ARG_UI_CONFIG_FILE
S S --ui-mcp-proxy --webui-mcp-proxy / --no-ui-mcp-proxy --no-webui-mcp-proxy $LLAMA_ARG_UI_MCP_PROXY
T S --tools $LLAMA_ARG_TOOLS
T S --tools-runtime $LLAMA_ARG_TOOLS_RUNTIME
T S --mcp-servers-config $LLAMA_ARG_MCP_SERVERS_CONFIG
T S --mcp-servers-json $LLAMA_ARG_MCP_SERVERS_JSON
S S -ag --agent / -no-ag --no-agent $LLAMA_ARG_AGENT
S S --ui --webui / --no-ui --no-webui $LLAMA_ARG_UI
T S --api-key +
T S --api-key-file $LLAMA_ARG_API_KEY_FILE
T S --ssl-key-file $LLAMA_ARG_SSL_KEY_FILE
T S --ssl-cert-file $LLAMA_ARG_SSL_CERT_FILE
T SC --chat-template-kwargs $LLAMA_ARG_CHAT_TEMPLATE_KWARGS
I S -to --timeout $LLAMA_ARG_TIMEOUT
I S --sse-ping-interval $LLAMA_ARG_SSE_PING_INTERVAL
I S --threads-http $LLAMA_ARG_THREADS_HTTP
S S --cache-prompt / --no-cache-prompt $LLAMA_ARG_CACHE_PROMPT
I S --cache-reuse $LLAMA_ARG_CACHE_REUSE
F S --metrics $LLAMA_ARG_ENDPOINT_METRICS
F S --props $LLAMA_ARG_ENDPOINT_PROPS
S S --slots / --no-slots $LLAMA_ARG_ENDPOINT_SLOTS
T S --slot-save-path
T S --media-path
T S --models-dir $LLAMA_ARG_MODELS_DIR
T S --models-preset $LLAMA_ARG_MODELS_PRESET
I S --models-max $LLAMA_ARG_MODELS_MAX
S S --models-autoload / --no-models-autoload $LLAMA_ARG_MODELS_AUTOLOAD
S SC --jinja / --no-jinja $LLAMA_ARG_JINJA
T SC --reasoning-format $LLAMA_ARG_THINK
T SC -rea --reasoning $LLAMA_ARG_REASONING
T SC --reasoning-effort $LLAMA_ARG_REASONING_EFFORT
I SC --reasoning-budget $LLAMA_ARG_THINK_BUDGET
T SC --reasoning-budget-message $LLAMA_ARG_THINK_BUDGET_MESSAGE
S SC --reasoning-preserve / --no-reasoning-preserve $LLAMA_ARG_REASONING_PRESERVE
T SC --chat-template $LLAMA_ARG_CHAT_TEMPLATE
T SC --chat-template-file $LLAMA_ARG_CHAT_TEMPLATE_FILE
S SC --skip-chat-parsing / --no-skip-chat-parsing $LLAMA_ARG_SKIP_CHAT_PARSING
S S --prefill-assistant / --no-prefill-assistant $LLAMA_ARG_PREFILL_ASSISTANT
T S -sps --slot-prompt-similarity
F S --lora-init-without-apply
I S --sleep-idle-seconds
F C --simple-io
F SC --log-disable
T SC --log-file $LLAMA_ARG_LOG_FILE
T SC --log-prompts-dir
T SC --log-colors $LLAMA_ARG_LOG_COLORS
F SC -v --verbose --log-verbose | F -v --verbose
F SC --offline | F --offline $LLAMA_ARG_OFFLINE
I SC -lv --verbosity --log-verbosity $LLAMA_ARG_LOG_VERBOSITY
S SC --log-prefix / --no-log-prefix $LLAMA_ARG_LOG_PREFIX
S SC --log-timestamps / --no-log-timestamps $LLAMA_ARG_LOG_TIMESTAMPS
I SC -td --spec-draft-threads --threads-draft
I SC -tbd --spec-draft-threads-batch --threads-batch-draft
T SC -Cd --spec-draft-cpu-mask --cpu-mask-draft
T SC -Crd --spec-draft-cpu-range --cpu-range-draft
I SC --spec-draft-cpu-strict --cpu-strict-draft
I SC --spec-draft-prio --prio-draft
I SC --spec-draft-poll --poll-draft
T SC -Cbd --spec-draft-cpu-mask-batch --cpu-mask-batch-draft
I SC --spec-draft-cpu-strict-batch --cpu-strict-batch-draft
I SC --spec-draft-prio-batch --prio-batch-draft
I SC --spec-draft-poll-batch --poll-batch-draft
T SC -otd --spec-draft-override-tensor --override-tensor-draft +
I SC --spec-draft-n-min $LLAMA_ARG_SPEC_DRAFT_N_MIN
T SC --spec-draft-p-split --draft-p-split $LLAMA_ARG_SPEC_DRAFT_P_SPLIT
T SC --spec-draft-p-min --draft-p-min $LLAMA_ARG_SPEC_DRAFT_P_MIN
S SC --spec-draft-backend-sampling / --no-spec-draft-backend-sampling $LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING
I SC --spec-ngram-mod-n-min
I SC --spec-ngram-mod-n-max *
I SC --spec-ngram-mod-n-match
I SC --spec-ngram-simple-size-n
I SC --spec-ngram-simple-size-m *
I SC --spec-ngram-simple-min-hits
I SC --spec-ngram-map-k-size-n
I SC --spec-ngram-map-k-size-m *
I SC --spec-ngram-map-k-min-hits
I SC --spec-ngram-map-k4v-size-n
I SC --spec-ngram-map-k4v-size-m *
I SC --spec-ngram-map-k4v-min-hits
T SC -lzm --lazy-mode | T -lzm --lazy-mode $LLAMA_ARG_LAZY_MODE * @10605-11549
I SC --moe-cache-mib $LLAMA_ARG_MOE_CACHE_MIB * @10605-11549
T SC --video-fps $LLAMA_ARG_VIDEO_FPS @10605-11549
I SC --video-timestamp-interval $LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL @10605-11549
T SC --video-ffmpeg-dir $LLAMA_ARG_VIDEO_FFMPEG_DIR @10605-11549
S SC --log-jsonl / --no-log-jsonl $LLAMA_ARG_LOG_JSONL @10605-11549
T SC --spec-synth-len $LLAMA_ARG_SPEC_SYNTH_LEN @10605-11549
T SC --spec-synth-rates $LLAMA_ARG_SPEC_SYNTH_RATES @10605-11549
T SC --spec-draft-sampling $LLAMA_ARG_SPEC_DRAFT_SAMPLING @10605-11549
F B --progress
I B -r --repetitions
I B --delay
T B -oe --output-err
"""  # noqa: E501


def _row(line: str) -> Option:
    kind, tools, *words = line.split()
    parts: dict[str, list[str]] = {"": [], "/": [], "|": [], "$": [], "*": [], "+": []}
    part, lacking, since = "", 0, 0
    for word in words:
        if word in parts:
            part = word
            parts[word].append(word)
        elif word.startswith("@"):
            lacking, since = map(int, word.removeprefix("@").split("-"))
        elif word.startswith("$"):
            parts["$"].append(word.removeprefix("$"))
        else:
            parts[part].append(word)
    alone = tools == "B"
    bench = parts[""] if alone else parts["|"][2:]
    return Option(
        () if alone else tuple(parts[""]),
        _KINDS[kind],
        env="".join(parts["$"]),
        negative=tuple(parts["/"][1:]),
        tools=tuple(_TOOLS[tool] for tool in tools) + ((BENCH,) if bench and not alone else ()),
        bench=tuple(bench),
        bench_kind=_KINDS[kind if alone else parts["|"][1]] if bench else None,
        memory=bool(parts["*"]),
        adds=bool(parts["+"]),
        lacking=lacking,
        since=since,
    )


def _removed(flags: str, instead: str, env: str = "", *, tools: str = "SC") -> Option:
    return Option(tuple(flags.split()), INT, env=env, removed=instead, until=8763,
                  tools=tuple(_TOOLS[tool] for tool in tools))  # fmt: skip


REMOVED_ROWS = (
    _removed("--draft-min --draft-n-min", "--spec-draft-n-min or --spec-ngram-mod-n-min",
             "LLAMA_ARG_DRAFT_MIN"),
    _removed("--spec-ngram-size-n", "--spec-ngram-simple-size-n, --spec-ngram-map-k-size-n, "
             "--spec-ngram-map-k4v-size-n or --spec-ngram-mod-n-match", tools="S"),
    _removed("--spec-ngram-size-m", "--spec-ngram-simple-size-m, --spec-ngram-map-k-size-m or "
             "--spec-ngram-map-k4v-size-m", tools="S"),
    _removed("--spec-ngram-min-hits", "--spec-ngram-simple-min-hits, "
             "--spec-ngram-map-k-min-hits or --spec-ngram-map-k4v-min-hits", tools="S"),
)  # fmt: skip

PASSED_ROWS = tuple(_row(line) for line in _TABLE.strip().splitlines()) + REMOVED_ROWS
