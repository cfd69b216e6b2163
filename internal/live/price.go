package live

import (
	"github.com/go-json-experiment/json"

	"sovereign/internal/base/money"
)

// Usage is the usage of a request as the provider reports it, or as it was estimated. Cached, Written and AudioInput
// are disjoint parts of Input; Reasoning and AudioOutput are disjoint parts of Output. GPUSeconds are of things that
// run for a workspace by the second; no request to a model uses them.
type Usage struct {
	Input       int64 `json:"input"`
	Cached      int64 `json:"cached"`  // read from the provider's cache
	Written     int64 `json:"written"` // written into the provider's cache
	AudioInput  int64 `json:"audio_input"`
	Output      int64 `json:"output"`
	Reasoning   int64 `json:"reasoning"`
	AudioOutput int64 `json:"audio_output"`
	Searches    int64 `json:"searches"` // of rerankers that charge per search
	GPUSeconds  int64 `json:"gpu_seconds,omitzero"`
}

// Rates are the prices of each kind of token. The usage row of every request stores a copy.
type Rates struct {
	Input        money.Rate `json:"input_per_mtok_usd"`
	CachedInput  money.Rate `json:"cached_input_per_mtok_usd"`
	WrittenInput money.Rate `json:"written_input_per_mtok_usd" doc:"Input that the provider writes into its cache"`
	AudioInput   money.Rate `json:"audio_input_per_mtok_usd"`
	Output       money.Rate `json:"output_per_mtok_usd"`
	Reasoning    money.Rate `json:"reasoning_per_mtok_usd"`
	AudioOutput  money.Rate `json:"audio_output_per_mtok_usd"`
	Search       money.Rate `json:"search_per_million_usd" doc:"A million searches of a reranker that is paid for by the search"`
	GPUSecond    money.Rate `json:"gpu_second_per_million_usd,omitzero" doc:"A million seconds of a GPU"`
}

// Flat returns the rates of a model with one price for input and one for output.
func Flat(input, output money.Rate) Rates {
	return Rates{
		Input: input, CachedInput: input, WrittenInput: input, AudioInput: input, Output: output, Reasoning: output,
		AudioOutput: output,
	}
}

// ReadRates decodes rates from JSON. A kind of token without a rate costs as much as input or output.
func ReadRates(data []byte) (Rates, error) {
	var base struct {
		Input  money.Rate `json:"input_per_mtok_usd"`
		Output money.Rate `json:"output_per_mtok_usd"`
	}
	if err := json.Unmarshal(data, &base); err != nil {
		return Rates{}, err
	}
	all := Flat(base.Input, base.Output)
	err := json.Unmarshal(data, &all)
	return all, err
}

// Of returns the cost of u.
func (r Rates) Of(u Usage) money.Nano {
	var t money.Tally
	fresh, output := max(u.Input, 0), max(u.Output, 0)
	part := func(of *int64, n int64, at money.Rate) {
		n = min(max(n, 0), *of)
		*of -= n
		t.Add(n, at)
	}
	part(&fresh, u.Cached, r.CachedInput)
	part(&fresh, u.Written, r.WrittenInput)
	part(&fresh, u.AudioInput, r.AudioInput)
	part(&output, u.Reasoning, r.Reasoning)
	part(&output, u.AudioOutput, r.AudioOutput)
	t.Add(fresh, r.Input)
	t.Add(output, r.Output)
	t.Add(u.Searches, r.Search)
	t.Add(u.GPUSeconds, r.GPUSecond)
	return t.Cost()
}

// worst returns the highest possible cost of these numbers of tokens and searches.
func (r Rates) worst(input, output, searches int64) money.Nano {
	var t money.Tally
	t.Add(input, max(r.Input, r.CachedInput, r.WrittenInput, r.AudioInput))
	t.Add(output, max(r.Output, r.Reasoning, r.AudioOutput))
	t.Add(searches, r.Search)
	return t.Cost()
}

// A Tier holds the rates of requests with more than Over input tokens.
type Tier struct {
	Over int64 `json:"over_input_tokens"`
	Rates
}

// A Price holds the rates of a model and of its tiers, in increasing order. A tier applies to all tokens of a request
// that reaches it.
type Price struct {
	Rates
	Tiers []Tier `json:"tiers,omitempty"`
}

// At returns the rates of a request with this many input tokens.
func (p Price) At(input int64) Rates {
	rates := p.Rates
	for _, t := range p.Tiers {
		if input > t.Over {
			rates = t.Rates
		}
	}
	return rates
}

// Worst returns the highest possible cost of a request with at most these numbers of tokens and searches.
func (p Price) Worst(input, output, searches int64) money.Nano {
	worst := p.worst(input, output, searches)
	for _, t := range p.Tiers {
		if input > t.Over {
			worst = max(worst, t.worst(input, output, searches))
		}
	}
	return worst
}

// Share returns a price multiplied by millionths/1,000,000, each rate rounded up.
func (p Price) Share(millionths int64) Price {
	share := Price{Rates: p.share(millionths)}
	for _, t := range p.Tiers {
		share.Tiers = append(share.Tiers, Tier{Over: t.Over, Rates: t.share(millionths)})
	}
	return share
}

func (r Rates) share(millionths int64) Rates {
	for _, rate := range []*money.Rate{
		&r.Input, &r.CachedInput, &r.WrittenInput, &r.AudioInput, &r.Output, &r.Reasoning, &r.AudioOutput, &r.Search,
		&r.GPUSecond,
	} {
		var t money.Tally
		t.Add(millionths, *rate) // both are per million: the sum is a rate again
		*rate = money.Rate(t.Cost())
	}
	return r
}
