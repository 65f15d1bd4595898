"""Facts about the world, each with its source and date: accelerators, VM sizes, prices."""
