"""Messages in words: one table per area, English and Chinese side by side, and the renderer that reads them.

Nothing else in flatout makes a sentence of a fact, and nothing reads one.
"""

from __future__ import annotations

from .render import Language, chinese, chinese_if_known, english, render

__all__ = ["Language", "chinese", "chinese_if_known", "english", "render"]
