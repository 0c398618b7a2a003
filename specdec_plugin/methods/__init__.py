"""Decoding methods: a folder each, with its options, its drafter, its kernel and its cost."""
