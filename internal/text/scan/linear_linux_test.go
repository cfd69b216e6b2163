package scan_test

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"sovereign/internal/text/scan"
)

// TestWorstCaseTextsTakeLinearTime scans texts on which a scanner that looks back, or restarts, is quadratic. The
// assembly cannot count its steps, so the test measures the CPU time of its own thread, which does not depend on the
// load of the machine. Linear time is some milliseconds for 4 MiB; quadratic time is minutes at the least.
func TestWorstCaseTextsTakeLinearTime(t *testing.T) {
	const size = 4 << 20
	repeat := func(s string) string { return strings.Repeat(s, size/len(s)) }
	worst := map[string]string{
		"backslashes":               `{"a":"` + repeat(`\\`) + `"}`,
		"an open run of them":       `{"a":"` + repeat(`\`),
		"escaped quotes":            `{"a":"` + repeat(`\"`) + `"}`,
		"an open run of those":      `{"a":"` + repeat(`\"`),
		"quotes":                    `{"a":` + repeat(`"`) + `}`,
		"empty texts":               `{"a":[` + repeat(`"",`) + `""]}`,
		"escaped names":             `{"` + repeat(`\u0061`) + `":1}`,
		"numbers":                   `{"a":[` + repeat(`0,`) + `0]}`,
		"10⁵ messages and more":     `{"a":[` + repeat(`{"role":"user"},`) + `{}]}`,
		"brackets that go up, down": `{"a":[` + repeat(`[[]],`) + `[]]}`,
		"open brackets":             `{"a":` + repeat(`[`),
		"spaces":                    `{"a":` + repeat(" ") + `1}`,
		"a literal":                 `{"a":` + repeat("1") + `}`,
		"long names that begin alike": func() string {
			var b strings.Builder
			long := strings.Repeat("a", size/256)
			for i := range 256 {
				fmt.Fprintf(&b, `,"%s%03d":0`, long, i)
			}
			return "{" + b.String()[1:] + "}"
		}(),
	}
	for name, text := range worst {
		t.Run(name, func(t *testing.T) {
			if took := cpuTime(t, func() { _, _ = scan.Object([]byte(text), nil) }); took > 10*time.Second {
				t.Errorf("%d bytes took %s of CPU time", len(text), took)
			}
		})
	}
}

// cpuTime returns the CPU time that work takes on its thread.
func cpuTime(t *testing.T, work func()) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	spent := func() time.Duration {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &usage); err != nil {
			t.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	before := spent()
	work()
	return spent() - before
}
