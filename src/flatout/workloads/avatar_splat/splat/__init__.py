"""A head avatar of 3D Gaussians bound to a posed mesh, trained from images."""
