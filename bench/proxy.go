package main

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// proxy passes everything on to one upstream and does nothing else: what a gateway of net/http costs at the least. It
// is made as fast as the standard library's own parts can be: connections are kept, buffers are used again, and a
// request may still be read while its answer is written, without which a fast upstream's streams are cut now and then.
func proxy(upstream *url.URL) http.Handler {
	const kept = 4096
	reverse := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		Transport: &http.Transport{
			DialContext:  (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			MaxIdleConns: 4 * kept, MaxIdleConnsPerHost: kept, IdleConnTimeout: 90 * time.Second,
			DisableCompression: true,
		},
		BufferPool: &buffers{},
		ErrorLog:   log.New(io.Discard, "", 0),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if http.NewResponseController(w).EnableFullDuplex() != nil {
			http.Error(w, "no full duplex", http.StatusInternalServerError)
			return
		}
		reverse.ServeHTTP(w, r)
	})
}

// buffers are copied through, and used again.
type buffers struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if kept, ok := b.pool.Get().(*[]byte); ok {
		return *kept
	}
	return make([]byte, 32<<10)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(p []byte) { b.pool.Put(&p) }

func serveProxy(ctx context.Context, address, upstream string) error {
	to, err := url.Parse("http://" + upstream)
	if err != nil {
		return err
	}
	server := &http.Server{Addr: address, Handler: proxy(to), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}
