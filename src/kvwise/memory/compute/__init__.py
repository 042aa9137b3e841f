"""The compute buffer, to the byte: graph -> scheduler -> allocator.

graph.py      tensors, leafs and nodes, as ggml has them
backend.py    what scheduler and allocator ask about a device; devices/: the answers per kind
assign.py     scheduler, passes 1 to 4: a backend for every tensor
schedule.py   scheduler, pass 5: splits and copies, and the final order
freelist.py   free blocks of one buffer
allocate.py   the walk: bytes per backend
"""
