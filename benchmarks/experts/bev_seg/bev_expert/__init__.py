"""What the expert's form of bev_seg does otherwise."""
