# Swin-T, as in the paper; the map encoder is a small U-Net.
model = dict(
    embed_dim=96,
    depths=[2, 2, 6, 2],
    num_heads=[3, 6, 12, 24],
    window_size=7,
    neck_channels=256,
    context_channels=64,
    map_channels=64,
)
data = dict(image_size=(600, 800), source_size=(900, 1600), train_samples=400, val_samples=40)
optimizer = dict(lr=2e-4)
runner = dict(max_iters=300)
lr_config = dict(warmup_iters=30)
evaluation = dict(interval=100)
checkpoint_config = dict(interval=100)
