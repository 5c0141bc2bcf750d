"""Starts the user's command watched: its process and environment, telemetry and views beside it, and its verdict."""
