"""The number that a worker shows to the script's code: `torch.utils.data.get_worker_info()`.

A dataset may have made room for as many workers as the script asks for: a row of statistics each, a list of seeds. With
more of them from outside, one whose number it does not expect fails there. Such a worker then shows a number that the
script knows; one that has it too may be at work at the same time, so this is not done before something has failed.
"""

from __future__ import annotations

from typing import Any

from torch.utils.data._utils import worker as torch_worker


class Number:
    """Of one worker. `known`: how many workers the script asked for, None where it got as many."""

    def __init__(self, worker: int, workers: int, known: int | None, dataset: Any) -> None:
        self._own = (worker, workers)
        self._known = known
        self._dataset = dataset
        self._seed = 0
        self.is_changed = False

    @property
    def shown(self) -> int:
        return self._own[0] % self._known if self.is_changed and self._known else self._own[0]

    def show(self, seed: int | None = None) -> None:
        """From now on the script sees it."""
        self._seed = self._seed if seed is None else seed
        if self.is_changed and not self._known:
            torch_worker._worker_info = None  # as in the process that trains, where it made its samples itself
            return
        workers = self._known if self.is_changed and self._known else self._own[1]
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=self.shown, num_workers=workers, seed=self._seed, dataset=self._dataset
        )

    def change(self) -> bool:
        """Show one that the script knows; False where it does already."""
        if self.is_changed or self._known is None or (self._known and self._own[0] < self._known):
            return False
        self.is_changed = True
        self.show()
        return True

    def change_back(self) -> None:
        self.is_changed = False
        self.show()
