package gateway

import (
	"context"
	"net/http"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/net/fastpath"
	"sovereign/internal/plane/edge"
	"sovereign/internal/plane/gateway/request"
)

// ServeChat answers POST /v1/chat/completions.
func (g *Gateway) ServeChat(w http.ResponseWriter, r *http.Request) error {
	return g.serveHTTP(request.Chat, w, r)
}

// ServeEmbeddings answers POST /v1/embeddings.
func (g *Gateway) ServeEmbeddings(w http.ResponseWriter, r *http.Request) error {
	return g.serveHTTP(request.Embeddings, w, r)
}

// ServeRerank answers POST /v1/rerank.
func (g *Gateway) ServeRerank(w http.ResponseWriter, r *http.Request) error {
	return g.serveHTTP(request.Rerank, w, r)
}

// ServeRerankV2 answers POST /v2/rerank.
func (g *Gateway) ServeRerankV2(w http.ResponseWriter, r *http.Request) error {
	return g.serveHTTP(request.RerankV2, w, r)
}

// ServeResponses answers POST /v1/responses.
func (g *Gateway) ServeResponses(w http.ResponseWriter, r *http.Request) error {
	return g.serveHTTP(request.Responses, w, r)
}

// An httpRequest is a request that came by HTTP, in one allocation.
type httpRequest struct {
	request.Request
	annotations request.Annotations
	writer      httpWriter
}

// serveHTTP reads a request and serves it. The body is read to its end before the answer begins, so that net/http
// notices a caller that disconnects.
func (g *Gateway) serveHTTP(e *request.Endpoint, w http.ResponseWriter, r *http.Request) error {
	edge.SkipAccessLog(r.Context())
	if err := request.CheckHeaders(r.Header); err != nil {
		return err
	}
	caller := edge.Caller(r.Context())
	pass, err := g.Meter.Enter(&caller, time.Now())
	if err != nil {
		pass.Show(w.Header(), time.Now())
		return err
	}
	defer pass.Leave()
	cached := edge.FirstValue(r.Header, "X-Service-Cache")
	if err := g.checkFunds(r.Context(), caller.Workspace, cached); err != nil {
		return err
	}
	body, err := g.Bounds.Read(r, g.Bounds.Body.Load())
	if err != nil {
		return err
	}
	defer body.Release()
	h := &httpRequest{annotations: request.ReadAnnotations(r.Header), writer: httpWriter{w}}
	h.Request = request.Request{
		Endpoint: e, Caller: caller, ID: edge.RequestID(r.Context()), Body: body.Bytes, BodyRef: body, Pass: pass,
		Grant: edge.Grant(r.Context()), Cache: cached, Annotations: &h.annotations,
	}
	err = g.Serve(r.Context(), &h.Request, &h.writer)
	if err != nil {
		h.Pass.Show(w.Header(), time.Now())
	}
	return err
}

// checkFunds refuses, before the body is read, what no body could make affordable: the wallet has nothing free, no
// model costs this workspace nothing, and no answer can come from the cache. (Only what was paid for is cached.)
func (g *Gateway) checkFunds(ctx context.Context, ws tenant.ID, cached string) error {
	if g.Till.Free(ws, "") > 0 || g.models(g.Fleet()).HasFree(ws, g.settings.Load().OwnKeyFee > 0) {
		return nil
	}
	free, spent, err := g.Till.Look(ctx, ws)
	if err != nil || free > 0 {
		return err
	}
	if on := cached == "on" || cached == "" && g.Workspaces.Of(ws).Cache; on && spent > 0 {
		return nil
	}
	return fault.InsufficientBalance.New("the wallet has $%s free", free)
}

// httpWriter is a Writer on a http.ResponseWriter, which flushes if it can.
type httpWriter struct{ http.ResponseWriter }

var (
	_ Writer                = (*httpWriter)(nil)
	_ fastpath.DirectWriter = (*httpWriter)(nil)
	_ fastpath.TrySender    = (*httpWriter)(nil)
)

// Send implements Writer.
func (w *httpWriter) Send(p []byte) error { return edge.Send(w.ResponseWriter, p) }

// End implements Writer.
func (w *httpWriter) End(p []byte) error { return edge.End(w.ResponseWriter, p) }

// TrySend implements fastpath.TrySender.
func (w *httpWriter) TrySend() func(now time.Time, p []byte) bool {
	return edge.TrySend(w.ResponseWriter)
}
