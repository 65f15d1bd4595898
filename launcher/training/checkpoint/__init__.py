"""Checkpoints: one form for all engines and layouts, committed whole or not at all."""
