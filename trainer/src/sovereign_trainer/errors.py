"""What ends a call or an attempt. Every error is a TrainerError."""

from __future__ import annotations


class TrainerError(Exception):
    """The worker cannot go on with what it was doing."""


class Stale(TrainerError):
    """The lease is lost, and another worker may train the run by now: kill the engine, and tell nobody."""


class Stopped(TrainerError):
    """The call was given up, because the worker or its attempt ends."""


class Halt(TrainerError):
    """A step cannot be finished now: the engine forgets it, saves what came before, and stops. A later attempt does the
    step again, in the same way."""


class Unreachable(TrainerError):
    """The server gave no usable answer for as long as the worker is patient."""


class Mismatch(TrainerError):
    """The bytes of a file are not those that its sha256 names."""


class Refused(TrainerError):
    """The server refuses the request itself: `status` is that of HTTP, `code` that of the error envelope."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message


class Failure(TrainerError):
    """The run fails. An engine raises it with a code that people can act on, such as invalid_data.

    `infrastructure`: the machine is to blame, and not what was asked of it. The attempt is not billed, and another
    worker goes on.
    """

    def __init__(self, code: str, message: str, *, infrastructure: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.infrastructure = infrastructure
