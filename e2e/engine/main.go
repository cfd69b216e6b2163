// Command engine is an engine for tests of dedicated endpoints: it serves one model by OpenAI's API, answers every chat with
// the same words, and writes down how long it lived. It ends when it is told to, and when the test that wants it is gone.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// words is every answer.
var words = []string{"The ", "engine ", "answers ", "this."}

func main() {
	host := flag.String("host", "127.0.0.1", "where to listen")
	port := flag.Int("port", 0, "and the port")
	name := flag.String("name", "", "the model")
	lives := flag.String("lives", "", "folder for a file that says when it was ready, and when it last was alive")
	test := flag.Int("test", 0, "the process that wants it")
	load := flag.Duration("load", 0, "how long it loads")
	flag.Parse()
	if strings.HasSuffix(*name, "never") {
		fmt.Println("out of memory")
		os.Exit(3)
	}
	time.Sleep(*load)
	listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", *host, *port))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go live(*lives, *test)
	http.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { chat(w, r, *name) })
	server := &http.Server{ReadHeaderTimeout: time.Minute}
	fmt.Println(server.Serve(listener))
}

// live writes the process, when it was ready, and again and again when it was last alive.
func live(folder string, test int) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	ready, tick := time.Now(), time.NewTicker(20*time.Millisecond)
	path := filepath.Join(folder, fmt.Sprintf("%d-%d", os.Getpid(), ready.UnixMicro()))
	for {
		text := fmt.Sprintf("%d %d %d\n", os.Getpid(), ready.UnixMicro(), time.Now().UnixMicro())
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		select {
		case <-told:
			os.Exit(0)
		case <-tick.C:
		}
		if syscall.Kill(test, 0) != nil {
			os.Exit(0)
		}
	}
}

func chat(w http.ResponseWriter, r *http.Request, name string) {
	var in struct {
		Model    string
		Stream   bool
		Messages []struct{ Content string }
		Options  struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Model != name {
		http.Error(w, `{"error":{"message":"no such model","type":"invalid_request_error"}}`, http.StatusNotFound)
		return
	}
	usage := fmt.Sprintf(`{"prompt_tokens":7,"completion_tokens":%d,"total_tokens":%d}`, len(words), 7+len(words))
	if !in.Stream {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":"c","object":"chat.completion","created":1,"model":%q,"choices":[{"index":0,"message":`+
			`{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":%s}`, name, strings.Join(words, ""), usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(delta, end, usage string) {
		_, _ = fmt.Fprintf(w, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":%q,"choices":[{"index":0,`+
			`"delta":%s,"finish_reason":%s}],"usage":%s}`+"\n\n", name, delta, end, usage)
		w.(http.Flusher).Flush()
	}
	for _, word := range words {
		send(fmt.Sprintf(`{"role":"assistant","content":%q}`, word), "null", "null")
		time.Sleep(5 * time.Millisecond)
	}
	send("{}", `"stop"`, "null")
	_, _ = fmt.Fprintf(w, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":%q,"choices":[],"usage":%s}`+
		"\n\ndata: [DONE]\n\n", name, usage)
}
