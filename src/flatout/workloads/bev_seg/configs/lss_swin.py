_base_ = ["_base_/default.py"]

# 20 workers filled the memory of the old machine.
data = dict(workers_per_gpu=2)
