"""What an expert changes in heatmap_npy."""
