"""Families of models: how many parameters each part has, and how many operations it takes."""
