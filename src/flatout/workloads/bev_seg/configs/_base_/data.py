data = dict(
    samples_per_gpu=4,
    workers_per_gpu=20,
    pin_memory=True,
    persistent_workers=True,
    prefetch_factor=4,
    disk_delay_ms=0,
)
