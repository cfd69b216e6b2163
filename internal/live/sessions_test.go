package live

import (
	"fmt"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
)

// Sessions end by their age and by disuse. What has ended is gone from memory, and everything else stays.
func TestSweepingRemovesTheSessionsThatHaveEndedAndNoOther(t *testing.T) {
	now, all := clock.Now(), NewSessions()
	const idle = time.Hour
	put := func(i int, seen, expires time.Duration) SessionDigest {
		digest := SessionDigest{byte(i), byte(i >> 8)}
		all.Put(digest, NewSession(tenant.SessionID(fmt.Sprint("ses_", i)), "user_1", now.Add(seen), now.Add(expires), idle))
		return digest
	}
	for i := range 3000 { // some in every shard
		put(i, -2*idle, time.Hour)
	}
	old := put(3000, -time.Minute, -2*time.Minute)
	unused := put(3001, -2*idle, time.Hour)
	used := put(3002, -time.Minute, time.Hour)
	ending := put(3003, -idle-30*time.Second, time.Hour) // just now
	if n := all.Sweep(now); n != 3002 || all.Len() != 2 {
		t.Errorf("%d swept, %d left", n, all.Len())
	}
	for _, gone := range []SessionDigest{old, unused} {
		if _, ok := all.all.get(gone); ok {
			t.Errorf("%v is there", gone)
		}
	}
	for _, there := range []SessionDigest{used, ending} {
		if _, ok := all.all.get(there); !ok {
			t.Errorf("%v is gone", there)
		}
	}
	if !all.InForce(used, now) {
		t.Error("a session in force has ended")
	}
	if n := all.Sweep(now); n != 0 {
		t.Errorf("a second time: %d", n)
	}
}
