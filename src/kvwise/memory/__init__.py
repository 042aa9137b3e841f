"""Arithmetic of memory: pure integer functions of a model, a launch and devices."""
