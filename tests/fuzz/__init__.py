"""Attacks by the thousand on what simfl reads: each ends in a message, or in a result that keeps the laws.

    python -m tests.fuzz --loads 20000 --runs 5000 --jobs 2      # `make fuzz` gives the counts of all parts
    python -m tests.fuzz --seed 1 --only 37                      # one mutant again
    python -m tests.fuzz --seed 1 --part talks --only 41         # one case of another part again

The parts, and what must hold of a case:

    loads, runs   A mutant (`mutants`) is the bytes of a scenario file, and values given by `--set`. `attempt`
                  loads and builds it as it stands, and runs it made small, in shadow and under the modelled
                  clock; `invariants` looks at the run's trace row by row.
    received      A scenario of a server names files and modules (`networked`): none is opened or executed.
    talks         A conversation over sockets has a hostile relay (`talks`, `middle`): no round is lost.
    folders       A command reads a damaged copy of a folder (`damage`): no damage is taken for true.
    commands      A command line (`commands`) ends with a documented code; nothing changes beyond its folder.

A case follows from a seed and a number alone. A traceback and a hang are findings in all parts.
"""
