"""What an expert writes differently in avatar_splat."""
