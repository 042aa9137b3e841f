"""What stands beside the model and its context: one file per kind, each a line of its own.

companions.py   the files that stand beside the model, opened by whoever asks
seats.py        device numbers for everything, also on devices that the model does not use
draft.py        a draft model, or the MTP layers' own context, and what they cost the target
lora.py         adapters: weights beside those they adapt
projector.py    --mmproj: weights and where they are; vision/: the compute buffer per image
held.py         what llama-server keeps in host memory: prompt cache and context checkpoints
state.py        bytes of one sequence's state as the engine writes it out
"""
