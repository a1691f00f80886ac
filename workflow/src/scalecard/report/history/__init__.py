"""Earlier nights of a platform: kept beside its results, and how its numbers went from night to night."""
