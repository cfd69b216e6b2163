// Command statistics measures the coverage of the intervals of package stat and the error rates of the gates that use them,
// and writes docs/statistics.md and its plot. Its output is deterministic. It is run by make statistics, and is not part of
// the product.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// The files that are written.
const (
	page    = "statistics.md"
	picture = "statistics-coverage.svg"
)

func main() {
	folder := flag.String("docs", "docs", "the folder of the documentation")
	flag.Parse()
	if err := write(*folder, measure()); err != nil {
		fmt.Fprintln(os.Stderr, "statistics:", err)
		os.Exit(1)
	}
}

func write(folder string, grids grids) error {
	text, err := report(grids)
	if err != nil {
		return err
	}
	for name, content := range map[string]string{page: text, picture: plot(grids)} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o644); err != nil { //nolint:gosec // documentation is for everybody to read
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
