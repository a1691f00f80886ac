"""What a measurement leaves behind: records and results, their files, and the statistics of their samples."""
