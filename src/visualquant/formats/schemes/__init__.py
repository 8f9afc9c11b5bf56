"""Scheme readers: each finds the places where one family of operators turns codes into values."""
