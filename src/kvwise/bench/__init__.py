"""Speed and sizes of many settings, measured side by side.

`cases` makes the settings and the tests of each, `ruled` finds out which of them llama.cpp would
refuse or memory cannot hold, `schedule` cuts the work into units that go round over all settings.
A unit is one start of an engine: `by_tool` of llama-bench, `by_server` of a server. `watch` notices
who else computed meanwhile, `effects` which settings did not take effect, `memory` puts the
engine's sizes beside ours. `run` does all units as a job; `summary`, `remarks` and `documents` say
what came out.
"""

from __future__ import annotations
