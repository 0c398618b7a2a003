"""The model drafts for itself, with rounded weights."""
