package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/backup"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

var engines = []db.Engine{db.SQLite, db.Postgres}

func open(t *testing.T, engine db.Engine) *db.DB {
	t.Helper()
	var url secret.Text
	if engine == db.Postgres {
		url = dbtest.Postgres(t)
	}
	return dbtest.Open(t, t.TempDir(), url)
}

const odd = "naïve ✓ 𝕏 \u2028 'quoted' \"twice\" \\ \t\n <&> null"

// fill inserts rows into every table.
func fill(t *testing.T, d *db.DB) {
	t.Helper()
	for _, rows := range []struct {
		table, columns string
		rows           [][]any
	}{
		{"feed_changes", "version, seq, kind, workspace_id, subject, at", [][]any{{1, 0, "key", "ws_1", odd, 5}, {1, 1, "", "", "", math.MinInt64}}},
		{"vault_keys", "id, root_id, wrapped, created_at, wrapped_at", [][]any{{1, "ab", []byte{0, 255, 10, 13}, 1, math.MaxInt64}, {2, "", []byte{0}, 0, -1}}},
		{"workspaces", "workspace_id, name, created_at, demo, deleted_at", [][]any{{"ws_1", odd, -1, false, 0}, {"ws_2", "", math.MinInt64, true, math.MaxInt64}}},
		{"users", "id, email, created_at", [][]any{{"usr_1", "a@b.c", math.MaxInt64}, {"usr_2", odd, 0}}},
		{"members", "workspace_id, user_id, role, created_at, updated_at", [][]any{{"ws_1", "usr_1", "owner", 1, 2}, {"ws_2", "usr_2", "member", -1, -2}}},
		{"api_keys", "id, workspace_id, user_id, name, digest, hint, created_at, last_used_at, revoked_at", [][]any{
			{"key_1", "ws_1", "usr_1", odd, []byte("digest"), "", 1, nil, nil}, {"key_2", "ws_2", "usr_2", "", []byte{0}, "abcd", 1, -5, math.MaxInt64},
		}},
		{"audit_entries", "id, workspace_id, at, actor_kind, actor_user, actor_key, request_id, action, subject, before_json, after_json", [][]any{
			{"aud_1", "ws_1", 1, "key", "usr_1", "key_1", "req_1", "a", odd, nil, []byte(`{"a":1}`)}, {"aud_2", "gone", 1, "", "", "", "", "", "", []byte{0}, nil},
		}},
		{"ledger_entries", "transfer_id, line, workspace_id, account, amount, kind, memo, at", [][]any{
			{"tr_1", 0, "ws_1", "wallet", math.MaxInt64, "topup", odd, 1}, {"tr_1", 1, "ws_1", "world", math.MinInt64, "topup", "", 1},
		}},
		{"ledger_balances", "workspace_id, account, amount", [][]any{{"ws_1", "wallet", math.MaxInt64}, {"ws_1", "world", math.MinInt64}}},
		{"usage_rows", "request_id, workspace_id, transfer_id, key_id, at, route, model, requested, alias, provider, outcome, counted, own_key, input, cached, written, audio_input, output, reasoning, audio_output, searches, price, cost, charged, hold_id, gpu_seconds", [][]any{
			{"req_1", "ws_1", "tr_1", "key_1", 1, "chat", "m", odd, "", "p", "finished", true, false, 1, 2, 3, 4, math.MaxInt64, 5, 6, 7, "{}", 8, 9, "rs_1", 60},
			{"req_2", "ws_2", "", "", -1, "", "", "", odd, "", "", false, true, 0, 0, 0, 0, 0, 0, 0, 0, "", 0, 0, "", 0},
		}},
		{"named_holds", "workspace_id, id, kind, amount, spent, created_at, ended_at", [][]any{
			{"ws_1", "rs_1", "reward", math.MaxInt64, 5, 1, 0}, {"ws_2", odd, "", 1, 0, -1, math.MaxInt64},
		}},
		{"posting_turn", "id", [][]any{{1}}},
		{"wallet_slices", "workspace_id, hold_id, node, amount, turn, answered, held, taken", [][]any{{"ws_1", "", "jrn_1", 5, 1, 0, 0, 1}}},
		{"wallet_recalls", "workspace_id, hold_id, asked", [][]any{{"ws_1", "", 1}}},
		{"wallet_losses", "workspace_id, hold_id, node, amount, at", [][]any{{"ws_1", odd, "jrn_1", math.MaxInt64, 1}}},
		{
			"nodes", "id, epoch, beat, applied, serving, draining, ended, forgotten, name, address, release, settings, joined_at, seen_at",
			[][]any{
				{"jrn_1", 1, math.MaxInt64, 7, false, true, true, false, odd, "", odd, "", 1, 2},
				{"jrn_2", 2, 1, -1, false, false, true, true, "", odd, "", odd, math.MaxInt64, -1},
			},
		},
		{"node_roles", "role, node, epoch", [][]any{{"engines", "jrn_1", 1}}},
		{"node_files", "node, store", [][]any{{"jrn_1", odd}}},
		{"engine_groups", "name, machine, replicas, failure, retry_in, revision", [][]any{{"g", "m", "[]", "", 0, 1}}},
		{"engine_uses", "name, node, epoch, revision, outstanding, waiting, last_used, busy", [][]any{{"g", "jrn_1", 1, 1, 2, 3, 4, "{}"}}},
		{"engine_adapters", "replica, version, node, epoch, recall", [][]any{{"rep_1", "mv_1", "jrn_1", 1, true}}},
		{"engine_loading", "replica, node, epoch", [][]any{{"rep_1", "jrn_1", 1}}},
		{"meter_counts", "subject, node, epoch, requests, tokens, running, seen_at", [][]any{{"key_1", "jrn_1", 1, 2, 3, 4, 5}}},
		{"guard_windows", "kind, name, ends_at, used", [][]any{{"abuse", odd, math.MaxInt64, 1}}},
		{"budget_days", "workspace_id, key_id, day, node, spent, posted_at", [][]any{
			{"ws_1", "key_1", 20000, "jrn_1", math.MaxInt64, 1}, {"ws_2", odd, -1, "", 0, 0},
		}},
		{"usage_days", "workspace_id, day, model, key_id, tag, requests, errors, input, cached, output, cost, charged", [][]any{
			{"ws_1", -1, odd, odd, odd, 1, 2, 3, 4, math.MaxInt64, 5, math.MinInt64}, {"ws_2", math.MaxInt64, "", "", "", 0, 0, 0, 0, 0, 0, 0},
		}},
		{"usage_sums", "workspace_id, cut, pick, day, grp, requests, errors, input, cached, output, cost, charged", [][]any{
			{"ws_1", "model/tag", odd, -1, odd, 1, 2, 3, 4, math.MaxInt64, 5, math.MinInt64},
		}},
		{"usage_closed", "workspace_id, before", [][]any{{"ws_1", math.MaxInt64}}},
		{"saved_views", "workspace_id, id, owner_id, page, name, query, shared, created_at, updated_at", [][]any{
			{"ws_1", "view_1", "usr_1", "logs", odd, odd, true, 1, math.MaxInt64}, {"ws_2", "view_2", "", "", "", "", false, -1, 0},
		}},
		{"topups", "workspace_id, id, amount, currency, state, session_id, url, payment_intent, transfer_id, taken, failure, created_by, created_at, updated_at, paid_at", [][]any{
			{"ws_1", "topup_1", math.MaxInt64, "usd", "paid", "cs_1", odd, "pi_1", "tr_1", 1, odd, "usr_1", 1, 2, 3}, {"ws_2", "topup_2", 0, "", "pending", "", "", "", "", 0, "", "", -1, -2, nil},
		}},
		{"payment_reversals", "workspace_id, payment_intent, source, amount, final, updated_at", [][]any{{"server", "pi_1", odd, 5, true, 1}, {"server", "pi_1", "dp_1", 0, false, -1}}},
		{"wallet_debts", "workspace_id, id, amount, paid, created_at, updated_at", [][]any{{"ws_1", "topup_1", math.MaxInt64, 1, 2, 3}}},
		{"ledger_days", "workspace_id, day, kind, account, amount", [][]any{{"ws_1", 20000, odd, "wallet", math.MinInt64}}},
		{"notices", "workspace_id, id, kind, subject, title, body, link, at, queued_at", [][]any{{"ws_1", "ntc_1", "wallet.low", odd, odd, odd, "wallet", 1, 0}}},
		{"notice_marks", "workspace_id, mark, at", [][]any{{"ws_1", odd, 1}}},
		{"notice_settings", "workspace_id, wallet_low, updated_at", [][]any{{"ws_1", math.MaxInt64, 1}}},
		{"notice_channels", "workspace_id, id, type, address, sealed, kinds, enabled, failing_since, disabled_reason, created_at, updated_at", [][]any{
			{"ws_1", "chan_1", "webhook", odd, []byte{0, 1}, "[]", true, 0, odd, 1, 2}, {"ws_2", "chan_2", "email", "a@b.c", nil, "[]", false, 5, "", 1, 2},
		}},
		{"notice_deliveries", "workspace_id, id, channel_id, notice_id, kind, state, attempts, first_at, next_at, failure, created_at, ended_at", [][]any{
			{"ws_1", "dlv_1", "chan_1", "ntc_1", "wallet.low", "pending", 1, 2, 3, odd, 4, nil}, {"ws_1", "dlv_2", "chan_1", "ntc_2", "", "failed", 0, 0, 0, "", 4, 5},
		}},
		{"journal_cursors", "journal_id, segment, position, at", [][]any{{"jrn_1", 1, math.MaxInt64, 3}}},
		{"workspace_settings", "workspace_id, default_max_tokens, updated_at", [][]any{{"ws_1", 7, 1}}},
		{"traffic_limits", "workspace_id, subject, requests_per_minute, tokens_per_minute, concurrency, budget_day, budget_month, models, scope, expires_at, allowed_addresses", [][]any{
			{"ws_1", "", 1, 2, 3, 4, math.MaxInt64, odd, "full", nil, "[]"}, {"ws_1", "key_1", 0, 0, 0, 0, 0, "[]", "inference", math.MaxInt64, odd},
		}},
		{"quotas", "workspace_id, kind, most", [][]any{{"ws_1", odd, math.MaxInt64}}},
		{"provider_keys", "workspace_id, provider, base_url, sealed, created_at, updated_at", [][]any{{"ws_1", odd, "", []byte{0, 255}, 1, math.MaxInt64}}},
		{"eval_endpoints", "workspace_id, id, name, base_url, model, sealed, created_at, updated_at", [][]any{
			{"ws_1", "ep_1", odd, "https://example.com", odd, []byte{0, 255}, 1, math.MaxInt64}, {"ws_1", "ep_2", "", "", "", nil, -1, 0},
		}},
		{"aliases", "workspace_id, name, target_model, description, canary_model, canary_percent, fallback_models, created_at, updated_at", [][]any{{"ws_1", "a", "m", odd, "", 0, "[]", 1, 2}}},
		{"alias_incumbents", "workspace_id, name, model, previous, since", [][]any{{"ws_1", "a", odd, "", 1}}},
		{"evidence_policies", "workspace_id, required, max_age_days, min_trust, max_regression, confidence, max_unproven_canary_percent, updated_at", [][]any{{"ws_1", true, 30, "measured", 0.05, 0.1 + 0.2, 20, 1}}},
		{"datasets", "workspace_id, id, name, role, row_count, provenance, curation, holdout_id, holdout_of, created_at", [][]any{
			{"ws_1", "ds_1", odd, "train", 1, "{}", "{}", "ds_2", nil, 1}, {"ws_1", "ds_2", "", "eval", 0, odd, "", nil, "ds_1", math.MaxInt64},
		}},
		{"dataset_examples", "workspace_id, hash, line", [][]any{{"ws_1", []byte{0, 255}, []byte(odd)}, {"ws_1", []byte{1}, []byte{}}}},
		{"dataset_rows", "workspace_id, dataset_id, position, hash", [][]any{{"ws_1", "ds_1", 0, []byte{0, 255}}, {"ws_1", "ds_3", math.MaxInt64, []byte{1}}}},
		{"dataset_loose", "workspace_id, dataset_id, since", [][]any{{"ws_1", "ds_3", 1}}},
		{"dataset_builds", "workspace_id, id, name, holdout_id, holdout_name, recipe, actor, request_id", [][]any{{"ws_1", "ds_3", odd, "ds_4", odd, "{}", "{}", "req_1"}, {"ws_1", "ds_5", "all", nil, nil, "{}", "{}", ""}}},
		{"signing_keys", "id, public, sealed, created_at, retired_at", [][]any{{"in force", []byte{0, 255}, []byte{0}, 1, nil}, {odd, []byte{1}, nil, -1, math.MaxInt64}}},
		{"jobs", "workspace_id, id, kind, status, done, total, cost, estimate, attempts, losses, claim, cancel_requested, failure, created_at, started_at, finished_at", [][]any{
			{"ws_1", "cal_1", "calibration", "RUNNING", 1, math.MaxInt64, 2, 3, 4, 5, "run_1", true, "", 1, 2, nil},
			{"ws_2", odd, "", "FAILED", 0, 0, 0, 0, 0, 0, "", false, odd, math.MinInt64, nil, math.MaxInt64},
		}},
		{"label_items", "workspace_id, hash, steps", [][]any{{"ws_1", []byte{0, 255}, []byte(odd)}}},
		{"labels", "workspace_id, id, criterion_id, request_id, trace_id, verdict, grade, critique, author, source, in_report_half, straddles, item, kind, adjudicated, note, adjudicated_by, adjudicated_at, created_at", [][]any{
			{"ws_1", "lbl_1", "crit_1", "", "", "pass", 0.1, odd, "", "", true, false, []byte{0, 255}, "", "", "", "", 0, 1}, {"ws_1", "lbl_2", "", odd, "", "fail", nil, "", "", "", false, true, []byte{0, 255}, "ambiguous", "", odd, "", math.MaxInt64, 1},
		}},
		{"label_consensus", "workspace_id, criterion_id, item, made_by, label_id, verdict, ruling, tied, graders, in_report_half, straddles", [][]any{
			{"ws_1", "crit_1", []byte{0, 255}, "lbl_1", odd, "", odd, true, math.MaxInt64, true, false}, {"ws_1", "", []byte{0, 255}, "lbl_2", "lbl_2", "pass", "", false, 1, false, true},
		}},
		{"label_halves", "workspace_id, turn, earlier, half, shared", [][]any{{"ws_1", []byte{0}, true, 2, 1}, {"ws_1", []byte{0}, false, 0, math.MaxInt64}}},
		{"label_secrets", "workspace_id, secret", [][]any{{"ws_1", []byte{0, 255, 10}}}},
		{"criteria", "workspace_id, id, name, rubric, judge_model, scale, pass_threshold, few_shot, shots, filters, version, monitoring, created_at, updated_at", [][]any{
			{"ws_1", "crit_1", odd, odd, "m", "graded", 0.1 + 0.2, true, "[]", "{}", 1, "", 1, 2},
		}},
		{"criteria_deleted", "workspace_id, id, since", [][]any{{"ws_1", "crit_0", 1}}},
		{"judge_answers", "workspace_id, question, criterion_id, origin, request_id, opinion, failure, cost, created_at, expires_at", [][]any{{"ws_1", []byte{0}, "", "", "", odd, "", math.MaxInt64, 1, 0}}},
		{"calibrations", "workspace_id, id, criterion_id, version, judge_model, threshold, max_cost, fresh, counts, ties, enrolled, last, created_by, created_at, aligned_at", [][]any{{"ws_1", "cal_1", "crit_1", 1, odd, 0.7, nil, true, "{}", math.MaxInt64, "", "", "", 1, 0}}},
		{"calibration_rows", "workspace_id, calibration_id, label_id, request_id, item, in_report_half, shown, human, standing, ruling, draw, pending, judge, grade, critique, failure", [][]any{
			{"ws_1", "cal_1", "lbl_1", "", []byte{0}, true, false, "pass", "fail", odd, math.MaxInt64, false, "fail", 1e-300, odd, ""}, {"ws_1", "cal_1", "lbl_2", "", []byte{0, 255}, false, true, "pass", "pass", "", 0, true, "", 0.0, "", ""},
		}},
		{"certificates", "workspace_id, id, criterion_id, calibration_id, version, edition, document, key_id, jws, trust, holdout_active, issued_at, voided_at, voided_by, voided_reason", [][]any{
			{"ws_1", "cert_1", "crit_1", "cal_1", 1, 1, []byte(odd), "", "", "measured", true, 1, 0, "", odd},
		}},
		{"inquiries", "workspace_id, id, kind, criterion_id, version, asked, result, created_by, created_at", [][]any{{"ws_1", "scan_1", "scan", "crit_1", 1, odd, "", "", 1}}},
		{"judged_logs", "workspace_id, run_id, log_id, at, pending, judge, grade, critique, failure, request_id, expires_at", [][]any{{"ws_1", "scan_1", "log_1", 1, false, "fail", 0.3, odd, "", "", math.MaxInt64}}},
		{"monitors", "workspace_id, criterion_id, version, since, cursor, seen, passes, judged, failed, cost, spent, alarmed_at, reason", [][]any{{"ws_1", "crit_1", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, odd}}},
		{"evals", "workspace_id, id, name, source, request, criterion_id, version, certificate_id, cases, left_out, result, created_by, created_at", [][]any{{"ws_1", "eval_1", odd, "inline", "{}", "", 0, "", 1, math.MaxInt64, odd, "", 1}}},
		{"eval_pairs", "workspace_id, eval_id, model, baseline, candidate, failure, created_at", [][]any{{"ws_1", "eval_1", 1, odd, "m", odd, math.MaxInt64}}},
		{"eval_cases", "workspace_id, eval_id, position, case_id, pending, request_id, segment, messages, tools, logged, logged_model, logged_cost, logged_latency, baseline, expires_at", [][]any{
			{"ws_1", "eval_1", 0, odd, true, "", odd, []byte(odd), []byte{}, []byte{0, 255}, "m", math.MaxInt64, 1, "pass", -1},
		}},
		{"eval_answers", "workspace_id, eval_id, position, model, answer, finish_reason, failure, reused, request_id, cost, latency", [][]any{{"ws_1", "eval_1", 0, 1, []byte{0, 255}, odd, odd, true, "", math.MaxInt64, 1}}},
		{"eval_verdicts", "workspace_id, eval_id, position, model, swapped, verdict, grade, critique, failure, request_id, cost", [][]any{{"ws_1", "eval_1", 0, 1, true, "tie", 0.1, odd, odd, "", math.MaxInt64}}},
		{"eval_outcomes", "workspace_id, eval_id, position, model, outcome, flipped, baseline, candidate, regression", [][]any{{"ws_1", "eval_1", 0, 1, "win", true, "pass", "fail", -0.5}}},
		{"canary_epochs", "workspace_id, id, alias, target_model, canary_model, criterion_id, criterion_version, certificate_id, youden, false_pass, percents, source, seq, taken, entered, tally, spent, verdict, automatic, shown, started_at, evaluated_at, decided_at, acted_at, ended_at", [][]any{
			{"ws_1", "epoch_1", odd, "m", "n", "crit_1", 1, "cert_1", 0.1 + 0.2, 1e-300, "[10,20]", odd, math.MaxInt64, 3, 2, "{}", 5, "paused", true, odd, 1, 2, 3, 4, math.MaxInt64},
		}},
		{"canary_samples", "workspace_id, epoch_id, position, request_id, stratum, canary, result, tries, latency, cost, drawn_at, expires_at", [][]any{{"ws_1", "epoch_1", 1, odd, 1, true, "", 2, 3, 4, 5, math.MaxInt64}}},
		{"artifacts", "workspace_id, digest, bytes, created_at, used_at", [][]any{{"ws_1", odd, math.MaxInt64, 1, -1}}},
		{"artifact_references", "workspace_id, owner, digest", [][]any{{"ws_1", odd, "d"}}},
		{"workers", "id, name, workspace_id, hash, info, created_at, seen_at, revoked_at", [][]any{{"wrk_1", odd, "", []byte{0, 255}, odd, 1, 0, math.MaxInt64}}},
		{"training_runs", "workspace_id, id, kind, status, method, base_model, spec, gpu_type, gpu_count, budget, wanted, paused_reason, attempt, lost, step, total_steps, tokens, events, error_code, error_message, created_by, created_at, queued_at, started_at, finished_at, settled", [][]any{
			{"ws_1", "ftjob_1", "fine_tuning_job", "QUEUED", "sft", "m", odd, "", 1, math.MaxInt64, "", odd, 1, 0, 2, 3, math.MaxInt64, 4, "", odd, "usr_1", 1, 1, 0, 0, false},
		}},
		{"training_attempts", "workspace_id, run_id, attempt, worker_id, fence, gpu_type, gpu_count, rate, lease_until, beat, beat_at, metered, started_at, ended_at, outcome, charge", [][]any{{"ws_1", "ftjob_1", 1, "wrk_1", odd, "cpu", 1, math.MaxInt64, 1, 1, 1, math.MaxInt64, 1, 0, "", ""}}},
		{"training_events", "workspace_id, run_id, seq, attempt, number, at, level, type, step, message, data", [][]any{{"ws_1", "ftjob_1", 1, 1, -1, 1, "info", "message", 0, odd, ""}}},
		{"training_checkpoints", "workspace_id, run_id, step, id, attempt, files, digest, bytes, metrics, created_at", [][]any{{"ws_1", "ftjob_1", 1, "ckpt_1", 1, odd, "d", 1, "", 1}}},
		{"training_files", "workspace_id, id, name, format, digest, bytes, row_count, created_by, created_at", [][]any{{"ws_1", "file_1", odd, "chat", "d", 1, 1, "usr_1", 1}}},
		{"environment_tools", "workspace_id, id, name, description, endpoint_url, parameters, timeout_ms, sealed, created_at, updated_at", [][]any{{"ws_1", "tool_1", odd, odd, odd, odd, 1, []byte{0, 255}, 1, 1}}},
		{"fine_tuning_jobs", "workspace_id, id, request, estimate, model_version_id", [][]any{{"ws_1", "ftjob_1", odd, -1, ""}}},
		{"grpo_runs", "workspace_id, id, request, session_id", [][]any{{"ws_1", "grpo_1", odd, "rs_1"}}},
		{"raft_rounds", "workspace_id, id, campaign_id, round, status, stage, request, base_model, parent_id, budget, data, result, session_id, sampling_id, job_id, measuring_id, model_version_id, next_id, stopped_reason, error_code, error_message, created_by, created_at, finished_at", [][]any{
			{"ws_1", "raft_1", "raft_1", 1, "RUNNING", "sampling", odd, "m", "", math.MaxInt64, odd, odd, "rs_1", "raftrun_1", "ftjob_1", "raftrun_2", "", "", odd, "", odd, "usr_1", 1, 0},
		}},
		{"dedicated_endpoints", "workspace_id, id, name, routing_key, status, base_model, model_version_id, engine, gpu_type, gpu_count, min_replicas, max_replicas, idle_timeout, max_hourly, price, wanted, failures, failed_at, quiet_at, hold_id, holds, error_code, error_message, error_lines, last_used_at, created_by, created_at, started_at, deleted_at, active, revision", [][]any{
			{"ws_1", "dep_1", odd, "support-1", "RUNNING", "m", "", "small", "cpu", 1, 0, 1, 300, math.MaxInt64, -1, 1, 0, 0, 0, "dep_1.1", 1, "", odd, odd, 0, "usr_1", 1, 1, 0, true, 1},
		}},
		{"endpoint_replicas", "workspace_id, endpoint_id, id, started_at, ready_at, seen_at, drain_at, ended_at, billed, charges, due, due_hold, settled", [][]any{
			{"ws_1", "dep_1", odd, 1, 2, math.MaxInt64, 0, 0, 60, 1, 60, "dep_1.1", false},
		}},
		{"endpoint_holds", "workspace_id, endpoint_id, hold_id", [][]any{{"ws_1", "dep_1", "dep_1.1"}}},
		{"grpo_candidates", "workspace_id, id, run_id, step, model_version_id, eval_id, gate, created_at, gate_reason, due_at", [][]any{{"ws_1", "cand_1", "grpo_1", 1, "mv_1", "", odd, 1, odd, math.MaxInt64}}},
		{"model_versions", "workspace_id, id, name, base_model, parent_id, source_type, source_id, source_step, document, key_id, jws, files, digest, bytes, adopted_at, created_at", [][]any{
			{"ws_1", "mv_1", odd, "m", "", "fine_tuning_job", "ftjob_1", 1, []byte{0, 255}, "k", "j", odd, "d", 1, 0, 1},
		}},
		{"demos", "workspace_id, id, user_id, state, deletion, created_at, deleted_at", [][]any{{"ws_1", "demo_1", "usr_1", odd, "", 1, 0}, {"ws_2", "demo_2", "usr_1", "", odd, -1, math.MaxInt64}}},
		{"sessions", "id, user_id, digest, method, address, agent, created_at, last_seen_at, expires_at, ended_at", [][]any{{"ses_1", "usr_1", []byte{0, 255}, "link", "::1", odd, 1, 2, math.MaxInt64, 0}}},
		{"signin_links", "id, digest, kind, made_in, user_id, created_at, expires_at, used_at", [][]any{{"lnk_1", []byte{0, 255}, "invite", "ws_1", "usr_1", 1, math.MaxInt64, 0}}},
		{"invitations", "workspace_id, id, user_id, role, link_id, created_by, created_at, expires_at", [][]any{{"ws_1", "inv_1", "usr_2", "admin", "lnk_1", "usr_1", 1, math.MaxInt64}}},
		{"passwords", "user_id, phc, changed_at", [][]any{{"usr_1", odd, math.MaxInt64}}},
		{"oidc_states", "digest, nonce, verifier, expires_at", [][]any{{[]byte{0, 255}, odd, "", math.MaxInt64}}},
		{"oidc_subjects", "issuer, subject, user_id, created_at", [][]any{{"https://id.test", odd, "usr_1", 1}}},
		{"eval_secrets", "workspace_id, secret", [][]any{{"ws_1", []byte{0, 255}}}},
		{"canary_questions", "workspace_id, epoch_id, question, position", [][]any{{"ws_1", "epoch_1", []byte{0, 255}, math.MaxInt64}}},
		{"canary_points", "workspace_id, epoch_id, position, at, promote, roll_back, difference, lowest, highest, base_n, base_passes, canary_n, canary_passes", [][]any{
			{"ws_1", "epoch_1", 1, 2, 0.1, -0.2, nil, -1.0, 1.0, 3, 4, 5, math.MaxInt64}, {"ws_1", "epoch_1", 2, 2, 0.1, -0.2, 0.5, -1.0, 1.0, 3, 4, 5, 6},
		}},
		{"reward_sessions", "workspace_id, id, label, status, reason, agentic, mode, judges, budget, task_count, task_bytes, scored, anchor_criterion_id, anchor, sample_size, every, process, evidence, checks, checked_at_item, held_at, held_reason, pinned_step, created_by, created_at, expires_at, ended_at, purged_at, purging", [][]any{
			{"ws_1", "rs_1", odd, "STOPPED", odd, true, "single", "[]", math.MaxInt64, 1, math.MaxInt64, 2, "crit_1", "{}", 64, 256, 1, odd, 3, 4, 5, odd, odd, "", 6, 7, math.MaxInt64, 8, true},
		}},
		{"reward_tasks", "workspace_id, session_id, position, task", [][]any{{"ws_1", "rs_1", math.MaxInt64, odd}}},
		{"reward_texts", "workspace_id, session_id, digest, body", [][]any{{"ws_1", "rs_1", []byte{0, 255}, odd}}},
		{"reward_items", "workspace_id, session_id, step, item_id, content, position, prompt, completion, label, reward, verdict, grades, flags, scored_at, checked", [][]any{
			{"ws_1", "rs_1", odd, odd, []byte{0, 255}, 1, []byte{0}, []byte{255}, odd, 0.1 + 0.2, "pass", "[]", "[]", math.MaxInt64, 1}, {"ws_1", "rs_1", "", "", []byte{}, 2, []byte{}, []byte{}, "", nil, "", "", odd, 1, 0},
		}},
		{"reward_checks", "workspace_id, session_id, number, process, step, requested, at, done_at, n, masked, reward_passes, anchor_passes, anchor_failed, only_reward, only_anchor, corrected, anchor_rate, lowest, highest, evidence, held", [][]any{
			{"ws_1", "rs_1", 1, 1, odd, true, 2, 3, 4, 5, 6, 7, 8, 9, 10, true, 0.1, 1e-300, 1, 0.1 + 0.2, true},
		}},
		{"reward_tokens", "workspace_id, id, session_id, hash, name, created_by, created_at", [][]any{{"ws_1", "rtok_1", "rs_1", []byte{0, 255}, odd, "usr_1", math.MaxInt64}}},
		{"review_queues", "workspace_id, id, name, criterion_id, instructions, graders_per_item, blind, lease_minutes, source, created_by, created_at, closed_at", [][]any{
			{"ws_1", "rq_1", odd, "", odd, 2, true, 15, "{}", "usr_1", 1, math.MaxInt64},
		}},
		{"review_fills", "workspace_id, id, queue_id, source, added, missing", [][]any{{"ws_1", "rf_1", "rq_1", odd, 1, math.MaxInt64}}},
		{"review_items", "workspace_id, queue_id, ref, id, position, steps, reason, judge, grade, critique, expires_at, state, conflict, lost", [][]any{
			{"ws_1", "rq_1", odd, "ri_1", 1, 2, odd, "fail", 0.1 + 0.2, odd, math.MaxInt64, "done", true, odd},
		}},
		{"review_grades", "workspace_id, queue_id, item_id, user_id, state, claim, lease_until, verdict, grade, critique, unsure, label_id, at", [][]any{
			{"ws_1", "rq_1", "ri_1", "usr_1", "graded", "claim_1", math.MaxInt64, "pass", 0.1 + 0.2, odd, true, "lbl_1", 1},
			{"ws_1", "rq_1", "ri_1", "usr_2", "claimed", "", 0, "", nil, "", false, "", -1},
		}},
		{"review_grants", "workspace_id, queue_id, user_id, created_by, created_at, accepted_at", [][]any{{"ws_1", "rq_1", "usr_2", odd, 1, 2}}},
		{"review_assignments", "workspace_id, queue_id, item_id, user_id", [][]any{{"ws_1", "rq_1", "ri_1", odd}}},
		{"chain_links", "chain, subject, row_count, digest, seq, hash", [][]any{{"audit", "aud_1", 1, []byte{0, 255}, 1, []byte{0}}, {"ledger", odd, math.MaxInt64, []byte{}, nil, nil}}},
		{"chain_heads", "chain, seq, document, key_id, jws", [][]any{{"audit", 1, []byte(odd), "", odd}}},
		{"idempotency_keys", "workspace_id, route, key, body_sha256, status, answer, created_at", [][]any{{"ws_1", "POST /", odd, []byte{1}, 201, nil, 1}, {"ws_1", "POST /", "", []byte{0}, 200, []byte(odd), 1}}},
	} {
		if err := db.Insert(t.Context(), d.Across("test"), rows.table, strings.Split(rows.columns, ", "), rows.rows); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Exec(t.Context(), d.Across("test"), `UPDATE feed_head SET version = 7`); err != nil {
		t.Fatal(err)
	}
}

// everything returns every row of every table, in no order.
func everything(t *testing.T, d *db.DB) map[string][]string {
	t.Helper()
	tables, err := db.Tables(t.Context(), d.Across("test"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, table := range tables {
		all[table.Name] = []string{}
		for row, err := range db.Dump(t.Context(), d.Across("test"), table) {
			if err != nil {
				t.Fatal(err)
			}
			line, err := json.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			all[table.Name] = append(all[table.Name], string(line))
		}
		slices.Sort(all[table.Name])
	}
	return all
}

func write(t *testing.T, d *db.DB) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := backup.Write(t.Context(), d, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// restored is what everything returns after a restore: without what only running servers have.
func restored(all map[string][]string) map[string][]string {
	want := maps.Clone(all)
	for _, table := range []string{
		"wallet_slices", "wallet_recalls", "node_roles", "node_files", "engine_groups", "engine_uses", "engine_adapters",
		"engine_loading", "meter_counts",
	} {
		want[table] = []string{}
	}
	return want
}

func accepted(context.Context) error { return nil }

// stillEmpty checks that nothing of a refused backup was stored, by restoring a good one.
func stillEmpty(t *testing.T, d *db.DB, good []byte, want map[string][]string) {
	t.Helper()
	if _, _, err := restore(t.Context(), d, bytes.NewReader(good), accepted); err != nil {
		t.Errorf("a whole backup afterwards: %v", err)
	}
	have := everything(t, d)
	for table, rows := range restored(want) {
		if !slices.Equal(have[table], rows) {
			t.Errorf("%s: have\n%s\nwant\n%s", table, strings.Join(have[table], "\n"), strings.Join(rows, "\n"))
		}
	}
	if len(have) != len(want) {
		t.Errorf("%d tables became %d", len(want), len(have))
	}
}

func TestABackupOfEitherEngineRestoresIntoEither(t *testing.T) {
	for _, from := range engines {
		source := dbtest.Migrated(t, from)
		fill(t, source)
		want, file := everything(t, source), write(t, source)
		for table, rows := range want {
			if len(rows) == 0 {
				t.Fatalf("fill leaves %s empty: give it a row", table)
			}
		}
		for _, to := range engines {
			t.Run(fmt.Sprintf("%s to %s", from, to), func(t *testing.T) {
				target := open(t, to)
				header, end, err := restore(t.Context(), target, bytes.NewReader(file), accepted)
				if err != nil {
					t.Fatal(err)
				}
				have := everything(t, target)
				for table, rows := range restored(want) {
					if !slices.Equal(have[table], rows) {
						t.Errorf("%s: have\n%s\nwant\n%s", table, strings.Join(have[table], "\n"), strings.Join(rows, "\n"))
					}
					if end.Rows[table] != int64(len(want[table])) {
						t.Errorf("%s: %d rows are reported, and there are %d", table, end.Rows[table], len(want[table]))
					}
				}
				if len(have) != len(want) || len(header.Tables) != len(want) {
					t.Errorf("%d tables became %d", len(want), len(have))
				}
			})
		}
	}
}

// Column types that no table of ours has yet, in a table of the test; and more than one piece of rows.
func TestEveryKindOfValueAndManyRowsAreRestored(t *testing.T) {
	kinds := func(t *testing.T, engine db.Engine) *db.DB {
		t.Helper()
		d := dbtest.Migrated(t, engine)
		if _, err := db.Exec(t.Context(), d.Across("test"), `CREATE TABLE kinds (id BIGINT PRIMARY KEY, i BIGINT, t TEXT, b BYTEA, f BOOLEAN, r DOUBLE PRECISION)`); err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, from := range engines {
		source := kinds(t, from)
		rows := [][]any{{0, nil, nil, nil, nil, nil}, {1, math.MaxInt64, "", []byte{255}, true, 0.1}, {2, math.MinInt64, odd, []byte{0}, false, -math.SmallestNonzeroFloat64}}
		body := make([]byte, 800<<10) // fills a piece by itself, as base64
		_, _ = rand.NewChaCha8([32]byte{}).Read(body)
		rows = append(rows, []any{3, 3, strings.Repeat(odd, 100), body, true, math.MaxFloat64}, []any{4, 4, "in the next piece", body[:100], false, 7.0})
		if err := db.Insert(t.Context(), source.Across("test"), "kinds", []string{"id", "i", "t", "b", "f", "r"}, rows); err != nil {
			t.Fatal(err)
		}
		want, file := everything(t, source), write(t, source)
		for _, to := range engines {
			t.Run(fmt.Sprintf("%s to %s", from, to), func(t *testing.T) {
				target := kinds(t, to)
				if _, _, err := restore(t.Context(), target, bytes.NewReader(file), accepted); err != nil {
					t.Fatal(err)
				}
				have := everything(t, target)
				for i, row := range want["kinds"] {
					if have["kinds"][i] != row {
						t.Errorf("have %.200s\nwant %.200s", have["kinds"][i], row)
					}
				}
				if !reflect.DeepEqual(have, want) {
					t.Error("other rows differ")
				}
			})
		}
	}
}

func TestSerialATruncatedBackupIsBrokenAndNothingIsStored(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, source *db.DB) {
		fill(t, source)
		want, file := everything(t, source), write(t, source)
		target := open(t, source.Engine)
		cuts := []int{len(file) - 1, len(file) - 4, len(file) - 8, len(file) - 9}
		for i := range 10 {
			cuts = append(cuts, len(file)*i/10)
		}
		for cut := 0; cut < len(file); cut += max(1, len(file)/200) { // without a database, which costs more than reading
			if _, err := rowsOf(file[:cut]); !errors.Is(err, backup.ErrBroken) {
				t.Errorf("cut at %d of %d: %v", cut, len(file), err)
			}
		}
		for _, cut := range cuts {
			if _, _, err := restore(t.Context(), target, bytes.NewReader(file[:cut]), accepted); !errors.Is(err, backup.ErrBroken) {
				t.Errorf("cut at %d of %d: %v", cut, len(file), err)
			}
		}
		stillEmpty(t, target, file, want)
	})
}

// rowsOf returns the rows of a file, if the reader finds it complete.
func rowsOf(file []byte) (string, error) {
	r, err := backup.NewReader(bytes.NewReader(file))
	if err != nil {
		return "", err
	}
	var all strings.Builder
	_, err = r.Each(func(table db.Table, rows [][]any) error {
		_, err := fmt.Fprintf(&all, "%v %#v\n", table, rows)
		return err
	})
	return all.String(), err
}

func TestSerialAChangedBitNeverYieldsOtherRows(t *testing.T) {
	source := dbtest.Migrated(t, db.SQLite)
	fill(t, source)
	file := write(t, source)
	want, err := rowsOf(file)
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	for i := 0; i < len(file); i += max(1, len(file)/1000) {
		changed := bytes.Clone(file)
		changed[i] ^= 1 << (i % 8)
		if have, err := rowsOf(changed); err == nil {
			passed++
			if have != want {
				t.Fatalf("byte %d of %d changed, and it reads as %s", i, len(file), have)
			}
		}
	}
	if passed > 1000/50 { // gzip does not checksum its own header, and can encode the same content in other bits
		t.Errorf("%d changed bits of %d are not noticed", passed, len(file))
	}
}

func TestNothingIsStoredOfAFileWithAChangedByte(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, source *db.DB) {
		fill(t, source)
		want, file := everything(t, source), write(t, source)
		target := open(t, source.Engine)
		for i := range 15 {
			at := 10 + (len(file)-10)*i/15
			changed := bytes.Clone(file)
			changed[at] ^= 0xff
			if _, _, err := restore(t.Context(), target, bytes.NewReader(changed), accepted); err == nil {
				t.Fatalf("byte %d of %d changed, and it is restored", at, len(file))
			}
		}
		stillEmpty(t, target, file, want)
	})
}

func TestAFileWithTrailingDataIsBroken(t *testing.T) {
	d := dbtest.Migrated(t, db.SQLite)
	file := write(t, d)
	for _, more := range [][]byte{{0}, []byte("more"), file[:100]} {
		if _, _, err := restore(t.Context(), open(t, db.SQLite), bytes.NewReader(append(bytes.Clone(file), more...)), accepted); !errors.Is(err, backup.ErrBroken) {
			t.Errorf("%d bytes behind: %v", len(more), err)
		}
	}
}

func TestRestoreRefusesADatabaseWithRows(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, source *db.DB) {
		fill(t, source)
		file := write(t, source)
		target := dbtest.Migrated(t, source.Engine)
		if _, err := db.Exec(t.Context(), target.Across("test"), `INSERT INTO users (id, email, created_at) VALUES ('usr_9', 'there', 1)`); err != nil {
			t.Fatal(err)
		}
		before := everything(t, target)
		if _, _, err := restore(t.Context(), target, bytes.NewReader(file), accepted); !errors.Is(err, backup.ErrNotEmpty) {
			t.Errorf("got %v", err)
		}
		if !reflect.DeepEqual(everything(t, target), before) {
			t.Error("the database was changed")
		}
	})
}

func TestABackupThatIsNotAcceptedIsReadCompletelyAndNotStored(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, source *db.DB) {
		fill(t, source)
		want, file := everything(t, source), write(t, source)
		target := open(t, source.Engine)
		refusal := errors.New("the wrong root key")
		_, _, err := restore(t.Context(), target, bytes.NewReader(file), func(ctx context.Context) error {
			if n, err := db.One[int](ctx, target.Across("test"), `SELECT COUNT(*) FROM idempotency_keys`); err != nil || n != len(want["idempotency_keys"]) {
				t.Errorf("accept sees %d rows, %v", n, err)
			}
			return refusal
		})
		if !errors.Is(err, refusal) {
			t.Errorf("got %v", err)
		}
		stillEmpty(t, target, file, want)
	})
}

// A backup is made while servers run. None of them serves the restored database, so no change there waits for one.
func TestNoServerOfABackupLivesInTheRestoredDatabase(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, source *db.DB) {
		if err := db.Insert(t.Context(), source.Across("test"), "nodes", []string{
			"id", "epoch", "beat", "applied", "serving", "draining", "ended", "forgotten", "name", "address", "release", "settings",
			"joined_at", "seen_at",
		}, [][]any{{"jrn_1", 1, 2, 3, true, false, false, false, "", "", "", "", 4, 5}}); err != nil {
			t.Fatal(err)
		}
		target := open(t, source.Engine)
		if _, _, err := restore(t.Context(), target, bytes.NewReader(write(t, source)), accepted); err != nil {
			t.Fatal(err)
		}
		live, err := db.One[int](t.Context(), target.Across("test"), `SELECT COUNT(*) FROM nodes WHERE serving OR NOT ended`)
		if err != nil || live != 0 {
			t.Errorf("%d servers live, %v", live, err)
		}
	})
}

// Two amounts with a constant sum are in the tables that are read first and last, with many rows to read in between.
func TestABackupUnderLoadIsOneConsistentState(t *testing.T) {
	const sum = 1000
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		fill(t, d)
		all := d.Across("test")
		filling := make([][]any, 500)
		for i := range filling {
			filling[i] = []any{fmt.Sprint("usr_more_", i), fmt.Sprint(strings.Repeat("x", 200), i), i}
		}
		if err := db.Insert(t.Context(), all, "users", []string{"id", "email", "created_at"}, filling); err != nil {
			t.Fatal(err)
		}
		const first, last = `UPDATE feed_changes SET at = at + $1 WHERE seq = 0`, `UPDATE idempotency_keys SET created_at = created_at + $1 WHERE status = 201`
		move := func(ctx context.Context, out, in int) error {
			_, err := d.Tx(ctx, func(tx *db.Tx) error {
				_, one := db.Exec(ctx, tx.Across("test"), first, out)
				_, other := db.Exec(ctx, tx.Across("test"), last, in)
				return errors.Join(one, other)
			})
			return err
		}
		if err := move(t.Context(), sum-6, 0); err != nil { // fill made them 5 and 1
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		var moves atomic.Int64
		var group sync.WaitGroup
		group.Go(func() { // one: two would contend for the same rows, which is not what is tested
			for ctx.Err() == nil {
				n := rand.IntN(100) - 50
				if err := move(ctx, n, -n); err == nil {
					moves.Add(1)
				} else if ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
		for range 4 {
			before := moves.Load()
			file := write(t, d)
			for moves.Load() == before {
				file = write(t, d)
			}
			r, err := backup.NewReader(bytes.NewReader(file))
			if err != nil {
				t.Fatal(err)
			}
			var total int64
			if _, err := r.Each(func(table db.Table, rows [][]any) error {
				for _, row := range rows {
					switch {
					case table.Name == "feed_changes" && row[1] == int64(0):
						total += row[5].(int64)
					case table.Name == "idempotency_keys" && row[4] == int64(201):
						total += row[6].(int64)
					}
				}
				return nil
			}); err != nil || total != sum {
				t.Errorf("the sum is %d, not %d, %v", total, sum, err)
			}
		}
		stop()
		group.Wait()
	})
}

// restore opens a backup and restores it.
func restore(ctx context.Context, d *db.DB, in io.Reader, accept func(context.Context) error) (backup.Header, backup.End, error) {
	r, err := backup.NewReader(in)
	if err != nil {
		return backup.Header{}, backup.End{}, err
	}
	end, err := r.Restore(ctx, d, accept)
	return r.Header, end, err
}

func TestEmptyBytesAreNotNull(t *testing.T) {
	for _, from := range engines {
		source := dbtest.Migrated(t, from)
		fill(t, source)
		if _, err := db.Exec(t.Context(), source.Across("test"), `UPDATE vault_keys SET wrapped = $1`, []byte{}); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(t.Context(), source.Across("test"), `UPDATE audit_entries SET before_json = $1`, []byte{}); err != nil {
			t.Fatal(err)
		}
		file := write(t, source)
		for _, to := range engines {
			target := open(t, to)
			if _, _, err := restore(t.Context(), target, bytes.NewReader(file), accepted); err != nil {
				t.Errorf("%s to %s: %v", from, to, err)
				continue
			}
			n, err := db.One[int](t.Context(), target.Across("test"), `SELECT COUNT(*) FROM audit_entries WHERE before_json IS NULL`)
			if err != nil || n != 0 {
				t.Errorf("%s to %s: %d became NULL, %v", from, to, n, err)
			}
		}
	}
}

func TestSerialAFileWithAChangedByteIsBroken(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, source *db.DB) {
		fill(t, source)
		want, file := everything(t, source), write(t, source)
		target := open(t, source.Engine)
		places := 200
		if source.Engine == db.Postgres {
			places = 20 // the reader is the same; a restore costs more here
		}
		for i := 10; i < len(file); i += max(1, len(file)/places) {
			changed := bytes.Clone(file)
			changed[i] ^= 1 << (i * 5 % 8)
			_, _, err := restore(t.Context(), target, bytes.NewReader(changed), accepted)
			if err == nil { // other bits for the same content
				if have := everything(t, target); !reflect.DeepEqual(have, restored(want)) {
					t.Error("other rows")
				}
				target = open(t, source.Engine)
			} else if !errors.Is(err, backup.ErrBroken) {
				t.Errorf("byte %d: %v", i, err)
			}
		}
	})
}

func TestTwoConcatenatedBackupsAreBroken(t *testing.T) {
	file := write(t, dbtest.Migrated(t, db.SQLite))
	if _, err := rowsOf(append(bytes.Clone(file), file...)); !errors.Is(err, backup.ErrBroken) {
		t.Errorf("got %v", err)
	}
}
