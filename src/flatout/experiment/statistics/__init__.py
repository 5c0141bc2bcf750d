"""What trials prove: gains with intervals, identity, envelopes, ceilings. Pure functions of trials; no torch."""
