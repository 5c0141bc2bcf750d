"""What the catalogue says of its problems in Chinese: a file for each family."""
