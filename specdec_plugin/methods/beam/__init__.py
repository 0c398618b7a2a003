"""Beam search: fairseq's, hypothesis for hypothesis, on this plugin's engines."""
