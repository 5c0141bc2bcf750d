"""A training with all its files: where it begins, and what its text says."""

from __future__ import annotations

import pytest

from flatout.source.code import Code
from flatout.source.project.loading import load_texts
from flatout.source.training.jobs import TrainingJob, nearby_modules, text_pattern

_LOOP = "def train(model, loader):\n    for x in loader:\n        model(x).backward()\n        optimizer.step()\n"
_SAID = text_pattern(r"\btf32\b", "tf32")


def jobs(**files: str) -> tuple[TrainingJob, ...]:
    named = {f"{name.replace('__', '/')}.py": text for name, text in files.items()}
    return Code(load_texts(named)).jobs


def test_a_setting_of_any_file_counts_whichever_imports_the_other() -> None:
    (one,) = jobs(engine=_LOOP, main="import engine, setup\n", setup="tf32 = True\n", other="tf32 = True\n")

    assert {module.name for module in one.modules} == {"engine", "main", "setup"}
    assert one.says(_SAID)


def test_what_files_of_another_training_say_does_not_count() -> None:
    (one,) = jobs(engine=_LOOP, main="import engine\n", other="tf32 = True\n")

    assert not one.says(_SAID)


def test_comments_and_parts_of_words_say_nothing() -> None:
    (one,) = jobs(engine=_LOOP + "# tf32 = True\nx = 1  # tf32\nntf32_ = 2\n")

    assert not one.says(_SAID)


@pytest.mark.parametrize(
    ("config", "counts"),
    [
        ("config.yaml", True),
        ("a/config.yaml", True),
        ("a/configs/model/base.yaml", True),
        ("a/src/deep/config.yaml", True),
        ("configs/a.yaml", True),
        ("b/config.yaml", False),
        ("a/data/config.yaml", False),
    ],
)
def test_config_files_around_it_say_something_too(config: str, counts: bool) -> None:
    code = Code(load_texts({"a/src/train.py": _LOOP, config: "tf32: true\n"}))

    assert code.jobs[0].says(_SAID) == counts


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("import lightning as L\ntrainer = L.Trainer()\ntrainer.fit(model)\n", "lightning"),
        ("from pytorch_lightning import Trainer\nTrainer().fit(model)\n", "lightning"),
        (
            "from transformers import TrainingArguments, Trainer\nTrainer(m, TrainingArguments('o')).train()\n",
            "transformers",
        ),
        ("from trl import SFTConfig, SFTTrainer\nSFTTrainer(m, args=SFTConfig()).train()\n", "transformers"),
    ],
)
def test_a_framework_trains_where_its_trainer_is_made(text: str, kind: str) -> None:
    assert [one.kind for one in jobs(main=text)] == [kind]


@pytest.mark.parametrize(
    "text",
    [
        "from mine import Trainer\nTrainer().fit(model)\n",
        "import lightning as L\nL.Trainer().test(model)\n",
        "for x in range(10):\n    print(x)\n",
    ],
)
def test_what_trains_nothing_is_no_training(text: str) -> None:
    assert not jobs(main=text)


def test_an_attack_and_a_test_are_no_trainings() -> None:
    attack = "def perturb(x):\n    for _ in range(9):\n        f(x).backward()\n        optimizer.step()\n"

    assert not jobs(attack=attack)
    assert not jobs(tests__test_engine=_LOOP)
    assert jobs(engine=attack.replace("perturb", "train"))


def test_near_are_files_one_import_away() -> None:
    (one,) = jobs(engine="import net\n" + _LOOP, net="import layers\n", layers="", main="import engine\n")

    assert {module.name for module in nearby_modules(one)} == {"engine", "net", "main"}
