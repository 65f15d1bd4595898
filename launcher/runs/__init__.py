"""What became of a submission: journal, watch, report."""
