"""Runs inside the job: the door to torch, transformers and DeepSpeed."""
