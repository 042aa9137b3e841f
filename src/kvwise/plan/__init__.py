"""The best settings for a goal: what must hold, what fits, what is better, and why."""
