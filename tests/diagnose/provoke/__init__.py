"""Real failures of real engines: how each is provoked, and which kind it must be called."""
