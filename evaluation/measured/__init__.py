"""Tables of what benchmarks, studies of the estimator and tests of faults have recorded."""
