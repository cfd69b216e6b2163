package modelversion

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/train"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/vault"
)

// A Signer signs what versions were made of.
type Signer interface {
	SignDocument(ctx context.Context, document []byte) (vault.Signature, error)
}

// A Store keeps model versions.
type Store struct {
	db        *db.DB
	artifacts *artifact.Store
	signer    Signer
	feed      *feed.Feed // nil: nobody is told of changes at once
}

// NewStore returns a store.
func NewStore(d *db.DB, a *artifact.Store, s Signer) *Store {
	return &Store{db: d, artifacts: a, signer: s}
}

// Publish has changes be in force when their methods return. It must be called before the store is used.
func (s *Store) Publish(f *feed.Feed) { s.feed = f }

// change runs fn in a transaction, and returns when what it touched is in force.
func (s *Store) change(ctx context.Context, fn func(*db.Tx) error) error {
	if s.feed != nil {
		return s.feed.Change(ctx, fn)
	}
	_, err := s.db.Tx(ctx, fn)
	return err
}

// Changed is the kind of change that is published when a version is made or deleted.
const Changed = "model_version"

// object is what a version is called on the wire and in the audit trail.
const object = "model_version"

// Create makes a version of the files of a checkpoint, signed, in the transaction that ends what made it.
func (s *Store) Create(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, n New) (Version, error) {
	files := slices.DeleteFunc(slices.Clone(n.Files), func(m train.Member) bool {
		return strings.HasPrefix(m.Name, statePrefix)
	})
	digest, err := files.Digest()
	if err != nil {
		return Version{}, err
	}
	v := Version{Proof: n.Proof}
	v.ID, v.Object, v.Status = id.New("mv"), object, "READY"
	v.ArtifactSHA256, v.Bytes, v.CreatedAt = digest, files.Bytes(), clock.Now()
	document, err := json.Marshal(v.Proof, json.Deterministic(true))
	if err != nil {
		return Version{}, fmt.Errorf("write a model version: %w", err)
	}
	if v.Signature, err = s.signer.SignDocument(tx.Bind(ctx), document); err != nil {
		return Version{}, err
	}
	manifest, err := files.Text()
	if err != nil {
		return Version{}, err
	}
	parent := ""
	if v.ParentID != nil {
		parent = *v.ParentID
	}
	in := tx.In(ws)
	if _, err := db.Exec(ctx, in, `
		INSERT INTO model_versions (workspace_id, id, name, base_model, parent_id, source_type, source_id, source_step,
			document, key_id, jws, files, digest, bytes, adopted_at, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 0, $15)`,
		v.ID, v.Name, v.BaseModel, parent, v.Source.Type, v.Source.ID, v.Source.Step, document, v.Signature.KeyID,
		v.Signature.JWS, manifest, digest, v.Bytes, v.CreatedAt); err != nil {
		return Version{}, fmt.Errorf("insert a model version: %w", err)
	}
	if err := s.artifacts.Refer(ctx, tx, ws, v.ID, files.Files()...); err != nil {
		return Version{}, err
	}
	tx.Touch(Changed, ws, v.ID)
	return v, audit.Record(ctx, tx, ws, by, object+".create", v.ID, nil, v.Proof)
}

const columns = `document, key_id, jws, files, adopted_at FROM model_versions WHERE workspace_id = $1`

func (s *Store) find(ctx context.Context, in db.Scoped, versionID string) (*record, error) {
	r, err := db.Maybe[record](ctx, in, `SELECT `+columns+` AND id = $2`, versionID)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find a model version: %w", err)
	case r == nil:
		return nil, fault.NotFound("model version", versionID)
	}
	return r, nil
}

// Get reads a version.
func (s *Store) Get(ctx context.Context, ws tenant.ID, versionID string) (Version, error) {
	r, err := s.find(ctx, s.db.In(ws), versionID)
	if err != nil {
		return Version{}, err
	}
	return r.version()
}

// Files returns the manifest of a version.
func (s *Store) Files(ctx context.Context, ws tenant.ID, versionID string) (train.Manifest, error) {
	r, err := s.find(ctx, s.db.In(ws), versionID)
	if err != nil {
		return nil, err
	}
	return r.Files, nil
}

// A Start is what a run begins with: a base model, and perhaps a version of it whose weights it loads.
type Start struct {
	BaseModel string
	ParentID  string // empty for the base model itself
	Name      string // of the parent
	Inputs    []train.Input
}

// Start returns what a run begins with that names a base model, or a version of one by its id or its name.
func (s *Store) Start(ctx context.Context, in db.Scoped, name string) (Start, error) {
	column := "id"
	switch {
	case strings.HasPrefix(name, "ft/"):
		column = "name"
	case !strings.HasPrefix(name, "mv_"):
		return Start{BaseModel: name}, nil
	}
	r, err := db.Maybe[record](ctx, in, `SELECT `+columns+` AND `+column+` = $2`, name)
	switch {
	case err != nil:
		return Start{}, fmt.Errorf("find a model version: %w", err)
	case r == nil:
		return Start{}, fault.NotFound("model version", name)
	}
	v, err := r.version()
	if err != nil {
		return Start{}, err
	}
	start := Start{BaseModel: v.BaseModel, ParentID: v.ID, Name: v.Name}
	for _, f := range r.Files {
		start.Inputs = append(start.Inputs, train.Input{Name: train.ModelPrefix + f.Name, File: f.File})
	}
	return start, nil
}

// Refer notes that a run reads the files that it begins with, until the run releases them.
func (s *Store) Refer(ctx context.Context, tx *db.Tx, ws tenant.ID, runID string, from Start) error {
	for _, f := range from.Inputs {
		if err := s.artifacts.Refer(ctx, tx, ws, runID, f.File); err != nil {
			return err
		}
	}
	return nil
}

// Open reads a file of a version.
func (s *Store) Open(ctx context.Context, ws tenant.ID, versionID, name string) (io.ReadCloser, error) {
	files, err := s.Files(ctx, ws, versionID)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.Name == name {
			return s.artifacts.Open(ctx, ws, f.Digest)
		}
	}
	return nil, fault.NotFound("file of the model version", name)
}

// List reads versions, the newest first.
func (s *Store) List(ctx context.Context, ws tenant.ID, limit, offset int) ([]Version, error) {
	rows, err := db.Query[record](ctx, s.db.In(ws), `SELECT `+columns+` ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3`,
		limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list model versions: %w", err)
	}
	all := make([]Version, len(rows))
	for i := range rows {
		if all[i], err = rows[i].version(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// maxLineage bounds how many versions a lineage goes back.
const maxLineage = 100

// Lineage returns what a version was made of, back to its base model. An ancestor that was deleted ends it.
func (s *Store) Lineage(ctx context.Context, ws tenant.ID, versionID string) (Lineage, error) {
	l := Lineage{ID: versionID}
	for at := versionID; len(l.Nodes) < maxLineage*10; {
		v, err := s.Get(ctx, ws, at)
		if err != nil && fault.From(err).Kind == fault.Missing && at != versionID {
			l.node(Node{ID: at, Type: object, Name: "deleted"})
			return l, nil
		}
		if err != nil {
			return Lineage{}, err
		}
		l.add(&v.Proof)
		if v.ParentID == nil {
			break
		}
		at = *v.ParentID
	}
	return l, nil
}

// Adopt notes that an alias was pointed at a version. The caller audits it.
func (s *Store) Adopt(ctx context.Context, tx *db.Tx, ws tenant.ID, versionID string, at clock.Time) error {
	if _, err := db.Exec(ctx, tx.In(ws), `UPDATE model_versions SET adopted_at = $3 WHERE workspace_id = $1 AND id = $2`,
		versionID, at); err != nil {
		return fmt.Errorf("adopt a model version: %w", err)
	}
	return nil
}

// Delete deletes a version, and its files when nothing else has them.
func (s *Store) Delete(ctx context.Context, ws tenant.ID, by tenant.Actor, versionID string) error {
	return s.change(ctx, func(tx *db.Tx) error {
		r, err := s.find(ctx, tx.In(ws), versionID)
		if err != nil {
			return err
		}
		before, err := r.version()
		if err != nil {
			return err
		}
		if _, err := db.Exec(
			ctx, tx.In(ws), `DELETE FROM model_versions WHERE workspace_id = $1 AND id = $2`, versionID,
		); err != nil {
			return fmt.Errorf("delete a model version: %w", err)
		}
		if err := s.artifacts.Release(ctx, tx, ws, versionID); err != nil {
			return err
		}
		tx.Touch(Changed, ws, versionID)
		return audit.Record(ctx, tx, ws, by, object+".delete", versionID, before.Proof, nil)
	})
}
