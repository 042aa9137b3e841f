"""Shared pieces of graphs: one file per kind, in the order llama.cpp adds their nodes."""
