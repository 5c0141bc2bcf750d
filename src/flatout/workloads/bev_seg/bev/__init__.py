"""Bird's-eye-view road segmentation from one camera."""
