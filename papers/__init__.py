import benchmarks  # noqa: F401  (before numpy: it frees the libraries that multiply)
