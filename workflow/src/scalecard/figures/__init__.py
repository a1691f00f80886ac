"""From facts to plots: looks, kinds of charts, and SVG for the page."""
