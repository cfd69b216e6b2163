package http1

import "sovereign/internal/net/fastpath"

// The layers above find these abilities by type assertion. A renamed method fails here, and not silently there.
var (
	_ fastpath.DirectWriter = (*reply)(nil)
	_ fastpath.TrySender    = (*reply)(nil)
	_ fastpath.ValueKeeper  = (*request)(nil)
	_ fastpath.PolledBody   = (*Body)(nil)
)
