"""Model parallelism over transformers' blocks: tensor, sequence, context, expert and pipeline, on plain tensors."""
