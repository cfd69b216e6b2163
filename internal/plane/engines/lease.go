package engines

import (
	"context"

	"sovereign/internal/live"
	"sovereign/internal/wire/protocol"
	"sovereign/internal/wire/upstream"
)

// A Lease is the use of one replica by one request.
type Lease struct {
	group   *Group
	replica *replica
	done    func() // of GroupConfig.Prepare
}

// Replica returns the replica.
func (l *Lease) Replica() Replica { return l.replica.Replica }

// Send sends the request to the replica, as an upstream.Sender does. It may be called until Release.
func (l *Lease) Send(ctx context.Context, r *upstream.Request) (*upstream.Response, error) {
	return l.replica.sender.Send(ctx, r)
}

// Release ends the use, after the body of the answer was closed. failed says that the engine is at fault: then others
// are asked before it for a while. Release is called once.
func (l *Lease) Release(failed bool) {
	if l.done != nil {
		l.done()
	}
	l.group.mu.Lock()
	defer l.group.mu.Unlock()
	l.group.release(l.replica, failed)
}

type sender = upstream.Sender

var protocols = protocol.Upstream(nil)

// newSender returns the sender of a replica. A base URL that cannot be used fails every request.
func newSender(r Replica) sender {
	s, err := protocols.NewSender(&live.Provider{
		Name: live.Engines.Name, Protocol: live.Engine, BaseURL: r.BaseURL, Configured: true,
	})
	if err != nil {
		return unusable{err}
	}
	return s
}

// unusable is the sender of a replica whose base URL is none.
type unusable struct{ err error }

func (u unusable) Send(context.Context, *upstream.Request) (*upstream.Response, error) {
	return nil, u.err
}
func (unusable) Close() {}
