"""What fairseq trains: the models of the plugin."""
