optimizer = dict(weight_decay=0.01)
optimizer_config = dict(grad_clip=35.0, cumulative_iters=1)
# The learning rate (see sizes/) is for base_batch_size samples a step and grows in proportion with the batch.
lr_config = dict(base_batch_size=4, power=0.9, min_lr_ratio=0.01)
fp16 = dict(enabled=False, loss_scale=512.0)
log_config = dict(interval=1)
