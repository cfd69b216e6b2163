"""Asks verl's rate-limited manager, which turns failures into 0, for a reward of a session that has ended."""

import os
import types

import test_others
from sovereign_rewards import Session

test_others.LAB = types.SimpleNamespace(
    address=os.environ["LAB_ADDRESS"], workspace=types.SimpleNamespace(key=os.environ["LAB_KEY"])
)
session = Session(os.environ["LAB_SESSION"], base_url=os.environ["LAB_ADDRESS"], api_key=os.environ["LAB_KEY"])
case = test_others.VerlCase()
print("reward:", case.managed(session)[0](case.batch([test_others.RIGHT]), return_dict=True))
