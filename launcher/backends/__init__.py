"""The doors to where a job runs."""
