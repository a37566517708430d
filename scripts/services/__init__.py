"""Real components for tests and examples, one script each: started on loopback, torn down after."""
