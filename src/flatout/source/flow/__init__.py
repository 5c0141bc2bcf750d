"""Where values come from and when code runs: definitions, constant values, guards, devices, uses of settings."""
