package train

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/store/artifact"
)

// A Manifest lists the files of a checkpoint, sorted by name.
type Manifest []Member

// A Member is a file of a checkpoint.
type Member struct {
	Name string `json:"name" doc:"A relative path, such as adapter_model.safetensors"`
	artifact.File
}

// SchemaName is the type's name in the OpenAPI document.
func (Member) SchemaName() string { return "CheckpointFile" }

// Bounds of a checkpoint.
const (
	maxFiles = 2000
	maxName  = 200
)

// newManifest sorts the files of a checkpoint, and refuses names that are no plain relative paths, or come twice.
func newManifest(files []Member) (Manifest, error) {
	if len(files) == 0 || len(files) > maxFiles {
		return nil, fault.Invalid("files", fmt.Sprintf("must be 1 to %d files", maxFiles))
	}
	m := slices.SortedFunc(slices.Values(files), func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	for i, f := range m {
		switch {
		case f.Name == "" || len(f.Name) > maxName || path.IsAbs(f.Name) || path.Clean(f.Name) != f.Name ||
			f.Name == ".." || strings.HasPrefix(f.Name, "../") || strings.ContainsAny(f.Name, "\\\x00"):
			return nil, fault.Invalid("files", fmt.Sprintf("has the name %q, which is no plain relative path", f.Name))
		case i > 0 && m[i-1].Name == f.Name:
			return nil, fault.Invalid("files", fmt.Sprintf("has the name %q twice", f.Name))
		}
	}
	return m, nil
}

// Bytes returns the length of all files.
func (m Manifest) Bytes() (sum int64) {
	for _, f := range m {
		sum += f.Bytes
	}
	return sum
}

// Digest returns the digest of the manifest: it names every byte of the checkpoint.
func (m Manifest) Digest() (artifact.Digest, error) {
	text, err := m.Text()
	return artifact.DigestOf([]byte(text)), err
}

// Files returns the files without their names.
func (m Manifest) Files() []artifact.File {
	all := make([]artifact.File, len(m))
	for i, f := range m {
		all[i] = f.File
	}
	return all
}

// Text returns the manifest as it is stored and hashed.
func (m Manifest) Text() (string, error) {
	text, err := json.Marshal([]Member(m), json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("write a manifest: %w", err)
	}
	return string(text), nil
}

// Scan implements sql.Scanner.
func (m *Manifest) Scan(kept any) error {
	text, ok := kept.(string)
	if !ok {
		return fmt.Errorf("a manifest is kept as text, not %T", kept)
	}
	return json.Unmarshal([]byte(text), (*[]Member)(m))
}

// decodeLoosely decodes some members of a JSON object that has more.
func decodeLoosely(text []byte, into any) error {
	return json.Unmarshal(text, into, jsontext.AllowDuplicateNames(false), json.RejectUnknownMembers(false))
}
