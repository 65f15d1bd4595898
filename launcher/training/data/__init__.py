"""Text and tokenized shards in, shuffled fixed-length sequences of tokens out."""
