"""Rules on schedules, scales and positions."""
