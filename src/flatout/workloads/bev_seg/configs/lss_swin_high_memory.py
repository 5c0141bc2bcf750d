_base_ = ["lss_swin.py"]

data = dict(samples_per_gpu=8, workers_per_gpu=8)
fp16 = dict(enabled=True)
