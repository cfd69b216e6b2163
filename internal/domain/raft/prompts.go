package raft

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/reward"
	"sovereign/internal/store/artifact"
)

// A prompt is what a model is asked. Its id is the digest of its messages, and thus the order of prompts.
type prompt struct {
	ID       string           `json:"id"`
	Messages []jsontext.Value `json:"messages"`
}

// A data is the prompts of a round, as files. Those that are held out come first in the order of their ids, and are the
// first lines of both files: the split depends on nothing but the prompts.
type data struct {
	Prompts artifact.File `json:"prompts"`
	HeldOut artifact.File `json:"held_out"`
	Count   int64         `json:"count"`
	Held    int64         `json:"held"`
}

// Bounds of prompts.
const (
	maxPrompt    = 256 << 10 // bytes; longer ones are left out
	maxFile      = 64 << 20  // bytes of all prompts
	minHeld      = 8
	maxHeld      = 200
	minPrompts   = 2 * minHeld
	heldFraction = 5 // one in five
	maxExamples  = 32
)

// held is how many of so many prompts are held out.
func held(prompts int64) int64 { return min(max(prompts/heldFraction, minHeld), maxHeld) }

// prepare stores the prompts of a request. It returns some of them with the answers that the dataset has, as examples
// of what is to be scored.
func (s *Store) prepare(ctx context.Context, ws tenant.ID, in *Request) (d data, some []reward.ScoreItem, err error) {
	all, some, err := s.prompts(ctx, ws, in.DatasetID)
	if err != nil {
		return d, nil, err
	}
	if len(all) < minPrompts {
		return d, nil, fault.Invalid("datasetId", fmt.Sprintf(
			"has %d different prompts, and %d are needed: %d of them are held out",
			len(all), minPrompts, minHeld))
	}
	if in.PromptCount != 0 && in.PromptCount < minPrompts {
		return d, nil, fault.Invalid("promptCount", fmt.Sprintf("must be 0 for all, or at least %d: %d of them are held out",
			minPrompts, minHeld))
	}
	most := int64(maxPrompts)
	if in.PromptCount > 0 {
		most = in.PromptCount
	}
	all = all[:min(int64(len(all)), most)]
	d.Count, d.Held = int64(len(all)), held(int64(len(all)))
	if d.Count*in.SamplesPerPrompt > maxSamples {
		return d, nil, fault.Invalid("samplesPerPrompt", fmt.Sprintf(
			"times the %d prompts must be at most %d", d.Count, maxSamples))
	}
	if d.Prompts, err = s.write(ctx, ws, all); err != nil {
		return d, nil, err
	}
	d.HeldOut, err = s.write(ctx, ws, all[:d.Held])
	return d, some, err
}

// prompts reads the different prompts of a dataset, in the order of their ids.
func (s *Store) prompts(
	ctx context.Context, ws tenant.ID, datasetID string,
) (all []prompt, some []reward.ScoreItem, err error) {
	d, err := s.Datasets.Get(ctx, ws, datasetID)
	if err != nil {
		return nil, nil, err
	}
	known, size := map[string]bool{}, 0
	for line, err := range s.Datasets.Lines(ctx, ws, &d) {
		if err != nil {
			return nil, nil, err
		}
		p, answer, err := newPrompt(line.Line)
		if err != nil {
			return nil, nil, err
		}
		if p == nil || known[p.ID] {
			continue
		}
		if size += len(line.Line); size > maxFile {
			return nil, nil, fault.Invalid(
				"datasetId", fmt.Sprintf("has prompts of more than %d bytes together", maxFile),
			)
		}
		known[p.ID] = true
		if all = append(all, *p); len(some) < maxExamples {
			some = append(some, reward.ScoreItem{ID: p.ID, Messages: p.Messages, Completion: answer})
		}
	}
	slices.SortFunc(all, func(a, b prompt) int { return cmp.Compare(a.ID, b.ID) })
	return all, some, nil
}

// newPrompt returns an example without its last answer, and that answer as a text; nil, if nothing is before it.
func newPrompt(line []byte) (*prompt, jsontext.Value, error) {
	var example struct {
		Messages []jsontext.Value `json:"messages"`
	}
	if err := json.Unmarshal(line, &example); err != nil {
		return nil, nil, fmt.Errorf("read an example: %w", err)
	}
	last := len(example.Messages) - 1
	if last < 1 || len(line) > maxPrompt {
		return nil, nil, nil
	}
	p := &prompt{Messages: example.Messages[:last]}
	text, err := json.Marshal(p.Messages)
	if err != nil {
		return nil, nil, fmt.Errorf("write a prompt: %w", err)
	}
	sum := sha256.Sum256(text)
	p.ID = hex.EncodeToString(sum[:16])
	var answer struct {
		Content jsontext.Value `json:"content"`
	}
	if err := json.Unmarshal(example.Messages[last], &answer); err != nil || answer.Content.Kind() != '"' {
		answer.Content = jsontext.Value(`""`)
	}
	return p, answer.Content, nil
}

// write stores prompts, a line for each.
func (s *Store) write(ctx context.Context, ws tenant.ID, all []prompt) (artifact.File, error) {
	var text bytes.Buffer
	for i := range all {
		if err := writeLine(&text, all[i]); err != nil {
			return artifact.File{}, err
		}
	}
	return s.Artifacts.Add(ctx, ws, &text, 2*maxFile)
}

func writeLine(to io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write a line: %w", err)
	}
	_, err = to.Write(append(line, '\n'))
	return err
}

// A sample is what a model answered to a prompt.
type sample struct {
	*prompt
	at      int // the place of its prompt
	index   int // among those of its prompt
	content string
}

// maxContent bounds the bytes of a sample.
const maxContent = 512 << 10

// An invalid says what is wrong with the samples of a worker.
type invalid struct{ why string }

func (e *invalid) Error() string { return e.why }

func refuse(format string, args ...any) error { return &invalid{fmt.Sprintf(format, args...)} }

// read reads samples with their prompts. They are those that were asked for, each once and in order, or an error comes.
func read(prompts, samples io.Reader, perPrompt int) iter.Seq2[sample, error] {
	return func(yield func(sample, error) bool) {
		asked, given := lines(prompts), lines(samples)
		n := 0
		for at := 0; asked.Scan(); at++ {
			p := new(prompt)
			if err := json.Unmarshal(asked.Bytes(), p); err != nil {
				yield(sample{}, fmt.Errorf("read a prompt: %w", err))
				return
			}
			for index := range perPrompt {
				n++
				content, err := readSample(given, n, p.ID, index)
				if !yield(sample{p, at, index, content}, err) || err != nil {
					return
				}
			}
		}
		err := asked.Err()
		switch {
		case err != nil:
		case given.Scan():
			err = refuse("the file has more than the %d samples that were asked for", n)
		default:
			err = given.Err()
		}
		if err != nil {
			yield(sample{}, err)
		}
	}
}

func lines(from io.Reader) *bufio.Scanner {
	l := bufio.NewScanner(from)
	l.Buffer(make([]byte, 64<<10), 4*maxContent)
	return l
}

// readSample reads line n, which has to be this sample.
func readSample(from *bufio.Scanner, n int, promptID string, index int) (string, error) {
	if !from.Scan() {
		switch err := from.Err(); {
		case err == bufio.ErrTooLong: //nolint:errorlint // as the scanner returns it
			return "", refuse("line %d is longer than %d bytes", n, 4*maxContent)
		case err != nil:
			return "", err
		}
		return "", refuse("the file ends before line %d: sample %d of the prompt %s is missing", n, index, promptID)
	}
	var line struct {
		PromptID string  `json:"prompt_id"`
		Index    *int    `json:"index"`
		Content  *string `json:"content"`
	}
	if err := json.Unmarshal(from.Bytes(), &line); err != nil || line.Index == nil || line.Content == nil {
		return "", refuse("line %d is not a JSON object with prompt_id, index and content", n)
	}
	switch {
	case line.PromptID != promptID || *line.Index != index:
		return "", refuse("line %d is sample %d of the prompt %q, and sample %d of %s was asked for there", n, *line.Index,
			line.PromptID, index, promptID)
	case len(*line.Content) > maxContent:
		return "", refuse("line %d has more than %d bytes", n, maxContent)
	}
	return *line.Content, nil
}
