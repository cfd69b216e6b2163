package app

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```")
	variable   = regexp.MustCompile(`\$([A-Z][A-Z_]*)`)
)

// A reader can paste the examples of a page in its order: what they use, the page has set before.
func TestEveryPageSetsTheVariablesOfItsExamples(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal("no pages", err)
	}
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		before := ""
		for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(block[1]) {
				for _, used := range variable.FindAllStringSubmatch(line, -1) {
					if set := regexp.MustCompile(`(?m)(^|\s)` + used[1] + `=`); !set.MatchString(before) {
						t.Errorf("%s uses $%s before it sets it: %s", filepath.Base(page), used[1], line)
					}
				}
				before += line
			}
		}
	}
}
