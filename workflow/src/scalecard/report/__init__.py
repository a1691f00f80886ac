"""Turns results into words, figures and HTML. No torch here: the report can be redrawn on a laptop."""
