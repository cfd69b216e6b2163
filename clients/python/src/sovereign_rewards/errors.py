"""What ends a call. Every error is a RewardError."""

from __future__ import annotations


class RewardError(Exception):
    """No reward was given, and trying again at once would not help."""


class RewardHeld(RewardError):
    """The session is held: the anchor does not confirm the rewards, or a certificate is void. Stop the run.

    `pinned_step` is the last step that passed a check of the anchor, and None before the first one.
    """

    def __init__(self, reason: str, pinned_step: str | None = None) -> None:
        super().__init__(f"the reward session is held: {reason} (the last step that passed a check: {pinned_step})")
        self.reason = reason
        self.pinned_step = pinned_step


class SessionEnded(RewardError):
    """The session scores no more. `status` is COMPLETED, OVERBUDGET, STOPPED or FAILED."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(f"the reward session has ended ({status}): {reason}")
        self.status = status
        self.reason = reason


class ServerUnavailable(RewardError):
    """The server gave no usable answer within the total timeout."""


class Refused(RewardError):
    """The server refuses the request itself: `status` is that of HTTP, `code` that of the error envelope."""

    def __init__(self, status: int, code: str | None, message: str) -> None:
        super().__init__(f"{status} {code or ''}: {message}")
        self.status = status
        self.code = code
        self.message = message
