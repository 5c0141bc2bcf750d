"""Which of the user's folders hold no links: in those, a file is where its name says, without asking the system."""

from __future__ import annotations

import posix

# One question for each file costs less than to look through the folder, until it was asked this often.
_ASKED_BEFORE_LOOKING = 50
# To look through a larger folder would be felt.
_MOST_ENTRIES = 20_000
_MOST_FOLDERS = 10_000


class LinkFree:
    """About originals, which no trial changes: once known, it stays so."""

    def __init__(self) -> None:
        self.folders: set[str] = set()
        self._asked: dict[str, int] = {}

    def ask(self, folder: str) -> None:
        """A file in it was asked for; when that happens often, find out."""
        asked = self._asked.get(folder, 0) + 1
        if asked > _ASKED_BEFORE_LOOKING:
            return
        if len(self._asked) > _MOST_FOLDERS:
            self._asked.clear()
        self._asked[folder] = asked
        if asked == _ASKED_BEFORE_LOOKING and _has_no_links(folder):
            self.folders.add(folder)


def _has_no_links(folder: str) -> bool:
    try:
        with posix.scandir(folder or "/") as entries:
            for number, entry in enumerate(entries):
                if number > _MOST_ENTRIES or entry.is_symlink():
                    return False
    except OSError:
        return False
    return True
