"""Problems of the family `sync`."""
