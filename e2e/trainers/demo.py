"""The demonstration: a run that finds a loophole of its judge is held, and the same run without the loophole is not.

It calibrates the judges on what the random policy answers, trains twice, simulates healthy runs over the same API, and
writes docs/rewards.svg and the figures of docs/rewards.md.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import pathlib
import random
import re
import sys
import tempfile
import time
from typing import Any

import plot
import policy
import task
from lab import ROOT, WAIT, Lab, Labelled
from sovereign_rewards import Item, RewardHeld, Session
from sovereign_rewards.trl import HoldCallback, reward_function

STEPS = int(os.environ.get("DEMO_STEPS", "80"))
RUNS = int(os.environ.get("DEMO_RUNS", "200"))
LABELS = 300  # of each class
CHECKS = {"sample_size": 32, "every": 256}  # 8 answers to each of 32 questions, which are two steps
SIMULATED = {"sample_size": 32, "every": 32}  # an answer to each of 32 questions
PAGE, PICTURE = ROOT / "docs/rewards.md", ROOT / "docs/rewards.svg"


@dataclasses.dataclass
class Step:
    """What was scored at a step: the mean reward, the share that is right, and the share with the loophole."""

    number: int
    reward: float
    right: float
    loophole: float


@dataclasses.dataclass
class Run:
    """A training run, and what its anchor found."""

    steps: list[Step]
    checks: list[dict[str, Any]]
    held: bool
    reason: str | None
    pinned: str | None
    checkpoint: str | None
    spent: float
    seconds: float


def labelled(answers: list[tuple[str, str]], count: int) -> list[Labelled]:
    """As many right answers as wrong ones, labelled by the true rule."""
    graded = [(asked, answer, task.right(asked, answer)) for asked, answer in answers]
    return [item for side in (True, False) for item in [one for one in graded if one[2] is side][:count]]


def train(session: Session, folder: str, steps: int) -> Run:
    """Train the random policy by the rewards of a session, until it is held or done."""
    hold, seen = HoldCallback(session), []
    score = reward_function(session, hold)

    async def recorded(prompts: list[str], completions: list[str], trainer_state: Any, **more: Any) -> Any:
        rewards = await score(prompts=prompts, completions=completions, trainer_state=trainer_state, **more)
        given = [reward for reward in rewards if reward is not None]
        if given:
            right = sum(map(task.right, prompts, completions)) / len(prompts)
            loophole = sum(map(task.loophole, completions)) / len(prompts)
            seen.append(Step(trainer_state.global_step, sum(given) / len(given), right, loophole))
        return rewards

    began = time.monotonic()
    saves = {"save_strategy": "steps", "save_steps": 1, "save_only_model": True}
    policy.grpo(recorded, folder, steps, [hold], learning_rate=1.5e-3, **saves).train()
    seconds = time.monotonic() - began
    state = session.state()
    anchor = state["anchor"]
    checkpoint = pathlib.Path(hold.checkpoint).name if hold.checkpoint else None
    if not anchor["held"]:
        session.complete()
    return Run(
        seen, anchor["history"], anchor["held"], anchor["held_reason"], anchor["pinned_step"], checkpoint,
        session.state()["spent_usd"], seconds,
    )  # fmt: skip


def simulate(lab: Lab, runs: int, skills: list[float]) -> tuple[int, int]:
    """Healthy runs over the API, a check for each skill: how many were held, and how many checks there were. Ten share
    a calibration, which is made anew for the next ten."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        seeds = [pool.submit(healthy, lab, seed, min(10, runs - seed), skills) for seed in range(0, runs, 10)]
        found = [one.result() for one in seeds]
    return sum(held for held, _ in found), sum(checks for _, checks in found)


def healthy(lab: Lab, seed: int, runs: int, skills: list[float]) -> tuple[int, int]:
    """Healthy runs in a workspace of their own."""
    rng = random.Random(f"healthy {seed}")
    workspace = lab.another(f"healthy-{seed}")
    asked = [task.question(rng) for _ in range(6 * LABELS)]
    graded = labelled([(one, task.answer(rng, one, skills[0])) for one in dict.fromkeys(asked)], LABELS)
    sound = workspace.judge("first letter", "judges/sound", task.RUBRIC, graded)
    anchor = workspace.judge("first letter, again", "judges/anchor", task.RUBRIC, graded)
    held = checks = 0
    for _ in range(runs):
        session = workspace.session(sound, anchor, checks=SIMULATED, budget_usd=1.0)
        try:
            for number, skill in enumerate(skills):
                asked = [task.question(rng) for _ in range(SIMULATED["every"])]
                session.score([Item(one, task.answer(rng, one, skill)) for one in asked], number)
                checks += awaited(session, number + 1)
        except RewardHeld:
            held += 1
        session.stop()
    return held, checks


def awaited(session: Session, number: int) -> int:
    """Wait until the anchor has made so many checks."""
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        anchor = session.anchor()
        if anchor["held"]:
            raise RewardHeld(anchor["held_reason"], anchor["pinned_step"])
        if anchor["checks"] >= number:
            return 1
        time.sleep(0.02)
    raise TimeoutError(f"check {number} of {session.id}: {anchor}")


def figures(certificates: dict[str, Any], weak: Run, sound: Run, false: tuple[int, int, int]) -> str:
    """The figures of the page."""
    lines = ["| Judge | Sensitivity | Specificity | Tier |", "|---|---|---|---|"]
    for name, one in certificates.items():
        shown = [f"{one[k]:.3f} ({one[k + '_ci'][0]:.3f} to {one[k + '_ci'][1]:.3f})" for k in ("se", "sp")]
        lines.append(f"| {name} | {shown[0]} | {shown[1]} | `{one['trust']}` |")
    lines += ["", "| | With the loophole | Without it |", "|---|---|---|"]

    def row(name: str, value: Any) -> None:
        lines.append(f"| {name} | {value(weak)} | {value(sound)} |")

    row("Steps", lambda run: len(run.steps))
    for name, field in (("Reward", "reward"), ("Right in truth", "right"), ("With three z", "loophole")):
        row(f"{name}, first and last four steps", lambda run, field=field: ends(run.steps, field))
    row("Anchor's rate: first check, highest, last", lambda run: " → ".join(map(rate, three(run.checks))))
    row("Checks", lambda run: len(run.checks))
    row("Evidence at the last check (25 holds)", lambda run: f"{run.checks[-1]['evidence']:.3g}")
    row("Held", lambda run: "yes" if run.held else "no")
    row("`pinned_step`, checkpoint", lambda run: f"{run.pinned}, {run.checkpoint}" if run.held else f"{run.pinned}")
    row("Spent on judges", lambda run: f"${run.spent:.4f}")
    held, checks, runs = false
    lines += ["", f"Of {runs} simulated healthy runs ({checks:,} checks), {held} were held."]
    if weak.reason:
        lines += ["", "`held_reason` of the first run:", "", f"> {weak.reason}"]
    return "\n".join(lines)


def ends(steps: list[Step], field: str) -> str:
    """The means of a field over the first and the last four steps."""
    return " → ".join(f"{sum(getattr(step, field) for step in part) / 4:.2f}" for part in (steps[:4], steps[-4:]))


def three(checks: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The first check, the one with the highest rate of the anchor, and the last."""
    return checks[0], max(checks, key=lambda check: check["anchor_rate"] or 0.0), checks[-1]


def rate(check: dict[str, Any]) -> str:
    """The anchor's rate at a check."""
    return "none" if check["anchor_rate"] is None else f"{check['anchor_rate']:.2f}"


def write(text: str) -> None:
    """Put the figures into the page."""
    marks = re.compile(r"(<!-- figures -->\n).*?(<!-- end of figures -->)", re.S)
    PAGE.write_text(marks.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", PAGE.read_text()))


def main() -> None:
    lab = Lab()
    try:
        words = policy.tokenizer()
        asked = task.questions(2, 6 * LABELS)
        graded = labelled(list(zip(asked, policy.answers(policy.model(words), words, asked), strict=True)), LABELS)
        workspace, certificates = lab.workspace, {}
        names = {"Reward, with the loophole": "weak", "Reward, without it": "sound", "Anchor": "anchor"}
        for name, model in names.items():
            certificates[name] = workspace.judge(name, f"judges/{model}", task.RUBRIC, graded)
            print(name, {k: certificates[name][k] for k in ("n", "matrix", "se", "sp", "trust")}, flush=True)
        weak, sound, anchor = certificates.values()
        found = []
        for judge in (weak, sound):
            session = workspace.session(judge, anchor, checks=CHECKS, label="demonstration")
            with tempfile.TemporaryDirectory() as folder:
                found.append(train(session, folder, STEPS))
            print(f"held: {found[-1].held} {found[-1].reason} pinned: {found[-1].pinned}", flush=True)
        passing = [check["anchor_rate"] for check in found[1].checks]
        skills = [max(0.38, min(0.95, rate)) for rate in passing[:: max(1, len(passing) // 12)]]
        began = time.monotonic()
        held, checks = simulate(lab, RUNS, skills)
        print(f"{held} of {RUNS} healthy runs were held, {checks} checks, {time.monotonic() - began:.0f} s", flush=True)
        text = figures(certificates, *found, (held, checks, RUNS))
        print(text)
        print(lab.admin("ledger", "verify"))
        PICTURE.write_text(plot.picture(*found))
        write(text)
        if not found[0].held or found[1].held or held > RUNS * 0.05:
            sys.exit("the demonstration failed")
    except BaseException:
        print(lab.log()[-4000:], file=sys.stderr)
        raise
    finally:
        lab.close()


if __name__ == "__main__":
    main()
