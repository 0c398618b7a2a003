"""Jacobi solvers (Santilli et al., 2023)."""
