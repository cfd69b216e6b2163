package app

import (
	"context"
	"fmt"
	"os"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/store/cluster"
	"sovereign/internal/store/db"
)

// join makes this process a node among the servers of its database. On SQLite it is the only one.
func (i *instance) join(ctx context.Context, c *Config) (err error) {
	s := &i.state
	if i.storage.db.Engine == db.SQLite {
		i.member = cluster.Alone(i.storage.db)
		return nil
	}
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("the name of this machine: %w", err)
	}
	i.member, err = cluster.Join(ctx, cluster.Config{
		DB: i.storage.db, ID: s.journal.ID, Log: i.log, Name: name, Address: c.Listen, Release: version(),
		Settings: settings(i.models.catalog()), Feed: s.feed, Lost: i.lost, Regained: i.regained, Ended: i.ended,
		Drain: i.askedToLeave,
	})
	if err != nil {
		return err
	}
	s.feed.Elsewhere, s.feed.Advanced = i.member.Await, i.member.Applied
	i.member.OnForget = forgetMoney
	return nil
}

// forgetMoney gives back what a server has taken of wallets whose disk is gone, and says what may be lost.
func forgetMoney(ctx context.Context, tx *db.Tx, life cluster.Life) (string, error) {
	atMost, err := wallet.Forget(ctx, tx, tenant.Operator, life.Node)
	if err != nil || atMost == 0 {
		return "", err
	}
	return fmt.Sprintf(
		"charges of at most $%s: what was answered there in its last half second and never posted", atMost,
	), nil
}

// lost ends work that other servers may take over.
func (i *instance) lost(err error) { i.domains.jobs.Pause(err) }

// regained resumes it. What is in memory has been brought up to date.
func (i *instance) regained() { i.domains.jobs.Resume() }

// ended stops the server: it has no place among the others any more.
func (i *instance) ended(err error) {
	select {
	case i.failed <- err:
	default: // it stops already
	}
}

// askedToLeave stops the server as a signal does.
func (i *instance) askedToLeave() {
	select {
	case i.leaving <- struct{}{}:
	default: // it leaves already
	}
}

// gate refuses every request while this server has no lease.
func (i *instance) gate() error {
	if i.member == nil {
		return fault.Unavailable.New("not serving: the server is starting").In(time.Second)
	}
	return i.member.Check()
}
