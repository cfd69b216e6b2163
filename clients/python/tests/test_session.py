"""The promises of a session, each over HTTP."""

from __future__ import annotations

import asyncio
import pickle
import time
import unittest
from typing import Any
from unittest import mock

from server import Reply, Server, graded, refused

from sovereign_rewards import Item, Refused, RewardHeld, ServerUnavailable, Session, SessionEnded
from sovereign_rewards import scoring as machine

HELD = {
    "status": "ACTIVE",
    "reason": None,
    "anchor": {"held": True, "held_reason": "13 of 64 are confirmed", "pinned_step": "40"},
}


def length(item: Any) -> float:
    return float(len(item["completion"]))


class SessionCase(unittest.TestCase):
    """Every test runs with the blocking call and with the asynchronous one."""

    def setUp(self) -> None:
        patch = mock.patch.object(machine.random, "uniform", lambda low, _: low / 100)
        patch.start()
        self.addCleanup(patch.stop)

    def each(self, reply: Any, check: Any, **options: Any) -> None:
        for name in ("score", "ascore"):
            with self.subTest(name):
                server = Server(reply() if isinstance(reply, type) else reply)
                session = Session("rs_1", base_url=server.url + "/v1/", api_key="key", **options)

                def score(items: Any, step: Any = 7, call: str = name, session: Session = session) -> Any:
                    if call == "score":
                        return session.score(items, step)
                    return asyncio.run(session.ascore(items, step))

                try:
                    check(server, score)
                finally:
                    server.close()

    def test_rewards_come_in_the_order_of_the_items(self) -> None:
        def check(server: Server, score: Any) -> None:
            scores = score(
                [Item("p", "aaa"), Item([{"role": "user", "content": "q"}], "a", label="x"), Item("p", "aaa")]
            )
            self.assertEqual(scores.rewards, [3, 1, 3])
            self.assertEqual((scores.status, scores.spent_usd), ("ACTIVE", 0.25))
            (body,) = server.scored()
            self.assertEqual(body["step"], "7")
            self.assertEqual([sorted(item) for item in body["items"]], [
                ["completion", "id", "prompt"], ["completion", "id", "label", "messages"],
            ])  # fmt: skip

        self.each(lambda method, path, body: (200, graded(body, length)), check)

    def test_a_null_is_None_and_never_0(self) -> None:
        def check(server: Server, score: Any) -> None:
            self.assertEqual(score([Item("p", "a"), Item("p", "b")]).rewards, [None, 0.0])

        self.each(lambda m, p, b: (200, graded(b, lambda i: None if i["completion"] == "a" else 0.0)), check)

    def test_many_items_are_sent_in_chunks(self) -> None:
        def check(server: Server, score: Any) -> None:
            scores = score([Item("p", "a" * n) for n in range(1, 1101)])
            self.assertEqual(scores.rewards, [float(n) for n in range(1, 1101)])
            self.assertEqual([len(body["items"]) for body in server.scored()], [512, 512, 76])

        self.each(lambda m, p, b: (200, graded(b, length)), check)

    def test_what_is_busy_or_away_is_tried_again(self) -> None:
        class Busy:
            def __init__(self) -> None:
                self.replies: list[Reply] = [
                    (429, refused("rate_limited", "slow down"), {"Retry-After": "0"}), (503, b"<html>away</html>"),
                    None, (502, refused(None, "upstream")), (408, refused("request_timeout", "late")), (200, b"<html>"),
                ]  # fmt: skip

            def __call__(self, method: str, path: str, body: Any) -> Reply:
                return self.replies.pop(0) if self.replies else (200, graded(body, length))

        def check(server: Server, score: Any) -> None:
            self.assertEqual(score([Item("p", "aa")]).rewards, [2])
            bodies = server.scored()
            self.assertEqual(len(bodies), 7)
            self.assertTrue(all(body == bodies[0] for body in bodies), "a retry sends the same ids")

        self.each(Busy, check)

    def test_what_is_pending_is_asked_for_again_alone(self) -> None:
        class Pending:
            calls = 0

            def __call__(self, method: str, path: str, body: Any) -> Reply:
                self.calls += 1
                answer = graded(body, length)
                if self.calls == 1:
                    answer["data"][1].update(reward=None, flags=["pending"])
                return 200, answer

        def check(server: Server, score: Any) -> None:
            self.assertEqual(score([Item("p", "a"), Item("p", "bb")]).rewards, [1, 2])
            self.assertEqual([len(body["items"]) for body in server.scored()], [2, 1])

        self.each(Pending, check)

    def test_what_stays_pending_is_None_when_the_time_is_over(self) -> None:
        def pending(method: str, path: str, body: Any) -> Reply:
            answer = graded(body, lambda item: None)
            for one in answer["data"]:
                one["flags"] = ["pending"]
            return 200, answer

        def check(server: Server, score: Any) -> None:
            self.assertEqual(score([Item("p", "a")]).rewards, [None])

        self.each(pending, check, timeout=0.2)

    def test_a_server_that_stays_away_raises_when_the_time_is_over(self) -> None:
        def check(server: Server, score: Any) -> None:
            with self.assertRaises(ServerUnavailable):
                score([Item("p", "a")])

        self.each(lambda m, p, b: (503, refused("unavailable", "draining")), check, timeout=0.2)

    def test_a_refusal_is_not_tried_again(self) -> None:
        def check(server: Server, score: Any) -> None:
            with self.assertRaises(Refused) as caught:
                score([Item("p", "a")])
            self.assertEqual((caught.exception.status, caught.exception.code), (400, "invalid_parameter"))
            self.assertEqual(len(server.asked), 1)

        self.each(lambda m, p, b: (400, refused("invalid_parameter", "items[0]: too long")), check)

    def test_a_held_session_raises_with_its_reason_and_its_pinned_step(self) -> None:
        for answer in ((412, refused("anchor_held", "held")), (200, None)):

            def held(method: str, path: str, body: Any, answer: Any = answer) -> Reply:
                if method == "GET":
                    return 200, HELD
                return answer if answer[1] else (200, graded(body, length, held=True))

            def check(server: Server, score: Any) -> None:
                with self.assertRaises(RewardHeld) as caught:
                    score([Item("p", "a")])
                self.assertEqual(
                    (caught.exception.reason, caught.exception.pinned_step), ("13 of 64 are confirmed", "40")
                )

            self.each(held, check)

    def test_an_ended_session_raises_with_its_status(self) -> None:
        for code, status in (("session_overbudget", "OVERBUDGET"), ("session_not_active", "STOPPED")):

            def ended(method: str, path: str, body: Any, code: str = code, status: str = status) -> Reply:
                return (200, {"status": status, "reason": "expired"}) if method == "GET" else (409, refused(code, "no"))

            def check(server: Server, score: Any, status: str = status) -> None:
                with self.assertRaises(SessionEnded) as caught:
                    score([Item("p", "a")])
                self.assertEqual((caught.exception.status, caught.exception.reason), (status, "expired"))

            self.each(ended, check)

    def test_what_was_scored_when_the_budget_ran_out_is_answered(self) -> None:
        def poor(method: str, path: str, body: Any) -> Reply:
            return 200, graded(body, lambda item: 1.0 if item["completion"] == "a" else None, status="OVERBUDGET")

        def check(server: Server, score: Any) -> None:
            scores = score([Item("p", "a" * n) for n in range(1, 601)])
            self.assertEqual(scores.rewards, [1.0] + [None] * 599)
            self.assertEqual((scores.status, len(server.scored())), ("OVERBUDGET", 1))

        self.each(poor, check)

    def test_a_slow_server_is_left_when_the_time_is_over(self) -> None:
        def slow(method: str, path: str, body: Any) -> Reply:
            time.sleep(3)
            return 200, graded(body, length)

        def check(server: Server, score: Any) -> None:
            with self.assertRaises(ServerUnavailable):
                score([Item("p", "a")])

        self.each(slow, check, timeout=0.5)

    def test_calls_of_many_loops_and_threads_share_a_session(self) -> None:
        server = Server(lambda m, p, b: (200, graded(b, length)))
        self.addCleanup(server.close)
        session = Session("rs_1", base_url=server.url, api_key="key")

        async def many() -> list[float | None]:
            scores = await asyncio.gather(*(session.ascore([Item("p", "a" * n)], 1) for n in range(20)))
            return [one.rewards[0] for one in scores]

        for _ in range(3):
            self.assertEqual(asyncio.run(many()), [float(n) for n in range(20)])

    def test_a_session_is_made_and_ended(self) -> None:
        server = Server(lambda m, p, b: (201, {"id": "rs_9"}) if p.endswith("sessions") else (200, {"id": "rs_9"}))
        self.addCleanup(server.close)
        made = Session.create(
            "crit_1", budget_usd=5, label="run", anchor="crit_2", agentic=True, base_url=server.url, api_key="k"
        )
        made.check(3)
        made.release("looked at it")
        made.complete()
        pickle.loads(pickle.dumps(made)).stop()
        self.assertEqual(server.asked, [
            ("POST", "/v1/reward/sessions", {
                "label": "run", "budget_usd": 5, "reward": {"mode": "single", "criterionId": "crit_1"},
                "agentic": True, "anchor": {"criterion_id": "crit_2"},
            }),
            ("POST", "/v1/reward/sessions/rs_9/anchor/checks", {"step": "3"}),
            ("POST", "/v1/reward/sessions/rs_9/anchor/release", {"note": "looked at it"}),
            ("POST", "/v1/reward/sessions/rs_9/complete", None),
            ("DELETE", "/v1/reward/sessions/rs_9", None),
        ])  # fmt: skip
        with self.assertRaises(ValueError):
            Session.create(budget_usd=1, base_url=server.url, api_key="k")

    def test_an_id_follows_from_the_content_alone(self) -> None:
        messages = [{"role": "user", "content": "q"}]
        same = {Item(messages, "a").id, Item([dict(reversed(messages[0].items()))], "a").id}
        other = {Item("q", "a").id, Item(messages, "b").id, Item(messages, "a", label="x").id}
        self.assertEqual((len(same), len(same | other)), (1, 4))


if __name__ == "__main__":
    unittest.main()
