package app

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers is the plan of the house: a package may import those of lower layers, and of its own to the left.
var layers = [][]string{
	{"clock", "id", "secret", "money", "fault", "limit", "tenant", "apikey", "scan", "sse", "token", "tokenizer", "chat", "embed", "rerank", "cache", "breaker", "netguard", "life", "rota", "socket", "http1", "memo", "sketch", "segment", "redact", "fold", "judge", "stat", "trust"},
	{"live", "infer", "edge", "funds", "journal", "spool", "capture", "till", "upstream", "anthropic", "gemini", "cohere", "responses", "sim", "gateway"},
	{"db", "feed", "audit", "vault", "job"},
	{"api"},
	{"workspace", "wallet", "catalog", "alias", "providerkey", "logbook", "dataset", "label", "criterion", "backup"},
	{"app"},
}

// dataPlane packages answer requests without a database.
var dataPlane = []string{"gateway", "sim", "upstream", "anthropic", "gemini", "cohere", "responses", "chat", "embed", "rerank", "cache", "breaker", "life", "rota", "socket", "http1", "memo", "sketch", "segment", "redact", "fold", "judge", "spool", "capture", "sse", "till", "journal", "funds", "scan", "token", "tokenizer", "edge", "live", "infer", "apikey", "tenant", "limit", "money", "clock", "fault", "secret", "id"}

func imports(t *testing.T, format string, packages ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-f", format}, packages...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func TestImportsPointDownwards(t *testing.T) {
	rank := map[string]int{}
	for i, layer := range layers {
		for j, name := range layer {
			rank[name] = i*100 + j
		}
	}
	for _, line := range imports(t, `{{.ImportPath}} {{join .Imports " "}}`, "sovereign/internal/...") {
		names := strings.Fields(line)
		room := strings.TrimPrefix(names[0], "sovereign/internal/")
		if strings.Contains(room, "/") {
			continue // a package for tests
		}
		mine, ok := rank[room]
		if !ok {
			t.Errorf("%s is not in the plan of the house", room)
		}
		for _, name := range names[1:] {
			below, ours := strings.CutPrefix(name, "sovereign/internal/")
			if at, planned := rank[below]; ours && (!planned || at >= mine) {
				t.Errorf("%s imports %s, which is not below it", room, below)
			}
		}
	}
}

func TestDataPlaneReachesNoDatabase(t *testing.T) {
	for _, room := range dataPlane {
		deps := imports(t, `{{join .Deps "\n"}}`, "sovereign/internal/"+room)
		for _, forbidden := range []string{"database/sql", "sovereign/internal/db"} {
			if slices.Contains(deps, forbidden) {
				t.Errorf("%s reaches %s", room, forbidden)
			}
		}
	}
}

func TestOnlyTheFrameKnowsTheAPILibraryAndOnlyTheDoorKnowsSQL(t *testing.T) {
	only := map[string][]string{
		"github.com/danielgtaylor/huma/v2": {"api"},
		"database/sql":                     {"db"},
		"modernc.org/sqlite":               {"db"},
		"github.com/jackc/pgx/v5":          {"db"},
	}
	for _, line := range imports(t, `{{.ImportPath}} {{join .Imports " "}}`, "sovereign/internal/...") {
		names := strings.Fields(line)
		room, _, testing := strings.Cut(strings.TrimPrefix(names[0], "sovereign/internal/"), "/")
		for library, rooms := range only {
			uses := slices.ContainsFunc(names[1:], func(name string) bool { return name == library || strings.HasPrefix(name, library+"/") })
			if uses && !slices.Contains(rooms, room) && !testing {
				t.Errorf("%s imports %s", room, library)
			}
		}
	}
}
