"""Privacy over many rounds, after Multi-RoundSecAgg: functions of the participation matrix P
(`selection.participation.Participation.matrix`)."""
