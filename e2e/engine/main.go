// Command engine is an engine for tests of dedicated endpoints: it serves one model by OpenAI's API, answers every chat
// with the same words, and writes down how long it lived. It ends when it is told to, and when the test that wants it
// is gone.
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
	written, err := openDiary(*lives)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go written.keep(*test)
	http.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { chat(w, r, *name) })
	server := &http.Server{ReadHeaderTimeout: time.Minute}
	fmt.Println(server.Serve(listener))
}

// A diary says when the engine was ready, and when it was last alive. It is whole at every moment.
type diary struct {
	file  *os.File
	ready int64
}

func openDiary(folder string) (*diary, error) {
	d := &diary{ready: time.Now().UnixMicro()}
	var err error
	if d.file, err = os.Create(filepath.Join(folder, fmt.Sprintf("%d-%d", os.Getpid(), d.ready))); err != nil {
		return nil, err
	}
	return d, d.write()
}

// write writes the process, when it was ready, and the time: always as many bytes.
func (d *diary) write() error {
	_, err := d.file.WriteAt(fmt.Appendf(nil, "%10d %20d %20d\n", os.Getpid(), d.ready, time.Now().UnixMicro()), 0)
	return err
}

// keep writes again and again, until the engine is told to end, or nobody wants it.
func (d *diary) keep(test int) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case <-told:
			_ = d.write()
			os.Exit(0)
		case <-tick.C:
		}
		if err := d.write(); err != nil || syscall.Kill(test, 0) != nil {
			fmt.Println("nobody wants this engine any more", err)
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
			`{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":%s}`,
			name, strings.Join(words, ""), usage)
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
