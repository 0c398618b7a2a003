"""Grammatical error correction: what its files say."""
