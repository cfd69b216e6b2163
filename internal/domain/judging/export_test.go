package judging

import "sovereign/internal/grade/judge"

// SetParse replaces what parses a judge's answer.
func (c *Client) SetParse(parse func(*judge.Instructions, []byte) (judge.Assessment, error)) {
	c.parse = parse
}
