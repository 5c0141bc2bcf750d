"""The watchers: each sees one kind of event in the user's process and records it."""
