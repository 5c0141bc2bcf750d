"""Which constant reaches a call, and where it is written."""

from __future__ import annotations

import ast
import textwrap

from flatout.source.flow.values import Value, Values
from flatout.source.project.loading import load_texts


def value(files: dict[str, str] | str) -> Value | None:
    """What reaches `probe(…)`."""
    texts = {"train.py": files} if isinstance(files, str) else files
    project = load_texts({name: textwrap.dedent(text) for name, text in texts.items()})
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


def test_defaults_of_options_that_are_constants_text_or_set_later() -> None:
    parser = "parser.add_argument('--workers', type=int, default={})\n"
    assert found("N = 0\n" + parser.format("N") + "probe(args.workers)") == (0, "train.py", 1)
    assert found(parser.format("'0'") + "probe(args.workers)") == (0, "train.py", 1)
    assert found(parser.format(8) + "parser.set_defaults(workers=0)\nprobe(args.workers)") == (0, "train.py", 2)
    assert found(parser.format(0) + "args.workers = os.cpu_count()\nprobe(args.workers)") is None
    trainer = "class T:\n    def __init__(self, args):\n        self.args = args\n    def f(self):\n        probe({})\n"
    assert found(parser.format(0) + trainer.format("self.args.workers")) == (0, "train.py", 1)
    assert found(parser.format(0) + "probe(vars(args)['workers'])") == (0, "train.py", 1)
    assert found("parser.add_argument('--workers', **common)\nprobe(args.workers)") is None


def test_click_typer_and_absl() -> None:
    click = "@click.command()\n@click.option('--workers', '-j', default=0)\ndef main(workers):\n    probe(workers)\n"
    assert found(click + "if __name__ == '__main__':\n    main()\n") == (0, "train.py", 2)
    assert found("def main(workers: int = typer.Option(0, help='n')):\n    probe(workers)\n") == (0, "train.py", 1)
    flag = "FLAGS = flags.FLAGS\nflags.DEFINE_integer('num_workers', 0, 'of the loader')\n"
    assert found(flag + "probe(FLAGS.num_workers)") == (0, "train.py", 2)
    assert found("W = flags.DEFINE_integer('num_workers', 0, 'of the loader')\nprobe(W.value)") == (0, "train.py", 1)


def test_trees_of_settings_as_yacs_has_them() -> None:
    tree = "_C = CN()\n_C.DATALOADER = CN()\n_C.DATALOADER.NUM_WORKERS = 0\n"
    files = {"defaults.py": tree, "train.py": "probe(cfg.DATALOADER.NUM_WORKERS)"}
    assert found(files) == (0, "defaults.py", 3)
    assert found({**files, "big.yaml": "DATALOADER:\n  NUM_WORKERS: 8\n"}) is None


def test_namespaces() -> None:
    assert found("args = types.SimpleNamespace(a=1,\n    workers=0)\nprobe(args.workers)") == (0, "train.py", 2)
    assert found("d = {'workers': 0}\nsetup = SimpleNamespace(**d)\nprobe(setup.workers)") == (0, "train.py", 1)
    assert found("cfg = OmegaConf.create({'data': {'workers': 0}})\nprobe(cfg.data.workers)") == (0, "train.py", 1)
    assert found("cfg = edict()\ncfg.workers = 0\nprobe(cfg.workers)") == (0, "train.py", 2)
    assert found("cfg = {**base, 'a': 1}\nprobe(cfg['workers'])") is None
    assert found("cfg = {'workers': 0}\ncfg['workers'] = 4\nprobe(cfg['workers'])") is None


def test_dicts_that_go_through_functions_and_files() -> None:
    text = "def make(config):\n    probe(config['data']['n'])\n\nconfig = {\n    'data': {'n': 0},\n}\nmake(config)"
    assert found(text) == (0, "train.py", 5)
    made = {"train.py": "from settings import get\ncfg = get()\nprobe(cfg['workers'])"}
    assert found({**made, "settings.py": "N = 0\ndef get():\n    return {'workers': N}\n"}) == (0, "settings.py", 1)


def test_dataclasses_that_a_parser_fills() -> None:
    fields = "@dataclass\nclass DataArguments:\n    workers: int = field(default=0, metadata=dict(help='n'))\n"
    hugging = fields + "m, d_args = HfArgumentParser((M, DataArguments)).parse_args_into_dataclasses()\nprobe({})"
    assert found(hugging.format("d_args.workers")) == (0, "train.py", 3)
    assert found(fields + "setup = tyro.cli(DataArguments)\nprobe(setup.workers)") == (0, "train.py", 3)
    nested = fields + "@dataclass\nclass Config:\n    data: DataArguments = field(default_factory=DataArguments)\n"
    assert found(nested + "def f(cfg: Config):\n    probe(cfg.data.workers)\n") == (0, "train.py", 3)
    assert found("class Base:\n    N = 0\nclass Config(Base):\n    pass\nprobe(Config.N)") == (0, "train.py", 2)
    assert found("class Config:\n    class Data:\n        n = 0\nprobe(Config.Data.n)") == (0, "train.py", 3)


def test_files_that_are_named_where_they_are_loaded() -> None:
    two = {"a.yaml": "workers: 0\n", "b/c.yaml": "workers: 8\n"}
    assert found({"train.py": "job = yaml.safe_load(open('a.yaml'))\nprobe(job['workers'])", **two}) == (0, "a.yaml", 1)
    assert found({"train.py": "job = OmegaConf.load('b/c.yaml')\nprobe(job.workers)", **two}) == (8, "b/c.yaml", 1)
    assert found({"train.py": "job = other('a.yaml')\nprobe(job['workers'])", **two}) is None


def test_the_environment_and_what_stands_in_for_nothing() -> None:
    assert found("probe(int(os.environ.get('WORKERS', '0')))") == (0, "train.py", 1)
    assert found("probe(int(os.getenv('WORKERS', 4)))") == (4, "train.py", 1)
    assert found("n = 0\nprobe(n or 4)") == (4, "train.py", 2)
    assert found("probe(os.cpu_count() or 4)") is None
