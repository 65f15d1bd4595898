"""What shall run, in the words of no backend."""
