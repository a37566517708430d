"""Films on Spark: the data source, and shots. `ab.video` is the folder without Spark."""
