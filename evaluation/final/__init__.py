"""The final evaluation: frozen solvers, rivals and peers on data that chose nothing."""
