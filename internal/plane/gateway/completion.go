package gateway

import (
	"bytes"

	"sovereign/internal/plane/infer"
)

// A completion is a request of the product itself, and its answer.
type completion struct {
	request *infer.Request
	left    func() error // returns an error when the asking context has ended
	held    reservation  // for the bytes of the request and of the answer
	body    []byte       // of the whole answer
	answer  *infer.Answer
	err     error // why an answer that arrived was not kept
}

// take copies a whole answer, so that the provider's connection can serve another request while the answer is kept. It
// returns false if the budget of buffered bytes is exhausted.
func (c *completion) take(body []byte) bool {
	if !c.held.take(int64(len(body))) {
		return false
	}
	c.body = bytes.Clone(body)
	return true
}
