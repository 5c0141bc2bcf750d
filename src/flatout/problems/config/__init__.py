"""Problems of the family `config`."""
