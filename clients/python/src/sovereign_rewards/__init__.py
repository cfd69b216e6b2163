"""Rewards from a Sovereign server: certified judges, an exact budget, and an anchor that holds a run that games them.

`sovereign_rewards.trl` and `sovereign_rewards.verl` fit a session into these trainers.
"""

from .errors import Refused, RewardError, RewardHeld, ServerUnavailable, SessionEnded
from .item import Item, Message
from .scoring import Scores
from .session import Session

__all__ = [
    "Item",
    "Message",
    "Refused",
    "RewardError",
    "RewardHeld",
    "Scores",
    "ServerUnavailable",
    "Session",
    "SessionEnded",
]
