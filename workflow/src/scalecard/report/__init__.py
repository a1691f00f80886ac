"""From results to words, figures and HTML. No torch here: the report can be redrawn on a laptop."""
