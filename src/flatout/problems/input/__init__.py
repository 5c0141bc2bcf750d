"""Problems of the family `input`."""
