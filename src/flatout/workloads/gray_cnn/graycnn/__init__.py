"""A classifier of grey surface images: data, model, training."""
