"""Which constant reaches a call, and where it is written."""

from __future__ import annotations

import ast
import textwrap

from flatout.source.loading import of_texts
from flatout.source.values import Value, Values


def value(files: dict[str, str] | str) -> Value | None:
    """What reaches `probe(…)`."""
    texts = {"train.py": files} if isinstance(files, str) else files
    project = of_texts({name: textwrap.dedent(text) for name, text in texts.items()})
    for module in project.modules:
        for function in module.functions:
            for call in function.calls:
                if isinstance(call.func, ast.Name) and call.func.id == "probe":
                    return Values(project).of(call.args[0], function)
    raise AssertionError("no probe")


def found(files: dict[str, str] | str) -> tuple[object, str, int] | None:
    one = value(files)
    return None if one is None else (one.value, one.place.file, one.place.line)


def test_literals_names_and_globals() -> None:
    assert found("probe(3)") == (3, "train.py", 1)
    assert found("N = 0\ndef f():\n    probe(N)\n") == (0, "train.py", 1)
    assert found("def f():\n    n = 2\n    n = 3\n    probe(n)\n") is None
    assert found("probe(-1)") == (-1, "train.py", 1)
    assert found("probe(os.cpu_count())") is None


def test_argparse_defaults_also_through_functions_and_files() -> None:
    options = """
        import argparse

        def parsed():
            parser = argparse.ArgumentParser()
            parser.add_argument("-j", "--num-workers", type=int, default=0)
            parser.add_argument("--pin", action="store_true")
            return parser.parse_args()
    """
    train = """
        from options import parsed

        def loaders(workers):
            probe(workers)

        def main():
            args = parsed()
            loaders(args.num_workers)
    """
    assert found({"train.py": train, "options.py": options}) == (0, "options.py", 6)
    assert found({"train.py": "probe(args.pin)", "options.py": options}) == (False, "options.py", 7)
    assert found({"train.py": "probe(something.pin)", "options.py": options}) is None


def test_two_scripts_with_their_own_options_are_told_apart() -> None:
    one = "parser.add_argument('--workers', default=0)\n"
    assert found({"train.py": one.replace("0", "4") + "probe(args.workers)", "b.py": one}) == (4, "train.py", 1)
    assert found({"train.py": "probe(args.workers)", "a.py": one, "b.py": one.replace("0", "4")}) is None


def test_defaults_of_parameters_if_no_caller_says_otherwise() -> None:
    text = "def f(n=0):\n    probe(n)\n"
    assert found(text) == (0, "train.py", 1)
    assert found(text + "f()\n") == (0, "train.py", 1)
    assert found(text + "f(4)\n") == (4, "train.py", 3)
    assert found(text + "f(4)\nf(5)\n") is None
    assert found(text + "f(**settings)\n") is None


def test_attributes_dataclasses_and_modules_of_constants() -> None:
    holder = """
        class Data:
            def __init__(self, workers=0):
                self.workers = workers

            def loader(self):
                probe(self.workers)
    """
    assert found(holder) == (0, "train.py", 3)
    fields = """
        @dataclass
        class Config:
            workers: int = 0
            pin: bool = field(default=False)

        def run(config: Config):
            probe(config.workers)
    """
    assert found(fields) == (0, "train.py", 4)
    assert found({"train.py": "import settings\nprobe(settings.WORKERS)", "settings.py": "WORKERS = 0\n"}) == (
        0,
        "settings.py",
        1,
    )


def test_dicts_in_code_and_keys_of_config_files() -> None:
    assert found("cfg = {'a': 1,\n       'workers': 0}\nprobe(cfg['workers'])") == (0, "train.py", 2)
    assert found("cfg = dict(workers=0)\nprobe(cfg.get('workers', 4))") == (0, "train.py", 1)
    assert found({"train.py": "probe(cfg.data.workers)", "c.yaml": "data:\n  workers: 0\n"}) == (0, "c.yaml", 2)
    assert found({"train.py": "probe(cfg['data']['workers'])", "c.json": '{"data": {"workers": 2}}'}) == (
        2,
        "c.json",
        1,
    )
    two = {"a.yaml": "workers: 0\n", "b.yaml": "workers: 8\n"}
    assert found({"train.py": "probe(cfg.workers)", **two}) is None
    assert found("probe(getattr(args, 'workers', 0))") == (0, "train.py", 1)


def test_a_branch_that_a_known_flag_leads_to() -> None:
    assert found("fast = False\nprobe(8 if fast else 0)") == (0, "train.py", 2)
    assert found("probe(8 if torch.cuda.is_available() else 0)") is None


def test_what_goes_round_in_a_circle_ends() -> None:
    assert found("a = b\nb = a\nprobe(a)") is None
    assert found("def f(n):\n    probe(n)\n    f(n)\n") is None
