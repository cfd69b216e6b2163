package edge

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
)

// tokenPaths is where a token in the path stands in place of a key. The handlers of these routes check it, and call
// Identify or Unidentified.
const tokenPaths = "/rewards"

// workerPaths is where the token of a training worker stands in place of a key. The router checks it, and calls
// IdentifyWorker or Unidentified.
const workerPaths = "/workers"

// workers is the owner of the connections of training workers, which belong to no workspace.
const workers = "workers"

// IdentifyWorker records which worker a request comes from.
func IdentifyWorker(r *http.Request, w tenant.Worker) {
	call := callOf(r.Context())
	call.conn.prove(workers) // one that has no room stays among those without a key
	call.caller = tenant.Caller{Worker: &w}
}

// Identify records whose token a request carries. It refuses what the limits of the workspace do not allow, such as an
// address, and too many open connections.
func Identify(r *http.Request, caller tenant.Caller) error {
	call := callOf(r.Context())
	if call.edge != nil {
		if err := call.edge.limit(r, call, &caller); err != nil {
			return err
		}
	}
	if !call.conn.prove(caller.Workspace) {
		call.closes = true
		return fault.RateLimited.New("the workspace has too many open connections").In(time.Second)
	}
	call.caller = caller
	return nil
}

// Unidentified returns the refusal of a request without a valid token, which counts like one without a valid key.
func Unidentified(r *http.Request, err error) error {
	call := callOf(r.Context())
	if call.edge == nil {
		return err
	}
	return cmp.Or(call.edge.countKeyless(r, call), err)
}

// withoutToken returns a path as it may be shown and logged: without the token that may be in it.
func withoutToken(path string) string {
	if before, _, found := strings.Cut(path, tokenPaths+"/"); found {
		return before + tokenPaths + "/…"
	}
	return path
}
