"""What was asked: the schema of a recipe, its strict decoder, and its digest."""
