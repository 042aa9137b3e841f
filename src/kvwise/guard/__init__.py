"""The guard of `kvwise run`: start a server, watch it, step down instead of dying.

`session` is the run, `start` one start of the engine; `steps` the ladder, `knobs` what it moves;
`cause` reads why an end came; `line` makes the engine's command; `health`, `memory`, `requests` and
`signals` watch one running child; `tee` and `keep` handle its output; `case`, `rules`, `port` and
`tell` are what their names say. Knows no command line of ours and prints nothing.
"""
