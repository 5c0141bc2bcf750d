"""The live dashboard: a small web server that reads recordings and shows them, beside the training and never in it."""
