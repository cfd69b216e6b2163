package redact

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"
)

func TestPartsOfACredentialAreRedactedInTheOtherTexts(t *testing.T) {
	for _, sample := range Samples(rand.New(rand.NewPCG(7, 8))) {
		var e Exchange
		question := e.JSON([]byte(quoted(sample.Text())))
		var parts Exchange
		parts.remember([]byte(sample.Secret))
		for _, part := range parts.parts {
			answer := []byte(`{"content":` + quoted("It ends in "+string(part)+", I think.") + `,"n":12345678901234567890}`)
			clean := e.RedactFound(e.JSON(answer))
			if bytes.Contains(clean, part) && !bytes.Equal(question, []byte(quoted(sample.Text()))) {
				t.Errorf("%s: %s", sample.Rule, clean)
			}
			if !json.Valid(clean) {
				t.Errorf("%s: no JSON: %s", sample.Rule, clean)
			}
		}
	}
}

func TestWordsWithoutLettersAreNotRemembered(t *testing.T) {
	var e Exchange
	e.remember([]byte("12345678901234567890"))
	if doc := `{"n":12345678901234567890}`; string(e.RedactFound([]byte(doc))) != doc {
		t.Error("a number was replaced")
	}
}
