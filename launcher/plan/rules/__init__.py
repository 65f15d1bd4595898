"""Every cross-field rule: what a recipe may not combine, and what should be known before paying."""
