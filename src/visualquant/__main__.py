"""`python -m visualquant`."""

from visualquant.cli.main import main

main()
