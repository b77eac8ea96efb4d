"""What nbagent costs, measured: ``python -m bench``."""
