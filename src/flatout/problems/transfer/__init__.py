"""Problems of the family `transfer`."""
