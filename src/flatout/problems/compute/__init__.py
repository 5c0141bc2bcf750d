"""Problems of the family `compute`."""
