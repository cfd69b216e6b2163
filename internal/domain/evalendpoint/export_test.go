package evalendpoint

import "time"

// SetTimeout replaces the time until an answer must be whole.
func (c *Client) SetTimeout(d time.Duration) { c.timeout = d }
