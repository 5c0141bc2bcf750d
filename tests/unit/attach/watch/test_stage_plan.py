"""Which parts of a model become its stages."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from flatout.attach.recorder import fact
from flatout.attach.watch.stage_plan import MOST_STAGES, Plan, Stage, trained_models


def planned(*roots: nn.Module) -> Plan:
    plan = Plan(torch)
    plan.make(list(roots))
    return plan


def names(plan: Plan) -> list[str]:
    return [stage.name for stage in plan.stages]


class Block(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x)


class Parts(nn.Module):
    """Whatever it is given, by name."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def blocks(count: int) -> list[Block]:
    return [Block() for _ in range(count)]


def test_children_of_the_model_are_its_stages() -> None:
    plan = planned(Parts(a=Block(), b=Block(), c=nn.ReLU(), d=Block()))

    assert names(plan) == ["a", "b", "c", "d"]
    assert [stage.describe()["parameters"] for stage in plan.stages] == [72, 72, 0, 72]
    assert plan.stages[0].kind == "Block"


def test_what_holds_most_parameters_is_opened() -> None:
    backbone = Parts(layer1=Block(), layer2=Block(), layer3=Block(64))

    assert names(planned(Parts(backbone=backbone, head=Block()))) == [
        "backbone.layer1",
        "backbone.layer2",
        "backbone.layer3",
        "head",
    ]


def test_a_list_cannot_be_timed_itself_and_many_blocks_are_grouped() -> None:
    plan = planned(Parts(embed=nn.Embedding(10, 8), layers=nn.ModuleList(blocks(48)), norm=nn.LayerNorm(8)))

    assert len(plan.stages) == MOST_STAGES
    assert names(plan)[:2] == ["embed", "layers.0-4"] and names(plan)[-1] == "norm"
    assert sum(len(stage.parts) for stage in plan.stages) == 50
    assert plan.stages[1].kind == "Block"


@pytest.mark.parametrize("count", [13, 24, 100])
def test_a_long_sequence_is_grouped_too(count: int) -> None:
    plan = planned(nn.Sequential(*blocks(count)))

    assert 3 <= len(plan.stages) <= MOST_STAGES
    assert sum(len(stage.parts) for stage in plan.stages) == count


def test_more_modules_than_can_be_hooked_are_left_out_and_said_so() -> None:
    plan = planned(Parts(many=nn.ModuleList(blocks(400)), head=Block()))

    assert fact("stages.too_many_modules") in plan.left_out.values()
    assert sum(len(stage.parts) for stage in plan.stages) <= 128


def test_wrappers_do_not_show_in_names() -> None:
    assert names(planned(Parts(module=Parts(a=Block(), b=Block(), c=Block())))) == ["a", "b", "c"]


def test_a_shared_module_has_one_place() -> None:
    shared = Block()

    assert names(planned(Parts(a=shared, b=Parts(again=shared, own=Block()), c=Block()))) == ["a", "b.own", "c"]


def test_several_models_are_told_apart() -> None:
    plan = planned(Parts(a=Block(), b=Block()), Parts(a=Block(), b=Block()))

    assert names(plan) == ["Parts.a", "Parts.b", "Parts#2.a", "Parts#2.b"]


def test_a_model_without_parts_is_one_stage() -> None:
    assert names(planned(nn.Linear(2, 2))) == ["Linear"]


def test_the_compiled_and_the_scripted_are_left_out() -> None:
    class OptimizedModule(Block):
        pass

    compiled = Block()
    compiled._compiled_call_impl = print  # type: ignore[assignment]
    plan = planned(Parts(a=OptimizedModule(), b=compiled, c=torch.jit.trace(Block(), torch.ones(1, 8)), d=Block()))

    compiled, scripted = fact("stages.compiled"), fact("stages.torchscript")
    assert plan.left_out == {"a": compiled, "b": compiled, "c": scripted}
    assert names(plan) == ["d"]


def test_the_stage_that_takes_the_time_is_opened() -> None:
    model = Parts(a=Parts(x=nn.ReLU(), y=nn.ReLU()), b=Block(64), c=Block())
    plan = planned(model)
    by_name: dict[str, Stage] = {stage.name: stage for stage in plan.stages}
    assert "a" in by_name
    for name, stage in by_name.items():
        stage.add(8.0 if name == "a" else 1.0, float("nan"))

    assert plan.refine()
    assert names(plan)[:2] == ["a.x", "a.y"]
    assert min(stage.number for stage in plan.stages) > max(stage.number for stage in by_name.values())


def test_even_stages_are_left_as_they_are() -> None:
    model = Parts(a=Parts(x=Block(), y=Block()), b=Block(), c=Block())
    plan = planned(model)
    for stage in plan.stages:
        stage.add(1.0, 2.0)

    assert not plan.refine()


def test_the_plan_keeps_no_module_alive() -> None:
    model = Parts(a=Block(), b=Block())
    plan = planned(model)

    del model

    assert not any(stage.modules() for stage in plan.stages)


def test_the_trained_model_is_found_and_no_other() -> None:
    student, teacher = Parts(net=Block(), loss=nn.MSELoss()), Parts(net=Block())
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

    found = trained_models(torch)

    assert student in found and teacher not in found
    assert optimizer.param_groups
