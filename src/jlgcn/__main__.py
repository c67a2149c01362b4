"""Entry point of ``python -m jlgcn`` and ``torchrun -m jlgcn``."""

from jlgcn.cli import main

main()
