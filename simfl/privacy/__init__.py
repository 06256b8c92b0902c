"""What many rounds together tell the server: multi-round privacy, fairness and cardinality, and the attack.

Everything here is a function of the participation matrix P (`selection.history.Participation.matrix`), after
Multi-RoundSecAgg.
"""
