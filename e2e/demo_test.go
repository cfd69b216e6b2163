package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// A demo whose server is killed again and again, at random moments, is filled all the same: nothing is asked twice,
// nothing is made twice, and what was paid is proven.
func TestDrillADemoIsFilledOnceThroughKills(t *testing.T) {
	t.Parallel()
	const workspace = "Demo (simulated)"
	eachEngine(t, func(t *testing.T, p instance) {
		server, kills := p.serve(t, "--demo"), 0
		var minted struct {
			APIKey string `json:"api_key"`
		}
		p.mustAdmin(t, &minted, "key", "create", "--workspace", workspace, "--email", "owner@localhost", "--name", "watching", "--json")
		for range drills(4, 20) {
			time.Sleep(rand.N(1500 * time.Millisecond))
			server.kill()
			kills++
			server = p.serve(t, "--demo")
		}
		c := server.callerWith(minted.APIKey)
		eventually(t, "the demo is filled", func() bool {
			_, text := c.call(t, http.MethodGet, "/v1/reward/sessions", nil, http.StatusOK, nil)
			return strings.Contains(text, `"scored":160`)
		})

		// Each question of the script is in the logs at most once. One that was under way at a kill may have been lost:
		// it was charged by the recovery, and is not asked again.
		asked, traces := map[string]int{}, 0
		for offset := 0; ; offset += 500 {
			var page struct {
				Data []struct {
					Messages []struct{ Role, Content string }
					TraceID  *string `json:"trace_id"`
				}
				HasMore bool `json:"has_more"`
			}
			c.call(t, http.MethodGet, fmt.Sprintf("/v1/logs?limit=500&offset=%d", offset), nil, http.StatusOK, &page)
			for _, row := range page.Data {
				if row.TraceID != nil {
					traces++
				}
				asked[fmt.Sprint(row.Messages)]++
			}
			if !page.HasMore {
				break
			}
		}
		for messages, times := range asked {
			if times > 1 {
				t.Errorf("asked %d times: %.200s", times, messages)
			}
		}
		const script = 676
		if n := len(asked); n > script || n < script-kills-8 || traces > 48 || traces < 48-kills {
			t.Errorf("%d exchanges, %d of them in runs, after %d kills", n, traces, kills)
		}
		for path, want := range map[string]int{"criteria": 3, "evals": 2, "datasets": 2, "aliases": 2, "reward/sessions": 1} {
			var list struct{ Data []struct{ ID string } }
			if c.call(t, http.MethodGet, "/v1/"+path, nil, http.StatusOK, &list); len(list.Data) != want {
				t.Errorf("%d %s, not %d", len(list.Data), path, want)
			}
		}
		server.stop(t) // or rows would be added while the pages of usage are read
		paid := 0
		for _, row := range p.usage(t, p.workspaceID(t, workspace)) {
			if strings.HasPrefix(row.KeyID, "key_") && row.Charged > 0 {
				paid++
			}
		}
		if paid > script || paid < len(asked) {
			t.Errorf("%d exchanges are paid for, and %d are logged", paid, len(asked))
		}
		p.verifyLedger(t)
	})
}

// workspaceID is the id of the workspace of that name.
func (p instance) workspaceID(t *testing.T, name string) string {
	t.Helper()
	var list struct{ Data []struct{ ID, Name string } }
	p.mustAdmin(t, &list, "workspace", "list", "--json")
	for _, ws := range list.Data {
		if ws.Name == name {
			return ws.ID
		}
	}
	t.Fatalf("no workspace %q in %+v", name, list)
	return ""
}

// A demo whose server is killed while it is deleted is gone all the same: at once for people and keys, and in the end
// with everything that it stored. The trails stay, and prove.
func TestDrillADemoIsDeletedThroughKills(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		server := p.serve(t, "--demo")
		id := p.workspaceID(t, "Demo (simulated)")
		token := linkText.FindStringSubmatch(server.out.find(linkText, server.done))[2]
		_, _, cookie := server.dashboard(t, "", "POST", "/session/link", `{"token":"`+token+`"}`)
		var minted struct {
			APIKey string `json:"api_key"`
		}
		p.mustAdmin(t, &minted, "key", "create", "--workspace", id, "--email", "owner@localhost", "--name", "mine", "--json")
		eventually(t, "the demo is filled", func() bool {
			_, text, _ := server.dashboard(t, cookie, "GET", "/w/"+id+"/demo", "")
			return strings.Contains(text, `"status":"DONE"`)
		})
		if status, text, _ := server.dashboard(t, cookie, "DELETE", "/w/"+id+"/demo", ""); status != http.StatusOK {
			t.Fatal(status, text)
		}
		for range drills(3, 20) {
			time.Sleep(rand.N(60 * time.Millisecond)) // the deletion takes about as long
			server.kill()
			server = p.serve(t)
			if status, text, _ := server.dashboard(t, cookie, "GET", "/w/"+id+"/demo", ""); status != http.StatusNotFound {
				t.Errorf("after its deletion: %d %s", status, text)
			}
			server.callerWith(minted.APIKey).call(t, http.MethodGet, "/v1/models", nil, http.StatusUnauthorized, nil)
		}

		d := dbtest.Open(t, p.data, p.url)
		eventually(t, "the deletion ends", func() bool {
			status, err := db.One[string](t.Context(), d.Across("test"), `SELECT status FROM jobs WHERE kind = 'demo_deletion'`)
			if err != nil {
				t.Fatal(err)
			}
			return status == "DONE"
		})
		for _, table := range []string{"labels", "criteria", "evals", "review_queues", "reward_sessions", "datasets", "aliases", "members"} {
			n, err := db.One[int](t.Context(), d.Across("test"), `SELECT COUNT(*) FROM `+table+` WHERE workspace_id = $1`, id)
			if err != nil || n != 0 {
				t.Errorf("%d rows in %s: %v", n, table, err)
			}
		}
		server.stop(t)
		p.verifyLedger(t)
		p.verifyTrail(t)
	})
}
