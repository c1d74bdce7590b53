"""The zoo: complete models, one module per domain."""
