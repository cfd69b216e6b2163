// Package modelversion keeps trained models: their files, what they were made of, and a signature over both.
package modelversion

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/domain/train"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/vault"
)

// A Proof is what is signed of a version: what it came from, and the digest of its files.
type Proof struct {
	ID             string            `json:"id"`
	Object         string            `json:"object" enum:"model_version"`
	Name           string            `json:"name" doc:"Its model id, which begins with ft/"`
	BaseModel      string            `json:"base_model"`
	ParentID       *string           `json:"parent_id" doc:"The version that it was trained from; null for the base model"`
	Source         Source            `json:"source"`
	DatasetID      *string           `json:"dataset_id"`
	Data           []Data            `json:"data" nullable:"false" doc:"The files that it was trained with"`
	Certificates   []string          `json:"certificates" nullable:"false" doc:"Of the judges whose rewards it was trained with"`
	Method         string            `json:"method"`
	Seed           int64             `json:"seed"`
	Hyperparams    jsontext.Value    `json:"hyperparameters"`
	Code           map[string]string `json:"code" doc:"The releases of the server, the worker and its engine"`
	ArtifactSHA256 artifact.Digest   `json:"artifact_sha256" doc:"Of the manifest of its files"`
	Bytes          int64             `json:"bytes"`
	Status         string            `json:"status" enum:"READY"`
	CreatedAt      clock.Time        `json:"created_at"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Proof) SchemaName() string { return "ModelVersionProof" }

// A Source is what made a version.
type Source struct {
	Type string `json:"type" enum:"fine_tuning_job,grpo_run,raft_round"`
	ID   string `json:"id"`
	Step int64  `json:"step" doc:"Of the checkpoint"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Source) SchemaName() string { return "ModelVersionSource" }

// Data is a file that a version was trained with.
type Data struct {
	Name   string          `json:"name"`
	ID     string          `json:"id,omitempty" doc:"Of the training file or dataset"`
	SHA256 artifact.Digest `json:"sha256"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Data) SchemaName() string { return "ModelVersionData" }

// A Version is a trained model as the API shows it.
type Version struct {
	Proof
	Signature vault.Signature `json:"signature"`
	AdoptedAt *clock.Time     `json:"adopted_at" doc:"When an alias was last pointed at it; not signed"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Version) SchemaName() string { return "ModelVersion" }

// A New is a version to be made of a checkpoint.
type New struct {
	Proof Proof // without id, object, digest, bytes and time
	Files train.Manifest
}

// statePrefix is of the files that only a trainer needs to go on.
const statePrefix = "state/"

// A Node is a thing that a version was made of.
type Node struct {
	ID     string `json:"id"`
	Type   string `json:"type" enum:"base_model,model_version,fine_tuning_job,grpo_run,raft_round,dataset,training_file,certificate"`
	Name   string `json:"name"`
	SHA256 string `json:"sha256,omitempty"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Node) SchemaName() string { return "LineageNode" }

// An Edge says that one thing went into another.
type Edge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Edge) SchemaName() string { return "LineageEdge" }

// A Lineage is what a version was made of, back to the base model.
type Lineage struct {
	ID    string `json:"id"`
	Nodes []Node `json:"nodes" nullable:"false"`
	Edges []Edge `json:"edges" nullable:"false"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Lineage) SchemaName() string { return "ModelLineage" }

// add adds what one version was made of.
func (l *Lineage) add(p *Proof) {
	l.node(Node{ID: p.ID, Type: "model_version", Name: p.Name, SHA256: string(p.ArtifactSHA256)})
	l.node(Node{ID: p.Source.ID, Type: p.Source.Type, Name: fmt.Sprintf("%s, step %d", p.Method, p.Source.Step)})
	l.edge(p.Source.ID, p.ID)
	if p.ParentID != nil {
		l.edge(*p.ParentID, p.Source.ID)
	} else {
		l.node(Node{ID: p.BaseModel, Type: "base_model", Name: p.BaseModel})
		l.edge(p.BaseModel, p.Source.ID)
	}
	for _, d := range p.Data {
		kind, id := "training_file", d.ID
		if p.DatasetID != nil && *p.DatasetID == d.ID {
			kind = "dataset"
		}
		if id == "" {
			id = string(d.SHA256)
		}
		l.node(Node{ID: id, Type: kind, Name: d.Name, SHA256: string(d.SHA256)})
		l.edge(id, p.Source.ID)
	}
	if p.DatasetID != nil {
		l.node(Node{ID: *p.DatasetID, Type: "dataset", Name: *p.DatasetID})
		l.edge(*p.DatasetID, p.Source.ID)
	}
	for _, c := range p.Certificates {
		l.node(Node{ID: c, Type: "certificate", Name: c})
		l.edge(c, p.Source.ID)
	}
}

func (l *Lineage) node(n Node) {
	for _, known := range l.Nodes {
		if known.ID == n.ID {
			return
		}
	}
	l.Nodes = append(l.Nodes, n)
}

func (l *Lineage) edge(from, to string) {
	for _, known := range l.Edges {
		if known == (Edge{from, to}) {
			return
		}
	}
	l.Edges = append(l.Edges, Edge{from, to})
}

// A record is a version as the table has it.
type record struct {
	Document   []byte
	KeyID, JWS string
	Files      train.Manifest
	AdoptedAt  clock.Time
}

func (r *record) version() (Version, error) {
	v := Version{Signature: vault.Signature{Alg: "EdDSA", KeyID: r.KeyID, JWS: r.JWS}}
	if err := json.Unmarshal(r.Document, &v.Proof); err != nil {
		return v, fmt.Errorf("read a model version: %w", err)
	}
	if r.AdoptedAt > 0 {
		v.AdoptedAt = &r.AdoptedAt
	}
	return v, nil
}
