"""What the workflow's rules need: the configuration, the inputs of each rule, clusters and containers. No torch."""
