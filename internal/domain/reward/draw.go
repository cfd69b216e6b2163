package reward

import (
	crypto "crypto/rand"
	"math/rand/v2"
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

// draw draws candidates until size of them have a reward: at most one completion per prompt, each completion as likely
// as any other. So a prompt is drawn in proportion to its completions: scoring one prompt until it passes does not raise
// the share of passes in the sample. A completion that was scored many times counts once, and has a reward if it ever got
// one. One without a reward is masked, and takes no place of others: items that no judge can grade hide nothing.
func draw(all []candidate, size int, random *rand.Rand) (s sample) {
	type content struct{ prompt, completion string }
	at := map[content]int{}
	var once []candidate // in the order of scoring, so that a seed always draws the same
	for _, c := range all {
		key := content{string(c.Prompt), string(c.Completion)}
		known, ok := at[key]
		switch {
		case !ok:
			at[key] = len(once)
			once = append(once, c)
		case c.Scored && !once[known].Scored:
			once[known] = c
		}
	}
	random.Shuffle(len(once), func(i, j int) { once[i], once[j] = once[j], once[i] })
	drawn := map[string]bool{} // prompts
	for _, c := range once {
		switch prompt := string(c.Prompt); {
		case len(s.compared) == size:
			return s
		case drawn[prompt]:
		case c.Scored:
			drawn[prompt] = true
			s.compared = append(s.compared, c.Position)
		default:
			s.masked++
		}
	}
	return s
}

// unpredictable returns a source that nobody can predict: a trainer must not know what will be checked.
func unpredictable() *rand.Rand {
	var seed [32]byte
	_, _ = crypto.Read(seed[:]) // it never fails
	return rand.New(rand.NewChaCha8(seed))
}
