"""Toolkit for simulated executors: what a step costs, and how a real one's log is fitted."""
