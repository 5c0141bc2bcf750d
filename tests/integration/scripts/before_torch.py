"""A small training that does something of its own before it imports torch."""

import gc
import os
import socket
import subprocess
import sys
import threading
import time

began_s = time.time()
mode, note = sys.argv[1], sys.argv[2]
os.environ["SET_BY_THE_SCRIPT"] = "before torch"
if mode in ("waits", "fails"):
    # A name that only one process can have.
    only = socket.socket(socket.AF_UNIX)
    while True:
        try:
            only.bind("\0" + os.path.abspath(note))
            break
        except OSError:
            if mode == "fails":
                raise
            time.sleep(0.05)
if mode == "thread":
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
if mode == "child" and len(sys.argv) == 3:
    sys.exit(subprocess.call([sys.executable, *sys.argv, "inner"]))
with open(note, "a") as file:
    file.write("started\n")

# Started very often, and most of it is importing torch, which is quicker so.
gc.disable()
import torch  # noqa: E402

was_compiler_there = "torch._dynamo" in sys.modules
if mode == "imports":
    import torch._dynamo
if mode == "compiler":
    os.environ["TORCHINDUCTOR_MAX_AUTOTUNE"] = "1"
from torch import nn  # noqa: E402

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
gc.freeze()
gc.enable()
print("COMPILER", was_compiler_there)
for step in range(40):
    if step == 1:
        print(
            "TRAINS", os.getpid(), began_s, os.environ["SET_BY_THE_SCRIPT"], os.environ.get("FLATOUT_GATE"), flush=True
        )
    loss = model(torch.full((8, 4), float(step % 5))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.002)
