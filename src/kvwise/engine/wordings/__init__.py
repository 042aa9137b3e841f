"""How engines, wrappers, drivers and the system word what goes wrong: one table per theme.

A row is (code, needle, pattern): the needle is looked for first, plainly; the pattern's named
groups are the values that the line carries. One copy of each wording: `failures.py` reads failures,
`remarks.py` lines that are none by themselves. Sources: the strings of llama.cpp b10605 and b11549
(src, common, ggml, tools), the same words of earlier builds, Ollama, LM Studio, llama-cpp-python,
KoboldCpp, the Linux kernel and drivers as public issues quote them.
"""

from __future__ import annotations

Wording = tuple[str, str, str]
