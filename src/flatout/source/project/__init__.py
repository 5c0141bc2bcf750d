"""All files of a check together: loading them, what a name or a call in them means, where settings are declared."""
