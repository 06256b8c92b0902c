"""Attacks on recorded runs by an honest but curious server: a kind in each file."""
