"""Finds the gap and the piece of a slider captcha by heatmaps and sub-cell offsets."""
