"""Short runs of the user's script under a profile: a process each, with limits and side effects contained."""
