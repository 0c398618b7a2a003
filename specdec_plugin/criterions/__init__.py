"""Losses of the plugin."""
