"""Which code is found to run in every training step, and which only now and then."""

from __future__ import annotations

import ast
import textwrap

import pytest

from flatout.source.code import Code
from flatout.source.project.loading import load_texts


def marked(**files: str) -> list[str]:
    """The names that calls `mark_…()` in every step are known by, sorted; a file is given by its name without `.py`."""
    code = Code(load_texts({f"{name}.py": textwrap.dedent(text) for name, text in files.items()}))
    found = set()
    for _, point in code.each_step():
        node = point.node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.startswith("mark_"):
            found.add(node.func.id.removeprefix("mark_"))
    return sorted(found)


def body(*lines: str) -> str:
    """A training loop with these lines at its end."""
    head = "for step, x in enumerate(loader):\n    loss = model(x)\n    loss.backward()\n    optimizer.step()\n"
    return head + "".join(f"    {line}\n" for line in lines)


def test_the_loop_is_the_innermost_that_does_both() -> None:
    source = """
        for epoch in range(3):
            mark_epoch()
            for x in loader:
                mark_step()
                loss = model(x)
                loss.backward()
                optimizer.step()
            mark_after()
    """
    assert marked(train=source) == ["step"]


def test_accumulation_steps_in_the_outer_loop() -> None:
    source = """
        for step in range(100):
            mark_step()
            for x in micro:
                mark_micro()
                model(x).backward()
            optimizer.step()
    """
    assert marked(train=source) == ["micro", "step"]


def test_helpers_and_methods_of_other_files_are_followed() -> None:
    loop = """
        from pkg.engine import Engine
        import pkg.losses as L

        def run(loader):
            engine = Engine()
            for x in loader:
                mark_loop()
                engine.one(x)
    """
    engine = """
        from .losses import total

        class Base:
            def update(self, loss):
                loss.backward()
                self.optimizer.step()

        class Engine(Base):
            def one(self, x):
                mark_one()
                self.update(total(x))
                self.unused_in_training

            def other(self):
                mark_other()
    """
    losses = """
        def total(x):
            mark_loss()
            return x
    """
    files = {"main.py": loop, "pkg/engine.py": engine, "pkg/losses.py": losses, "pkg/__init__.py": ""}
    code = Code(load_texts({name: textwrap.dedent(text) for name, text in files.items()}))

    found = {(region.module.shown, region.function.qualified) for region in code.training.regions}

    assert ("main.py", "run") in found and ("pkg/engine.py", "Engine.one") in found
    assert ("pkg/losses.py", "total") in found and ("pkg/engine.py", "Engine.other") not in found


def test_the_model_that_is_called_belongs_to_the_step() -> None:
    source = """
        class Net(nn.Module):
            def __init__(self):
                mark_init()
                self.part = Part()

            def forward(self, x):
                mark_forward()
                return self.part(x)

        class Part(nn.Module):
            def forward(self, x):
                mark_part()

        model = torch.compile(Net().to(device))
        for x in loader:
            model(x).backward()
            optimizer.step()
    """
    assert marked(train=source) == ["forward", "part"]


def test_a_step_of_the_project_is_followed_like_any_other_method() -> None:
    source = """
        class Trainer:
            def step(self, x):
                mark_step()
                loss = self.model(x)
                self.backward(loss)
                self.optimizer.step()

            def backward(self, loss):
                mark_backward()
                loss.backward()

            def run(self):
                for epoch in range(3):
                    for x in self.loader:
                        mark_loop()
                        self.step(x)
                    mark_epoch()
    """
    assert marked(train=source) == ["backward", "loop", "step"]


def test_closures_scalers_and_accelerators_train_too() -> None:
    closure = """
        def fit(loader):
            for x in loader:
                def closure():
                    mark_closure()
                    loss = model(x)
                    loss.backward()
                    return loss
                optimizer.step(closure)
    """
    scaler = """
        for x in loader:
            mark_scaled()
            scaler.scale(model(x)).backward()
            scaler.step(optimizer)
    """
    accelerated = """
        for x in loader:
            mark_accelerated()
            accelerator.backward(model(x))
            optimizer.step()
    """
    assert marked(a=closure, b=scaler, c=accelerated) == ["accelerated", "closure", "scaled"]


def test_frameworks_call_the_step_themselves() -> None:
    source = """
        class Lit(LightningModule):
            def training_step(self, batch, index):
                mark_lightning()

            def validation_step(self, batch, index):
                mark_validation()

        class Mine(Trainer):
            def compute_loss(self, model, inputs):
                mark_hugging()

        def train_step(engine, batch):
            mark_ignite()
            loss = model(batch)
            loss.backward()
            optimizer.step()

        trainer = Engine(train_step)
    """
    assert marked(train=source) == ["hugging", "ignite", "lightning"]


def test_loops_without_backward_or_without_step_do_not_train() -> None:
    source = """
        for x in loader:
            mark_evaluation()
            score(model(x))
        for _ in range(10):
            mark_attack()
            loss = model(x)
            loss.backward()
            x = x + x.grad.sign()
        while not done:
            mark_environment()
            done = env.step(1)
    """
    assert marked(train=source) == []


@pytest.mark.parametrize(
    "guard",
    [
        "if step % 100 == 0:",
        "if (step + 1) % args.log_every == 0 and rank == 0:",
        "if not step % 10:",
        "if step == 0:",
        "if step in (1, 10, 100):",
        "if step < 5:",
        "if args.debug:",
        "if should_log(step):",
        "if time.time() - last > 30:",
        "if torch.isnan(loss):",
        "if step == len(loader) - 1:",
    ],
)
def test_what_is_done_now_and_then_is_not_of_every_step(guard: str) -> None:
    assert marked(train=body(guard, "    mark_guarded()", "else:", "    mark_else()")) == ["else"]


@pytest.mark.parametrize(
    "guard",
    [
        "if rank == 0:",
        "if is_main_process():",
        "if writer is not None:",
        "if args.amp:",
        "if step % 100 != 0:",
        "if step > warmup:",
        "if accelerator.sync_gradients:",
        "with torch.no_grad():",
        "for part in parts:",
        "try:",
    ],
)
def test_what_hangs_on_settings_ranks_or_parts_is(guard: str) -> None:
    lines = [guard, "    mark_inside()", *(["finally:", "    pass"] if guard == "try:" else [])]

    assert marked(train=body(*lines)) == ["inside"]


def test_early_continues_flags_and_ends_are_understood() -> None:
    assert marked(train=body("mark_before()", "if step % 10:", "    continue", "mark_rest()")) == ["before"]
    assert marked(train=body("due = step % 10 == 0", "if due:", "    mark_due()")) == []
    assert marked(train=body("if step >= most:", "    mark_end()", "    break", "mark_rest()")) == ["rest"]
    assert marked(train=body("x = mark_rare() if step % 10 == 0 else mark_often()")) == ["often"]
    assert marked(train=body("try:", "    mark_tried()", "except OSError:", "    mark_failed()")) == ["tried"]


def test_evaluation_inside_the_loop_is_not_of_the_step() -> None:
    passes = body("model.eval()", "for y in others:", "    mark_evaluated()", "model.train()", "mark_trained()")
    assert marked(train=passes) == ["trained"]
    assert marked(train=body("for y in val_loader:", "    mark_validated()")) == []
    assert marked(train="def evaluate():\n    mark_evaluated()\n" + body("evaluate()")) == []
    phases = """
        for phase in ["train", "val"]:
            for x in loaders[phase]:
                loss = model(x)
                if phase == "train":
                    mark_train()
                    loss.backward()
                    optimizer.step()
                else:
                    mark_val()
    """
    assert marked(train=phases) == ["train"]


def test_what_every_turn_looks_at_after_eval_is_of_the_step() -> None:
    each_turn = body("model.eval()", "mark_looked()", "model.train()", "mark_trained()")
    assert marked(train=each_turn) == ["looked", "trained"]
    assert marked(train=body("if step % 10 == 0:", "    model.eval()", "    mark_looked()")) == []


def test_without_a_gpu_nothing_is_asked() -> None:
    assert marked(train=body("if torch.cuda.is_available():", "    mark_gpu()", "else:", "    mark_cpu()")) == ["gpu"]
    assert marked(train=body('if kind == "cuda":', "    mark_gpu()", "else:", "    mark_cpu()")) == ["gpu"]


def test_methods_of_libraries_are_not_taken_for_those_of_the_project() -> None:
    other = """
        class Profile:
            def clock(self):
                mark_profile()
    """
    loop = "import time\n" + body("began = time.clock()", "watch.clock()")

    assert marked(train="import time\n" + body("began = time.clock()"), other=other) == []
    assert marked(train=loop, other=other) == ["profile"]


def test_functions_that_call_each_other_end() -> None:
    source = """
        def a(x):
            b(x)
            x.backward()
            optimizer.step()

        def b(x):
            a(x)

        for x in loader:
            mark_loop()
            a(x)
    """
    assert marked(train=source) == ["loop"]
