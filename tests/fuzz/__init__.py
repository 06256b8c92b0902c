"""Scenarios mutated by the thousand: each is refused with a readable message, or runs and keeps the laws.

    python -m tests.fuzz --loads 20000 --runs 5000 --jobs 2      # `make fuzz`
    python -m tests.fuzz --seed 1 --only 37                      # one mutant again

A mutant is the bytes of a scenario file, and values given by `--set`; both follow from a seed and a number
alone (`mutants`). An attempt (`attempt`) loads it and builds it as it stands, and then runs it made small, in
shadow and under the modelled clock. A run's trace is looked at row by row (`invariants`).
"""
