"""A config file with other values, as a text: only these values change, and what came out is read again to be sure."""

from __future__ import annotations

import ast
import difflib
import json
import os
import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any

from flatout.errors import FlatoutError

Key = tuple[str, ...]
# Keys that name files beside the config itself, which its copy no longer lies beside.
_BASES = ("_base_", "_BASE_", "BASE")


def edit_config(file: Path, values: Mapping[str, Any]) -> str:
    """The text with these values, by keys with dots. Raises FlatoutError with the file and, where known, the line."""
    form = _FORMS[file.suffix.lower()]
    text = _text(file)
    for name, value in values.items():
        plain = ("true" if value else "false") if isinstance(value, bool) else str(value)
        text = _with(form, file, text, tuple(name.split(".")), form.written(plain))
    return _with_bases(form, file, text)


def check_config(file: Path, name: str, values: Sequence[Any]) -> None:
    """Whether every value can be written there; before the first trial is made."""
    for value in values:
        edit_config(file, {name: value})


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except OSError as error:
        raise FlatoutError(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FlatoutError(f"{file} cannot be read: it is no UTF-8") from error


def _with(form: _Form, file: Path, text: str, key: Key, value: str) -> str:
    try:
        after = form.find(text, key).filled(text, value)
        if not form.is_right(text, after, key, value):
            raise _NotReadable(f"{'.'.join(key)} cannot be set to {value!r} without changing more than that")
    except _NotThere as missing:
        raise FlatoutError(_missing(file, key, missing)) from None
    except _NotReadable as error:
        raise FlatoutError(f"{file}: {error}") from None
    return after


def _missing(file: Path, key: Key, missing: _NotThere) -> str:
    wanted = key[missing.depth]
    near = difflib.get_close_matches(wanted, missing.keys, 3, 0.5) or list(missing.keys)[:8]
    under = f" under {'.'.join(key[: missing.depth])!r}" if missing.depth else ""
    there = f"; there are {', '.join(near)}" if near else ""
    return f"{file}:{missing.line} has no key {wanted!r}{under}{there}"


def _with_bases(form: _Form, file: Path, text: str) -> str:
    """A base named from the config's own folder is named in full, since the copy lies elsewhere."""
    for name in _BASES:
        try:
            place = form.find(text, (name,))
        except (_NotThere, _NotReadable):
            continue
        written = place.taken(text).strip()
        full = _in_full(written, file.parent)
        if full != written:
            text = place.filled(text, full)
    return text


def _in_full(written: str, folder: Path) -> str:
    """Names of files that lie there, in a value as it is written: a text or a list of them."""
    try:
        names = ast.literal_eval(written)
    except (ValueError, SyntaxError):
        names = written
    bases = [names] if isinstance(names, str) else names if isinstance(names, list | tuple) else []
    for name in dict.fromkeys(base for base in bases if isinstance(base, str) and base):
        if not os.path.isabs(name) and (folder / name).is_file():
            written = written.replace(name, os.path.abspath(folder / name))
    return written


# Where a key's value stands in the text of a file, by the kind of file.


@dataclass(frozen=True, slots=True)
class _Place:
    """The characters from `start` up to `end` are the value. `before` goes in front of another one."""

    start: int
    end: int
    before: str = ""

    def taken(self, text: str) -> str:
        return text[self.start : self.end]

    def filled(self, text: str, value: str) -> str:
        return text[: self.start] + self.before + value + text[self.end :]


class _NotThere(Exception):
    """The key is not in the file. `depth` parts of it are, and there, at `line`, these keys stand."""

    def __init__(self, depth: int, line: int, keys: Iterable[str]) -> None:
        super().__init__()
        self.depth, self.line, self.keys = depth, line, tuple(keys)


class _NotReadable(Exception):
    """The text is not what its name says, or does what must not be followed; the words say what, with the line."""


class _Form(ABC):
    """A kind of file. All raise _NotThere or _NotReadable."""

    # A value that any key may have.
    anything: str

    @abstractmethod
    def find(self, text: str, key: Key) -> _Place: ...

    @abstractmethod
    def meaning(self, text: str) -> Any:
        """Equal for files that say the same."""

    @abstractmethod
    def value_of(self, text: str) -> Any:
        """The same for a single value."""

    @abstractmethod
    def quoted(self, text: str) -> str: ...

    def written(self, value: str) -> str:
        """The user's text as this kind of file has it: quoted where it is no value already."""
        try:
            self.value_of(value)
        except _NotReadable:
            return self.quoted(value)
        return value

    def is_right(self, before: str, after: str, key: Key, value: str) -> bool:
        """Whether `after` has the value at the key, and says otherwise what `before` said."""
        is_there = self.value_of(self.find(after, key).taken(after)) == self.value_of(value)
        return bool(is_there and self._rest(before, key) == self._rest(after, key))

    def _rest(self, text: str, key: Key) -> Any:
        return self.meaning(self.find(text, key).filled(text, self.anything))


class _Json(_Form):
    anything = "null"
    _space = re.compile(r"[ \t\r\n]*")
    _decoder = json.JSONDecoder()

    def find(self, text: str, key: Key) -> _Place:
        self.meaning(text)
        start = self._skip(text, 0)
        for depth, name in enumerate(key):
            members = self._members(text, start)
            if name not in members:
                raise _NotThere(depth, text.count("\n", 0, start) + 1, members)
            start = members[name]
        return _Place(start, self._decoder.raw_decode(text, start)[1])

    def meaning(self, text: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            line = getattr(error, "lineno", 1)
            raise _NotReadable(f"line {line} is no JSON ({getattr(error, 'msg', error)})") from error

    value_of = meaning

    def quoted(self, text: str) -> str:
        return json.dumps(text)

    def _members(self, text: str, at: int) -> dict[str, int]:
        """Where the value of each member of an object begins."""
        found: dict[str, int] = {}
        if text[at] != "{":
            return found
        at = self._skip(text, at + 1)
        while text[at] == '"':
            name, at = scanstring(text, at + 1)
            at = self._skip(text, self._skip(text, at) + 1)  # behind the colon
            found[name] = at
            at = self._skip(text, self._decoder.raw_decode(text, at)[1])
            if text[at] == ",":
                at = self._skip(text, at + 1)
        return found

    def _skip(self, text: str, at: int) -> int:
        found = self._space.match(text, at)
        assert found is not None  # it matches nothing, too
        return found.end()


class _Toml(_Form):
    """Behind a key, dotted or not, under its table's head."""

    anything = "0"
    _head = re.compile(r"[ \t]*\[([^\[\]]+)\]")
    _part = r"""(?:"[^"\n]*"|'[^'\n]*'|[\w-]+)"""
    _key = re.compile(rf"[ \t]*({_part}(?:[ \t]*\.[ \t]*{_part})*)[ \t]*=[ \t]*")

    def find(self, text: str, key: Key) -> _Place:
        self._check_path(self.meaning(text), key)
        head: Key = ()
        at = 0
        while at < len(text):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            if found := self._head.match(text, at, end):
                head = self._parts(found.group(1))
            elif found := self._key.match(text, at, end):
                stop = self._end_of_value(text, found.end())
                if (*head, *self._parts(found.group(1))) == key:
                    return _Place(found.end(), stop)
                end = max(end, stop) if text.find("\n", stop) < 0 else text.find("\n", stop)
            at = end + 1
        raise _NotReadable(
            f"{'.'.join(key)} stands within an inline table or an array of tables; give it a line of its own"
        )

    def meaning(self, text: str) -> Any:
        try:
            return tomllib.loads(text)
        except ValueError as error:
            raise _NotReadable(str(error)) from error

    def value_of(self, text: str) -> Any:
        return self.meaning(f"value = {text}")["value"]

    def quoted(self, text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    def _check_path(self, tree: Any, key: Key) -> None:
        for depth, name in enumerate(key):
            if not isinstance(tree, dict) or name not in tree:
                raise _NotThere(depth, 1, tree if isinstance(tree, dict) else ())
            tree = tree[name]

    def _end_of_value(self, text: str, start: int) -> int:
        """An array or a text may go over several lines: the shortest beginning that is a value, without its comment."""
        end = start
        while True:
            newline = text.find("\n", end)
            end = len(text) if newline < 0 else newline
            try:
                whole = self.value_of(text[start:end])
                break
            except _NotReadable:
                if newline < 0:
                    raise _NotReadable(f"the value at line {text.count(chr(10), 0, start) + 1} has no end") from None
                end += 1
        # A `#` within a text is no comment: what can be cut off without a change is one.
        for at in (start + place.start() for place in re.finditer("#", text[start:end])):
            try:
                if self.value_of(text[start:at]) == whole:
                    end = at
                    break
            except _NotReadable:
                continue
        return start + len(text[start:end].rstrip())

    def _parts(self, dotted: str) -> Key:
        return tuple(part.strip("\"'") for part in re.findall(self._part, dotted))


class _Python(_Form):
    """A file that assigns: `model = dict(depths=[2, 2])` or `cfg.MODEL.DEPTHS = [2, 2]`."""

    anything = "None"

    def find(self, text: str, key: Key) -> _Place:
        # The last assignment is the one that counts.
        names = {target: value for node in ast.walk(self._tree(text)) for target, value in self._assigned(node)}
        # `cfg.MODEL.DEPTHS = …` is found whole, with or without the name it hangs on.
        whole = ".".join(key)
        for name, value in names.items():
            if name == whole or name.partition(".")[2] == whole:
                return self._place(text, value)
        members, line = names, 1
        for depth, name in enumerate(key):
            if name not in members:
                raise _NotThere(depth, line, members)
            node = members[name]
            members, line = self._members(node), node.lineno
        return self._place(text, node)

    def meaning(self, text: str) -> Any:
        return ast.dump(self._tree(text))

    def value_of(self, text: str) -> Any:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise _NotReadable(f"{text!r} is no literal") from error

    def quoted(self, text: str) -> str:
        return repr(text)

    def _tree(self, text: str) -> ast.Module:
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise _NotReadable(f"line {getattr(error, 'lineno', 1)} is no Python ({error})") from error

    def _assigned(self, statement: ast.AST) -> list[tuple[str, ast.expr]]:
        if isinstance(statement, ast.Assign):
            return [(ast.unparse(target), statement.value) for target in statement.targets]
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            return [(ast.unparse(statement.target), statement.value)]
        return []

    def _members(self, node: ast.expr) -> dict[str, ast.expr]:
        if isinstance(node, ast.Call):
            return {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}
        return {}

    def _place(self, text: str, node: ast.expr) -> _Place:
        lines = text.splitlines(keepends=True)

        def offset(line: int, column: int) -> int:
            # Python counts columns in bytes.
            return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())

        assert node.end_lineno is not None and node.end_col_offset is not None
        return _Place(offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset))


def _yaml() -> Any:
    try:
        import yaml
    except ImportError:
        return None
    return yaml


class _Yaml(_Form):
    """By PyYAML's own marks where it is installed, else line by line.

    Nothing is ever constructed: tags that would run code are refused, and so are aliases that unfold without end.
    """

    anything = "0"
    # Of these, `python/tuple` and plain types are harmless; others name what is to be imported or called.
    _tag = "tag:yaml.org,2002:"
    _runs_code = ("python/object", "python/name", "python/module")
    _most_nodes = 100_000

    def find(self, text: str, key: Key) -> _Place:
        yaml = _yaml()
        if yaml is None:
            return _YamlLines(text).find(key)
        node, place, line = self._composed(text), None, 1
        for depth, name in enumerate(key):
            pairs = node.value if isinstance(node, yaml.MappingNode) else ()
            found = next(((k, v) for k, v in pairs if str(k.value) == name), None)
            if found is None:
                raise _NotThere(depth, line, (str(k.value) for k, _ in pairs))
            named, node = found
            line = named.start_mark.line + 1
            place = _Place(text.index(":", named.end_mark.index) + 1, self._end(text, node), " ")
        assert place is not None
        return place

    def meaning(self, text: str) -> Any:
        return self._shape(self._composed(text))

    value_of = meaning

    def quoted(self, text: str) -> str:
        return json.dumps(text, ensure_ascii=False)

    def written(self, value: str) -> str:
        yaml = _yaml()
        if yaml is None:
            return value
        try:
            node = yaml.compose(value, yaml.SafeLoader)
        except yaml.YAMLError:
            return self.quoted(value)
        # `a: 1` is a mapping by itself, and none where it stands behind a key.
        is_block = isinstance(node, yaml.CollectionNode) and not node.flow_style
        return self.quoted(value) if node is None or is_block else value

    def is_right(self, before: str, after: str, key: Key, value: str) -> bool:
        if _yaml() is None:
            return self.find(after, key).taken(after).strip() == value
        node = self._composed(after)
        for name in key:
            node = next(v for k, v in node.value if str(k.value) == name)
        return bool(self._shape(node) == self.meaning(value)) and self._rest(before, key) == self._rest(after, key)

    def _composed(self, text: str) -> Any:
        """The root of a file that is safe to look at. Needs PyYAML."""
        yaml = _yaml()
        try:
            root = yaml.compose(text, yaml.SafeLoader)
        except (yaml.YAMLError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            line = 1 if mark is None else mark.line + 1
            raise _NotReadable(f"line {line} is no YAML ({getattr(error, 'problem', error)})") from error
        if root is None:
            raise _NotReadable("line 1: the file is empty")
        self._size(root, {})
        return root

    def _end(self, text: str, node: Any) -> int:
        """A block ends with its last scalar: what follows up to the next key are comments that stay."""
        last = node
        while isinstance(last.value, list) and last.value and not last.flow_style:
            last = last.value[-1][1] if isinstance(last.value[-1], tuple) else last.value[-1]
            if last.start_mark.index < node.start_mark.index:  # an alias, whose own place is elsewhere
                return len(text[: int(node.end_mark.index)].rstrip())
        end = int(last.end_mark.index)
        # A block scalar ends at the beginning of the next line.
        return len(text[:end].rstrip()) if isinstance(last.value, str) and last.style in ("|", ">") else end

    def _size(self, node: Any, known: dict[int, int]) -> int:
        """Nodes it would unfold to; the same node counts as often as it is named."""
        if any(node.tag.startswith(self._tag + tag) for tag in self._runs_code):
            raise _NotReadable(f"line {node.start_mark.line + 1}: {node.tag.removeprefix(self._tag)} would run code")
        if id(node) in known:
            return known[id(node)]
        known[id(node)] = self._most_nodes + 1  # a node that holds itself unfolds without end
        children = [] if isinstance(node.value, str) else node.value
        flat = [part for child in children for part in (child if isinstance(child, tuple) else (child,))]
        size = 1 + sum(self._size(child, known) for child in flat)
        if size > self._most_nodes:
            raise _NotReadable(
                f"line {node.start_mark.line + 1}: its aliases unfold to more than {self._most_nodes:,} values"
            )
        known[id(node)] = size
        return size

    def _shape(self, node: Any) -> Any:
        """Equal for texts that say the same, without constructing what they say."""
        if isinstance(node.value, str):
            return node.tag, node.value
        parts = [tuple(map(self._shape, part)) if isinstance(part, tuple) else self._shape(part) for part in node.value]
        return node.tag, tuple(parts)


class _YamlLines:
    """YAML by indentation alone, for flatout in an environment without PyYAML.

    Only what is plain: keys on lines of their own, without quotes, anchors or tags, outside of `{…}`.
    """

    _key = re.compile(r"( *)([\w.\-/]+):(?=[ \t]|$)")
    _comment = re.compile(r"[ \t]+#[^\n]*$|^[ \t]*#[^\n]*$")
    _odd = re.compile(r"^\s*[&!*|>]")

    def __init__(self, text: str) -> None:
        self._lines: list[str] = []
        self._starts: list[int] = []
        at = 0
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            if "\t" in line[: len(line) - len(line.lstrip())] or (line.startswith("---") and number > 1):
                raise _NotReadable(f"line {number}: needs PyYAML to be read (pip install pyyaml)")
            self._lines.append(line.rstrip("\r\n"))
            self._starts.append(at)
            at += len(line)

    def find(self, key: Key) -> _Place:
        first, last, outer = 0, len(self._lines), -1
        for depth, name in enumerate(key):
            keys = self._keys(first, last, outer)
            if name not in keys:
                raise _NotThere(depth, max(1, first), keys)
            at = keys[name]
            first, last, outer = at + 1, self._end_of_block(at), self._indent(at)
        return self._place(first - 1, last, outer)

    def _keys(self, first: int, last: int, outer: int) -> dict[str, int]:
        """The lines of the keys right below the outer one; the first of a name counts."""
        deeper = [at for at in range(first, last) if not self._is_empty(at) and self._indent(at) > outer]
        level = [at for at in deeper if self._indent(at) == self._indent(deeper[0])]
        found = {match.group(2): at for at in reversed(level) if (match := self._key.match(self._lines[at]))}
        return dict(reversed(found.items()))

    def _indent(self, at: int) -> int:
        return len(self._lines[at]) - len(self._lines[at].lstrip(" "))

    def _is_empty(self, at: int) -> bool:
        return not self._comment.sub("", self._lines[at]).strip()

    def _end_of_block(self, at: int) -> int:
        """The first line after it that is not deeper; a list may stand at its key's own depth."""
        indent, end = self._indent(at), at + 1
        for number in range(at + 1, len(self._lines)):
            if self._is_empty(number):
                continue
            is_item = self._lines[number].lstrip().startswith("- ")
            if self._indent(number) < indent or (self._indent(number) == indent and not is_item):
                break
            end = number + 1
        return end

    def _place(self, at: int, end: int, indent: int) -> _Place:
        behind = self._lines[at].index(":", indent) + 1
        rest, start = self._lines[at][behind:], self._starts[at] + behind
        if self._odd.match(rest) or (end > at + 1 and rest.strip() and not self._comment.fullmatch(rest)):
            raise _NotReadable(f"line {at + 1}: needs PyYAML to be edited (pip install pyyaml)")
        if end > at + 1:
            return _Place(start, self._starts[end - 1] + len(self._comment.sub("", self._lines[end - 1]).rstrip()), " ")
        quoted = re.match(r"\s*(\"[^\"]*\"|'[^']*')", rest)
        value = quoted.group(0) if quoted else self._comment.sub("", rest)
        return _Place(start, start + len(value.rstrip()), " ")


_FORMS: dict[str, _Form] = {
    ".json": _Json(),
    ".py": _Python(),
    ".toml": _Toml(),
    ".yaml": _Yaml(),
    ".yml": _Yaml(),
}
