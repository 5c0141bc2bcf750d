"""The parts of `flatout tune`: its knobs, its trials, and the files it writes."""
