"""One value of a config file changed, all else as it was; what cannot be changed safely is one line."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as some

from flatout.errors import FlatoutError
from flatout.experiment.tuning import configs
from flatout.experiment.tuning.configs import edit_config

YAML = """\
# the model
MODEL:
  DEPTHS:
  - 2
  - 2
  # about the window
  WINDOW: 8  # pixels
  INNER: {a: [1, 2], b: x}
TRAIN:
  lr: 1e-3
  text: |
    hello
    world
  name: 'abc # no'  # yes
"""


def _edited(folder: Path, name: str, text: str, **values: Any) -> str:
    file = folder / name
    file.write_text(text)
    result = edit_config(file, {key.replace("__", "."): value for key, value in values.items()})
    assert file.read_text() == text, "the user's own file"
    return result


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("MODEL.DEPTHS", "[4, 4]", [4, 4]),
        ("MODEL.WINDOW", 7, 7),
        ("MODEL.INNER.a", "[3]", [3]),
        ("TRAIN.text", "a: b", "a: b"),
        ("TRAIN.name", "zzz", "zzz"),
        ("TRAIN.lr", "[4", "[4"),
        ("TRAIN", "{lr: 2}", {"lr": 2}),
    ],
)
def test_yaml_keeps_all_the_rest(tmp_path: Path, key: str, value: Any, expected: Any) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(YAML)

    after = edit_config(file, {key: value})

    tree = yaml.safe_load(YAML)
    holder = tree
    for part in key.split(".")[:-1]:
        holder = holder[part]
    holder[key.split(".")[-1]] = expected
    assert yaml.safe_load(after) == tree
    assert "# the model" in after and "# about the window" in after


def test_yaml_comments_stay_on_their_lines(tmp_path: Path) -> None:
    after = _edited(tmp_path, "a.yaml", YAML, MODEL__WINDOW=7, TRAIN__name="q")

    assert "  WINDOW: 7  # pixels\n" in after and "  name: q  # yes\n" in after


def test_yaml_without_pyyaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configs, "_yaml", lambda: None)

    after = _edited(tmp_path, "a.yaml", YAML, MODEL__DEPTHS="[4, 4]", MODEL__WINDOW=7, TRAIN__name="q")

    tree = yaml.safe_load(after)
    assert tree["MODEL"] == {"DEPTHS": [4, 4], "WINDOW": 7, "INNER": {"a": [1, 2], "b": "x"}}
    assert tree["TRAIN"]["name"] == "q" and "# about the window" in after
    for key in ("TRAIN__text", "MODEL__INNER__a"):
        with pytest.raises(FlatoutError):
            _edited(tmp_path, "a.yaml", YAML, **{key: "1"})


def test_json(tmp_path: Path) -> None:
    text = '{"m": {"d": [1, 2],\n  "w": 8}, "é": "a,}b"}'

    after = _edited(tmp_path, "a.json", text, m__d="[4,4]", m__w="wide", é=3)

    assert after == '{"m": {"d": [4,4],\n  "w": "wide"}, "é": 3}'
    assert json.loads(after)


def test_toml(tmp_path: Path) -> None:
    text = '# c\n[m]\nd = [1, # one\n 2] # x\nw.z = "a#b" # hi\n[n]\nw=3\n["o.p"]\nw=4\n'

    after = _edited(tmp_path, "a.toml", text, m__d="[4,4]", m__w__z="q", n__w=5)

    assert after == '# c\n[m]\nd = [4,4] # x\nw.z = "q" # hi\n[n]\nw=5\n["o.p"]\nw=4\n'
    assert tomllib.loads(after)["o.p"] == {"w": 4}
    with pytest.raises(FlatoutError, match="a line of its own"):
        _edited(tmp_path, "a.toml", "a = { b = 1 }\n", a__b=2)


def test_python(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text("x = 1\n")
    text = (
        '_base_ = ["./base.py", "./gone.py"]  # é\nmodel = dict(type="é", backbone=dict(w=8, d=[2, 2]))\n'
        'data = {"n": 1}\ncfg.MODEL.X = 3\n'
    )

    after = _edited(tmp_path, "a.py", text, model__backbone__w=7, model__backbone__d="[4,4]", data__n="two", MODEL__X=4)

    # A base is named from the config's own folder, which its copy does not lie in.
    assert after.splitlines() == [
        f'_base_ = ["{tmp_path}/base.py", "./gone.py"]  # é',
        'model = dict(type="é", backbone=dict(w=7, d=[4,4]))',
        "data = {\"n\": 'two'}",
        "cfg.MODEL.X = 4",
    ]


BOMB = "a0: &a0 [l,l,l,l,l,l,l,l,l]\n" + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.yaml", YAML, "a.yaml:2 has no key 'DEPTS' under 'MODEL'; there are DEPTHS"),
        ("a.yaml", "MODEL:\n  DEPTS: !!python/object/apply:os.system ['x']\n", "line 2: python/object/apply:os.system"),
        ("a.yaml", "MODEL: {DEPTS: 1}\n" + BOMB, "its aliases unfold"),
        ("a.yaml", "MODEL: &m\n  DEPTS: *m\n", "its aliases unfold"),
        ("a.yaml", "MODEL: [\n", "line 2 is no YAML"),
        ("a.yaml", "", "the file is empty"),
        ("a.yaml", "MODEL: {DEPTS: &d 1, y: *d}\n", "is no YAML"),
        ("a.json", '{"MODEL": {"DEPTHS": 1}}', "a.json:1 has no key 'DEPTS'"),
        ("a.json", '{"MODEL": 1,}', "is no JSON"),
        ("a.toml", "[MODEL]\nDEPTHS = 1\n", "has no key 'DEPTS'"),
        ("a.py", "MODEL = dict(DEPTHS=1)\n", "a.py:1 has no key 'DEPTS'"),
        ("a.py", "MODEL = (\n", "is no Python"),
    ],
)
def test_what_cannot_be_changed_is_one_line(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(FlatoutError) as raised:
        _edited(tmp_path, name, text, MODEL__DEPTS=4)

    assert says in str(raised.value) and name in str(raised.value)


_NAMES = some.text("abcdefgh_", min_size=1, max_size=6)
_TREES = some.dictionaries(
    _NAMES, some.dictionaries(_NAMES, some.integers() | some.lists(some.integers(), max_size=3), min_size=1), min_size=1
)


@settings(max_examples=25, deadline=None)
@given(_TREES, some.data())
def test_any_key_of_any_file_can_be_changed_alone(tmp_path_factory: Any, tree: dict[str, Any], data: Any) -> None:
    folder = tmp_path_factory.mktemp("configs")
    outer = data.draw(some.sampled_from(sorted(tree)))
    inner = data.draw(some.sampled_from(sorted(tree[outer])))
    is_flow = data.draw(some.booleans())
    (folder / "a.yaml").write_text(yaml.safe_dump(tree, default_flow_style=is_flow))
    (folder / "a.json").write_text(json.dumps(tree, indent=None if is_flow else 2))

    after_yaml = edit_config(folder / "a.yaml", {f"{outer}.{inner}": "[7, 8]"})
    after_json = edit_config(folder / "a.json", {f"{outer}.{inner}": "[7, 8]"})

    tree[outer][inner] = [7, 8]
    assert yaml.safe_load(after_yaml) == tree
    assert json.loads(after_json) == tree
