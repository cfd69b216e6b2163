package meter

import "time"

// A minute counts what happened in the last sixty seconds, in slots of a second. The slot that is only partly over
// counts too, so that no sixty seconds ever hold more than a limit allows.
type minute struct {
	newest int64 // the current second
	sum    int64
	slots  [slots]int64
}

const slots = 61

// forget forgets what is older than a minute at a time since the meter's start.
func (m *minute) forget(now time.Duration) {
	second := int64(now/time.Second) + slots // so that no slot has a negative number
	if second-m.newest >= slots {
		*m = minute{newest: second}
		return
	}
	for m.newest < second {
		m.newest++
		slot := &m.slots[m.newest%slots]
		m.sum -= *slot
		*slot = 0
	}
}

// add counts n now. forget was called before.
func (m *minute) add(n int64) {
	m.slots[m.newest%slots] += n
	m.sum += n
}

// reset returns how long it takes until nothing is left.
func (m *minute) reset(now time.Duration) time.Duration {
	if m.sum == 0 {
		return 0
	}
	second := m.newest
	for m.slots[second%slots] == 0 {
		second--
	}
	return time.Duration(second)*time.Second - now
}

// wait returns how long it takes until at most most is left.
func (m *minute) wait(now time.Duration, most int64) time.Duration {
	left := m.sum
	for second := m.newest - slots + 1; second <= m.newest; second++ {
		if left <= most {
			break
		}
		if left -= m.slots[second%slots]; left <= most {
			return time.Duration(second)*time.Second - now // the slot is forgotten when it is slots old
		}
	}
	return 0
}
