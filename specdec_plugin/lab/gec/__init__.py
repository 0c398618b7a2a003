"""Grammatical error correction: its files and its scores."""
