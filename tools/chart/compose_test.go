package chart

import (
	"os"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// project reads the Compose file as docker compose does, with its schema.
func project(t *testing.T, environment map[string]string) (*types.Project, error) {
	t.Helper()
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  "../../deploy/compose",
		ConfigFiles: []types.ConfigFile{{Filename: "../../deploy/compose/compose.yaml"}},
		Environment: environment,
	})
}

// Two servers on one volume would share a journal.
func TestTheComposeFileGivesEachServerAVolumeOfItsOwn(t *testing.T) {
	p, err := project(t, map[string]string{"POSTGRES_PASSWORD": "x"})
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile("../../deploy/compose/sovereign.yaml")
	if err != nil {
		t.Fatal(err)
	}
	serveUntilTheDatabase(t, string(config))
	volumes := map[string]bool{}
	for _, name := range []string{"sovereign-1", "sovereign-2", "sovereign-3"} {
		s, err := p.GetService(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Volumes) != 1 || volumes[s.Volumes[0].Source] || s.Volumes[0].Type != "volume" {
			t.Errorf("%s: volumes %+v", name, s.Volumes)
		}
		volumes[s.Volumes[0].Source] = true
		if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) <= 5*time.Minute {
			t.Errorf("%s: stop_grace_period %v is not above limits.drain", name, s.StopGracePeriod)
		}
		const want = "postgres://sovereign:x@postgres:5432/sovereign"
		if url := s.Environment["SOVEREIGN_DATABASE_URL"]; url == nil || *url != want {
			t.Errorf("%s: database %v", name, url)
		}
	}
}

func TestTheComposeFileNeedsAPassword(t *testing.T) {
	if _, err := project(t, nil); err == nil {
		t.Error("it is read without POSTGRES_PASSWORD")
	}
}
