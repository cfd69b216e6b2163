package journal_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/money"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
)

func TestEverySegmentIsEnoughToFindTheOpenRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		disk := journaltest.NewDisk()
		j, err := journal.Open(disk)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Begin(); err != nil {
			t.Fatal(err)
		}
		j.Limit = 600
		want := map[string]journal.Entry{}
		for i, action := range rapid.SliceOfN(rapid.IntRange(1, 3), 1, 60).Draw(t, "actions") {
			id := fmt.Sprint("req_", rapid.IntRange(0, 5).Draw(t, "request"))
			e := journal.Entry{Kind: journal.Kind(action), Charge: journal.Charge{Request: id, Workspace: "ws_1", Cost: money.Nano(i), Charged: money.Nano(i)}}
			if e.Kind != journal.Opened && want[id].Kind == 0 {
				continue
			}
			if err := j.Append(e); err != nil {
				t.Fatal(err)
			}
			track(want, &e)
		}
		if err := j.Sync(); err != nil {
			t.Fatal(err)
		}
		again, err := journal.Open(disk)
		if err != nil {
			t.Fatal(err)
		}
		segments, _ := again.Segments()
		for _, from := range segments {
			got, err := again.Orphans(from)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(want) {
				t.Fatalf("from segment %d of %d: %d orphans, want %d", from, len(segments), len(got), len(want))
			}
			for _, e := range got {
				if want[e.Request] != e {
					t.Fatalf("%+v, want %+v", e, want[e.Request])
				}
			}
		}
	})
}

// track is the rule for open requests, written independently of the journal's.
func track(open map[string]journal.Entry, e *journal.Entry) {
	switch was := open[e.Request]; e.Kind {
	case journal.Opened:
		open[e.Request] = *e
	case journal.Progressed:
		was.At, was.Usage, was.Cost, was.Charged = e.At, e.Usage, e.Cost, e.Charged
		open[e.Request] = was
	default:
		delete(open, e.Request)
	}
}
