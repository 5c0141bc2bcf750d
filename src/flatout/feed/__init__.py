"""What feeds the device: the loader, the shared sample cache, the prefetch. Enters the user's process."""
