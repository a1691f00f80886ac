"""What is trained and how it is split over devices and ranks. Nothing here knows about time."""
