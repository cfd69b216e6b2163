package app

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"sovereign/internal/base/money"
	"sovereign/internal/domain/wallet/wallettest"
	"sovereign/internal/live"
	"sovereign/internal/plane/infer"
)

func TestWhatTheProductAsksForItselfIsInTheLedgerUnderItsOriginAndInNoLog(t *testing.T) {
	eachInstance(t, func(t *testing.T, i *instance) {
		ctx := t.Context()
		ws, _ := addCallers(t, i)
		i.state.settings.Put(ws, live.Settings{LogDays: 7, Cache: true})
		var mu sync.Mutex
		kept := map[string]*infer.Answer{}
		ask := func(origin, more string, keeps error) {
			q := &infer.Request{
				Workspace: ws, Origin: origin, Model: "sim/chat", MaxTokens: 20,
				Body: []byte(`{"model":"sim/chat","messages":[{"role":"user","content":"Is it good?"}]` + more + `}`),
			}
			q.Keep = func(a *infer.Answer) error {
				mu.Lock()
				defer mu.Unlock()
				if keeps == nil {
					kept[a.RequestID] = a
				}
				return keeps
			}
			if _, err := i.plane.gateway.Complete(ctx, q); !errors.Is(err, keeps) {
				t.Errorf("%s: %v", origin, err)
			}
		}
		const workers, each = 4, 5
		var group sync.WaitGroup
		for worker := range workers {
			group.Go(func() {
				for range each {
					ask(fmt.Sprintf("cal_%d", worker), "", nil)
					ask("cal_uncounted", `,"sim":{"usage":"none"}`, nil)
					ask("cal_lost", "", errors.New("the disk is full"))
				}
			})
		}
		group.Wait()
		if err := i.state.poster.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		rows, err := i.domains.wallets.Usage(ctx, ws, 1000, 0)
		if err != nil || len(rows) != len(kept) || len(kept) != 2*workers*each {
			t.Fatalf("%d rows of %d answers: %v", len(rows), len(kept), err)
		}
		var sum money.Nano
		asked := map[string]int{}
		for _, row := range rows {
			a := kept[row.RequestID]
			if a == nil || row.Cost != a.Cost || row.Charged != a.Cost || row.Input != a.Usage.Input || row.Output != a.Usage.Output || row.Cost == 0 || row.Route != "chat" {
				t.Errorf("%+v of %+v", row, a)
			}
			if asked[string(row.KeyID)]++; row.Counted != (row.KeyID == "cal_uncounted") {
				t.Errorf("%+v", row)
			}
			sum += row.Charged
		}
		if len(asked) != workers+1 || asked["cal_0"] != each || asked["cal_uncounted"] != workers*each {
			t.Errorf("%v", asked)
		}
		proof, err := i.domains.wallets.Verify(ctx)
		if b := wallettest.Shown(t, i.domains.wallets, ws); err != nil || !proof.OK || b.Spent != sum || b.Held != 0 {
			t.Errorf("%v %+v; %+v, and $%s in the rows", err, proof, b, sum)
		}
		if logged := i.state.recorder.Counts(); logged.Logged != 0 {
			t.Errorf("%+v", logged)
		}
	})
}
