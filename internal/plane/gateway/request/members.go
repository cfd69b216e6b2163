package request

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/plane/gateway/lenient"
	"sovereign/internal/text/token"
	"sovereign/internal/wire/embed"
	"sovereign/internal/wire/rerank"
)

// The functions of this file read one member of a body each. Its value is not null.

func readModel(q *Request, value []byte) error {
	if plain, ok := lenient.PlainString(value); ok && len(plain) > 0 && len(plain) <= maxModelName {
		q.Model = string(plain)
		return nil
	}
	if err := json.Unmarshal(value, &q.Model); err != nil || q.Model == "" || len(q.Model) > maxModelName {
		return fmt.Errorf("must be a text of 1 to %d characters", maxModelName)
	}
	return nil
}

func readFallbacks(q *Request, value []byte) error {
	if err := json.Unmarshal(value, &q.Fallbacks); err != nil || len(q.Fallbacks) > maxFallbacks {
		return fmt.Errorf("must be a list of at most %d model ids", maxFallbacks)
	}
	if q.Fallbacks == nil {
		q.Fallbacks = []string{}
	}
	return nil
}

func readStream(q *Request, value []byte) error {
	switch string(value) {
	case "true":
		q.Stream = true
	case "false":
	default:
		return errors.New("must be true or false")
	}
	return nil
}

func readStreamOptions(q *Request, value []byte) error {
	if string(value) == `{"include_usage":true}` || string(value) == `{"include_usage": true}` { // the usual spellings
		q.IncludeUsage = true
		return nil
	}
	var options struct {
		IncludeUsage *bool `json:"include_usage"`
	}
	if err := json.Unmarshal(value, &options); err != nil {
		return errors.New("must be an object whose include_usage is true or false")
	}
	q.IncludeUsage = options.IncludeUsage != nil && *options.IncludeUsage
	return nil
}

// readMaxTokens takes the larger of the two members that mean the same: the hold must cover the one that the provider
// obeys.
func readMaxTokens(q *Request, value []byte) error {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || n < 1 {
		return errors.New("must be a whole number of at least 1")
	}
	q.MaxTokens = max(q.MaxTokens, n)
	return nil
}

func readN(q *Request, value []byte) error {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || n < 1 || n > MaxChoices {
		return fmt.Errorf("must be a whole number from 1 to %d", MaxChoices)
	}
	q.Choices = n
	return nil
}

func readQuestion(q *Request) (err error) {
	q.Question, err = rerank.Decode(q.Body)
	return err
}

func readQuery(q *Request, value []byte) error {
	q.QueryTokens = token.Body(value).High
	return nil
}

// readEncoding notes how the vectors of an answer are to be written. Another encoding than OpenAI's is left to the
// provider.
func readEncoding(q *Request, value []byte) error {
	switch string(value) {
	case `"float"`:
		q.Encoding = embed.Float
	case `"base64"`:
		q.Encoding = embed.Base64
	default:
		q.ownEncoding = true
	}
	return nil
}

// readOwnEncoding notes that a provider's own member says how vectors are written.
func readOwnEncoding(q *Request, _ []byte) error {
	q.ownEncoding = true
	return nil
}

// defaultEncoding sets the encoding of a request that names none.
func defaultEncoding(q *Request) error {
	if q.ownEncoding {
		q.Encoding = ""
	} else {
		q.Encoding = cmp.Or(q.Encoding, embed.Float)
	}
	return nil
}

// readBackground refuses an answer that comes after the request has ended: it could not be charged.
func readBackground(_ *Request, value []byte) error {
	if string(value) == "false" {
		return nil
	}
	return errors.New("must be false: an answer is charged when it is given")
}

// stored notes a member that refers to data stored at the provider. Under the server's own key that could be another
// workspace's data.
func stored(member string) reader {
	return func(q *Request, _ []byte) error {
		q.Stored = member
		return nil
	}
}

// readStore notes a request to store the answer at the provider. Under the server's own key every workspace could read
// it.
func readStore(q *Request, value []byte) error {
	if string(value) == "true" {
		q.Stored = "store"
	}
	return nil
}

// readInput notes items that refer to data stored at the provider.
func readInput(q *Request, value []byte) error {
	decoder := jsontext.NewDecoder(
		bytes.NewReader(value), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true),
	)
	name := ""
	for {
		t, err := decoder.ReadToken()
		if err != nil {
			return nil //nolint:nilerr // the end, or what the provider will refuse
		}
		if name == "file_id" && t.Kind() == '"' || name == "type" && t.Kind() == '"' && t.String() == "item_reference" {
			q.Stored = "input"
		}
		name = ""
		if kind, length := decoder.StackIndex(decoder.StackDepth()); kind == '{' && length%2 == 1 && t.Kind() == '"' {
			name = t.String()
		}
	}
}

// priced notes a member that asks for something with a price of its own.
func priced(member string) reader {
	return func(q *Request, _ []byte) error {
		q.Priced = member
		return nil
	}
}

// readTier notes a service tier that is not the usual one.
func readTier(q *Request, value []byte) error {
	if tier := string(value); tier != `"auto"` && tier != `"default"` {
		q.Priced = "service_tier"
	}
	return nil
}

// readTools notes the first tool that the provider would run itself.
func readTools(q *Request, value []byte) error {
	var tools []struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(value, &tools); err != nil {
		return errors.New("must be a list of tools")
	}
	for i, t := range tools {
		if t.Type != "function" && t.Type != "custom" {
			q.Priced = fmt.Sprintf("tools[%d].type", i)
			return nil
		}
	}
	return nil
}

// refuseMember refuses a member that the product's own requests never have.
func refuseMember(*Request, []byte) error {
	return errors.New("must not be there: the product asks one model, for a whole answer")
}

// checkInternal refuses a request of the product whose body contradicts its other fields.
func checkInternal(q *Request) error {
	switch i := q.Internal; {
	case i.Workspace == "" || i.Origin == "":
		return errors.New("a completion of the product's own has no workspace or no origin")
	case q.Model != i.Model:
		return fault.Invalid("model", fmt.Sprintf("must be %q", i.Model))
	case i.MaxTokens < 0:
		return fault.Invalid("max_tokens", "must not be negative")
	case q.MaxTokens > 0:
		return fault.Invalid("max_tokens", "must not be there: the maximum is named for the model's provider")
	default:
		return nil
	}
}
