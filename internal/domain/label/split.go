package label

import (
	"crypto/hmac"
	"crypto/sha256"
	"slices"

	"sovereign/internal/grade/judge"
	"sovereign/internal/text/fold"
)

// A Half is the half of the split that a conversation is in.
type Half int64

// The halves. A label that connects conversations of both halves is in both: no judge is shown it, and nothing is
// measured by it.
const (
	Tuning Half = iota // judges learn from it
	Report             // judges are measured by it
	Both
)

func (h Half) join(i Half) Half {
	if h == i {
		return h
	}
	return Both
}

// Relations say which conversations an exchange or a run belongs to. Turns of one conversation, steps of one run, and
// answers to the same question are related: a judge that was shown one of them has seen something of the others.
type Relations struct {
	keys       []string // of its own turns, its run and its content
	earlier    []string // of the turns before it
	self       string   // of its content alone; "" when no judge can be shown it
	seed       string   // its half is drawn by this, if it is related to nothing
	unreadable bool     // its messages cannot be read, and so its relations are unknown
}

// RelationsOf returns the relations of an exchange, or of the steps of a run. trace is the id of the run, or "".
func RelationsOf(steps []judge.Step, trace string) Relations {
	var k Relations
	for _, step := range steps {
		chain, err := fold.Keys(step.Messages, step.Response)
		if err != nil {
			k.unreadable = true
			continue
		}
		k.keys = append(k.keys, string(chain.Own[:]), string(chain.Prompt[:]))
		for _, key := range chain.Earlier {
			k.earlier = append(k.earlier, string(key[:]))
		}
		if k.seed == "" {
			k.seed = string(chain.Prompt[:])
		}
	}
	subject := judge.Subject{Steps: steps}
	if id, err := subject.Identity(); err == nil {
		k.self = string(id[:])
		k.keys = append(k.keys, k.self)
		if k.seed == "" {
			k.seed = string(id[:])
		}
	}
	if trace != "" {
		sum := sha256.Sum256([]byte("trace\n" + trace))
		k.seed = string(sum[:])
		k.keys = append(k.keys, k.seed)
	}
	slices.Sort(k.keys)
	slices.Sort(k.earlier)
	k.keys, k.earlier = slices.Compact(k.keys), slices.Compact(k.earlier)
	return k
}

// maxShared is how many exchanges may share a beginning and still be one conversation. A beginning that more of them
// share is a template, such as examples in a prompt, and relates nothing.
const maxShared = 8

// A turn is a turn of a conversation that was graded, or that came before one.
type turn struct {
	half   Half
	shared int64 // how many exchanges came after it
}

// A Split knows the halves of a workspace's conversations: of those that were graded, and of those that a model was
// shown which drafts rubrics. It holds only the turns that it was opened for.
type Split struct {
	secret  []byte
	graded  map[string]turn
	earlier map[string]turn
	changed map[turnKey]bool
}

// A turnKey names a turn of Split.graded or of Split.earlier.
type turnKey struct {
	key     string
	earlier bool
}

// Half returns the half of something: that of what it is related to or, if that is nothing, a random one.
func (s *Split) Half(k Relations) Half {
	if k.unreadable {
		return Both
	}
	related, half := false, Tuning
	join := func(t turn, known bool) {
		switch {
		case !known:
		case related:
			half = half.join(t.half)
		default:
			related, half = true, t.half
		}
	}
	for _, key := range k.keys {
		t, known := s.graded[key] // it was graded
		join(t, known)
		t, known = s.earlier[key] // it came before one that was graded
		join(t, known && t.shared < maxShared)
	}
	for _, key := range k.earlier {
		t, known := s.graded[key] // a turn before it was graded
		join(t, known)
		t, known = s.earlier[key] // another continued the same turn
		join(t, known && t.shared < maxShared)
	}
	if related {
		return half
	}
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte(k.seed))
	return Half(mac.Sum(nil)[0] & 1)
}

// knows reports whether something may have been assigned before.
func (s *Split) knows(k Relations) bool {
	_, known := s.graded[k.self]
	return known || k.self == ""
}

// Assign puts something, and so everything related to it, into a half. Save stores it. What is assigned again, because
// it is graded again, is not counted as another exchange of its conversation.
func (s *Split) Assign(k Relations, half Half) {
	_, again := s.graded[k.self]
	put := func(all map[string]turn, key string, earlier bool) {
		t, known := all[key]
		if !known {
			t.half = half
		}
		t.half = t.half.join(half)
		if !again || !known {
			t.shared++
		}
		all[key] = t
		s.changed[turnKey{key, earlier}] = true
	}
	for _, key := range k.keys {
		put(s.graded, key, false)
	}
	for _, key := range k.earlier {
		put(s.earlier, key, true)
	}
}

// assignHalf assigns the half of what is graded, and returns it.
func (s *Split) assignHalf(k Relations) Half {
	half := s.Half(k)
	s.Assign(k, half)
	return half
}
