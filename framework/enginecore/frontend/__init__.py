"""Front end: prompts in, text out. Everything here runs outside the engine core."""
