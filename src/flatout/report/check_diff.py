"""What `--fix` would change as a unified diff that `patch -p1` and `git apply` take, and what it would not."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence

from flatout.records.source import SourceFinding
from flatout.report.check import counted, where
from flatout.report.text import clean

_MISSING = b"\n\\ No newline at end of file\n"
_COLORS = {b"+": b"\x1b[32m", b"-": b"\x1b[31m", b"@": b"\x1b[36m"}


def diff(before: Mapping[str, bytes], after: Mapping[str, bytes], *, color: bool) -> bytes:
    """Bytes, because files may be in any encoding."""
    lines = [line for file in sorted(after) for line in _of_file(file, before[file], after[file])]
    return b"".join(_colored(line) if color else line for line in lines)


def _of_file(file: str, before: bytes, after: bytes) -> Iterator[bytes]:
    name = _name(file)
    names = (f"a/{name}".encode(errors="surrogateescape"), f"b/{name}".encode(errors="surrogateescape"))
    # A tab ends a name that has blanks in it.
    from_file, to_file = (one + b"\t" if b" " in one else one for one in names)
    found = difflib.diff_bytes(difflib.unified_diff, _lines(before), _lines(after), from_file, to_file)
    for line in found:
        yield line if line.endswith(b"\n") else line + _MISSING


def _lines(data: bytes) -> list[bytes]:
    """As `patch` counts them: only a line feed ends one."""
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _name(file: str) -> str:
    """Below the current folder where it is, since that is where the diff is applied."""
    within = os.path.relpath(file)
    return (file.lstrip("/") if within.startswith("..") else within).replace(os.sep, "/")


def _colored(line: bytes) -> bytes:
    if line.startswith((b"---", b"+++")):
        return b"\x1b[1m" + line.rstrip(b"\n") + b"\x1b[0m\n"
    start = _COLORS.get(line[:1])
    return line if start is None else start + line.rstrip(b"\n") + b"\x1b[0m\n"


def outlook(first: Sequence[SourceFinding], fixed: int, files: int, *, unsafe: bool) -> str:
    """What the diff does, and what it leaves: findings that need more leave, and those nobody can fix for the user."""
    lines = [f"{fixed:,} would be fixed in {counted(files, 'file')}." if fixed else "Nothing would be changed."]
    held = [one for one in first if one.fix is not None and not one.fix.is_safe and not unsafe]
    never = [one for one in first if one.fix is None]
    for words, findings in (
        ("Only with --unsafe-fixes, which may change what the script computes or prints:", held),
        ("Not to be fixed without you:", never),
    ):
        if findings:
            lines += [words, *(f"  {where(one.place)}: {one.code} {clean(one.title)}" for one in findings)]
    return "\n".join(lines) + "\n"
