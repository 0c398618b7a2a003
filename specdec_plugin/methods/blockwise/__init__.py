"""Blockwise parallel decoding: the model's own proposal heads draft (Stern et al., 2018)."""
