"""Input-guided aggressive decoding: the source is the draft (Ge et al., 2022)."""
