"""Problems of the family `cadence`."""
