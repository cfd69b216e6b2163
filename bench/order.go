package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// An order is the bytes of a request. Each time it is sent, the model name and the key may differ.
type order struct {
	text           []byte
	keyAt, modelAt int
	senders        senders
}

// senders are the keys and model names of requests. A key belongs to one workspace, and so do names.
type senders struct {
	keys   []string // of one length
	models []string // of one length: names of models, as each key's workspace has them
	head   string   // what else stands in a request's head, with the ends of its lines
	paired bool     // key i may use only name i
	roams  bool     // every request has another key; otherwise a connection keeps its key, as clients do
}

func newOrder(path string, body func(model string) []byte, p senders) order {
	text := body(p.models[0])
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAccept: */*\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\n%sContent-Length: %d\r\n\r\n",
		path, p.keys[0], p.head, len(text))
	whole := append([]byte(head), text...)
	return order{
		text: whole, senders: p,
		keyAt:   bytes.Index(whole, []byte(p.keys[0])),
		modelAt: bytes.Index(whole, []byte(`"model":"`)) + len(`"model":"`),
	}
}

func (o *order) copy() []byte { return bytes.Clone(o.text) }

// address writes a sender and a name into a copy of the order, and tells which key it was. That of the request before
// it is key; none is -1.
func (o *order) address(request []byte, random *rand.Rand, key int) int {
	p := o.senders
	if len(p.keys) == 1 && len(p.models) == 1 {
		return 0
	}
	if key < 0 || p.roams {
		key = random.IntN(len(p.keys))
	}
	model := key
	if !p.paired {
		model = random.IntN(len(p.models))
	}
	copy(request[o.keyAt:], p.keys[key])
	copy(request[o.modelAt:], p.models[model])
	return key
}

const words = "A gateway reads the request, checks the key, holds money for it, finds the model that is meant, and passes the bytes on. "

// prose returns running text of that size.
func prose(size int) string { return strings.Repeat(words, size/len(words)+1)[:size] }

const turnSize = 4 << 10

// chat is the body of a conversation of about that size, in turns of a few kilobytes.
func chat(size int, stream bool) func(model string) []byte {
	return func(model string) []byte {
		var turns []string
		for left := size; left > 0; left -= turnSize {
			turns = append(turns, prose(min(left, turnSize)))
		}
		return conversation(model, stream, turns)
	}
}

// phrases are in other languages than English, and in English as it is printed.
var phrases = []string{
	"网关读取请求，检查密钥，为它预留资金，找到所指的模型，然后把字节传下去。",
	"Шлюз читает запрос, проверяет ключ, откладывает на него деньги и передаёт байты дальше. ",
	"It’s the gateway that reads the request — and “holds” the money for it… ",
	"La pasarela lee la petición, comprueba la clave y envía los bytes más allá. ",
}

// spoken is the body of a conversation of about that size in all of them.
func spoken(size int) func(model string) []byte {
	return func(model string) []byte {
		var turns []string
		for left := size; left > 0; left -= turnSize {
			phrase := phrases[len(turns)%len(phrases)]
			turns = append(turns, strings.Repeat(phrase, min(left, turnSize)/len(phrase)+1))
		}
		return conversation(model, false, turns)
	}
}

// quoted is the body of a conversation about a document of JSON: as text it is dense with escaped quotes and lines.
func quoted(size int) func(model string) []byte {
	return func(model string) []byte {
		var rows []map[string]any
		for length := 0; length < size; length += 175 { // which one row takes when it is escaped
			rows = append(rows, map[string]any{
				"id": len(rows), "name": "row \"" + strconv.Itoa(len(rows)) + "\"", "tags": []string{"a", "b", "c"},
				"note": "first line\nsecond line",
			})
		}
		text, _ := json.MarshalIndent(rows, "", "  ") // maps of texts and numbers
		return conversation(model, false, []string{string(text)})
	}
}

func conversation(model string, stream bool, turns []string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"model":%q,"temperature":0.7,"max_tokens":256,`, model)
	if stream {
		b.WriteString(`"stream":true,"stream_options":{"include_usage":true},`)
	}
	b.WriteString(`"messages":[{"role":"system","content":"You are a helpful assistant. Answer briefly and precisely."}`)
	for i, turn := range turns {
		text, _ := json.Marshal(turn) // any text can be written
		fmt.Fprintf(&b, `,{"role":%q,"content":%s}`, []string{"user", "assistant"}[i%2], text)
	}
	b.WriteString("]}")
	return b.Bytes()
}

func embedding(model string) []byte {
	return fmt.Appendf(nil, `{"model":%q,"input":%q,"encoding_format":"float"}`, model, prose(300))
}
