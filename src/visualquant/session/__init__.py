"""The pipeline from two paths to a report, and the archive."""
