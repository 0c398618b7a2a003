"""Measuring, checking, drawing and scoring."""
