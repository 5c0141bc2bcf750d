"""In which precision it computes."""
