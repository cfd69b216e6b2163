package signin

import (
	"testing"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

func TestTriesOfAPasswordCountAtAllServersTogether(t *testing.T) {
	dbtest.EachMigrated(t, func(t *testing.T, folder string, url secret.Text) {
		first := dbtest.Open(t, folder, url)
		servers := []*passwords{newPasswords(first)}
		if first.Engine == db.Postgres {
			servers = append(servers, newPasswords(dbtest.Open(t, folder, url)))
		}
		for n := range triesPerWindow {
			if err := servers[n%len(servers)].count(t.Context(), "x@one.test", ""); err != nil {
				t.Fatalf("try %d: %v", n, err)
			}
		}
		for i, s := range servers {
			if s.count(t.Context(), "x@one.test", "192.0.2.1") == nil {
				t.Errorf("server %d lets one too many try", i)
			}
			if err := s.count(t.Context(), "y@one.test", "192.0.2.1"); err != nil {
				t.Errorf("another account: %v", err)
			}
		}
	})
}
