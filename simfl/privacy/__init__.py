"""What many rounds together tell the server, after Multi-RoundSecAgg: functions of the participation matrix P
(`selection.schemes.Participation.matrix`)."""
