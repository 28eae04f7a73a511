"""The programs: ``python -m experiments.NAME --help``."""
