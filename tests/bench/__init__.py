"""Measurements of speed: `make bench` and `make bench-scale`. Figures are ratios against a baseline of the same run."""
