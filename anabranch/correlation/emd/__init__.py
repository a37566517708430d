"""The Earth Mover's Distance: closed forms on lines and circles, bounds and a solver elsewhere."""
