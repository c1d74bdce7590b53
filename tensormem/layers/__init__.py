"""Layers that use the memory: attention with its cache, positions, the block and the stack."""
