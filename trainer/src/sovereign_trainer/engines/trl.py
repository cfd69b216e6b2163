"""The engine `trl`: SFT, DPO and GRPO with TRL on PyTorch, of full weights or LoRA; bf16 on a GPU, fp32 on a CPU.

A resumed run gives the same losses as one that was left alone. That needs the same seed and number of steps, the
optimizer's state, that of the random generators, and a checkpoint that is whole: one without its optimizer would be
resumed silently wrong.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import shutil
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # what a run reads is on this disk
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TQDM_DISABLE", "1")
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]  # one GPU
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two threads on a busy machine are ten times slower than one

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback, TrainerState
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from .. import data
from ..engine import About, Context, Job, Model
from ..errors import Failure, Halt
from . import tiny, trl_grpo
from .trl_sampling import sample
from .trl_start import start, tokenizer

METHODS = ("sft", "dpo", "grpo", "sample")

STATE = ("optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth", "trainer_state.json", "ref")
"""What a checkpoint has for the trainer alone. It is kept below state/. `ref` is the adapter that a run began with."""

NEEDED = ("optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")
LEFT_OUT = ("training_args.bin", "README.md")
"""Names this machine's folders, or the day."""


def about() -> About:
    """What it can train on this machine."""
    models = {name: Model(name, one.parameters, one.context, random=True) for name, one in tiny.SHAPES.items()}
    if not torch.cuda.is_available():
        return About(list(METHODS), [models[tiny.MODEL]])
    name = torch.cuda.get_device_name(0).lower().removeprefix("nvidia ").split()[0]
    return About(list(METHODS), list(models.values()), gpu_type=name)


def run(job: Job, context: Context) -> None:
    """Do a run."""
    if job.method not in METHODS:
        raise Failure("unsupported_method", f"the engine trl does not train with {job.method!r}")
    try:
        if job.method == "sample":
            sample(job, context)
        else:
            Training(job, context).run()
    except torch.OutOfMemoryError as error:
        raise Failure("out_of_memory", f"take a smaller batch_size or max_length: {error}") from None


class Training:
    """A run: a trainer of TRL, whose steps the callback follows."""

    def __init__(self, job: Job, context: Context) -> None:
        self.job, self.context = job, context
        self.settings = job.hyperparameters
        self.cuda = torch.cuda.is_available()
        self.words = tokenizer(job)
        rows = self.rows()
        held = self.read("validation.jsonl") if "validation.jsonl" in job.inputs else None
        self.batch = int(self.settings.get("batch_size") or 8)
        self.accumulation = int(self.settings.get("gradient_accumulation") or 1)
        self.total = self.steps(len(rows))
        self.callback = Follow(self)
        self.trainer = self.build(rows, held)

    def run(self) -> None:
        resume = unpack(pathlib.Path(self.job.resume), pathlib.Path(self.job.folder)) if self.job.resume else None
        if resume is None or not self.callback.ended(read_state(resume)):
            try:
                self.trainer.train(resume_from_checkpoint=str(resume) if resume else None)
            except Halt as halt:
                self.callback.halt(self.trainer, str(halt))
            state = self.trainer.state
        else:
            state = read_state(resume)
        step, tokens = state.global_step, int(state.num_input_tokens_seen)
        if self.callback.stopped:
            self.context.stopped(step, tokens)
            return
        if step < self.total:
            best, _ = self.callback.best(state)
            self.context.message(f"stopped early: eval_loss was lowest at step {best}", step=step)
        self.context.done(step, tokens)

    def rows(self) -> Dataset:
        """What the run learns from."""
        if self.job.method == "grpo":
            return trl_grpo.prompts(self.job, self.context, self.words)
        return self.read("train.jsonl")

    def steps(self, rows: int) -> int:
        """How many steps there are."""
        most = int(self.settings.get("max_steps") or 0)
        if self.job.method == "grpo":
            return most or 100
        per_epoch = math.ceil(rows / (self.batch * self.accumulation))
        found = max(1, math.ceil(float(self.settings.get("epochs") or 1) * per_epoch))
        return min(found, most or found)

    def read(self, name: str) -> Dataset:
        """The rows of an input, as TRL reads them."""
        found = []
        for where, row in data.rows(self.job.inputs[name]):
            if self.job.method == "dpo":
                prompt, chosen, rejected = data.preference(where, row)
                found.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
            elif self.marked():
                found.append({"messages": data.conversation(where, row)})
            else:
                *before, last = data.conversation(where, row)
                found.append({"prompt": before, "completion": [last]})
        if not found:
            raise Failure("invalid_data", f"{name} has no rows")
        return Dataset.from_list(found)

    def marked(self) -> bool:
        """The template says what the assistant has written. Without that, the last answer alone is learned."""
        return "{% generation" in self.words.chat_template or "{%- generation" in self.words.chat_template

    def build(self, rows: Dataset, held: Dataset | None) -> Any:
        lora = self.job.spec.get("lora")
        adapter = lora and LoraConfig(
            r=int(lora["rank"]), lora_alpha=lora["alpha"], lora_dropout=float(lora.get("dropout") or 0.0),
            target_modules="all-linear", task_type="CAUSAL_LM",
        )  # fmt: skip
        model = start(self.job, self.words)
        if hasattr(model, "peft_config"):
            adapter = None  # it has one, which is trained on
        common = {
            "train_dataset": rows, "processing_class": self.words, "callbacks": [self.callback],
            "peft_config": adapter or None,
        }  # fmt: skip
        if self.job.method == "grpo":
            return trl_grpo.build(self.job, self.context, model, self.arguments(), **common)
        common |= {"model": model, "eval_dataset": held}
        length = {"max_length": int(self.settings.get("max_length") or 1024)}
        counted = {"include_num_input_tokens_seen": "non_padding"}  # GRPO counts by itself
        if self.job.method == "sft":
            config = SFTConfig(assistant_only_loss=self.marked(), **self.arguments(), **length, **counted)
            return SFTTrainer(args=config, **common)
        config = DPOConfig(beta=float(self.settings.get("beta") or 0.1), **self.arguments(), **length, **counted)
        full = adapter is None and not hasattr(model, "peft_config")
        return DPOTrainer(args=config, ref_model=start(self.job, self.words) if full else None, **common)

    def arguments(self) -> dict[str, Any]:
        seed = int(self.job.spec.get("seed") or 0)
        return {
            "output_dir": str(pathlib.Path(self.job.folder) / "trainer"),
            "max_steps": self.total,
            "per_device_train_batch_size": self.batch,
            "per_device_eval_batch_size": self.batch,
            "gradient_accumulation_steps": self.accumulation,
            "learning_rate": float(self.settings.get("learning_rate") or 2e-4),
            "lr_scheduler_type": "linear",
            "warmup_steps": math.ceil(float(self.settings.get("warmup_ratio") or 0.0) * self.total),
            "weight_decay": float(self.settings.get("weight_decay") or 0.0),
            "seed": seed,
            "data_seed": seed,
            "use_cpu": not self.cuda,
            "bf16": self.cuda,
            "gradient_checkpointing": False,
            "logging_steps": max(1, self.total // 1000),
            "logging_nan_inf_filter": False,
            "save_strategy": "no",  # the callback says when
            "eval_strategy": "no",
            "save_only_model": False,
            "report_to": [],
            "disable_tqdm": True,
        }


class Follow(TrainerCallback):  # type: ignore[misc]
    """Tells the supervisor of steps, and says when to evaluate, to save and to stop."""

    def __init__(self, training: Training) -> None:
        self.training, self.context = training, training.context
        spec = training.job.spec
        self.save_every = int(spec.get("checkpoint_every") or 0) or training.total
        self.patience = int(spec.get("early_stopping_patience") or 0)
        self.held = "validation.jsonl" in training.job.inputs
        self.stopped = False
        self.saved = -1  # the step of the last checkpoint
        self.dice: trl_grpo.Dice | None = None  # after the last step
        self.tokens = 0
        self.figures: dict[str, float] = {}

    def best(self, state: Any) -> tuple[int, int]:
        """The step with the lowest eval_loss, and how many evaluations followed it."""
        found = {entry["step"]: entry["eval_loss"] for entry in state.log_history if "eval_loss" in entry}
        if not found:
            return 0, 0
        step = min(found, key=lambda at: (found[at], at))
        return step, sum(at > step for at in found)

    def ended(self, state: Any) -> bool:
        """It was trained to the end, or evaluations did not improve for as long as it is patient."""
        return state.global_step >= self.training.total or 0 < self.patience <= self.best(state)[1]

    def halt(self, trainer: Any, why: str) -> None:
        """Forget the step that cannot be finished: save the one before, with the random generators as they were."""
        state = trainer.state
        self.stopped = True
        self.context.message(f"stops after step {state.global_step}: {why}", "warn", state.global_step)
        if self.saved < state.global_step and self.dice:
            self.dice.restore()
            state.num_input_tokens_seen = self.tokens
            trainer._save_checkpoint(trainer.model_wrapped, trial=None)
            self.on_save(trainer.args, state, None)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.saved, self.tokens = state.global_step, int(state.num_input_tokens_seen)
        self.context.progress(state.global_step, self.training.total, int(state.num_input_tokens_seen))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        last = state.global_step >= self.training.total
        self.tokens = int(state.num_input_tokens_seen)
        if self.training.job.method == "grpo":
            self.dice = trl_grpo.Dice()
        if last or state.global_step % self.save_every == 0:
            control.should_log = control.should_save = True
            control.should_evaluate = self.held
        if self.context.stop_wanted and not last:
            control.should_save = control.should_training_stop = self.stopped = True
        self.context.progress(state.global_step, self.training.total, int(state.num_input_tokens_seen))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        said = {name: float(value) for name, value in (logs or {}).items() if told(name, value)}
        if "train_loss" in said:
            return  # the summary at the end
        if not math.isfinite(said.get("loss", 0.0)):
            raise Failure(
                "diverged", f"the loss is not finite at step {state.global_step}: take a smaller learning_rate"
            )
        self.figures |= said
        self.context.metrics(state.global_step, int(state.num_input_tokens_seen), said)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.ended(state):
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        folder = pathlib.Path(args.output_dir) / f"checkpoint-{state.global_step}"
        ready = pathlib.Path(self.training.job.folder) / f"checkpoint-{state.global_step}"
        pack(folder, ready, self.training.job)
        self.saved = state.global_step
        self.context.checkpoint(state.global_step, ready, self.figures)


def told(name: str, value: Any) -> bool:
    """Figures that are the same in every attempt: not how long it took, nor what this attempt has counted."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    counted = name in ("num_tokens", "eval_num_tokens", "total_flos", "num_input_tokens_seen", "step_time")
    return not (counted or name.endswith(("_runtime", "_per_second")))


def pack(folder: pathlib.Path, ready: pathlib.Path, job: Job) -> None:
    """Make a checkpoint of TRL one of ours: the model, and below state/ what the trainer needs to go on."""
    missing = [name for name in NEEDED if not (folder / name).is_file()]
    if missing:
        raise Failure("checkpoint_failed", f"the trainer has not written {', '.join(missing)}")
    (folder / "state").mkdir(exist_ok=True)
    for name in LEFT_OUT:
        (folder / name).unlink(missing_ok=True)
    for name in STATE:
        if (folder / name).exists():
            os.replace(folder / name, folder / "state" / name)
    adapter = folder / "adapter_config.json"
    if adapter.is_file():  # the order of its lists is another one in every process
        config = json.loads(adapter.read_text())
        for name, value in config.items():
            if isinstance(value, list) and all(isinstance(item, str) for item in value):
                config[name] = sorted(value)
        config["base_model_name_or_path"] = job.base_model
        adapter.write_text(json.dumps(config, sort_keys=True, indent=1) + "\n")
    shutil.rmtree(ready, ignore_errors=True)
    os.replace(folder, ready)


def unpack(kept: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Make a checkpoint of ours one of TRL. It is refused unless it has everything that an exact resume needs."""
    missing = [name for name in NEEDED if not (kept / "state" / name).is_file()]
    if missing:
        raise Failure("invalid_checkpoint", f"the checkpoint has no {', '.join(missing)}")
    made = folder / "resume"
    shutil.copytree(kept, made, ignore=lambda *_: ["state"], copy_function=os.link)
    shutil.copytree(kept / "state", made, copy_function=os.link, dirs_exist_ok=True)
    return made


def read_state(folder: pathlib.Path) -> Any:
    """The trainer's state in a checkpoint."""
    return TrainerState.load_from_json(str(folder / "trainer_state.json"))
