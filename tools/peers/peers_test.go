// Package peers holds what we send to other programs against those programs themselves: Stripe's mock of its API, the
// verifier of Standard Webhooks, and a mail server. It is a module of its own, so that the product depends on none of
// them.
package peers

import (
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/notify"
	"sovereign/internal/net/netguard"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/notice"
	"sovereign/internal/store/vault"
)

const (
	workspace = tenant.ID("ws_peers")
	patience  = time.Minute
)

var (
	person  = tenant.Actor{Kind: tenant.ActorSession, User: "usr_1", Session: "ses_1"}
	discard = slog.New(slog.DiscardHandler)
)

func newDatabase(t *testing.T) *db.DB {
	t.Helper()
	d := dbtest.Migrated(t, db.SQLite)
	dbtest.AddWorkspaces(t, d, workspace)
	return d
}

// deliver delivers a notice to a channel, until the test ends.
func deliver(t *testing.T, mail notify.Mail, n notify.NewChannel, what notice.Notice) notify.Channel {
	t.Helper()
	d := newDatabase(t)
	root, err := vault.CreateRoot(filepath.Join(t.TempDir(), "root.key"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := vault.Open(t.Context(), d, root)
	if err != nil {
		t.Fatal(err)
	}
	guard := netguard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")})
	store := notify.NewStore(d, v, guard, mail.Enabled())
	made, err := store.Create(t.Context(), workspace, person, n)
	if err != nil {
		t.Fatal(err)
	}
	loop := notify.Module(notify.Deps{
		Store: store, Mail: mail, Site: "https://gateway.example.com", Serving: func() error { return nil }, Log: discard,
	}).Background[0]
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { loop.Run(ctx) })
	t.Cleanup(func() { stop(); group.Wait(); guard.Close() })
	if _, err := d.Tx(t.Context(), func(tx *db.Tx) error { return notice.Add(t.Context(), tx, workspace, what) }); err != nil {
		t.Fatal(err)
	}
	return made
}
