"""The in-process side of a trial: ends the script after some steps and leaves the user's files as they were."""
