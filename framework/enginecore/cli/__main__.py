"""`python -m enginecore.cli`."""

from enginecore.cli import main

main()
