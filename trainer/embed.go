// Package trainer is the Python package of the training worker as a part of the binary, and makes the environment that
// it runs in.
package trainer

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
)

// sources is the Python package. The names are spelled out, since a folder would leave out __init__.py.
//
//go:embed src/sovereign_trainer/*.py src/sovereign_trainer/py.typed src/sovereign_trainer/engines/*.py
var sources embed.FS

// trl is what the engine trl needs.
//
//go:embed requirements-trl.txt
var trl []byte

// An engine trains.
type engine struct {
	requirements []byte // nil for none
	minor        int    // the least Python 3 that has them
}

// engines are the engines that can be installed.
var engines = map[string]engine{"small": {nil, 11}, "trl": {trl, 12}}

// files returns the package's files by their paths below src.
func files() (map[string][]byte, error) {
	found := map[string][]byte{}
	err := fs.WalkDir(sources, "src", func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := sources.ReadFile(at)
		found[path.Clean(at[len("src/"):])] = text
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the worker's package: %w", err)
	}
	return found, nil
}

// digest names what files have.
func digest(texts map[string][]byte, names []string) string {
	sum := sha256.New()
	for _, name := range names {
		_, _ = fmt.Fprintf(sum, "%s %d\n", name, len(texts[name])) // a hash takes all
		sum.Write(texts[name])
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}
