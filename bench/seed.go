package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/store/db"
)

// sizes are the sizes of a server's database.
type sizes struct {
	name                      string
	keys, aliases, workspaces int
	logs                      bool // exchanges are logged
	limits                    bool // keys and workspaces have every limit
	split                     bool // aliases for chat have a canary
	gated                     bool // and a gate, once the server runs
}

// benchUser is the owner of every workspace.
const benchUser = "bench@example.com"

var tenKeys = sizes{name: "ten keys", keys: 10, aliases: 10, workspaces: 1}

// kinds are the models that aliases are for.
var kinds = map[string]string{
	"chat": "mock/chat", "embedding": "mock/embedding",
	"standard-chat": "standard/chat", "standard-embedding": "standard/embedding",
}

// The canary of split aliases.
const (
	canaryModel   = "mock/canary"
	canaryPercent = 50
)

// alias is the i-th name for a model of that kind.
func alias(kind string, i int) string { return fmt.Sprintf("%s-%06d", kind, i) }

// seeded holds the senders of a database.
type seeded struct {
	sizes
	keys []string
	ids  []string // of the keys
}

func (s seeded) senders(kind string) senders {
	models := make([]string, s.aliases)
	for i := range models {
		models[i] = alias(kind, i)
	}
	return senders{keys: s.keys, models: models, paired: s.workspaces > 1}
}

// A table is rows on their way into a database.
type table struct {
	name    string
	columns []string
	rows    [][]any
}

// seed fills an empty database. Key i and alias i are of workspace i, as far as there are so many.
func seed(ctx context.Context, d *db.DB, n sizes) (seeded, error) {
	made := seeded{sizes: n}
	if err := d.Migrate(ctx); err != nil {
		return made, err
	}
	quick := `PRAGMA synchronous = OFF` // of our connection alone
	if d.Engine == db.Postgres {
		quick = `SET synchronous_commit = off`
	}
	if _, err := db.Exec(ctx, d.Across("the bench fills all workspaces"), quick); err != nil {
		return made, err
	}
	now, user := clock.Now(), id.New("usr")
	spaces := make([]string, n.workspaces)
	for i := range spaces {
		spaces[i] = id.New("ws")
	}
	if err := fill(ctx, d, table{"users", []string{"id", "email", "created_at"}, [][]any{{
		user, benchUser, now,
	}}}); err != nil {
		return made, err
	}
	for at := range slices.Chunk(upTo(n.workspaces), seedBatch) {
		if err := fill(ctx, d, workspaces(spaces, at, user, now)...); err != nil {
			return made, err
		}
	}
	if n.logs {
		settings := table{"workspace_settings", []string{
			"workspace_id", "default_max_tokens", "log_retention_days", "updated_at",
		}, nil}
		for _, space := range spaces {
			settings.rows = append(settings.rows, []any{space, 0, 30, now})
		}
		if err := fill(ctx, d, settings); err != nil {
			return made, err
		}
	}
	newKey := mint(n.keys)
	for at := range slices.Chunk(upTo(n.keys), seedBatch) {
		keys := table{
			"api_keys", []string{"id", "workspace_id", "user_id", "name", "digest", "hint", "created_at"}, nil,
		}
		for _, i := range at {
			k := &newKey[i]
			made.keys, made.ids = append(made.keys, k.text), append(made.ids, id.New("key"))
			keys.rows = append(keys.rows, []any{
				made.ids[i], spaces[i%len(spaces)], user, "bench", k.digest[:], k.hint, now,
			})
		}
		if err := fill(ctx, d, keys); err != nil {
			return made, err
		}
	}
	if n.limits {
		if err := fill(ctx, d, everyLimit(spaces, made.ids)); err != nil {
			return made, err
		}
	}
	for at := range slices.Chunk(upTo(n.aliases), seedBatch) {
		if err := fill(ctx, d, aliases(spaces, at, n.split, now)); err != nil {
			return made, err
		}
	}
	return made, nil
}

// A newKey is a generated key.
type newKey struct {
	text, hint string
	digest     apikey.Digest
}

// mint makes keys in the order of their digests, in which a table takes them fastest.
func mint(n int) []newKey {
	all := make([]newKey, n)
	for i := range all {
		text, digest, hint := apikey.New()
		all[i] = newKey{text.Reveal(), hint, digest}
	}
	slices.SortFunc(all, func(a, b newKey) int { return bytes.Compare(a.digest[:], b.digest[:]) })
	return all
}

// seedBatch bounds a transaction.
const seedBatch = 20_000

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// workspaces are workspaces with a member and money, which came in as the ledger wants it.
func workspaces(spaces []string, at []int, user string, now clock.Time) []table {
	all := []table{
		{"workspaces", []string{"workspace_id", "name", "created_at"}, nil},
		{"members", []string{"workspace_id", "user_id", "role", "created_at", "updated_at"}, nil},
		{"ledger_entries", []string{
			"transfer_id", "line", "workspace_id", "account", "amount", "kind", "memo", "at",
		}, nil},
		{"ledger_balances", []string{"workspace_id", "account", "amount"}, nil},
		{"ledger_days", []string{"workspace_id", "day", "kind", "account", "amount"}, nil},
	}
	day := int64(now) / (24 * time.Hour).Microseconds()
	const amount = 10_000 * money.Dollar
	add := func(table int, row ...any) { all[table].rows = append(all[table].rows, row) }
	for _, i := range at {
		ws, transfer := spaces[i], id.New("txn")
		add(0, ws, fmt.Sprint("bench ", i), now)
		add(1, ws, user, "owner", now, now)
		add(2, transfer, 0, ws, "wallet", amount, "topup", "bench", now)
		add(2, transfer, 1, ws, "funding", -amount, "topup", "bench", now)
		add(3, ws, "wallet", amount)
		add(3, ws, "funding", -amount)
		add(4, ws, day, "topup", "wallet", amount)
		add(4, ws, day, "topup", "funding", -amount)
	}
	return all
}

// everyLimit gives the workspaces and their keys every limit, none of which a run reaches.
func everyLimit(spaces, keys []string) table {
	all := table{"traffic_limits", []string{
		"workspace_id", "subject", "requests_per_minute", "tokens_per_minute", "concurrency", "budget_day",
		"budget_month", "models", "scope", "expires_at", "allowed_addresses",
	}, nil}
	const many = 1_000_000_000
	add := func(ws, subject string) {
		all.rows = append(all.rows, []any{
			ws, subject, many, many * 1000, many, 10_000 * money.Dollar, 10_000 * money.Dollar,
			`["mock/chat","chat-*"]`, "inference", clock.Now().Add(24 * time.Hour), `["10.0.0.0/8","127.0.0.0/8"]`,
		})
	}
	for _, ws := range spaces {
		add(ws, "")
	}
	for i, key := range keys {
		add(spaces[i%len(spaces)], key)
	}
	return all
}

func aliases(spaces []string, at []int, split bool, now clock.Time) table {
	all := table{"aliases", []string{
		"workspace_id", "name", "target_model", "description", "canary_model", "canary_percent", "fallback_models",
		"created_at", "updated_at",
	}, nil}
	for _, i := range at {
		for kind, model := range kinds {
			if i >= tenKeys.aliases && kind != "chat" {
				continue // which no scenario of many names asks for
			}
			canary, percent := "", 0
			if split && kind == "chat" {
				canary, percent = canaryModel, canaryPercent
			}
			all.rows = append(all.rows, []any{
				spaces[i%len(spaces)], alias(kind, i), model, "", canary, percent, "[]", now, now,
			})
		}
	}
	return all
}

func fill(ctx context.Context, d *db.DB, tables ...table) error {
	_, err := d.Tx(ctx, func(tx *db.Tx) error {
		for _, t := range tables {
			if err := db.Insert(
				ctx, tx.Across("the bench fills all workspaces"), t.name, t.columns, t.rows,
			); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}
