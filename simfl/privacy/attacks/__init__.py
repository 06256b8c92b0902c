"""Attacks on recorded runs by a server that is honest but curious, a kind a file."""
