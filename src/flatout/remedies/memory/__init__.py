"""What training holds in the device's memory."""
