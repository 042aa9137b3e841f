"""A measured search over what arithmetic cannot know: threads, batches, polling, offload.

`knobs` says what may be turned around the planner's choice, `search` asks for the next setting,
`measure` runs it, `run` does so within a budget as units that resume, and judges what it gains.
"""
