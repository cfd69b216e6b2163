package reward

import (
	crypto "crypto/rand"
	"math/rand/v2"
	"slices"
)

// A candidate is a scored item that a check may draw.
type candidate struct {
	Position           int64
	Prompt, Completion []byte // digests
	Scored             bool   // it has a reward
}

// A sample is what a check has drawn.
type sample struct {
	compared []int64 // positions
	masked   int64   // items without a reward to compare
}

// draw draws candidates until size of them have a reward: one completion per prompt, each prompt as likely as any
// other, and each completion of a prompt as likely as any other of it. A completion that was scored many times counts
// once, and has a reward if it ever got one. One without a reward is masked, and takes no place of others: another of its
// prompt is drawn, so that items that no judge can grade hide nothing.
func draw(all []candidate, size int, random *rand.Rand) (s sample) {
	type content struct{ prompt, completion string }
	once := map[content]int{} // the place of a content among the choices of its prompt
	choices := map[string][]candidate{}
	var prompts []string // in the order of scoring, so that a seed always draws the same
	for _, c := range all {
		prompt := string(c.Prompt)
		known := choices[prompt]
		if known == nil {
			prompts = append(prompts, prompt)
		}
		key := content{prompt, string(c.Completion)}
		if at, ok := once[key]; ok {
			if c.Scored && !known[at].Scored {
				known[at] = c
			}
			continue
		}
		once[key] = len(known)
		choices[prompt] = append(known, c)
	}
	random.Shuffle(len(prompts), func(i, j int) { prompts[i], prompts[j] = prompts[j], prompts[i] })
	for _, prompt := range prompts {
		if len(s.compared) == size {
			break
		}
		of := choices[prompt]
		c := of[random.IntN(len(of))]
		if !c.Scored {
			s.masked++
			of = slices.DeleteFunc(of, func(c candidate) bool { return !c.Scored })
			if len(of) == 0 {
				continue
			}
			c = of[random.IntN(len(of))]
		}
		s.compared = append(s.compared, c.Position)
	}
	return s
}

// unpredictable returns a source that nobody can predict: a trainer must not know what will be checked.
func unpredictable() *rand.Rand {
	var seed [32]byte
	_, _ = crypto.Read(seed[:]) // it never fails
	return rand.New(rand.NewChaCha8(seed))
}
