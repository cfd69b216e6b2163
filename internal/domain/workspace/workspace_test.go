package workspace_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/workspace"
	"sovereign/internal/live"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
)

// A fixture is the identity of one database, published.
type fixture struct {
	*workspace.Store
	db  *db.DB
	dir *live.Directory
	pub *workspace.Publisher
}

func eachStorage(t *testing.T, test func(t *testing.T, r fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dir := live.NewDirectory()
		pub := workspace.NewPublisher(d, dir)
		f := feed.New(d, slog.New(slog.DiscardHandler), pub.Sources())
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); f.Run(ctx) }()
		t.Cleanup(func() { stop(); <-done })
		test(t, fixture{Store: workspace.NewStore(d, f), db: d, dir: dir, pub: pub})
	})
}

func (r fixture) create(t *testing.T, name string) tenant.ID {
	t.Helper()
	ws, _, err := r.Create(t.Context(), tenant.Operator, name, "owner@"+name+".test")
	if err != nil {
		t.Fatal(err)
	}
	return ws.ID
}

func (r fixture) mint(t *testing.T, ws tenant.ID, email string) (workspace.Key, apikey.Digest) {
	t.Helper()
	key, text, err := r.CreateKey(t.Context(), ws, tenant.Operator, email, "test")
	if err != nil {
		t.Fatal(err)
	}
	return key, digest(t, text)
}

func digest(t *testing.T, key secret.Text) apikey.Digest {
	t.Helper()
	d, ok := apikey.Parse(key.Reveal())
	if !ok {
		t.Fatal("a minted key does not parse")
	}
	return d
}

func (r fixture) keyStatus(d apikey.Digest) (tenant.Role, live.KeyStatus) {
	caller, verdict := r.dir.Authenticate(d, clock.Now())
	return caller.Role, verdict
}

func wants(t *testing.T, err error, kind fault.Kind) {
	t.Helper()
	var f *fault.Fault
	if !errors.As(err, &f) || f.Kind != kind {
		t.Errorf("want %s, got %v", kind.Code, err)
	}
}

func TestKeyIsInForceWhenItsCreationReturnsAndRefusedWhenItsRevocationDoes(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		ws := r.create(t, "one")
		for range 20 {
			key, d := r.mint(t, ws, "owner@one.test")
			if role, verdict := r.keyStatus(d); verdict != live.Granted || role != tenant.Owner {
				t.Fatalf("fresh key: %v %v", role, verdict)
			}
			for range 2 { // revoking twice is fine
				revoked, err := r.RevokeKey(t.Context(), ws, tenant.Operator, key.ID, "")
				if err != nil || revoked.RevokedAt == nil {
					t.Fatal(revoked, err)
				}
				if _, verdict := r.keyStatus(d); verdict != live.Unknown {
					t.Fatalf("revoked key: %v", verdict)
				}
			}
		}
		entries, err := audit.List(t.Context(), r.db, ws, "key.revoke", 100, 0)
		if err != nil || len(entries) != 20 {
			t.Errorf("revocations audited: %d, %v", len(entries), err)
		}
	})
}

func TestKeyFollowsItsUsersRole(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		ctx, ws := t.Context(), r.create(t, "one")
		if _, err := r.AddMember(ctx, ws, tenant.Operator, "Ann@one.test", tenant.Admin); err != nil {
			t.Fatal(err)
		}
		_, d := r.mint(t, ws, "ann@one.test")
		for _, role := range []tenant.Role{tenant.Member, tenant.Owner, tenant.Admin, tenant.Admin} {
			if _, err := r.SetRole(ctx, ws, tenant.Operator, "ann@one.test", role); err != nil {
				t.Fatal(err)
			}
			if got, verdict := r.keyStatus(d); got != role || verdict != live.Granted {
				t.Errorf("want %s, got %s %v", role, got, verdict)
			}
		}
		if _, err := r.RemoveMember(ctx, ws, tenant.Operator, "ann@one.test", ""); err != nil {
			t.Fatal(err)
		}
		if _, verdict := r.keyStatus(d); verdict != live.Departed {
			t.Errorf("want departed, got %v", verdict)
		}
		if _, err := r.AddMember(ctx, ws, tenant.Operator, "ann@one.test", tenant.Owner); err != nil {
			t.Fatal(err)
		}
		if _, verdict := r.keyStatus(d); verdict != live.Unknown {
			t.Errorf("coming back must not bring an old key back: %v", verdict)
		}
	})
}

func TestWorkspaceKeepsAnOwner(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		ctx, ws := t.Context(), r.create(t, "one")
		_, err := r.SetRole(ctx, ws, tenant.Operator, "owner@one.test", tenant.Admin)
		wants(t, err, fault.Conflicting)
		_, err = r.RemoveMember(ctx, ws, tenant.Operator, "owner@one.test", "")
		wants(t, err, fault.Conflicting)
		_, d := r.mint(t, ws, "owner@one.test")
		if role, verdict := r.keyStatus(d); role != tenant.Owner || verdict != live.Granted {
			t.Errorf("a refused change must change nothing: %s %v", role, verdict)
		}
		entries, err := audit.List(ctx, r.db, ws, "member.role", 10, 0)
		if err != nil || len(entries) != 0 {
			t.Errorf("a refused change was audited: %v %v", entries, err)
		}
	})
}

func TestAnotherWorkspacesThingsDoNotExist(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		ctx, mine, theirs := t.Context(), r.create(t, "mine"), r.create(t, "theirs")
		key, d := r.mint(t, theirs, "owner@theirs.test")
		_, err := r.RevokeKey(ctx, mine, tenant.Operator, key.ID, "")
		wants(t, err, fault.Missing)
		_, _, err = r.CreateKey(ctx, mine, tenant.Operator, "owner@theirs.test", "x")
		wants(t, err, fault.Missing)
		_, err = r.SetRole(ctx, mine, tenant.Operator, "owner@theirs.test", tenant.Member)
		wants(t, err, fault.Missing)
		_, err = r.RemoveMember(ctx, mine, tenant.Operator, "owner@theirs.test", "")
		wants(t, err, fault.Missing)
		if _, verdict := r.keyStatus(d); verdict != live.Granted {
			t.Errorf("their key: %v", verdict)
		}
		keys, err := r.Keys(ctx, mine, "", 10, 0)
		if err != nil || len(keys) != 0 {
			t.Errorf("mine has keys %v, %v", keys, err)
		}
	})
}

func TestBadNamesAreRefusedByField(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		ctx, ws := t.Context(), r.create(t, "one")
		for _, name := range []string{"", " a", "a\nb", "a\x1b[31m", strings.Repeat("é", 65), "ws_06gxtc7yxksehgndzw4964jewg"} {
			_, _, err := r.Create(ctx, tenant.Operator, name, "a@b.test")
			wants(t, err, fault.InvalidParameter)
		}
		for _, email := range []string{"", "a", "a@", "Ann <a@b.test>", "a@b.test\r\nBcc: x@y.test", strings.Repeat("a", 250) + "@b.test"} {
			_, err := r.AddMember(ctx, ws, tenant.Operator, email, tenant.Member)
			wants(t, err, fault.InvalidParameter)
		}
		_, err := r.AddMember(ctx, ws, tenant.Operator, "a@b.test", "root")
		wants(t, err, fault.InvalidParameter)
		_, _, err = r.Create(ctx, tenant.Operator, "one", "a@b.test")
		wants(t, err, fault.Conflicting)
		_, err = r.AddMember(ctx, ws, tenant.Operator, "OWNER@one.test", tenant.Member)
		wants(t, err, fault.Conflicting)
	})
}

// A change and its audit entry are one: when the entry cannot be written, the change has not happened.
func TestNoChangeWithoutItsAuditEntry(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		ctx, ws := t.Context(), r.create(t, "one")
		if _, err := r.AddMember(ctx, ws, tenant.Operator, "ann@one.test", tenant.Admin); err != nil {
			t.Fatal(err)
		}
		key, d := r.mint(t, ws, "ann@one.test")
		if _, err := db.Exec(ctx, r.db.Across("test"), `ALTER TABLE audit_entries RENAME TO elsewhere`); err != nil {
			t.Fatal(err)
		}
		changes := map[string]func() error{
			"revoke": func() error { _, err := r.RevokeKey(ctx, ws, tenant.Operator, key.ID, ""); return err },
			"role":   func() error { _, err := r.SetRole(ctx, ws, tenant.Operator, "ann@one.test", tenant.Member); return err },
			"remove": func() error { _, err := r.RemoveMember(ctx, ws, tenant.Operator, "ann@one.test", ""); return err },
			"add": func() error {
				_, err := r.AddMember(ctx, ws, tenant.Operator, "bob@one.test", tenant.Member)
				return err
			},
			"mint":   func() error { _, _, err := r.CreateKey(ctx, ws, tenant.Operator, "ann@one.test", "x"); return err },
			"create": func() error { _, _, err := r.Create(ctx, tenant.Operator, "two", "a@b.test"); return err },
		}
		for name, change := range changes {
			if err := change(); err == nil {
				t.Errorf("%s happened without an audit entry", name)
			}
		}
		if role, verdict := r.keyStatus(d); role != tenant.Admin || verdict != live.Granted {
			t.Errorf("the key is %s %v", role, verdict)
		}
		members, err := r.Members(ctx, ws, 10, 0)
		if err != nil || len(members) != 2 {
			t.Errorf("members %v %v", members, err)
		}
	})
}

func TestKeysAreStoredAsDigestsAndAuditedWithoutThem(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		ws := r.create(t, "one")
		_, text, err := r.CreateKey(t.Context(), ws, tenant.Operator, "owner@one.test", "test")
		if err != nil {
			t.Fatal(err)
		}
		body := []byte(strings.TrimPrefix(text.Reveal(), apikey.Prefix))[:30]
		d := digest(t, text)
		all := r.db.Across("test")
		tables, err := db.Tables(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, table := range tables {
			for row, err := range db.Dump(t.Context(), all, table) {
				if err != nil {
					t.Fatal(err)
				}
				for i, value := range row {
					var raw []byte
					switch v := value.(type) {
					case string:
						raw = []byte(v)
					case []byte:
						raw = v
					}
					if bytes.Contains(raw, body) {
						t.Errorf("%s.%s holds the key", table.Name, table.Columns[i].Name)
					}
					found = found || bytes.Equal(raw, d[:])
				}
			}
		}
		if !found {
			t.Error("the digest is nowhere")
		}
	})
}

func TestLastUseIsWrittenInBatches(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		ws := r.create(t, "one")
		key, d := r.mint(t, ws, "owner@one.test")
		before := clock.Now()
		r.keyStatus(d)
		ctx, stop := context.WithCancel(t.Context())
		stop() // the last writing happens on the way out
		r.pub.RecordUses(ctx, slog.New(slog.DiscardHandler))
		keys, err := r.Keys(t.Context(), ws, "", 10, 0)
		if err != nil || len(keys) != 1 || keys[0].ID != key.ID || keys[0].LastUsedAt == nil || *keys[0].LastUsedAt < before {
			t.Errorf("%+v %v", keys, err)
		}
	})
}

func TestLastUseSurvivesADatabaseThatIsAway(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		ws := r.create(t, "one")
		_, d := r.mint(t, ws, "owner@one.test")
		r.keyStatus(d)
		rename := func(from, to string) {
			if _, err := db.Exec(t.Context(), r.db.Across("test"), `ALTER TABLE `+from+` RENAME TO `+to); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		rename("api_keys", "elsewhere")
		r.pub.RecordUses(ctx, slog.New(slog.DiscardHandler))
		rename("elsewhere", "api_keys")
		r.pub.RecordUses(ctx, slog.New(slog.DiscardHandler))
		keys, err := r.Keys(t.Context(), ws, "", 10, 0)
		if err != nil || len(keys) != 1 || keys[0].LastUsedAt == nil {
			t.Errorf("%+v %v", keys, err)
		}
	})
}

func TestFillPublishesWhatIsStored(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		ws := r.create(t, "one")
		_, kept := r.mint(t, ws, "owner@one.test")
		gone, revoked := r.mint(t, ws, "owner@one.test")
		if _, err := r.RevokeKey(t.Context(), ws, tenant.Operator, gone.ID, ""); err != nil {
			t.Fatal(err)
		}
		r.dir.Replace(nil, nil)
		if _, verdict := r.keyStatus(kept); verdict != live.Unknown {
			t.Fatal("an empty directory grants")
		}
		if err := r.pub.Fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if role, verdict := r.keyStatus(kept); role != tenant.Owner || verdict != live.Granted {
			t.Errorf("kept key: %s %v", role, verdict)
		}
		if _, verdict := r.keyStatus(revoked); verdict != live.Unknown {
			t.Errorf("revoked key: %v", verdict)
		}
	})
}
