"""Problems of the family `memory`."""
