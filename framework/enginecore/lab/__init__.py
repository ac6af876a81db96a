"""The lab: one workload, several configurations, and a verdict on which is better."""
