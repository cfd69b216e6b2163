package reward_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/grade/judge"
	"sovereign/internal/plane/infer"
)

// Small items take much more memory than their text. All of it is reserved while they wait for a slow judge, also after
// their call has been answered.
func TestWaitingItemsReserveTheMemoryThatTheyTake(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		f.store.SetScoreTime(time.Millisecond)
		answer := make(chan struct{})
		f.Models.Do(func(int, *infer.Request) (string, error) {
			<-answer
			return judgingtest.Assessment(judge.Pass, 0.5), nil
		})
		before := heap()
		const calls, items = 20, 512
		for c := range calls {
			var body strings.Builder
			for i := range items {
				fmt.Fprintf(&body, `,{"id":"%d","prompt":"%d","completion":"%d"}`, i, c, i)
			}
			got := f.client.Do(t, f.client.Owner, http.MethodPost, "/v1/reward/sessions/"+s.ID+"/score", `{"step":"1","items":[`+body.String()[1:]+`]}`)
			if got.Code != http.StatusOK {
				t.Fatalf("%d %s", got.Code, got.Body)
			}
		}
		took, reserved := heap()-before, f.bounds.Buffered.Used()
		t.Logf("%d bytes per item, %d reserved", took/calls/items, reserved/calls/items)
		if reserved < took/2 {
			t.Errorf("%d bytes are reserved for %d", reserved, took)
		}
		f.store.StopScoring()
		close(answer)
		f.idle(t)
		f.freed(t)
	})
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
