"""Measuring, drawing and scoring."""
