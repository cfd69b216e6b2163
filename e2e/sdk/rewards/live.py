"""Scores with the client at a running server, whose judge reads [truth=pass] and [truth=fail]."""

from __future__ import annotations

import asyncio
import os
import pathlib
import re

from sovereign_rewards import Item, Refused, Session, SessionEnded

example = re.search(r"```python\n(.*?)```", pathlib.Path("README.md").read_text(), re.DOTALL)
assert example is not None
filled = re.sub(r"\n +anchor=[^\n]*", "", example[1]).replace("crit_…", os.environ["CRITERION"])
filled = filled.replace("http://127.0.0.1:8080", os.environ["SOVEREIGN_BASE_URL"])
# The README's own example works when it is pasted.
exec(filled.replace("sk_sovereign_…", os.environ["SOVEREIGN_API_KEY"]))

session = Session.create(os.environ["CRITERION"], budget_usd=1, label="live")
items = [Item(f"question {n}", f"answer {n} [truth={'pass' if n % 3 else 'fail'}]") for n in range(600)]
scores = session.score([*items, items[0]], step=1)
assert len(scores.rewards) == 601 and scores.rewards[0] == scores.rewards[600], scores.rewards[:3]
for number, reward in enumerate(scores.rewards[:600]):
    assert reward is not None and (reward > 0.5) == bool(number % 3), (number, reward, scores.data[number])

again = asyncio.run(session.ascore(items, step=1))
assert again.rewards == scores.rewards[:600] and again.spent_usd == scores.spent_usd, "a retry costs nothing"

conversation = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "question"}]
(reward,) = session.score([Item(conversation, "[truth=pass]", label="x")], step="2").rewards
assert reward is not None and reward > 0.5, reward

state = session.state()
assert (state["status"], state["scored"]) == ("ACTIVE", 601), state
assert 0 < state["spent_usd"] <= 1, state
try:
    session.score([Item("question", "x" * 10_000_000)], step=3)
    raise AssertionError("a text of 10 MB was scored")
except Refused as error:
    assert error.status in (400, 413), error

session.complete()
try:
    session.score([Item("question", "new")], step=3)
    raise AssertionError("a session that has ended has scored")
except SessionEnded as error:
    assert error.status == "COMPLETED", error
print("scored", state["scored"])
