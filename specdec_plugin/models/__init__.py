"""The models that fairseq trains."""
