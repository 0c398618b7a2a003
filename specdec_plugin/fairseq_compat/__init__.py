"""The one room that touches fairseq's internals."""
