"""What authors sample with where no loop of theirs is read: objects that are made, and passed a model."""
