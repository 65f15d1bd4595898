"""Engines: who shards, behind one small interface."""
