"""A hub and its devices on one machine, at a distance: what each costs, counted on real sockets."""
