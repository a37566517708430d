"""Matrix products on a GPU: proposals in bfloat16 with a proved bound, decided as on a CPU."""
