package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// secretKey is what callers authenticate with.
const secretKey = "provider-secret"

type provider struct {
	log      *log
	released context.Context // ends with POST /release
	ids      atomic.Int64
	calls    sync.Map // the signed ones that were given out as Gemini, by their ids and by what they say
}

func newProvider() http.Handler {
	released, release := context.WithCancel(context.Background())
	p := &provider{log: newLog(), released: released}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", p.infer(&openAI, readAsk, p.chat))
	mux.HandleFunc("POST /v1/embeddings", p.infer(&openAI, readAsk, p.embeddings))
	mux.HandleFunc("POST /v1/rerank", p.infer(&openAI, readRerank, p.rerank))
	mux.HandleFunc("POST /v1/responses", p.infer(&responsesWire, readResponses, p.respond))
	mux.HandleFunc("POST /anthropic/v1/messages", p.infer(&anthropicWire, readMessages, p.messages))
	mux.HandleFunc("POST /gemini/v1beta/models/{call...}", p.infer(&geminiWire, p.readGemini, p.gemini))
	mux.HandleFunc("POST /cohere/v2/rerank", p.infer(&cohereWire, readCohereRerank, p.cohereRerank))
	mux.HandleFunc("POST /cohere/v2/embed", p.infer(&cohereWire, readCohereEmbed, p.cohereEmbed))
	mux.HandleFunc("GET /v1/models", p.admit(&openAI, listModels))
	mux.HandleFunc("GET /v1/models/{id...}", p.admit(&openAI, getModel))
	mux.HandleFunc("GET /log", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(p.log.all())
	})
	mux.HandleFunc("POST /log/reset", func(w http.ResponseWriter, _ *http.Request) {
		p.log.reset()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /release", func(w http.ResponseWriter, _ *http.Request) {
		release()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("/", p.admit(&openAI, func(a *answer) {
		a.refuse(http.StatusNotFound, "", "", fmt.Sprintf("there is no %s %s", a.r.Method, a.r.URL.Path))
	}))
	return mux
}

// admit records a request and when its client leaves, and refuses a wrong key.
func (p *provider) admit(by *wire, then func(*answer)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		came := time.Now().UTC()
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
		header := r.Header.Clone()
		header.Set("Host", r.Host)
		a := &answer{w: w, r: r, wire: by, log: p.log, record: &record{
			At: came, Path: r.URL.Path, Header: header, Body: string(body),
		}}
		p.log.add(a.record)
		stop := context.AfterFunc(r.Context(), a.cancelled)
		defer func() {
			if stop() && r.Context().Err() != nil { // which may be seen here first
				a.cancelled()
			}
		}()
		w.Header().Set("X-Request-Id", p.id("provider"))
		switch {
		case err != nil:
			a.refuse(http.StatusBadRequest, "", "", "the body cannot be read: "+err.Error())
		case by.key(r.Header) != secretKey:
			a.refuse(by.unknown, "invalid_api_key", "", "the provider does not know this key")
		default:
			then(a)
		}
	}
}

// infer reads a request and its plan, and does what the plan wants before an answer.
func (p *provider) infer(by *wire, read func(*answer) error, then func(*answer)) http.HandlerFunc {
	return p.admit(by, func(a *answer) {
		if err := read(a); err != nil {
			why := &wrong{message: "the body is not what it should be: " + err.Error()}
			errors.As(err, &why)
			a.refuse(http.StatusBadRequest, why.code, why.parameter, why.message)
			return
		}
		plan, err := parsePlan(a.ask.Model)
		if err != nil {
			a.refuse(http.StatusBadRequest, "", "model", err.Error())
			return
		}
		if plan.name != "mock" && !strings.HasPrefix(plan.name, "mock/") && !strings.HasSuffix(plan.name, "-mock") {
			a.refuse(
				http.StatusNotFound, "model_not_found", "model", fmt.Sprintf("the provider has no model %q", plan.name),
			)
			return
		}
		if plan.failFirst > 0 && p.log.try(a.record.Body) > plan.failFirst {
			plan.heal()
		}
		a.plan = plan
		switch {
		case !a.pause(plan.latency) || plan.held && !a.await(p.released):
		case plan.status != 0:
			a.refuse(plan.status, "", "", fmt.Sprintf("the provider refuses with %d", plan.status))
		case plan.refuseStreamOptions && a.ask.StreamOptions != nil:
			a.refuse(
				http.StatusBadRequest, "unknown_parameter", "stream_options",
				"the provider does not know stream_options",
			)
		case a.strikes(atOnce):
		default:
			then(a)
		}
	})
}

func (p *provider) id(prefix string) string {
	return prefix + "-" + strconv.FormatInt(p.ids.Add(1), 10)
}

type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

var models = []model{
	{"mock", "model", 1_700_000_000, "provider"},
	{"mock/chat", "model", 1_700_000_000, "provider"},
	{"mock/embedding", "model", 1_700_000_000, "provider"},
}

func listModels(a *answer) { a.whole(map[string]any{"object": "list", "data": models}) }

func getModel(a *answer) {
	id := a.r.PathValue("id")
	at := slices.IndexFunc(models, func(m model) bool { return m.ID == id })
	if at < 0 {
		a.refuse(http.StatusNotFound, "model_not_found", "model", fmt.Sprintf("the provider has no model %q", id))
		return
	}
	a.whole(models[at])
}
