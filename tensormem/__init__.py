"""Tensor Memory: a recurrent memory of fixed size for Transformers, the models built on it, and their audit."""

from tensormem.memory import MemoryState, TensorMemory

__all__ = ["MemoryState", "TensorMemory"]
