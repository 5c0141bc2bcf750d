"""How often it evaluates and logs."""
