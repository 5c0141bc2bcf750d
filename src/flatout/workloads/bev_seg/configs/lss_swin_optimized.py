_base_ = ["lss_swin.py"]

data = dict(samples_per_gpu=6, workers_per_gpu=12, prefetch_factor=4)
fp16 = dict(enabled=True)
