"""Facts of a model file: where its bytes are, what its header says, what that means."""
