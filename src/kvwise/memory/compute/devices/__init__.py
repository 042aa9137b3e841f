"""What each kind of device supports, wants and asks for: one file per kind."""
