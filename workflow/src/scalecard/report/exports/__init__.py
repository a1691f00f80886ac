"""Tables to take along: what was measured of a platform, in the formats of papers and spreadsheets."""

EXPERIMENTS = ("strategies", "ddp")  # whose results the table of scaling has
