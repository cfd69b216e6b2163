"""The engines. Each is a module with `about` and `run` (see `sovereign_trainer.engine.Engine`)."""
