"""Commands for plugin authors: `check`, `new`."""
