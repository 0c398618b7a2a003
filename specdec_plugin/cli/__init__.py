"""Console programs of the plugin."""
