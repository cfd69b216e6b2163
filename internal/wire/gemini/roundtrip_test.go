package gemini_test

import (
	"encoding/base64"
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genai"
	"pgregory.net/rapid"

	"sovereign/internal/wire/chat"
)

var (
	words      = rapid.StringMatching(`[a-zA-ZäöüßЖ中文🎈"\\{}<>& \n]{1,12}`)
	names      = rapid.StringMatching(`[a-z_][a-z0-9_]{0,8}`)
	data       = rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 12), base64.StdEncoding.EncodeToString)
	signatures = rapid.OneOf(rapid.Just(""), data)
	arguments  = rapid.Map(rapid.MapOfN(words, rapid.OneOf(words.AsAny(), rapid.Int32().AsAny(), rapid.Bool().AsAny()), 0, 3), canonical[map[string]any])
)

func canonical[T any](v T) string {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	return string(text)
}

// part draws a content part of a user, and its meaning.
func part(t *rapid.T) (chat.Part, string) {
	bytes := data.Draw(t, "data")
	switch rapid.IntRange(0, 4).Draw(t, "part") {
	case 0:
		format := rapid.SampledFrom([]string{"wav", "mp3"}).Draw(t, "format")
		return chat.Part{Type: chat.PartAudio, InputAudio: &chat.InputAudio{Data: bytes, Format: format}}, "user data audio/" + format + " " + bytes
	case 1:
		return chat.Part{Type: chat.PartImage, ImageURL: &chat.ImageURL{URL: "data:image/webp;base64," + bytes, Detail: "high"}}, "user data image/webp " + bytes + " MEDIA_RESOLUTION_HIGH"
	case 2:
		return chat.Part{Type: chat.PartFile, File: &chat.File{FileData: "data:application/pdf;base64," + bytes}}, "user data application/pdf " + bytes
	case 3:
		return chat.Part{Type: chat.PartImage, ImageURL: &chat.ImageURL{URL: "https://example.com/" + bytes + ".png"}}, "user file image/png https://example.com/" + bytes + ".png"
	default:
		text := words.Draw(t, "text")
		return chat.Part{Type: chat.PartText, Text: text}, "user text " + text
	}
}

// conversation draws messages, and their meanings in order.
func conversation(t *rapid.T) (messages []chat.Message, meaning []string) {
	for range rapid.IntRange(0, 2).Draw(t, "instructions") {
		text := words.Draw(t, "instruction")
		role := rapid.SampledFrom([]string{chat.RoleSystem, chat.RoleDeveloper}).Draw(t, "role")
		messages, meaning = append(messages, chat.Message{Role: role, Content: chat.TextContent(text)}), append(meaning, "system text "+text)
	}
	for turn := range rapid.IntRange(1, 4).Draw(t, "turns") {
		question := chat.Message{Role: chat.RoleUser}
		for range rapid.IntRange(1, 3).Draw(t, "parts") {
			p, means := part(t)
			question.Content.Parts, meaning = append(question.Content.Parts, p), append(meaning, means)
		}
		messages = append(messages, question)
		if rapid.Bool().Draw(t, "answered") {
			more, means := answer(t, turn)
			messages, meaning = append(messages, more...), append(meaning, means...)
		}
	}
	return messages, meaning
}

// answer draws an assistant message with the results of its calls.
func answer(t *rapid.T, turn int) (messages []chat.Message, meaning []string) {
	m := chat.Message{Role: chat.RoleAssistant}
	if rapid.Bool().Draw(t, "thinks") {
		thought := words.Draw(t, "thought")
		m.ReasoningContent, meaning = &thought, append(meaning, "model thought "+thought)
	}
	if rapid.Bool().Draw(t, "speaks") {
		text, signature := words.Draw(t, "text"), signatures.Draw(t, "signature")
		m.Content, m.ExtraContent = chat.TextContent(text), chat.SignatureContent(signature)
		meaning = append(meaning, strings.TrimSpace("model text "+text+" "+signature))
		if signature == "" {
			meaning[len(meaning)-1] = "model text " + text
		}
	}
	results := []chat.Message{}
	means := []string{}
	for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
		id, name, args, signature := fmt.Sprintf("call_%d_%d", turn, i), names.Draw(t, "name"), arguments.Draw(t, "args"), signatures.Draw(t, "signature")
		m.ToolCalls = append(m.ToolCalls, chat.ToolCall{ID: id, Type: "function", Function: chat.FunctionCall{Name: name, Arguments: args}, ExtraContent: chat.SignatureContent(signature)})
		if i == 0 && signature == "" {
			signature = skipSignature
		}
		meaning = append(meaning, fmt.Sprintf("model call %s %s %s %s", id, name, args, signature))
		text := rapid.OneOf(words, arguments).Draw(t, "result")
		want := text
		if !strings.HasPrefix(text, "{") || !jsontext.Value(text).IsValid() {
			want = canonical(map[string]string{"output": text})
		}
		results = append(results, chat.Message{Role: chat.RoleTool, ToolCallID: id, Content: chat.TextContent(text)})
		means = append(means, fmt.Sprintf("result %s %s %s", id, name, canonicalText(want)))
	}
	return append([]chat.Message{m}, results...), append(meaning, means...)
}

func canonicalText(text string) string {
	var v any
	if err := stdjson.Unmarshal([]byte(text), &v); err != nil {
		panic(err)
	}
	return canonical(v)
}

// means returns the meanings of a translated request.
func (r *generateRequest) means() (meaning []string) {
	if r.SystemInstruction != nil {
		for _, p := range r.SystemInstruction.Parts {
			meaning = append(meaning, "system text "+p.Text)
		}
	}
	for _, c := range r.Contents {
		for _, p := range c.Parts {
			meaning = append(meaning, meansOf(c.Role, p))
		}
	}
	return meaning
}

func meansOf(role string, p *genai.Part) string {
	signature := base64.StdEncoding.EncodeToString(p.ThoughtSignature)
	switch {
	case p.FunctionCall != nil:
		if p.FunctionCall.Args == nil {
			p.FunctionCall.Args = map[string]any{}
		}
		return fmt.Sprintf("%s call %s %s %s %s", role, p.FunctionCall.ID, p.FunctionCall.Name, canonical(p.FunctionCall.Args), signature)
	case p.FunctionResponse != nil:
		return fmt.Sprintf("result %s %s %s", p.FunctionResponse.ID, p.FunctionResponse.Name, canonical(p.FunctionResponse.Response))
	case p.InlineData != nil:
		text := role + " data " + p.InlineData.MIMEType + " " + base64.StdEncoding.EncodeToString(p.InlineData.Data)
		if p.MediaResolution != nil {
			text += " " + string(p.MediaResolution.Level)
		}
		return text
	case p.FileData != nil:
		return role + " file " + p.FileData.MIMEType + " " + p.FileData.FileURI
	case p.Thought:
		return role + " thought " + p.Text
	case signature != "":
		return role + " text " + p.Text + " " + signature
	default:
		return role + " text " + p.Text
	}
}

func TestAConversationKeepsItsContent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		messages, meaning := conversation(t)
		r := translate(t, now, encode(t, &chat.Request{Model: "m", Messages: messages}))
		if d := cmp.Diff(meaning, r.means()); d != "" {
			t.Fatalf("%s", d)
		}
		// Speakers take turns; all results are together, right after their calls.
		kind := func(c *genai.Content) string {
			if c.Parts[0].FunctionResponse != nil {
				return "results"
			}
			return c.Role
		}
		for i, c := range r.Contents {
			if i > 0 && kind(c) == kind(r.Contents[i-1]) {
				t.Fatalf("turn %d is of the same speaker as the one before", i)
			}
			called := func(p *genai.Part) bool { return p.FunctionCall != nil }
			if slices.ContainsFunc(c.Parts, called) && (i+1 == len(r.Contents) || kind(r.Contents[i+1]) != "results") {
				t.Fatalf("the results of turn %d do not follow", i)
			}
		}
	})
}

// anyParts draws the parts of an answer, in any order. Adjacent parts differ in kind, or the first is signed: otherwise
// they would be one part that a stream has split.
func anyParts(t *rapid.T) (parts []*genai.Part) {
	sign := func() []byte {
		signature, err := base64.StdEncoding.DecodeString(signatures.Draw(t, "signature"))
		if err != nil || len(signature) == 0 {
			return nil
		}
		return signature
	}
	calls := 0
	for range rapid.IntRange(0, 6).Draw(t, "parts") {
		p := &genai.Part{ThoughtSignature: sign()}
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			p.Text, p.Thought = words.Draw(t, "thought"), true
		case 1:
			p.Text = words.Draw(t, "text")
		default:
			p.FunctionCall = &genai.FunctionCall{Name: names.Draw(t, "name"), Args: map[string]any{words.Draw(t, "key"): words.Draw(t, "value")}}
			if rapid.Bool().Draw(t, "named") {
				p.FunctionCall.ID = fmt.Sprintf("theirs-%d", calls)
			}
			if calls == 0 && p.ThoughtSignature == nil {
				p.ThoughtSignature = []byte("signed")
			}
			calls++
		}
		if n := len(parts); n > 0 && p.FunctionCall == nil && parts[n-1].FunctionCall == nil && parts[n-1].Thought == p.Thought && parts[n-1].ThoughtSignature == nil {
			continue
		}
		parts = append(parts, p)
	}
	return parts
}

func response(t tester, finish genai.FinishReason, parts []*genai.Part) string {
	text, err := stdjson.Marshal(&genai.GenerateContentResponse{
		Candidates: []*genai.Candidate{{Content: &genai.Content{Role: genai.RoleModel, Parts: parts}, FinishReason: finish}},
		ResponseID: "r1", ModelVersion: now, UsageMetadata: &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 3, CandidatesTokenCount: 5},
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return string(text)
}

func TestAnAnswerIsSentBackUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := anyParts(t)
		reply, _ := translateAnswer(t, hello, response(t, genai.FinishReasonStop, parts))
		messages := []string{`{"role":"user","content":"hello"}`, encode(t, &reply.Choices[0].Message)}
		for _, call := range reply.Choices[0].Message.ToolCalls {
			messages = append(messages, encode(t, &chat.Message{Role: chat.RoleTool, ToolCallID: call.ID, Content: chat.TextContent("done")}))
		}
		r := translate(t, now, `{"model":"m","messages":[`+strings.Join(messages, ",")+`]}`)
		if len(parts) == 0 {
			if len(r.Contents) != 1 {
				t.Fatalf("%v", r.means())
			}
			return
		}
		calls := 0
		for _, p := range parts {
			if p.FunctionCall != nil {
				if p.FunctionCall.ID == "" {
					p.FunctionCall.ID = fmt.Sprintf("call_r1_0_%d", calls)
				}
				calls++
			}
		}
		if d := cmp.Diff(parts, r.Contents[1].Parts); d != "" {
			t.Fatalf("%s", d)
		}
	})
}

// splitParts splits parts as a stream does: texts between any two characters, with the signature on the last piece.
func splitParts(t *rapid.T, parts []*genai.Part) (all []*genai.Part) {
	for _, p := range parts {
		letters := []rune(p.Text)
		for len(letters) > 1 && rapid.Bool().Draw(t, "cut") {
			n := rapid.IntRange(1, len(letters)-1).Draw(t, "at")
			all = append(all, &genai.Part{Text: string(letters[:n]), Thought: p.Thought})
			letters = letters[n:]
		}
		last := *p
		last.Text = string(letters)
		all = append(all, &last)
	}
	return all
}

func TestAnyStreamYieldsTheSameAsTheCompleteAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := anyParts(t)
		finish := rapid.SampledFrom([]genai.FinishReason{genai.FinishReasonStop, genai.FinishReasonMaxTokens, genai.FinishReasonSafety}).Draw(t, "finish")
		whole, _ := translateAnswer(t, hello, response(t, finish, parts))
		var events strings.Builder
		rest := splitParts(t, parts)
		for len(rest) > 0 && rapid.Bool().Draw(t, "event") {
			n := rapid.IntRange(1, len(rest)).Draw(t, "parts")
			events.WriteString("data: " + response(t, "", rest[:n]) + "\r\n\r\n")
			rest = rest[n:]
		}
		events.WriteString("data: " + response(t, finish, rest) + "\r\n\r\n")
		if d := cmp.Diff(whole, assemble(t, stream(t, hello, events.String()), false)); d != "" {
			t.Fatalf("%s", d)
		}
	})
}
