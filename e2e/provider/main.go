// Command provider stands for paid providers of models, each with its own wire, in a process of its own, for black-box
// tests of a gateway. Its key is provider-secret. Its first line on standard output is its address, as
// http://127.0.0.1:4711.
//
// As OpenAI it serves POST /v1/chat/completions, /v1/responses, /v1/embeddings and /v1/rerank (in the shape of Jina and
// vLLM), GET /v1/models and GET /v1/models/{id}; as Anthropic POST /anthropic/v1/messages; as Google's Gemini POST
// /gemini/v1beta/models/{model}:generateContent, :streamGenerateContent?alt=sse and :batchEmbedContents; as Cohere POST
// /cohere/v2/rerank and /cohere/v2/embed. Each wants its key where its vendor does, and refuses in its vendor's words.
//
// Requests in other words than OpenAI's chat are read with the vendors' own types: what they do not give back as it was
// sent is a 400 that names it, and so is what the vendors' own rules forbid. Signatures must be those that it gave out.
//
// How a request is answered stands in the request's model, which is a name and a query: mock?chunks=20&usage=none. The
// name is "mock", starts with "mock/" or ends with "-mock"; the flag -h lists the parameters.
//
// A token is a word: what stands between white space. The input is the text of the messages or of the embedded inputs,
// the output is the text, the reasoning, and the names and arguments of tool calls, of all choices together.
//
// POST /release lets every model answer that is held, now and from then on.
//
// GET /log answers every request that came, oldest first, as a JSON array of {at, path, header, body, status, finished,
// cancelled_at, chunks_sent}; POST /log/reset forgets them. It keeps the last 10,000, and of bodies at most 64 MiB.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"time"
)

func main() {
	flags := flag.NewFlagSet("provider", flag.ExitOnError)
	listen := flags.String("listen", "127.0.0.1:0", "where to serve; port 0 for any free one")
	flags.Usage = func() { help(flags) }
	_ = flags.Parse(os.Args[1:])
	_, _ = fmt.Fprintf(os.Stderr, "provider: %v\n", serve(*listen, os.Stdout))
	os.Exit(1)
}

// serve serves until it fails, and says why.
func serve(address string, out io.Writer) error {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	if _, err := fmt.Fprintf(out, "http://%s\n", listener.Addr()); err != nil {
		return fmt.Errorf("print the address: %w", err)
	}
	server := &http.Server{Handler: newProvider(), ReadHeaderTimeout: time.Minute}
	return fmt.Errorf("serve on %s: %w", address, server.Serve(listener))
}

func help(flags *flag.FlagSet) {
	w := flags.Output()
	_, _ = fmt.Fprintln(w, "provider stands for a paid provider of models, to callers with the key provider-secret.")
	flags.PrintDefaults()
	_, _ = fmt.Fprintln(w, "\nParameters of a request's model, as in mock?chunks=20&chunk_delay=5ms:")
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		_, _ = fmt.Fprintf(w, "  %-22s %s\n", name, parameters[name].help)
	}
}
