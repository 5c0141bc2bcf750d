"""The constants of the model: what a run that has not got something cannot tell of it. Each with its reason."""

from __future__ import annotations

# A step that the model reproduces within this share is known well enough to promise anything: two equal runs on a quiet
# machine differ by about as much.
REPRODUCED = 0.05

# A gain below this is not one.
NOTICED = 1.005

# Making a sample in a worker takes this many times what it takes in the training process: the batch goes through
# shared memory, and both processes share caches (benchmarks/handover.py).
IN_A_WORKER = 1.2
# Receiving a batch costs the training process this much, whoever made it: opening what another process has written,
# one tensor at a time. In 37 recordings of the held-out corpora (x86, two processors) whose queue was seldom empty a
# batch took 1.14 ms in the median, half of them 1.0 to 1.3, the extremes 0.5 and 36. It does not grow with the step.
# With a GPU the pinning thread does it, and a part of the step is lost to it: not measured again.
HANDOVER_MS, HANDOVER_PINNED_MS, HANDOVER_SHARE = 1.1, 0.3, 0.02
# The memory of a batch that another process has written is touched for the first time.
FIRST_TOUCH_MS = 1.2
# A queue that is empty less often than this counts as full: taking a batch from it is not a wait.
SELDOM_EMPTY = 0.3

# What is left of the training thread's own step is never nothing: it calls the model.
LEAST_HOST = 0.02
# A wait for a batch, as a share of the step, that says that the device had nothing to do meanwhile.
STARVES = 0.03
# The device is now and then found empty in the best of runs; below this share it is never short of work.
NEVER_DRAINED = 0.02
# Busy for so much of the training it sets the pace; what is left are gaps between its kernels.
SETS_PACE = 0.9
# The host runs ahead of the device by at most this many steps: the queue of launches is bounded.
STEPS_AHEAD = 2.0

# A worker's mean over a whole run, start-up and all, is this much off its mean while training is steady. Where workers
# set the pace, the pace tells the latter.
BATCH_OFF = 1.35

# Where all processors are at work they share caches and memory: everything takes this much longer.
ALL_AT_WORK = 1.08
# A thread that computes is slower after a wait: caches are cold, and the clock of its processor has gone down. Measured
# on an x86 host with passes of 1.5 to 56 ms and waits of 5, 20 and 60 ms: 10%, 28% and 43% longer in the median, but
# never more than a few milliseconds.
COLD_SHARE, COLD_HALF_MS, COLD_MOST_MS = 0.43, 10.0, 3.0
# After ten milliseconds or more of other work the passes of twelve scripts took 18% longer than without it: 10% less in
# one, 59% more in another. Computing is taken to be no slower then, or so much slower, of what it is after a wait.
WORK_COOLS = (0.75, 1.5)
# From this share on the machine's CPUs count as saturated: a process that could compute may have to wait for one.
SATURATED = 0.85
# A process that always wants a CPU gets at least this part of one.
LEAST_CPU = 0.02
