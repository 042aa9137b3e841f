"""The compute buffer of an image encoder: llama.cpp's own graph (tools/mtmd) under its allocator.

eye.py       what the header of an mmproj file says about its encoder, and how large images get
sight.py     the graph under construction, and the pieces that encoders share
towers.py    which graph belongs to which projector; SigLIP's, and those with class tokens
rotated.py   encoders whose attention turns with two positions
pairs.py     encoders that see a pair of frames, in squares of patches
measure.py   bytes for an image size; an upper estimate where no graph is known
"""
