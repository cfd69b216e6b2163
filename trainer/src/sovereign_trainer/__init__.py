"""The training worker of a Sovereign server.

A supervisor leases a run, and starts an engine as a child process. The engine trains; the supervisor tells the server
what it does, and brings its checkpoints there. Each can be killed at any point: the run goes on from the last
checkpoint.
"""

__version__ = "0.1.0"
