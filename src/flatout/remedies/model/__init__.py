"""Which module is the model, and how to stand around its calls."""
