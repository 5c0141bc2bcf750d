"""Problems of the family `host`."""
