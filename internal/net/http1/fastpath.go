package http1

import "sovereign/internal/net/fastpath"

// The layers above find these abilities by type assertion. A renamed method fails here, and not silently there.
var (
	_ fastpath.DirectWriter = (*responseWriter)(nil)
	_ fastpath.TrySender    = (*responseWriter)(nil)
	_ fastpath.ValueKeeper  = (*handlerRequest)(nil)
	_ fastpath.PolledBody   = (*Body)(nil)
	_ fastpath.PacedBody    = (*requestBody)(nil)
)
