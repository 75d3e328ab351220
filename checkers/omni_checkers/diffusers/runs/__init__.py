"""What only a run can tell: models built without weights, in processes of their own."""
