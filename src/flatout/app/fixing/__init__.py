"""The parts of `flatout fix`: sizes of trials, the bench they are made on, the search, and the proof."""
