"""The place of a value in YAML: by PyYAML's own marks where it is installed, else line by line.

Nothing is ever constructed: tags that would run code are refused, and so are aliases that unfold without end.
"""

from __future__ import annotations

import json
from typing import Any

from flatout.experiment.tuning.configs import yaml_lines
from flatout.experiment.tuning.configs.places import Key, NotReadable, NotThere, Place

# Of these, `python/tuple` and plain types are harmless; others name what is to be imported or called.
_TAG = "tag:yaml.org,2002:"
_RUNS_CODE = ("python/object", "python/name", "python/module")
_MOST_NODES = 100_000


def find(text: str, key: Key) -> Place:
    yaml = _yaml()
    if yaml is None:
        return yaml_lines.find(text, key)
    root = composed(text)
    node, place, line = root, None, 1
    for depth, name in enumerate(key):
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        found = next(((k, v) for k, v in pairs if str(k.value) == name), None)
        if found is None:
            raise NotThere(depth, line, (str(k.value) for k, _ in pairs))
        named, node = found
        line = named.start_mark.line + 1
        place = Place(_behind_colon(text, named.end_mark.index), _end(text, node), " ")
    assert place is not None
    return place


def written(value: str) -> str:
    """As YAML, where the user's text is not one value already."""
    yaml = _yaml()
    if yaml is None:
        return value
    try:
        node = yaml.compose(value, yaml.SafeLoader)
        # `a: 1` is a mapping by itself, and none where it stands behind a key.
        is_block = isinstance(node, yaml.CollectionNode) and not node.flow_style
        return json.dumps(value, ensure_ascii=False) if node is None or is_block else value
    except yaml.YAMLError:
        return json.dumps(value, ensure_ascii=False)


def is_right(before: str, after: str, key: Key, value: str) -> bool:
    if _yaml() is None:
        return yaml_lines.is_right(after, key, value)
    node = composed(after)
    for name in key:
        node = next(v for k, v in node.value if str(k.value) == name)
    return bool(_shape(node) == _shape(composed(value)) and _without(before, key) == _without(after, key))


def composed(text: str) -> Any:
    """The root of a file that is safe to look at. Needs PyYAML."""
    yaml = _yaml()
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = 1 if mark is None else mark.line + 1
        raise NotReadable(f"line {line} is no YAML ({getattr(error, 'problem', error)})") from error
    if root is None:
        raise NotReadable("line 1: the file is empty")
    _size(root, {})
    return root


def _yaml() -> Any:
    try:
        import yaml
    except ImportError:
        return None
    return yaml


def _without(text: str, key: Key) -> Any:
    """What it says besides the value at the key."""
    place = find(text, key)
    return _shape(composed(f"{text[: place.start]} 0{text[place.end :]}"))


def _behind_colon(text: str, at: int) -> int:
    return text.index(":", at) + 1


def _end(text: str, node: Any) -> int:
    """A block ends with its last scalar: what follows up to the next key are comments that stay."""
    last = node
    while isinstance(last.value, list) and last.value and not last.flow_style:
        last = last.value[-1][1] if isinstance(last.value[-1], tuple) else last.value[-1]
        if last.start_mark.index < node.start_mark.index:  # an alias, whose own place is elsewhere
            return len(text[: int(node.end_mark.index)].rstrip())
    end = int(last.end_mark.index)
    # A block scalar ends at the beginning of the next line.
    return len(text[:end].rstrip()) if isinstance(last.value, str) and last.style in ("|", ">") else end


def _size(node: Any, known: dict[int, int]) -> int:
    """Nodes it would unfold to; the same node counts as often as it is named."""
    if any(node.tag.startswith(_TAG + tag) for tag in _RUNS_CODE):
        raise NotReadable(f"line {node.start_mark.line + 1}: {node.tag.removeprefix(_TAG)} would run code")
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = _MOST_NODES + 1  # a node that holds itself unfolds without end
    children = [] if isinstance(node.value, str) else node.value
    flat = [one for child in children for one in (child if isinstance(child, tuple) else (child,))]
    size = 1 + sum(_size(child, known) for child in flat)
    if size > _MOST_NODES:
        raise NotReadable(f"line {node.start_mark.line + 1}: its aliases unfold to more than {_MOST_NODES:,} values")
    known[id(node)] = size
    return size


def _shape(node: Any) -> Any:
    """Equal for texts that say the same, without constructing what they say."""
    if isinstance(node.value, str):
        return node.tag, node.value
    parts = [tuple(map(_shape, one)) if isinstance(one, tuple) else _shape(one) for one in node.value]
    return node.tag, tuple(parts)
