"""The memory itself: a grid that tokens write to and read from at continuous coordinates."""

from tensormem.memory.tensor_memory import MemoryState, TensorMemory, without_reads

__all__ = ["MemoryState", "TensorMemory", "without_reads"]
