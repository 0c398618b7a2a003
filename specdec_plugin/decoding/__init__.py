"""One loop for every method: draft, verify, accept, repeat."""
