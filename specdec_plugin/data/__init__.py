"""Training inputs of the plugin's models."""
