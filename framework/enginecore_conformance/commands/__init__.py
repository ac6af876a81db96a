"""The commands `check` and `new`, for plugin authors."""
