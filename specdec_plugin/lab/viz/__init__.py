"""DDGviz: which tokens are decoded in parallel, by iteration (Santilli et al., 2023, 3.5)."""
