// Command stripe stands in for Stripe: it makes payment pages, and sends signed events when somebody pays at one. It
// prints its address, and ends with its standard input.
package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"
)

// A checkout is a payment page: what it was asked for.
type checkout struct {
	id   string
	form url.Values
}

func (c *checkout) amount() string { return c.form.Get("line_items[0][price_data][unit_amount]") }

// event is what Stripe sends of it.
func (c *checkout) event(n int) []byte {
	amount, _ := strconv.Atoi(c.amount())
	text, _ := json.Marshal(map[string]any{
		"id": fmt.Sprint("evt_", n), "type": "checkout.session.completed",
		"data": map[string]any{"object": map[string]any{
			"id": c.id, "client_reference_id": c.form.Get("client_reference_id"), "amount_total": amount,
			"currency":       c.form.Get("line_items[0][price_data][currency]"),
			"payment_status": "paid", "payment_intent": "pi_" + c.id,
		}},
	})
	return text
}

// A stripe holds the payment pages by the Idempotency-Key that they were asked with.
type stripe struct {
	address, key, secret string
	mu                   sync.Mutex
	made                 map[string]*checkout
	events               int
}

// open makes a payment page. The same key answers the same page.
func (s *stripe) open(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	switch err := r.ParseForm(); {
	case err != nil || r.PostForm.Get("mode") != "payment" || r.PostForm.Get("client_reference_id") == "" || key == "":
		http.Error(w, `{"error":{"message":"a parameter is missing"}}`, http.StatusBadRequest)
		return
	case r.Header.Get("Authorization") != "Bearer "+s.key:
		http.Error(w, `{"error":{"message":"no such key"}}`, http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.made[key]
	if c == nil {
		c = &checkout{id: fmt.Sprint("cs_test_", len(s.made)), form: r.PostForm}
		s.made[key] = c
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"id": c.id, "url": s.address + "/pay/" + c.id})
}

func (s *stripe) find(id string) *checkout {
	for _, c := range s.made {
		if c.id == id {
			return c
		}
	}
	return nil
}

var page = template.Must(template.New("").Parse(`<!doctype html><html lang="en"><title>Pay</title>
<h1>Pay {{.}} cents</h1>
<form method="post"><button>Pay</button></form>`))

func (s *stripe) show(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.find(r.PathValue("id"))
	if c == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html")
	_ = page.Execute(w, c.amount())
}

// pay sends a forged event, which must be refused, then the signed one twice, as Stripe may, and leads back.
func (s *stripe) pay(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.find(r.PathValue("id"))
	if c == nil {
		http.NotFound(w, r)
		return
	}
	back, err := url.Parse(c.form.Get("success_url"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	s.events++
	body, hook := c.event(s.events), back.Scheme+"://"+back.Host+"/dashboard/webhooks/stripe"
	for _, try := range []struct {
		secret string
		status int
	}{{"whsec_of_another", http.StatusBadRequest}, {s.secret, http.StatusOK}, {s.secret, http.StatusOK}} {
		if status, answer := send(hook, try.secret, body); status != try.status {
			text := fmt.Sprintf("an event was answered %d, not %d: %s", status, try.status, answer)
			http.Error(w, text, http.StatusBadGateway)
			return
		}
	}
	http.Redirect(w, r, back.String(), http.StatusSeeOther)
}

// send sends an event with its signature, and returns what was answered.
func send(hook, secret string, body []byte) (status int, answer string) {
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte(stamp + "." + string(body)))
	request, err := http.NewRequest(http.MethodPost, hook, bytes.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Stripe-Signature", "t="+stamp+",v1="+hex.EncodeToString(mac.Sum(nil)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	s := &stripe{
		address: "http://" + listener.Addr().String(), key: os.Getenv("STRIPE_KEY"), secret: os.Getenv("STRIPE_SECRET"),
		made: map[string]*checkout{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/checkout/sessions", s.open)
	mux.HandleFunc("GET /pay/{id}", s.show)
	mux.HandleFunc("POST /pay/{id}", s.pay)
	fmt.Println(s.address)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	log.Fatal((&http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}).Serve(listener))
}
