"""What runs in processes of their own: the candidate's side."""
