package judge

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/wire/chat"
)

// A FailureKind says why a judge gave no assessment.
type FailureKind string

// The kinds of failures.
const (
	Unanswered    FailureKind = "unanswered"
	Empty         FailureKind = "empty"
	Refused       FailureKind = "refused"
	Truncated     FailureKind = "truncated"
	Malformed     FailureKind = "malformed"
	OutOfRange    FailureKind = "out_of_range"
	Contradiction FailureKind = "contradiction"
)

// A FailureDoc says when a failure happens.
type FailureDoc struct {
	Kind FailureKind
	When string
}

// FailureKinds returns all kinds, with their documentation.
func FailureKinds() []FailureDoc {
	return []FailureDoc{
		{Unanswered, "The model could not be asked, or what came back is no chat completion."},
		{Empty, "The answer has no text."},
		{Refused, "The model or its provider refused to answer."},
		{Truncated, "The answer was cut off at its limit of tokens."},
		{Malformed, "The answer is not exactly the JSON object that was asked for."},
		{OutOfRange, "A number, a text or a list of the answer is outside its bounds."},
		{Contradiction, "On the graded scale: the verdict is not the one that the grade and the threshold make."},
	}
}

// A Failure is an answer without an assessment. It is never counted as a verdict.
type Failure struct {
	Kind   FailureKind
	Detail string
}

func (f *Failure) Error() string { return "the judge's answer is " + string(f.Kind) + ": " + f.Detail }

func failed(kind FailureKind, format string, args ...any) *Failure {
	const most = 500
	return &Failure{kind, clip(fmt.Sprintf(format, args...), most)}
}

// Read reads the assessment in a chat completion. Its error is a *Failure.
func (b *Instructions) Read(completion []byte) (Assessment, error) {
	var said struct {
		Grade    *float64 `json:"grade"`
		Verdict  *Verdict `json:"verdict"`
		Critique *string  `json:"critique"`
	}
	if err := read(completion, &said); err != nil {
		return Assessment{}, err
	}
	switch {
	case said.Grade == nil || said.Verdict == nil || said.Critique == nil:
		return Assessment{}, failed(Malformed, "grade, verdict and critique are not all there")
	case *said.Verdict != Pass && *said.Verdict != Fail:
		return Assessment{}, failed(Malformed, "the verdict %q is neither pass nor fail", *said.Verdict)
	case !(*said.Grade >= 0 && *said.Grade <= 1):
		return Assessment{}, failed(OutOfRange, "the grade %v is not from 0 to 1", *said.Grade)
	case b.Scale == Graded && *said.Verdict != b.verdict(*said.Grade):
		return Assessment{}, failed(
			Contradiction, "a grade of %v with a threshold of %v is no %s", *said.Grade, b.Threshold, *said.Verdict,
		)
	}
	// without a negative zero
	return Assessment{clip(*said.Critique, MostCritique), math.Abs(*said.Grade), *said.Verdict}, nil
}

// read decodes the JSON object in a completion. The object must be the whole text, except for white space and one
// Markdown fence around it, and must not have members that into does not have.
func read(completion []byte, into any) error {
	text, err := content(completion)
	if err != nil {
		return err
	}
	if text = unfenced(text); !strings.HasPrefix(text, "{") {
		return failed(Malformed, "it is no JSON object: %s", text)
	}
	if err := json.Unmarshal([]byte(text), into, json.RejectUnknownMembers(true)); err != nil {
		return failed(Malformed, "%v", err)
	}
	return nil
}

// content returns the text of a completion's first choice.
func content(completion []byte) (string, error) {
	var answer struct {
		Choices []struct {
			Message struct {
				Content chat.Content `json:"content"`
				Refusal *string      `json:"refusal"`
			} `json:"message"`
			FinishReason *string `json:"finish_reason"`
		} `json:"choices"`
		Error jsontext.Value `json:"error"`
	}
	if err := json.Unmarshal(completion, &answer); err != nil {
		return "", failed(Unanswered, "it is no chat completion: %v", err)
	}
	if len(answer.Choices) == 0 {
		return "", failed(Unanswered, "there is no choice; error: %s", answer.Error)
	}
	choice := &answer.Choices[0]
	finish, said := "", choice.Message.Content
	if choice.FinishReason != nil {
		finish = *choice.FinishReason
	}
	text, plain := said.Text()
	switch refusal := choice.Message.Refusal; {
	case refusal != nil && *refusal != "":
		return "", failed(Refused, "%s", *refusal)
	case finish == chat.ContentFilter:
		return "", failed(Refused, "the provider's filter stopped it")
	case finish == chat.Length:
		return "", failed(Truncated, "it ends with: %s", ending(text))
	case slices.ContainsFunc(said.Parts, func(p chat.Part) bool { return p.Type == chat.PartRefusal }):
		return "", failed(Refused, "a part of it is a refusal")
	case !plain:
		return "", failed(Malformed, "it has parts that are no text")
	case strings.TrimSpace(text) == "":
		return "", failed(Empty, "it ended with the reason %q", finish)
	}
	return text, nil
}

// ending returns the last bytes of a text.
func ending(text string) string {
	const most = 100
	return strings.ToValidUTF8(text[max(0, len(text)-most):], "")
}

var opening = regexp.MustCompile("^```[A-Za-z]*[ \t\r]*\n")

// unfenced removes the white space and the Markdown fence around a text.
func unfenced(text string) string {
	text = strings.TrimSpace(text)
	open := opening.FindString(text)
	inner, closed := strings.CutSuffix(strings.TrimPrefix(text, open), "```")
	if open == "" || !closed {
		return text
	}
	return strings.TrimSpace(inner)
}
