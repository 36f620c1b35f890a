"""Public bugs of torch.compile, and the releases that have each."""
