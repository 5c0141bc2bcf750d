"""Results of a pure function of the user's, kept and given back when the same arguments come again."""
