"""All methods side by side, in one process, on the same sentences."""
