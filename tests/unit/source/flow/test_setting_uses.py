"""What counts as a use of a setting, and what only stores, checks or shows it."""

from __future__ import annotations

import textwrap

import pytest

from flatout.source.flow.setting_uses import SettingUses
from flatout.source.project.loading import load_texts


def uses(text: str, as_whole: bool = False) -> SettingUses:
    project = load_texts({"train.py": textwrap.dedent(text)})
    return SettingUses(project, project.modules, as_whole=as_whole)


@pytest.mark.parametrize(
    "text",
    [
        "loader = DataLoader(data, num_workers=args.workers)",
        "n = args.workers\nloader = DataLoader(data, num_workers=n)",
        "n = int(args.workers or 4)\npool = Pool(n)",
        "if args.workers:\n    start()",
        "if args.workers:\n    print(1)",
        "def make(count):\n    return Pool(count)\nmake(args.workers)",
        "def make(count):\n    return Pool(count)\nmake(count=cfg['workers'])",
        "class A:\n    def __init__(self, a):\n        self.n = a.workers\n    def f(self):\n        Pool(self.n)",
        "for name in ['lr', 'workers']:\n    setattr(model, name, getattr(args, name))",
        "def f():\n    return args.workers",
        "a, b = args.lr, args.workers\nrun(b)",
        "total = args.workers * 2\nrun(total)",
    ],
)
def test_it_is_used(text: str) -> None:
    assert uses(text).is_used("workers")


@pytest.mark.parametrize(
    "text",
    [
        "parser.add_argument('--workers', dest='workers')",
        "print(args.workers)",
        "logger.info('workers: %d', args.workers)",
        "name = f'run-{args.workers}'\nsave(name)",
        "if args.workers < 0:\n    raise ValueError('workers')",
        "assert args.workers > 0",
        "self.workers = args.workers",
        "workers = args.workers",
        "n = args.workers\nprint(n)",
        "def make(data, count):\n    return DataLoader(data)\nmake(data, args.workers)",
        "def make(data, workers):\n    return DataLoader(data)\nmake(data, workers=args.workers)",
        "wandb.init(config={'workers': args.workers})",
        "settings = dict(workers=args.workers)",
        "KNOWN = ('lr', 'workers')\nif name in KNOWN:\n    check(name)",
    ],
)
def test_it_is_not_used(text: str) -> None:
    assert not uses(text).is_used("workers")


def test_settings_that_are_handed_on_as_a_whole() -> None:
    assert uses("engine = library.Engine(args)").takes_whole()
    assert uses("engine = Engine(**vars(args))").takes_whole()
    assert uses("value = getattr(cfg, name)").takes_whole()
    assert not uses("def run(args):\n    pass\nrun(args)").takes_whole()
    assert not uses("print(args)\njson.dump(vars(args), file)\nwandb.init(config=args)").takes_whole()
    assert not uses("value = getattr(cfg, 'lr')").takes_whole()


def test_a_section_that_is_handed_on_as_a_whole() -> None:
    assert uses("loader = DataLoader(data, **cfg['loader'])", as_whole=True).is_used("loader")
    assert uses("loader = instantiate(cfg.loader)", as_whole=True).is_used("loader")
    assert not uses("loader = DataLoader(data, batch_size=cfg.loader.size)", as_whole=True).is_used("loader")
    assert not uses("for batch in loader:\n    train(loader)", as_whole=True).is_used("loader")
