"""What a DataLoader is made with."""
