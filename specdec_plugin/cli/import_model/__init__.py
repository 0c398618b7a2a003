"""Checkpoints of other libraries as checkpoints and dictionaries of fairseq."""
