"""Plan, launch and track distributed training of large models on Azure ML, or on this machine."""

__version__ = "0.1.0"
