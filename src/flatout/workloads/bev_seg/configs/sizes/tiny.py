model = dict(
    embed_dim=12,
    depths=[1, 1, 2, 1],
    num_heads=[1, 2, 4, 8],
    window_size=4,
    neck_channels=24,
    context_channels=8,
    map_channels=8,
)
data = dict(image_size=(96, 128), source_size=(144, 256), train_samples=24, val_samples=6)
optimizer = dict(lr=2e-3)
runner = dict(max_iters=20)
lr_config = dict(warmup_iters=4)
evaluation = dict(interval=10)
checkpoint_config = dict(interval=10)
