package kube

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/domain/serving"
	"sovereign/internal/net/kubeapi"
)

// podStatus is what is read of a pod's status.
type podStatus struct {
	Phase      string      `json:"phase"`
	Reason     string      `json:"reason"`
	Message    string      `json:"message"`
	PodIP      string      `json:"podIP"`
	Conditions []condition `json:"conditions"`
	Containers []struct {
		Name  string         `json:"name"`
		Ready bool           `json:"ready"`
		State containerState `json:"state"`
	} `json:"containerStatuses"`
}

type containerState struct {
	Waiting *struct {
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"waiting"`
	Running *struct {
		StartedAt time.Time `json:"startedAt"`
	} `json:"running"`
	Terminated *terminated `json:"terminated"`
}

type terminated struct {
	ExitCode   int       `json:"exitCode"`
	Reason     string    `json:"reason"`
	Message    string    `json:"message"`
	StartedAt  time.Time `json:"startedAt"`
	FinishedAt time.Time `json:"finishedAt"`
}

type condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"lastTransitionTime"`
}

func (s *podStatus) condition(kind string) condition {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return condition{}
}

// A life is what is known of a pod.
type life struct {
	object  kubeapi.Object
	status  podStatus
	replica serving.Replica
	problem string // why it does not start
	slot    int
	hash    string
	message string     // what the container left behind
	readyAt clock.Time // when it became ready, while that is not noted in the cluster
}

// live reports whether a pod runs or will, and nobody has told it to end.
func (l *life) live() bool { return l.replica.Phase != serving.Ended && !l.replica.Asked }

// of returns the time, or 0.
func of(t time.Time) clock.Time {
	if t.IsZero() || t.Unix() == 0 {
		return 0
	}
	return clock.Of(t)
}

// read returns what a pod says of itself. lost is after which time a pod whose end nobody confirms counts as ended.
func read(o kubeapi.Object, now time.Time, lost time.Duration) (*life, error) {
	l := &life{object: o, hash: o.Meta.Labels[hashLabel]}
	if err := json.Unmarshal(o.Status, &l.status); err != nil && len(o.Status) > 0 {
		return nil, fmt.Errorf("read the status of the pod %s: %w", o.Meta.Name, err)
	}
	l.slot = -1 // of a pod that somebody else has changed
	if slot, err := strconv.Atoi(o.Meta.Labels[slotLabel]); err == nil {
		l.slot = slot
	}
	r := &l.replica
	*r = serving.Replica{ID: o.Meta.UID, Phase: serving.Starting, Asked: !o.Meta.DeletionTimestamp.IsZero()}
	if at, err := strconv.ParseInt(o.Meta.Annotations[readyNote], 10, 64); err == nil {
		r.ReadyAt = clock.Time(at)
	}
	l.readContainer()
	why := l.status.condition("DisruptionTarget")
	over := l.status.Phase == "Failed" || l.status.Phase == "Succeeded"
	switch {
	case r.Phase == serving.Ended: // the container has said so
	case over:
		l.end(cmp.Or(l.status.Message, why.Message, l.status.Reason, "the pod has ended"))
	case r.Asked && l.unstarted():
		l.end("it was ended before it began")
	case r.Asked && now.Sub(o.Meta.DeletionTimestamp) > lost:
		l.end("its node does not answer, and nobody saw its end")
	}
	if r.Phase == serving.Ended && why.Status == "True" {
		r.Reason = strings.TrimSpace(why.Reason + ": " + why.Message)
	}
	return l, nil
}

// unstarted reports whether no node has begun with a pod.
func (l *life) unstarted() bool {
	return l.status.condition("PodScheduled").Status != "True" && len(l.status.Containers) == 0
}

// end notes an end that the container has not reported: when it was is not known.
func (l *life) end(reason string) {
	l.replica.Phase, l.replica.Reason, l.replica.BaseURL = serving.Ended, reason, ""
}

// readContainer reads what the status says of the engine's container.
func (l *life) readContainer() {
	if scheduled := l.status.condition("PodScheduled"); scheduled.Status == "False" {
		l.problem = cmp.Or(scheduled.Message, scheduled.Reason)
	}
	for _, c := range l.status.Containers { // others may have put their own beside it
		if c.Name == containerName {
			l.readState(c.Ready, c.State)
		}
	}
}

// usual are the reasons for which a container waits that are no problem.
var usual = []string{"ContainerCreating", "PodInitializing"}

// readState reads the state of the engine's container.
func (l *life) readState(isReady bool, state containerState) {
	r := &l.replica
	switch {
	case state.Terminated != nil:
		t := state.Terminated
		r.StartedAt, r.EndedAt = of(t.StartedAt), of(t.FinishedAt)
		r.Phase, r.Reason, l.message = serving.Ended, t.why(), t.Message
	case state.Running != nil:
		r.StartedAt = of(state.Running.StartedAt)
		if ready := l.status.condition("Ready"); isReady && ready.Status == "True" {
			// A pod that has ended does not say whether it was ever ready. So it is ready when that is noted.
			if r.ReadyAt == 0 {
				l.readyAt = of(ready.Since)
			} else {
				r.Phase = serving.Ready
			}
		}
	case state.Waiting != nil && !slices.Contains(usual, state.Waiting.Reason):
		l.problem = strings.Trim(state.Waiting.Reason+": "+state.Waiting.Message, ": ")
	}
}

// why says why a container has ended, for people.
func (t *terminated) why() string {
	switch {
	case t.Reason == "OOMKilled":
		return "the engine was killed: it used more memory than it may"
	case t.ExitCode > 128 && t.ExitCode < 128+65:
		return fmt.Sprintf("the engine was ended by signal %d", t.ExitCode-128)
	case t.Reason != "" && t.Reason != "Error" && t.Reason != "Completed":
		return fmt.Sprintf("%s (exit code %d)", t.Reason, t.ExitCode)
	}
	return fmt.Sprintf("the engine ended with exit code %d", t.ExitCode)
}

// address returns where the API of a pod is; empty before it is known.
func (b *Backend) address(l *life, api string) string {
	if l.status.PodIP == "" {
		return ""
	}
	if b.config.BaseURL != nil {
		return b.config.BaseURL(l.status.PodIP, port, l.object.Meta.UID) + api
	}
	return "http://" + net.JoinHostPort(l.status.PodIP, strconv.Itoa(port)) + api
}
