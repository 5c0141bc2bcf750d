"""Reference models where the device is busy: each as people write it (`plain`), and as an expert would (`expert`).

Both train the same model on the same seeded random data. An expert changes only what is lossless or numeric: bfloat16
autocast, TF32, channels last, torch.compile, scaled_dot_product_attention, fused optimizers.
"""
