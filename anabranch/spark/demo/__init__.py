"""A simulated newsroom: the data of the demo, with the truth about it."""
