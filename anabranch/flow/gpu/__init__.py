"""GPUs as every verb may use them: proposals in bfloat16 with a proved bound, decided on a CPU."""
