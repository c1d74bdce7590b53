"""One page of everything that was measured: tables, curves, figures and runs, in a file that needs nothing else."""
