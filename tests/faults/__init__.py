"""Programs that break what the project reads and runs: ``make fuzz`` and ``make kill``."""
