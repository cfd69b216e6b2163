package process

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What an engine writes on is neither lost nor moved when its output is trimmed.
func TestTrimmedOutputTakesLittleOfTheDiskAndHasItsLastLines(t *testing.T) {
	b := &Backend{Config: Config{LogBytes: 1 << 20, Log: slog.New(slog.DiscardHandler)}}
	r := &replica{d: &deployment{folder: t.TempDir()}, record: record{ID: "rep_1"}}
	engine, err := os.OpenFile(r.log(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = engine.Close() }()
	for range 5 {
		if _, err := engine.WriteString(strings.Repeat(strings.Repeat("x", 99)+"\n", 30_000) + "last\n"); err != nil {
			t.Fatal(err)
		}
		b.trim(r)
		b.trim(r) // of what is little, nothing is taken
		var info unix.Stat_t
		if err := unix.Stat(r.log(), &info); err != nil || info.Blocks*512 > b.LogBytes {
			t.Fatalf("%d bytes on the disk: %v", info.Blocks*512, err)
		}
		lines := r.tail()
		if len(lines) != 100 || lines[99] != "last" || len(lines[98]) != 99 {
			t.Fatalf("%d lines: %q", len(lines), lines[max(0, len(lines)-2):])
		}
	}
}
