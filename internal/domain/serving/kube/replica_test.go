package kube

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/domain/serving"
	"sovereign/internal/net/kubeapi"
)

const (
	running   = `"containerStatuses":[{"name":"proxy","ready":true,"state":{"running":{}}},{"name":"engine","ready":true,"state":{"running":{"startedAt":"2026-01-02T03:04:05Z"}}}]`
	ready     = `"conditions":[{"type":"PodScheduled","status":"True"},{"type":"Ready","status":"True","lastTransitionTime":"2026-01-02T03:04:15Z"}]`
	unready   = `"conditions":[{"type":"PodScheduled","status":"True"},{"type":"Ready","status":"False","lastTransitionTime":"2026-01-02T03:05:00Z"}]`
	oomKilled = `"containerStatuses":[{"name":"engine","state":{"terminated":{"exitCode":137,"reason":"OOMKilled","startedAt":"2026-01-02T03:04:05Z","finishedAt":"2026-01-02T03:06:00Z"}}}]`
)

// What a pod's status says of a replica, as kubelets write it.
func TestAPodSaysHowFarAReplicaHasCome(t *testing.T) {
	started := clock.Of(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	readyAt := started.Add(10 * time.Second)
	ended := started.Add(115 * time.Second)
	noted := `"annotations":{"sovereign/ready-at":"` + "1767323055000000" + `"}`
	if int64(readyAt) != 1767323055000000 {
		t.Fatal("the time in the annotation is", int64(readyAt))
	}
	for name, c := range map[string]struct {
		meta, status string
		want         serving.Replica
		reason       string
		problem      string
	}{
		"just made": {want: serving.Replica{Phase: serving.Starting}},
		"no node has room": {
			status:  `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes"}]}`,
			want:    serving.Replica{Phase: serving.Starting},
			problem: "0/3 nodes",
		},
		"its image is pulled": {
			status: `{"phase":"Pending","containerStatuses":[{"name":"engine","state":{"waiting":{"reason":"ContainerCreating"}}}]}`,
			want:   serving.Replica{Phase: serving.Starting},
		},
		"its image cannot be pulled": {
			status:  `{"phase":"Pending","containerStatuses":[{"name":"engine","state":{"waiting":{"reason":"ErrImagePull","message":"not found"}}}]}`,
			want:    serving.Replica{Phase: serving.Starting},
			problem: "ErrImagePull: not found",
		},
		"it loads": {
			status: `{"phase":"Running",` + unready + `,` + running + `}`,
			want:   serving.Replica{Phase: serving.Starting, StartedAt: started},
		},
		"ready, and that is not noted": {
			status: `{"phase":"Running",` + ready + `,` + running + `}`,
			want:   serving.Replica{Phase: serving.Starting, StartedAt: started},
		},
		"ready": {
			meta: noted, status: `{"phase":"Running",` + ready + `,` + running + `}`,
			want: serving.Replica{Phase: serving.Ready, StartedAt: started, ReadyAt: readyAt},
		},
		"not ready any more": {
			meta: noted, status: `{"phase":"Running",` + unready + `,` + running + `}`,
			want: serving.Replica{Phase: serving.Starting, StartedAt: started, ReadyAt: readyAt},
		},
		"out of memory": {
			meta: noted, status: `{"phase":"Failed",` + oomKilled + `}`,
			want:   serving.Replica{Phase: serving.Ended, StartedAt: started, ReadyAt: readyAt, EndedAt: ended},
			reason: "more memory than it may",
		},
		"evicted before it began": {
			status: `{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory."}`,
			want:   serving.Replica{Phase: serving.Ended}, reason: "low on resource",
		},
		"its node is gone": {
			meta:   noted,
			status: `{"phase":"Failed","conditions":[{"type":"DisruptionTarget","status":"True","reason":"DeletionByPodGC","message":"node is not found"}],` + running + `}`,
			want:   serving.Replica{Phase: serving.Ended, StartedAt: started, ReadyAt: readyAt}, reason: "DeletionByPodGC",
		},
		"told to end, and has not": {
			meta: noted + `,"deletionTimestamp":"2026-01-02T03:10:00Z"`, status: `{"phase":"Running",` + ready + `,` + running + `}`,
			want: serving.Replica{Phase: serving.Ready, StartedAt: started, ReadyAt: readyAt, Asked: true},
		},
		"told to end, and nobody says that it has": {
			meta: noted + `,"deletionTimestamp":"2026-01-02T03:00:00Z"`, status: `{"phase":"Running",` + ready + `,` + running + `}`,
			want: serving.Replica{Phase: serving.Ended, StartedAt: started, ReadyAt: readyAt, Asked: true}, reason: "its node does not answer",
		},
		"told to end before it had a node": {
			meta: `"deletionTimestamp":"2026-01-02T03:10:00Z"`, status: `{"phase":"Pending"}`,
			want: serving.Replica{Phase: serving.Ended, Asked: true}, reason: "before it began",
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := `{"metadata":{"name":"engine-a-1","uid":"u",` + c.meta + `}`
			if c.meta == "" {
				text = `{"metadata":{"name":"engine-a-1","uid":"u"}`
			}
			if c.status != "" {
				text += `,"status":` + c.status
			}
			var o kubeapi.Object
			if err := json.Unmarshal([]byte(text+"}"), &o); err != nil {
				t.Fatal(err)
			}
			now := time.Date(2026, 1, 2, 3, 10, 30, 0, time.UTC)
			l, err := read(o, now, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			got := l.replica
			if !strings.Contains(got.Reason, c.reason) || (got.Reason == "") != (c.reason == "") {
				t.Errorf("the reason is %q", got.Reason)
			}
			got.Reason, c.want.ID = "", "u"
			if got.Phase != c.want.Phase || got.StartedAt != c.want.StartedAt || got.ReadyAt != c.want.ReadyAt ||
				got.EndedAt != c.want.EndedAt || got.Asked != c.want.Asked || got.ID != c.want.ID {
				t.Errorf("got %+v\nwant %+v", got, c.want)
			}
			if l.problem != c.problem {
				t.Errorf("the problem is %q", l.problem)
			}
		})
	}
}

func TestAnObjectBelongsToWhatItsNameSays(t *testing.T) {
	for _, c := range []struct {
		kind kubeapi.Kind
		name string
		want string
	}{
		{kubeapi.Pods, "engine-a-b-12", "a-b"}, {kubeapi.Services, "engine-a-b-12", "a-b-12"}, {kubeapi.Pods, "engine-", ""},
	} {
		if got := belongs(c.kind, kubeapi.Object{Meta: kubeapi.Meta{Name: c.name}}); got != c.want {
			t.Errorf("%s %s: %q", c.kind.Name, c.name, got)
		}
	}
}
