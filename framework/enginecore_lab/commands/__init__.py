"""Commands on experiments: `ab`, `replay`, `capacity`, `sweep`, `calibrate`."""
