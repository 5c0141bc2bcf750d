"""What a training script knows about itself, printed as one line for the test to compare with the report."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Truth:
    """Counts steps and samples, and how much of the steady part went into a planted cost."""

    def __init__(self, warmup: int = 5) -> None:
        self.warmup = warmup
        self.samples = 0
        self.begin_ns = time.perf_counter_ns()
        self.ends_ns: list[int] = []
        self.planted_ns: dict[int, int] = {}

    def step(self, samples: int) -> None:
        """One optimizer step ended."""
        self.samples += samples
        self.ends_ns.append(time.perf_counter_ns())

    @contextmanager
    def planted(self) -> Iterator[None]:
        start = time.perf_counter_ns()
        yield
        self.plant(time.perf_counter_ns() - start)

    def plant(self, ns: int) -> None:
        at = len(self.ends_ns)
        self.planted_ns[at] = self.planted_ns.get(at, 0) + ns

    def tell(self, **more: object) -> None:
        """Print everything; the planted share is that of the steps after the warm-up."""
        ends = self.ends_ns
        facts: dict[str, object] = {"steps": len(ends), "samples": self.samples, "begin_ns": self.begin_ns}
        if ends:
            facts |= {"first_end_ns": ends[0], "end_ns": ends[-1]}
        if len(ends) > self.warmup:
            planted = sum(ns for at, ns in self.planted_ns.items() if self.warmup <= at < len(ends))
            facts["planted_share"] = planted / (ends[-1] - ends[self.warmup - 1])
        # In one piece: several ranks share this output, and torchrun makes it unbuffered.
        sys.stdout.write("TRUTH " + json.dumps(facts | more) + "\n")
        sys.stdout.flush()
        # An interpreter that ends looks through all that lives, which takes most of a second after importing torch.
        gc.freeze()
