package deadline

import (
	"errors"
	"testing"
	"time"
)

// The end of one request that panics keeps no other from ending.
func TestAPanicAtTheEndOfARequestKeepsNoOtherFromEnding(t *testing.T) {
	var r Registry
	all := make([]*Deadline, 40) // more than there are shards
	for i := range all {
		all[i] = &Deadline{}
		all[i].Start(time.Now(), time.Hour)
		all[i].OnEnd(func() { panic("a poisonous callback") })
		r.Add(all[i])
	}
	cause := errors.New("the test stops")
	r.Stop(cause)
	for i, d := range all {
		if !errors.Is(d.Cause(), cause) {
			t.Errorf("%d has not ended", i)
		}
		r.Remove(d)
	}
}
