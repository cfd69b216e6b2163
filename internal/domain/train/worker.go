package train

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// A Worker is a process that trains, with a token that an operator has minted.
type Worker struct {
	ID        string      `json:"id"`
	Name      string      `json:"name"`
	Workspace tenant.ID   `json:"workspace_id,omitempty" db:"workspace_id" doc:"The only workspace that it trains for; all, when it is missing"`
	Info      Info        `json:"info" doc:"What it said of itself when it last asked for work"`
	CreatedAt clock.Time  `json:"created_at"`
	SeenAt    *clock.Time `json:"seen_at" db:"-" doc:"When it last asked for work"`
	Seen      clock.Time  `json:"-" db:"seen_at"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Worker) SchemaName() string { return "TrainingWorker" }

// An Info is what a worker says of itself.
type Info struct {
	Release  string  `json:"release" maxLength:"64" doc:"Of the worker"`
	Engine   string  `json:"engine" maxLength:"64" doc:"Such as trl"`
	Methods  []Named `json:"methods" maxItems:"20" nullable:"false" doc:"Such as sft"`
	Models   []Base  `json:"models" maxItems:"1000" nullable:"false" doc:"The base models that it can train"`
	GPUType  string  `json:"gpu_type" maxLength:"64" doc:"cpu without one"`
	GPUCount int64   `json:"gpu_count" minimum:"1" maximum:"1024" doc:"1 for a CPU"`
	Run      string  `json:"run,omitempty" maxLength:"64" doc:"The only run that it was started for; all, when it is missing"`
	Attempt  int64   `json:"attempt,omitempty" minimum:"0" doc:"The only attempt at that run that it was started for"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Info) SchemaName() string { return "WorkerInfo" }

// A Named is a short name.
type Named = string

// A Base is a model that a worker can train.
type Base struct {
	ID            string `json:"id" maxLength:"200"`
	Parameters    int64  `json:"parameters" minimum:"0"`
	ContextWindow int64  `json:"context_window" minimum:"0"`
	Random        bool   `json:"random" doc:"Its weights are random: it is for trying out, and knows nothing"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Base) SchemaName() string { return "BaseModel" }

// Scan implements sql.Scanner.
func (i *Info) Scan(kept any) error {
	text, ok := kept.(string)
	switch {
	case !ok:
		return fmt.Errorf("info is kept as text, not %T", kept)
	case text == "":
		return nil
	}
	return json.Unmarshal([]byte(text), i)
}

// can reports whether a worker of this kind can train a run.
func (i *Info) can(r *Run) bool {
	if i.Run != "" && (i.Run != r.ID || i.Attempt != r.Attempt+1) {
		return false
	}
	return slices.Contains(i.Methods, r.Method) &&
		slices.ContainsFunc(i.Models, func(b Base) bool { return b.ID == r.BaseModel }) &&
		(r.GPUType == "" || r.GPUType == i.GPUType) && r.GPUCount <= i.GPUCount
}

// maxWorkers bounds the workers whose tokens are valid.
const maxWorkers = 1000

// CreateWorker mints the token of a worker. Only its digest is stored. ws is empty for a worker of all workspaces.
func (s *Store) CreateWorker(
	ctx context.Context, by tenant.Actor, ws tenant.ID, name string,
) (made Worker, token secret.Text, err error) {
	if n := utf8.RuneCountInString(name); n < 1 || n > 64 || strings.ContainsFunc(name, hidden) {
		return Worker{}, token, fault.Invalid("name", "must be 1 to 64 characters that can be seen")
	}
	token, digest := apikey.NewWorker()
	made = Worker{ID: id.New("wrk"), Name: name, Workspace: ws, CreatedAt: s.now()}
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		across := tx.Across(ofAll)
		n, err := db.One[int64](ctx, across, `SELECT COUNT(*) FROM workers WHERE revoked_at = 0`)
		switch {
		case err != nil:
			return fmt.Errorf("count workers: %w", err)
		case n >= maxWorkers:
			return fault.Conflict("there are %d workers already: revoke one first", n)
		}
		if _, err := db.Exec(ctx, across, `
			INSERT INTO workers (id, name, workspace_id, hash, info, created_at, seen_at, revoked_at)
			VALUES ($1, $2, $3, $4, '', $5, 0, 0)`, made.ID, name, ws, digest[:], made.CreatedAt); err != nil {
			return fmt.Errorf("insert a worker: %w", err)
		}
		return audit.Record(ctx, tx, cmp.Or(ws, tenant.Server), by, "worker.create", made.ID, nil, made)
	})
	return made, token, err
}

func hidden(r rune) bool { return !unicode.IsGraphic(r) }

// ofAll is why workers are read across workspaces.
const ofAll = "workers are the operator's, and train for all workspaces"

const workerColumns = `id, name, workspace_id, info, created_at, seen_at FROM workers WHERE revoked_at = 0`

// Workers lists the workers whose tokens are valid.
func (s *Store) Workers(ctx context.Context) ([]Worker, error) {
	all, err := db.Query[Worker](ctx, s.DB.Across(ofAll), `SELECT `+workerColumns+` ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	for i := range all {
		if seen := all[i].Seen; seen != 0 {
			all[i].SeenAt = &seen
		}
	}
	return all, nil
}

// revoked is the end of the lease of a worker whose token was revoked: past by every clock.
const revoked clock.Time = 0

// RevokeWorker ends the use of a worker's token. What it trains is lost, and given to another.
func (s *Store) RevokeWorker(ctx context.Context, by tenant.Actor, workerID string) error {
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		across := tx.Across(ofAll)
		before, err := db.Maybe[Worker](ctx, across, `SELECT `+workerColumns+` AND id = $1`, workerID)
		switch {
		case err != nil:
			return fmt.Errorf("find a worker: %w", err)
		case before == nil:
			return fault.Missing.New("no worker %q", workerID)
		}
		now := s.now()
		if _, err := db.Exec(
			ctx, across, `UPDATE workers SET revoked_at = $2 WHERE id = $1`, workerID, now,
		); err != nil {
			return fmt.Errorf("revoke a worker: %w", err)
		}
		if _, err := db.Exec(ctx, across,
			`UPDATE training_attempts SET lease_until = $2 WHERE worker_id = $1 AND ended_at = 0`, workerID, revoked); err != nil {
			return fmt.Errorf("end the leases of a worker: %w", err)
		}
		return audit.Record(
			ctx, tx, cmp.Or(before.Workspace, tenant.Server), by, "worker.revoke", workerID, before, nil,
		)
	})
	return err
}

// Authenticate returns the worker of a token.
func (s *Store) Authenticate(ctx context.Context, token string) (Worker, error) {
	digest, ok := apikey.ParseWorker(token)
	if !ok {
		return Worker{}, errToken()
	}
	found, err := db.Maybe[Worker](ctx, s.DB.Across(ofAll), `SELECT `+workerColumns+` AND hash = $1`, digest[:])
	switch {
	case err != nil:
		return Worker{}, fmt.Errorf("find a worker: %w", err)
	case found == nil:
		return Worker{}, errToken()
	}
	return *found, nil
}

func errToken() error {
	return fault.InvalidKey.New(
		"the worker's token is missing, malformed or revoked: send Authorization: Bearer %s…", apikey.WorkerPrefix,
	)
}
