"""What a name means outside of its file, as the file's imports say."""

from __future__ import annotations

import ast

from flatout.source.module import Module
from flatout.source.nodes import dotted


def full_name(node: ast.expr, module: Module) -> str:
    """`time.sleep` of `sleep` after `from time import sleep`, and of `t.sleep` after `import time as t`."""
    name = dotted(node)
    first, _, rest = name.partition(".")
    brought = module.imports.get(first)
    if brought is None:
        return name
    return ".".join(part for part in (brought.module, brought.attribute, rest) if part)
