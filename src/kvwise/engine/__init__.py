"""The engine: the only package that starts processes.

`find` says which engines are here, `server` runs one, `process` keeps its child in hand, `log`
reads what it says. Nothing here computes what llama.cpp should allocate.
"""
