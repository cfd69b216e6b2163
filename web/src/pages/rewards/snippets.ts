// How trainers ask a session for rewards. Each is what docs/rewards.md has, with this server and session filled in.

export interface Snippet { id: string; label: string; text: string; note: string }

export function snippets(session: string, origin: string, token = 'TOKEN'): Snippet[] {
  const env = `export SOVEREIGN_BASE_URL=${origin} SOVEREIGN_API_KEY=sk_sovereign_… SOVEREIGN_SESSION=${session}\npip install sovereign-rewards`
  return [
    {
      id: 'trl', label: 'TRL', note: 'The callback saves a checkpoint and stops the run when the session is held.',
      text: `${env}

# in the training script
from sovereign_rewards import Session
from sovereign_rewards.trl import HoldCallback, reward_function
from trl import GRPOConfig, GRPOTrainer

session = Session.attach()
hold = HoldCallback(session)
trainer = GRPOTrainer(
    model="my-model",
    args=GRPOConfig(output_dir="out", save_steps=4),
    train_dataset=dataset,
    reward_funcs=[reward_function(session, hold)],
    callbacks=[hold],
)
trainer.train()`,
    },
    {
      id: 'verl', label: 'verl', note: 'The rows need the prompt in extra_info["prompt"]; a failure ends the run instead of being a reward of 0.',
      text: `${env}

# options of verl
reward.custom_reward_function.path=pkg://sovereign_rewards.verl
reward.custom_reward_function.name=compute_score
reward.reward_manager.name=rate_limited
+reward.max_concurrent=64`,
    },
    {
      id: 'openrlhf', label: 'OpenRLHF', note: 'It cannot send a header: make a token for this session, which can score in it and do nothing else.',
      text: `--reward.remote_url ${origin}/rewards/v1/${token}/openrlhf`,
    },
    {
      id: 'slime', label: 'slime', note: 'It cannot send a header either: make a token.',
      text: `--rm-type remote_rm --rm-url ${origin}/rewards/v1/${token}/slime`,
    },
    {
      id: 'curl', label: 'curl', note: 'Idempotent by step, id and content: what has a reward costs nothing again.',
      text: `curl ${origin}/v1/reward/sessions/${session}/score \\
  -H "Authorization: Bearer $SOVEREIGN_API_KEY" -H "Content-Type: application/json" \\
  -d '{"step":"0","items":[{"id":"a","prompt":"What is 2 + 2?","completion":"4"}]}'`,
    },
  ]
}
