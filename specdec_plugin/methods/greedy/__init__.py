"""Greedy decoding: the empty draft."""
