"""Clustering decoder states offline, so that few columns of the vocabulary are projected."""
