// Command statistics measures the coverage of the intervals of package stat and the error rates of the gates that use
// them, and writes docs/statistics.md and its plot. Its output is deterministic. It is run by make statistics, and is
// not part of the product.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// The files that are written.
const (
	page    = "statistics.md"
	picture = "statistics-coverage.svg"
)

func main() {
	folder := flag.String("docs", "docs", "the folder of the documentation")
	only := flag.String("only", "", "measure the tables whose names match this expression, and keep the others")
	flag.Parse()
	if err := update(*folder, *only); err != nil {
		fmt.Fprintln(os.Stderr, "statistics:", err)
		os.Exit(1)
	}
}

// update measures, and writes the page and its plot anew.
func update(folder, only string) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("read -only: %w", err)
	}
	old, err := os.ReadFile(filepath.Join(folder, page)) //nolint:gosec // the folder is the caller's choice
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	all, err := measure(match, string(old))
	if err != nil {
		return err
	}
	return write(folder, all)
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
