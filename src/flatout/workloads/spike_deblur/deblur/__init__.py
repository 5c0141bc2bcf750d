"""Video deblurring from RGB frames and a spike camera."""
