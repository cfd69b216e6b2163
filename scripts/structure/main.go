// Command structure measures how the source is laid out: packages per folder of internal/, imports between folders,
// uses between the files of a package, long lines and long functions. Tests are left out.
//
//	go run ./scripts/structure [-C DIR] [PACKAGE ...]
//
// The packages whose files are looked at default to the largest ones.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

const (
	maxFunction = 60 // lines
	largest     = 8  // packages whose files are looked at by default
)

// A listed is what go list says of a package.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Export     string
	Standard   bool
}

func main() {
	dir := flag.String("C", ".", "the module to measure")
	flag.Parse()
	if err := run(*dir, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "structure:", err)
		os.Exit(1)
	}
}

func run(dir string, names []string) error {
	all, err := list(dir)
	if err != nil {
		return err
	}
	ours := map[string]*source{}
	exports := map[string]string{}
	for _, p := range all {
		exports[p.ImportPath] = p.Export
		if strings.Contains(p.ImportPath, "/internal/") && !p.Standard && strings.HasPrefix(p.ImportPath, module(all)) {
			if ours[p.ImportPath], err = read(p); err != nil {
				return err
			}
		}
	}
	printFolders(ours)
	printSize(ours)
	return printFiles(ours, exports, names)
}

// list runs go list over the module and everything that it imports.
func list(dir string) ([]listed, error) {
	command := exec.CommandContext(
		context.Background(), "go", "list", "-deps", "-export", "-json=ImportPath,Dir,GoFiles,Imports,Export,Standard",
		"./internal/...",
	)
	command.Dir, command.Stderr = dir, os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// module is the path that the listed packages of the module begin with: the last listed depends on nothing outside.
func module(all []listed) string {
	path, _, _ := strings.Cut(all[len(all)-1].ImportPath, "/internal/")
	return path
}

// folder is the first element of a package's path below internal/.
func folder(path string) string {
	_, inside, _ := strings.Cut(path, "/internal/")
	name, _, _ := strings.Cut(inside, "/")
	return name
}

// printFolders prints packages per folder, and how many imports cross from one folder to another.
func printFolders(ours map[string]*source) {
	packages, lines, pairs, imports := map[string]int{}, map[string]int{}, map[[2]string]int{}, 0
	for path, p := range ours {
		from := folder(path)
		packages[from]++
		lines[from] += p.lines
		for _, imported := range p.listed.Imports {
			if ours[imported] == nil {
				continue
			}
			imports++
			if to := folder(imported); to != from {
				pairs[[2]string{from, to}]++
			}
		}
	}
	crossing := 0
	for _, n := range pairs {
		crossing += n
	}
	fmt.Printf("%d packages in %d folders; %d imports between packages, %d of them between folders; %d arrows from a folder to another\n\n",
		len(ours), len(packages), imports, crossing, len(pairs))
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		fmt.Printf("  %-12s %2d packages %6d lines\n", name, packages[name], lines[name])
	}
	fmt.Println()
}

// printSize prints the longest line, and the functions that do not fit a screen.
func printSize(ours map[string]*source) {
	var long []function
	longest, where, over := 0, "", 0
	for _, p := range ours {
		long = append(long, p.long...)
		over += p.wide
		if p.longest > longest {
			longest, where = p.longest, p.longestAt
		}
	}
	slices.SortFunc(long, func(a, b function) int { return cmp.Or(b.lines-a.lines, strings.Compare(a.name, b.name)) })
	fmt.Printf("longest line: %d columns (%s); lines over %d columns: %d\n", longest, where, maxColumns, over)
	fmt.Printf("functions over %d lines: %d\n", maxFunction, len(long))
	for _, f := range long {
		fmt.Printf("  %4d %s\n", f.lines, f.name)
	}
	fmt.Println()
}

// printFiles prints the uses between the files of some packages.
func printFiles(ours map[string]*source, exports map[string]string, names []string) error {
	chosen := slices.SortedFunc(maps.Values(ours), func(a, b *source) int {
		return cmp.Or(b.lines-a.lines, strings.Compare(a.listed.ImportPath, b.listed.ImportPath))
	})
	if len(names) == 0 {
		chosen = chosen[:min(largest, len(chosen))]
	} else {
		chosen = slices.DeleteFunc(chosen, func(p *source) bool {
			return !slices.ContainsFunc(names, func(name string) bool {
				return strings.HasSuffix(p.listed.ImportPath, "/"+name)
			})
		})
	}
	fmt.Println("uses between the files of a package (one file uses a name that another declares). Upwards: against the best order of")
	fmt.Println("the files. In cycles: between files that use each other, directly or through others.")
	for _, p := range chosen {
		g, err := p.uses(exports)
		if err != nil {
			return err
		}
		upwards, order := g.best()
		_, name, _ := strings.Cut(p.listed.ImportPath, "/internal/")
		fmt.Printf("  %-24s %2d files %5d lines %4d uses, %3d upwards (%.0f %%), %3d in cycles (%.0f %%)\n",
			name, len(p.listed.GoFiles), p.lines, g.size(), upwards,
			percent(upwards, g.size()), g.cyclic(), percent(g.cyclic(), g.size()))
		if len(names) > 0 {
			for _, i := range order {
				fmt.Printf("      %s\n", g.names[i])
			}
		}
	}
	return nil
}

func percent(part, whole int) float64 { return 100 * float64(part) / float64(max(whole, 1)) }
