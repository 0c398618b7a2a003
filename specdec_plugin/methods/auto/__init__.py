"""The fastest exact way for a model, a machine and the other flags."""
