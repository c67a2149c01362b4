"""Measurements, each against a bare engine in the same run: python -m benchmarks.NAME."""
