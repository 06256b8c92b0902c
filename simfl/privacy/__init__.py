"""Privacy over many rounds, after Multi-RoundSecAgg: functions of the participation matrix P
(`selection.schemes.Participation.matrix`)."""
