"""Calls that hold the training thread up until somebody else lets it go: a clock, a process, a server, a person."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.source.code import Code
from flatout.source.module import Function
from flatout.source.naming import full_name
from flatout.source.nodes import argument, called_name, dotted, parameters
from flatout.source.occasions import is_each_step, is_of_batches
from flatout.source.training import Region

_RUNS = {"run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"}
_ASKS = {"get", "post", "put", "patch", "delete", "head", "request"}
_WEB = {"requests", "httpx", "urllib", "urllib3"}
_RECEIVES = {"recv", "recv_into", "recvfrom", "recv_json", "recv_pyobj", "recv_string", "recv_multipart", "accept"}
_PEER = re.compile(r"sock|conn|client|server|listener|viewer|gui", re.I)
_POLLS = re.compile(r"setblocking\(\s*(False|0)|settimeout\(\s*0|NOBLOCK|DONTWAIT")
_NAMES = (
    "sleep", "input", "system", "urlopen", "urlretrieve", "cpu_percent", "barrier", "wait_for_everyone",
    *_RUNS, *_ASKS, *_RECEIVES,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Block:
    """`waits_for` completes "the training thread waits for …"."""

    region: Region
    call: ast.Call
    waits_for: str
    # Whatever the settings are, it happens at each step.
    is_certain: bool


def blocks_in(code: Code) -> Iterator[Block]:
    for region, turn, call in code.calls_each_step(*_NAMES):
        if any(isinstance(loop, ast.While) for loop in turn.loops) and called_name(call) == "sleep":
            continue  # `while paused: sleep(…)` waits only if there is something to wait for
        waits_for = _waits_for(call, region.function)
        if waits_for is not None and is_of_batches(region.root):
            yield Block(region, call, waits_for, is_each_step(region, call))


def _waits_for(call: ast.Call, function: Function) -> str | None:
    name, whole = called_name(call), full_name(call.func, function.module)
    root = whole.split(".")[0]
    first = argument(call, "interval" if name == "cpu_percent" else "secs", 0)
    if whole == "time.sleep":
        return None if first is None or _is_nothing(first) else "a clock"
    if whole == "psutil.cpu_percent":
        return None if first is None or _is_nothing(first) else "psutil's clock"
    if name == "input" and isinstance(call.func, ast.Name):
        own = function.definition is not None and "input" in parameters(function.definition)
        return None if own or "input" in function.bindings or whole != "input" else "someone at the keyboard"
    if whole == "os.system" or (root == "subprocess" and name in _RUNS):
        return "another process"
    if root in _WEB and (name in _ASKS or name in ("urlopen", "urlretrieve")):
        return "a server"
    if whole in ("torch.distributed.barrier", "dist.barrier") or name == "wait_for_everyone":
        return "all other ranks, which backward does already"
    if name in _RECEIVES and isinstance(call.func, ast.Attribute):
        return _of_socket(name, call.func, function)
    return None


def _of_socket(name: str, func: ast.Attribute, function: Function) -> str | None:
    text = function.module.text
    if "socket" not in text and "zmq" not in text:
        return None
    is_peer = _PEER.search(dotted(func.value).split(".")[-1]) or _is_socket(func.value, function)
    if not is_peer or (name == "accept" and _POLLS.search(text)):
        return None
    return "whoever is at the other end of the connection"


def _is_socket(node: ast.expr, function: Function) -> bool:
    made = [value for value in function.bindings.get(dotted(node), ()) if isinstance(value, ast.Call)]
    return any(full_name(value.func, function.module).startswith("socket.") for value in made)


def _is_nothing(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value
