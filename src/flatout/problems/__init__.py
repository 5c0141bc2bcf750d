"""The catalogue. One file is one problem: what it is, how it shows in a run, what fixing it gains, and its cases."""
