"""What training feeds to the models of the plugin."""
