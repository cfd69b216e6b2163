package notify

import (
	"crypto/hmac"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/net/netguard"
	"sovereign/internal/plane/meter"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/notice"
	"sovereign/internal/store/vault"
)

var admin = tenant.Actor{Kind: tenant.ActorSession, User: "usr_1", Session: "ses_1"}

// A receiver is a webhook that keeps what it got.
type receiver struct {
	*httptest.Server
	status atomic.Int64
	mu     sync.Mutex
	got    []*http.Request
	bodies []string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.status.Store(200)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		r.mu.Lock()
		r.got, r.bodies = append(r.got, request), append(r.bodies, string(body))
		r.mu.Unlock()
		if r.status.Load() == http.StatusFound {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(int(r.status.Load()))
	}))
	t.Cleanup(r.Close)
	return r
}

// A fixture is a store with a loop, at a time that the test sets.
type fixture struct {
	*Store
	t    *testing.T
	loop *Loop
	at   clock.Time
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	root, err := vault.CreateRoot(filepath.Join(t.TempDir(), "root.key"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := vault.Open(t.Context(), d, root)
	if err != nil {
		t.Fatal(err)
	}
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	guard := netguard.New(loopback, netguard.WithRefusalTime(0))
	t.Cleanup(guard.Close)
	f := &fixture{Store: NewStore(d, v, guard, true), t: t, at: clock.Now()}
	f.now = func() clock.Time { return f.at }
	f.loop = newLoop(Deps{
		Store: f.Store, Site: "https://gateway.example.com", Serving: func() error { return nil }, Log: slog.New(slog.DiscardHandler),
	})
	return f
}

// each runs a test on both engines.
func each(t *testing.T, test func(*testing.T, *fixture)) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) { test(t, newFixture(t, d)) })
}

func (f *fixture) workspace() tenant.ID {
	f.t.Helper()
	ws := tenant.ID(id.New("ws"))
	if _, err := db.Exec(f.t.Context(), f.db.In(ws), `
		INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, $2, 1)`, string(ws)); err != nil {
		f.t.Fatal(err)
	}
	return ws
}

func (f *fixture) channel(ws tenant.ID, url string, kinds ...notice.Kind) Channel {
	f.t.Helper()
	made, err := f.Create(f.t.Context(), ws, admin, NewChannel{Type: Webhook, Address: url, Kinds: kinds})
	if err != nil {
		f.t.Fatal(err)
	}
	return made
}

func (f *fixture) add(ws tenant.ID, kind notice.Kind, title string) {
	f.t.Helper()
	if _, err := f.db.Tx(f.t.Context(), func(tx *db.Tx) error {
		return notice.Add(f.t.Context(), tx, ws, notice.Notice{Kind: kind, Subject: "s_1", Title: title, Text: "what happened", Link: "wallet"})
	}); err != nil {
		f.t.Fatal(err)
	}
}

// poll looks once, and waits for the attempts.
func (f *fixture) poll() {
	f.t.Helper()
	var working sync.WaitGroup
	if err := f.loop.watch.reached(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	f.loop.Poll(f.t.Context(), &working)
	working.Wait()
}

func (f *fixture) deliveries(ws tenant.ID, channelID string) []Delivery {
	f.t.Helper()
	all, err := f.Deliveries(f.t.Context(), ws, channelID, 100, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	return all
}

func TestANoticeArrivesSignedOnceAtThoseThatChoseIt(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		r, deaf := newReceiver(t), newReceiver(t)
		ws, other := f.workspace(), f.workspace()
		c := f.channel(ws, r.URL, notice.WalletLow)
		f.channel(ws, deaf.URL, notice.JobEnded)
		f.channel(other, deaf.URL, notice.WalletLow)
		f.add(ws, notice.WalletLow, "low")
		for range 3 {
			f.poll()
		}
		if len(r.got) != 1 || len(deaf.got) != 0 {
			t.Fatalf("arrived %d times, and %d times elsewhere", len(r.got), len(deaf.got))
		}
		header, body := r.got[0].Header, r.bodies[0]
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(c.Secret, "whsec_"))
		if err != nil || len(key) != 32 {
			t.Fatalf("the secret is %q", c.Secret)
		}
		sent := header.Get("Webhook-Signature")
		want := "v1," + base64.StdEncoding.EncodeToString(sign(secret.New(string(key)), header.Get("Webhook-Id"), header.Get("Webhook-Timestamp"), []byte(body)))
		if !hmac.Equal([]byte(sent), []byte(want)) || header.Get("Content-Type") != "application/json" {
			t.Errorf("signed %s, want %s", sent, want)
		}
		var told payload
		if err := json.Unmarshal([]byte(body), &told); err != nil || told.Type != notice.WalletLow || told.Data.ID != header.Get("Webhook-Id") ||
			told.Data.Workspace != ws || told.Data.Title != "low" || told.Data.URL != "https://gateway.example.com/dashboard/w/"+string(ws)+"/wallet" {
			t.Errorf("told %s %v", body, err)
		}
		shown := f.deliveries(ws, c.ID)
		if len(shown) != 1 || shown[0].State != Delivered || shown[0].Attempts != 1 || shown[0].NoticeID != header.Get("Webhook-Id") {
			t.Errorf("%+v", shown)
		}
		again, err := f.Redeliver(t.Context(), ws, admin, c.ID, shown[0].ID)
		if err != nil || again.State != Pending {
			t.Fatalf("%+v %v", again, err)
		}
		if f.poll(); len(r.got) != 2 || r.got[1].Header.Get("Webhook-Id") != header.Get("Webhook-Id") {
			t.Error("it is not delivered again with the same id")
		}
	})
}

func TestAFailedDeliveryIsTriedAgainForADay(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		r := newReceiver(t)
		r.status.Store(500)
		ws := f.workspace()
		c := f.channel(ws, r.URL, notice.WalletLow)
		f.add(ws, notice.WalletLow, "low")
		began, attempts := f.at, 0
		for {
			f.poll()
			one := f.deliveries(ws, c.ID)[0]
			attempts++
			if len(r.got) != attempts || one.Failure != "answered 500" {
				t.Fatalf("%d attempts, want %d: %+v", len(r.got), attempts, one)
			}
			if one.State == Failed {
				break
			}
			if wait := one.NextAt.Sub(f.at); wait != delay(int64(attempts)) {
				t.Fatalf("after attempt %d it waits %v", attempts, wait)
			}
			if f.poll(); len(r.got) != attempts {
				t.Fatal("it is tried before its time")
			}
			f.at = *one.NextAt
		}
		if took := f.at.Sub(began); took < giveUpAfter || took > giveUpAfter+longestDelay {
			t.Errorf("it was given up after %v", took)
		}
		ids := map[string]bool{}
		for _, request := range r.got {
			ids[request.Header.Get("Webhook-Id")] = true
		}
		if len(ids) != 1 {
			t.Errorf("attempts had the ids %v", ids)
		}
		shown, err := f.Get(t.Context(), ws, c.ID)
		if err != nil || !shown.Enabled || shown.FailingSince == nil || *shown.FailingSince != began {
			t.Errorf("%+v %v", shown, err)
		}
	})
}

func TestAChannelThatFailsForThreeDaysIsDisabledAndTheOthersHearOfIt(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		bad, good := newReceiver(t), newReceiver(t)
		bad.status.Store(503)
		ws := f.workspace()
		c := f.channel(ws, bad.URL, notice.WalletLow)
		f.channel(ws, good.URL, notice.JobEnded)
		f.add(ws, notice.WalletLow, "one")
		f.poll()
		f.at = f.at.Add(disableAfter)
		f.add(ws, notice.WalletLow, "two")
		f.poll()
		f.poll()
		shown, err := f.Get(t.Context(), ws, c.ID)
		if err != nil || shown.Enabled || !strings.Contains(shown.DisabledReason, "503") {
			t.Fatalf("%+v %v", shown, err)
		}
		if len(good.got) != 1 || !strings.Contains(good.bodies[0], string(notice.ChannelDisabled)) {
			t.Errorf("the other channel heard %v", good.bodies)
		}
		for _, one := range f.deliveries(ws, c.ID) {
			if one.State != Failed {
				t.Errorf("%+v", one)
			}
		}
		before := len(bad.got)
		f.add(ws, notice.WalletLow, "three")
		f.poll()
		on := true
		if shown, err = f.Update(t.Context(), ws, admin, c.ID, ChannelChange{Enabled: &on}); err != nil || !shown.Enabled || shown.FailingSince != nil || shown.DisabledReason != "" {
			t.Errorf("%+v %v", shown, err)
		}
		if len(bad.got) != before {
			t.Error("a disabled channel is called")
		}
	})
}

func TestAReceiverThatIsGoneIsDisabledAtOnceAndNoRedirectIsFollowed(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		r := newReceiver(t)
		r.status.Store(http.StatusFound)
		ws := f.workspace()
		c := f.channel(ws, r.URL, notice.WalletLow)
		f.add(ws, notice.WalletLow, "one")
		if f.poll(); len(r.got) != 1 || f.deliveries(ws, c.ID)[0].Failure != "answered 302" {
			t.Errorf("a redirect: %d requests, %+v", len(r.got), f.deliveries(ws, c.ID))
		}
		r.status.Store(http.StatusGone)
		f.at = f.at.Add(time.Minute)
		f.poll()
		if shown, err := f.Get(t.Context(), ws, c.ID); err != nil || shown.Enabled {
			t.Errorf("%+v %v", shown, err)
		}
	})
}

func TestOnlyPublicAddressesAreCalled(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ws := f.workspace()
		strict := netguard.New(nil, netguard.WithRefusalTime(0))
		defer strict.Close()
		r := newReceiver(t)
		c := f.channel(ws, r.URL, notice.WalletLow)
		f.loop.transport = strict.Transport() // the operator's ranges were taken back
		f.add(ws, notice.WalletLow, "one")
		if f.poll(); len(r.got) != 0 || !strings.Contains(f.deliveries(ws, c.ID)[0].Failure, "is not a public address") {
			t.Errorf("%d requests, %+v", len(r.got), f.deliveries(ws, c.ID))
		}
		f.guard = strict
		for _, url := range []string{"http://127.0.0.1/x", "http://[::1]/x", "http://10.0.0.1", "http://169.254.169.254/latest", "ftp://example.com", "http://user:pw@example.com", "https://example.com/?token=x", "localhost", "http://localhost"} {
			if _, err := f.Create(t.Context(), ws, admin, NewChannel{Type: Webhook, Address: url, Kinds: []notice.Kind{notice.WalletLow}}); fault.From(err) == nil || fault.From(err).Field != "address" {
				t.Errorf("%s: %v", url, err)
			}
		}
	})
}

func TestChannelsAreBoundedAndTheWorkspacesOwn(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		r := newReceiver(t)
		ws, theirs := f.workspace(), f.workspace()
		c := f.channel(ws, r.URL, notice.WalletLow)
		on := true
		for name, call := range map[string]func() error{
			"get": func() error { _, err := f.Get(t.Context(), theirs, c.ID); return err },
			"update": func() error {
				_, err := f.Update(t.Context(), theirs, admin, c.ID, ChannelChange{Enabled: &on})
				return err
			},
			"delete":     func() error { return f.Delete(t.Context(), theirs, admin, c.ID) },
			"rotate":     func() error { _, err := f.Rotate(t.Context(), theirs, admin, c.ID); return err },
			"test":       func() error { _, err := f.Test(t.Context(), theirs, admin, c.ID); return err },
			"deliveries": func() error { _, err := f.Deliveries(t.Context(), theirs, c.ID, 1, 0); return err },
			"redeliver":  func() error { _, err := f.Redeliver(t.Context(), theirs, admin, c.ID, "dlv_1"); return err },
			"unknown":    func() error { _, err := f.Redeliver(t.Context(), ws, admin, c.ID, "dlv_1"); return err },
		} {
			if refusal := fault.From(call()); refusal == nil || refusal.Kind != fault.Missing {
				t.Errorf("%s: %v", name, refusal)
			}
		}
		for range 19 {
			f.channel(ws, r.URL, notice.WalletLow)
		}
		_, err := f.Create(t.Context(), ws, admin, NewChannel{Type: Webhook, Address: r.URL, Kinds: []notice.Kind{notice.WalletLow}})
		if refusal := fault.From(err); refusal == nil || refusal.Kind != fault.QuotaExceeded {
			t.Errorf("the twenty-first: %v", err)
		}
		for name, n := range map[string]NewChannel{
			"no kinds":    {Type: Webhook, Address: r.URL},
			"twice":       {Type: Webhook, Address: r.URL, Kinds: []notice.Kind{notice.WalletLow, notice.WalletLow}},
			"a test":      {Type: Webhook, Address: r.URL, Kinds: []notice.Kind{notice.Test}},
			"no type":     {Address: r.URL, Kinds: []notice.Kind{notice.WalletLow}},
			"an injected": {Type: Email, Address: "a@b.c\r\nBcc: d@e.f", Kinds: []notice.Kind{notice.WalletLow}},
		} {
			if _, err := f.Create(t.Context(), theirs, admin, n); fault.From(err) == nil || fault.From(err).Status != 400 {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestASecretIsShownOnceAndRotates(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		r := newReceiver(t)
		ws := f.workspace()
		c := f.channel(ws, r.URL, notice.WalletLow)
		if shown, err := f.Get(t.Context(), ws, c.ID); err != nil || shown.Secret != "" {
			t.Errorf("shown again: %+v %v", shown, err)
		}
		next, err := f.Rotate(t.Context(), ws, admin, c.ID)
		if err != nil || next.Secret == c.Secret || !strings.HasPrefix(next.Secret, "whsec_") {
			t.Fatalf("%+v %v", next, err)
		}
		if _, err := f.Test(t.Context(), ws, admin, c.ID); err != nil {
			t.Fatal(err)
		}
		f.poll()
		key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(next.Secret, "whsec_"))
		header := r.got[0].Header
		want := "v1," + base64.StdEncoding.EncodeToString(sign(secret.New(string(key)), header.Get("Webhook-Id"), header.Get("Webhook-Timestamp"), []byte(r.bodies[0])))
		if header.Get("Webhook-Signature") != want {
			t.Error("the old secret signs")
		}
		entries, err := db.Query[string](t.Context(), f.db.In(ws), `SELECT COALESCE(CAST(after_json AS TEXT), '') FROM audit_entries WHERE workspace_id = $1`)
		if err != nil || len(entries) != 3 || strings.Contains(fmt.Sprint(entries), "whsec_") {
			t.Errorf("audited %v %v", entries, err)
		}
	})
}

// setBalance writes what the ledger says of a wallet.
func (f *fixture) setBalance(ws tenant.ID, amount money.Nano) {
	f.t.Helper()
	if _, err := db.Exec(f.t.Context(), f.db.In(ws), `
		INSERT INTO ledger_balances (workspace_id, account, amount) VALUES ($1, 'wallet', $2)
		ON CONFLICT (workspace_id, account) DO UPDATE SET amount = excluded.amount`, amount); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) told(ws tenant.ID) int {
	f.t.Helper()
	all, err := f.Notices(f.t.Context(), ws, 100, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	return len(all)
}

func TestALowWalletIsToldOfOncePerCrossing(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ws, never := f.workspace(), f.workspace()
		if err := f.SetWalletLow(t.Context(), never, admin, 0); err != nil {
			t.Fatal(err)
		}
		f.setBalance(never, 0)
		for i, step := range []struct {
			amount money.Nano
			told   int
		}{
			{20 * money.Dollar, 0}, {5 * money.Dollar, 0}, {5*money.Dollar - 1, 1}, {money.Dollar, 1}, {6 * money.Dollar, 1}, {0, 2}, {0, 2},
		} {
			f.setBalance(ws, step.amount)
			if f.poll(); f.told(ws) != step.told {
				t.Errorf("step %d, $%s: told %d times", i, step.amount, f.told(ws))
			}
		}
		if err := f.SetWalletLow(t.Context(), ws, admin, money.Dollar); err != nil {
			t.Fatal(err)
		}
		f.setBalance(ws, 2*money.Dollar)
		f.poll()
		f.setBalance(ws, money.Dollar/2)
		if f.poll(); f.told(ws) != 3 || f.told(never) != 0 {
			t.Errorf("with marks of their own: %d and %d", f.told(ws), f.told(never))
		}
		if err := f.SetWalletLow(t.Context(), ws, admin, -1); err == nil {
			t.Error("a negative mark is taken")
		}
	})
}

func TestABudgetIsToldOfOnceInItsPeriod(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ws := f.workspace()
		for _, insert := range []string{
			`INSERT INTO users (id, email, created_at) VALUES ('usr_1', 'a@b.c', 1)`,
			`INSERT INTO api_keys (id, workspace_id, user_id, name, digest, hint, created_at) VALUES ('key_1', '` + string(ws) + `', 'usr_1', 'trainer', 'd', 'h', 1)`,
		} {
			if _, err := db.Exec(t.Context(), f.db.Across("test"), insert); err != nil {
				t.Fatal(err)
			}
		}
		day := time.Date(2026, 11, 19, 0, 0, 0, 0, time.UTC)
		all := []meter.Reached{
			{ID: "key_1", Key: true, Budget: money.Dollar, Period: "day", Renews: day},
			{ID: string(ws), Budget: money.Dollar, Period: "month", Renews: day},
			{ID: "key_gone", Key: true, Budget: money.Dollar, Period: "day", Renews: day},
		}
		f.loop.watch.budgets = func() []meter.Reached { return all }
		for range 3 {
			f.poll()
		}
		if f.told(ws) != 2 {
			t.Errorf("told %d times", f.told(ws))
		}
		all[0].Renews = day.AddDate(0, 0, 1)
		if f.poll(); f.told(ws) != 3 {
			t.Errorf("in the next period told %d times", f.told(ws))
		}
	})
}

func TestADeliveryThatADeadProcessHadIsMadeAgain(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		r := newReceiver(t)
		ws := f.workspace()
		c := f.channel(ws, r.URL, notice.WalletLow)
		f.add(ws, notice.WalletLow, "one")
		if _, err := f.queue(t.Context()); err != nil {
			t.Fatal(err)
		}
		all, err := f.due(t.Context(), 10)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		stale := all[0]
		if mine, err := f.claim(t.Context(), &all[0]); err != nil || !mine { // and the process dies
			t.Fatal(mine, err)
		}
		if mine, err := f.claim(t.Context(), &stale); err != nil || mine {
			t.Error("two have one claim")
		}
		if f.poll(); len(r.got) != 0 {
			t.Error("it is sent while another has it")
		}
		f.at = f.at.Add(claimTime)
		if f.poll(); len(r.got) != 1 || f.deliveries(ws, c.ID)[0].State != Delivered {
			t.Errorf("%d requests", len(r.got))
		}
		if err := f.finish(t.Context(), &all[0], result{failure: "late"}); err != nil || f.deliveries(ws, c.ID)[0].State != Delivered {
			t.Error("a late result of the dead process counts")
		}
	})
}

func TestAWorkspaceWithManyDeliveriesDelaysNoOther(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		r := newReceiver(t)
		many, few := f.workspace(), f.workspace()
		f.channel(many, r.URL, notice.WalletLow)
		c := f.channel(few, r.URL, notice.WalletLow)
		for range dueBatch + 1 {
			f.add(many, notice.WalletLow, "one of many")
		}
		f.add(few, notice.WalletLow, "the only one")
		if f.poll(); f.deliveries(few, c.ID)[0].State != Delivered {
			t.Error("it waits for those of the other workspace")
		}
		if len(r.got) != maxOfWorkspace+1 {
			t.Errorf("%d are sent at once", len(r.got))
		}
	})
}

func TestWhatIsOldIsDeletedAndALowMarkStays(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		r := newReceiver(t)
		ws := f.workspace()
		c := f.channel(ws, r.URL, notice.WalletLow)
		f.setBalance(ws, 1)
		f.poll()
		f.poll()
		f.at = f.at.Add(keepMarks + time.Hour)
		if err := f.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.setBalance(ws, 2)
		f.poll()
		if n := len(f.deliveries(ws, c.ID)); n != 0 || f.told(ws) != 0 || len(r.got) != 1 {
			t.Errorf("%d deliveries, %d notices, %d requests", n, f.told(ws), len(r.got))
		}
	})
}
