"""The door to Hydra: overrides and files in, a typed recipe with origins out."""
