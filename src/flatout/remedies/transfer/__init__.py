"""How batches get to the device."""
