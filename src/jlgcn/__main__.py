"""Lets ``python -m jlgcn`` and ``torchrun -m jlgcn`` run the command line."""

from jlgcn.cli import main

main()
