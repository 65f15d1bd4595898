"""What follows from a recipe: pure arithmetic, standard library only."""
