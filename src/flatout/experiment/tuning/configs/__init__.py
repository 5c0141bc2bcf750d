"""Config files as text: a copy with other values, in which nothing else changes."""
