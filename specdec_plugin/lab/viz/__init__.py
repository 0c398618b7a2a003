"""DDGviz: which tokens are decoded in parallel, drawn iteration by iteration (paper 000, 3.5)."""
