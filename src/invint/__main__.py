"""`python -m invint`."""

from invint.cli import main

main()
