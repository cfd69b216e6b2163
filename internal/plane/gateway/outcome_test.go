package gateway

import (
	"errors"
	"net/http/httptest"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/net/life"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/spool"
	"sovereign/internal/wire/upstream"
)

// leaving is a Writer whose caller disconnects after so many writes.
type leaving struct {
	*httptest.ResponseRecorder
	writes int
}

func (l *leaving) Send(p []byte) error {
	if l.writes--; l.writes < 0 {
		return errors.New("broken pipe")
	}
	_, err := l.Write(p)
	return err
}

func (l *leaving) End(p []byte) error { return l.Send(p) }

// Every outcome that the gateway settles is charged and logged as package outcome's table says. The till and the poster
// settle those that are charged as recorded.
func TestOutcomesAreChargedAndLoggedAsTheTableSays(t *testing.T) {
	first := endOf(providerStream, "one ")
	scenarios := map[outcome.Outcome]struct {
		stream string // of the provider; empty for a whole answer
		writes int    // that the caller takes
		asked  int    // times, with the cache on
	}{
		outcome.Finished: {"", 1, 1},
		outcome.Left:     {providerStream[:endOf(providerStream, "zwei")], 1, 1},
		outcome.Died:     {providerStream[:first], 9, 1},
		outcome.Nothing:  {providerStream, 0, 1},
		outcome.Cached:   {"", 1, 2},

		outcome.Abandoned: {"", 0, 1},
	}
	for _, row := range outcome.Table {
		s, ok := scenarios[row.Outcome]
		if !ok {
			if row.Basis != outcome.Recorded {
				t.Errorf("%s has no scenario", row.Outcome)
			}
			continue
		}
		t.Run(string(row.Outcome), func(t *testing.T) {
			b := newBench(t)
			b.answer = whole(good)
			rows, err := spool.Open(journaltest.NewDisk(), spool.Position{}, 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			b.Workspaces.Put(home, live.Settings{Cache: s.asked > 1, LogDays: 7})
			b.Recorder = capture.NewRecorder(b.Workspaces, rows)
			body := plainRequest
			if s.stream != "" {
				body = streamRequest
				second := min(len(s.stream), endOf(providerStream, "zwei"))
				b.answer = events(&cut{[][]byte{[]byte(s.stream[:first]), []byte(s.stream[first:second]), []byte(s.stream[second:])}})
			}
			caller := new(life.Life)
			if row.Outcome == outcome.Abandoned {
				b.freeWait = 0
				b.answer = func(r *upstream.Request) (*upstream.Response, error) {
					caller.End(errLeft)
					return whole(good)(r)
				}
			}
			var spent, logged int64
			for range s.asked {
				spent, logged = int64(b.funds.Balance(home).Spent), b.Recorder.Counts().Logged
				q := &request.Request{
					Endpoint: request.Chat, Caller: tenant.Caller{Workspace: home, Key: "key_1"}, ID: "req_a", Body: []byte(body),
					Annotations: &request.Annotations{Tag: "nightly"},
				}
				if err := b.Serve(caller, q, &leaving{httptest.NewRecorder(), s.writes}); err != nil {
					t.Fatal(err)
				}
			}
			var ended dto.Metric
			if err := b.Metrics.outcomes.WithLabelValues("chat", string(row.Outcome)).Write(&ended); err != nil || ended.GetCounter().GetValue() != 1 {
				t.Fatalf("%v: the request did not end so: %+v", err, b.entries())
			}
			spent, logged = int64(b.funds.Balance(home).Spent)-spent, b.Recorder.Counts().Logged-logged
			if (spent > 0) != (row.Basis != outcome.None) || (logged == 1) != row.Logged {
				t.Errorf("%d charged, %d logged; the table says %+v", spent, logged, row)
			}
			if row.Basis == outcome.None {
				return
			}
			if e := b.settled(); e.Outcome != string(row.Outcome) || e.Tag != "nightly" || e.Counted != (row.Basis == outcome.Delivered) {
				t.Errorf("%+v; the table says %+v", e, row)
			}
		})
	}
}
