_base_ = ["lss_swin.py"]

data = dict(samples_per_gpu=4, workers_per_gpu=16, prefetch_factor=8)
fp16 = dict(enabled=True)
