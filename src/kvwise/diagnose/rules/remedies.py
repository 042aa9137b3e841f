"""What helps against several causes: one copy of each sentence."""

from __future__ import annotations

from kvwise.diagnose.rules.asking import remedy

DRAFT_FROM_TEXT = remedy("or draft from the text itself", "--spec-type ngram-simple")
END_OLD = remedy("end the old process before the next load")
F16_CACHE = remedy("an f16 cache", "-ctk f16", "-ctv f16")
FEWER_CHECKPOINTS = remedy("keep fewer checkpoints", "--ctx-checkpoints 8")
FEWER_DRAFTED = remedy("draft fewer tokens: each keeps a snapshot", "--spec-draft-n-max 2")
FEWER_LAYERS = remedy("put fewer layers on the GPU, or let --fit choose: leave -ngl away", "-ngl N")
FLASH = remedy("turn flash attention on: the attention matrix disappears", "-fa on")
LIMIT_BINDS = remedy(
    "more memory was free than was refused: a limit binds the process, see it and raise it, or the "
    "container's",
    "ulimit -v",
)
NEWER_BUILD = remedy("try a newer build")
NEWER_DRIVER = remedy("update the driver")
NEWER_FILE = remedy("take a newer conversion of the model")
NOTHING = remedy("nothing to mend")
NO_FLASH = remedy("without flash attention, to see whether it is that", "-fa off")
ONE_SLOT = remedy("use one slot if only one request runs at a time", "-np 1")
OTHER_BUILD = remedy("take another build")
OWN_KERNELS = remedy("types with a kernel of their own", "-ctk q8_0", "-ctv q8_0")
PARTS_TOGETHER = remedy("put all parts into one folder under their own names")
RAISE_LIMIT = remedy("raise the container's memory limit")
RESTART = remedy("restart the server when memory stays taken")
SAY_MORE = remedy("show more of what it does", "--verbosity 4")
SHORTER = remedy("set the context to what is needed", "-c N")
SHORTER_STILL = remedy("a shorter context", "-c N")
SMALLER_PIECES = remedy("smaller pieces of work", "-ub 128")
SMALLER_UBATCH = remedy("take a smaller physical batch", "-ub 256")
