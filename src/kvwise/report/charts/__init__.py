"""Charts as data: Vega-Lite specifications out of what was measured or worked out."""
