"""One package per benchmark, and what they share: training, result files, tables and figures."""
