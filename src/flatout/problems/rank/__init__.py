"""Problems of the family `rank`."""
