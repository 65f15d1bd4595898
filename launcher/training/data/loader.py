"""Which sequences a rank reads, and threads that read them before they are asked for."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from launcher.training.data.sequences import Batch, Sequences

_AHEAD = 2
# Batches in flight for each thread.


def micro_batches(
    step: int, *, global_batch_size: int, micro_batch_size: int, data_rank: int, data_parallel_size: int
) -> list[range]:
    """The ordinals that one data-parallel rank reads in optimizer step ``step`` (0-based), a range a micro batch.

    Step s is made of the ordinals from ``s * global_batch_size`` on, shared out in equal consecutive stretches: which
    sequences a step sees does not depend on the number of ranks, and all a resumed run needs to know is its step.
    """
    share = global_batch_size // data_parallel_size
    first = step * global_batch_size + data_rank * share
    return [range(begin, begin + micro_batch_size) for begin in range(first, first + share, micro_batch_size)]


def read_ahead(sequences: Sequences, ordinals: Iterable[Sequence[int]], *, threads: int) -> Iterator[Batch]:
    """The batches at ``ordinals``, in order, read by ``threads`` before they are asked for; 0 reads when asked.

    An error while reading is raised where its batch would have come. Threads end when the iterator is closed.
    """
    if not threads:
        yield from map(sequences.read, ordinals)
        return
    wanted = iter(ordinals)
    with ThreadPoolExecutor(threads, thread_name_prefix="loader") as pool:
        reading: deque[Future[Batch]] = deque(
            pool.submit(sequences.read, some) for some in islice(wanted, threads * _AHEAD)
        )
        try:
            while reading:
                batch = reading.popleft().result()
                reading.extend(pool.submit(sequences.read, some) for some in islice(wanted, 1))
                yield batch
        finally:
            for future in reading:
                future.cancel()
