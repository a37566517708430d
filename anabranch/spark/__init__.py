"""The thin Spark layer: the only folder that imports pyspark."""
