"""What the expert's form of spike_deblur does differently."""
