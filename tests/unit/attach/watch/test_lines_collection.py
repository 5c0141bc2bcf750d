"""Reading the stack of a thread that goes on meanwhile, with garbage collected at nearly every allocation."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = '''
import gc, random, threading, time
from flatout.attach.watch.lines import LineSampler

class Training:
    is_resting, inside, pending_becomes, ended = False, 0, 0, 0
    owner = threading.get_ident()

class Nowhere:
    def put(self, place, body): return 0
    def text(self, what, value): pass
    def close(self): pass

class Often(LineSampler):
    looks = 0
    def _keep_to_budget(self): pass
    def _look(self, seconds):
        super()._look(seconds)
        self.looks += 1
        self._interval_s = 0.0002

def let_others_go_on(phase, info):
    if threading.get_ident() != Training.owner:
        time.sleep(0.0005)

# Of the standard library, as far as anybody can tell: the look goes on to the frames below.
exec(compile("""
def descend(depth):
    return descend(depth - 1) if depth else sum(add(i) for i in range(50))

def add(i):
    return i + 1
""", threading.__file__, "exec"))

gc.callbacks.append(let_others_go_on)
gc.set_threshold(3)
sampler = Often(Training(), Training(), Nowhere, hz=100.0)
sampler.start()
until = time.monotonic() + 3.0
while time.monotonic() < until:
    descend(random.randrange(30))
sampler.stop()
print(gc.isenabled(), sampler.looks)
'''


def test_a_collection_in_mid_look_does_not_end_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    enabled, looks = done.stdout.split()
    assert enabled == "True" and int(looks) > 20


def test_a_script_that_collects_by_itself_keeps_its_choice() -> None:
    script = _SCRIPT.replace("gc.set_threshold(3)", "gc.disable()")

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "False"
