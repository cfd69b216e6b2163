package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

func claude(address string) anthropic.Client {
	return anthropic.NewClient(option.WithBaseURL(address+"/anthropic/"), option.WithAPIKey(secretKey), option.WithMaxRetries(0))
}

func claudeAsk(model string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{Model: model, MaxTokens: 2000, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("one two three"))}}
}

func claudeTool(name string) anthropic.ToolUnionParam {
	return anthropic.ToolUnionParam{OfTool: &anthropic.ToolParam{Name: name, InputSchema: anthropic.ToolInputSchemaParam{
		Properties: map[string]any{"city": map[string]any{"type": "string", "enum": []string{"Ulm"}}}, Required: []string{"city"},
	}}}
}

// claudeSays reads an answer whole and streamed, and wants both to be the same.
func claudeSays(t *testing.T, client anthropic.Client, params anthropic.MessageNewParams) *anthropic.Message {
	t.Helper()
	whole, err := client.Messages.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	stream, sum := client.Messages.NewStreaming(t.Context(), params), anthropic.Message{}
	for stream.Next() {
		if extra := unknown(stream.Current().AsAny()); len(extra) > 0 {
			t.Errorf("unknown %v in %s", extra, stream.Current().RawJSON())
		}
		if err := sum.Accumulate(stream.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if stream.Err() != nil {
		t.Fatal(stream.Err())
	}
	for _, m := range []*anthropic.Message{whole, &sum} {
		if extra := unknown(*m); len(extra) > 0 {
			t.Errorf("unknown %v in %s", extra, m.RawJSON())
		}
	}
	if a, b := claudeGist(whole), claudeGist(&sum); a != b {
		t.Errorf("whole\n%s\nand streamed\n%s", a, b)
	}
	return whole
}

// claudeGist is a summary of an answer in one line.
func claudeGist(m *anthropic.Message) string {
	var out []string
	for _, b := range m.Content {
		out = append(out, strings.Join(strings.Fields(strings.Join([]string{b.Type, b.Text, b.Thinking, b.Signature, b.Data, b.Name, string(b.Input)}, " ")), " "))
	}
	u := m.Usage
	return fmt.Sprintf("%s | %s | in %d read %d written %d out %d thought %d", strings.Join(out, ", "), m.StopReason, u.InputTokens, u.CacheReadInputTokens, u.CacheCreationInputTokens, u.OutputTokens, u.OutputTokensDetails.ThinkingTokens)
}

func TestAnthropicsPackageReadsTheSameFromStreamsAndBodies(t *testing.T) {
	client := claude(start(t))
	tools := claudeAsk("mock?tool&preface=2")
	tools.Tools = []anthropic.ToolUnionParam{claudeTool("today"), claudeTool("tomorrow")}
	one := tools
	one.ToolChoice = anthropic.ToolChoiceUnionParam{OfAuto: &anthropic.ToolChoiceAutoParam{DisableParallelToolUse: anthropic.Bool(true)}}
	chosen := tools
	chosen.ToolChoice = anthropic.ToolChoiceParamOfTool("tomorrow")
	thinking := claudeAsk("mock?reasoning=2&text=1&sealed")
	thinking.Thinking = anthropic.ThinkingConfigParamOfEnabled(1024)
	structured := claudeAsk("mock?json&chunks=4")
	structured.OutputConfig.Format.Schema = map[string]any{"type": "object", "additionalProperties": false, "required": []string{"pass"}, "properties": map[string]any{"pass": map[string]any{"type": "boolean"}}}
	short := claudeAsk("mock?text=9")
	short.MaxTokens = 4
	seeing := claudeAsk("mock?text=1")
	seeing.Messages = append(seeing.Messages, anthropic.NewUserMessage(anthropic.NewImageBlockBase64("image/png", "AAAA"), anthropic.NewImageBlock(anthropic.URLImageSourceParam{URL: "https://example.test/a.png"})))
	seeing.System = []anthropic.TextBlockParam{{Text: "be brief", CacheControl: anthropic.NewCacheControlEphemeralParam()}}
	for name, c := range map[string]struct {
		params anthropic.MessageNewParams
		want   string
	}{
		"text":           {claudeAsk("mock?text=5"), "text every request is held before | end_turn | in 3 read 0 written 0 out 5 thought 0"},
		"limit":          {short, "text every request is held | max_tokens | in 3 read 0 written 0 out 4 thought 0"},
		"image":          {seeing, "text every | end_turn | in 5 read 0 written 0 out 1 thought 0"},
		"thinking":       {thinking, "thinking every request " + signed("thinking", "every request", "") + ", redacted_thinking " + sealedThought() + ", text every | end_turn | in 3 read 0 written 0 out 3 thought 2"},
		"no thinking":    {claudeAsk("mock?reasoning=2&text=1"), "text every | end_turn | in 3 read 0 written 0 out 1 thought 0"},
		"structured":     {structured, `text {"pass":true} | end_turn | in 3 read 0 written 0 out 1 thought 0`},
		"figures":        {claudeAsk("mock?text=1&in=1000&cached=900&written=60&out=7"), "text every | end_turn | in 40 read 900 written 60 out 7 thought 0"},
		"figures at end": {claudeAsk("mock?text=1&in=10&cached=4&usage=last"), "text every | end_turn | in 6 read 4 written 0 out 1 thought 0"},
		"figures twice":  {claudeAsk("mock?text=1&in=10&cached=4&usage=each"), "text every | end_turn | in 6 read 4 written 0 out 1 thought 0"},
		"refusal":        {claudeAsk("mock?text=1&finish=refusal"), "text every | refusal | in 3 read 0 written 0 out 1 thought 0"},
		"odd framing":    {claudeAsk("mock?text=2&crlf&split=5&ping"), "text every request | end_turn | in 3 read 0 written 0 out 2 thought 0"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := claudeGist(claudeSays(t, client, c.params)); got != c.want {
				t.Errorf("\n%s\nis not\n%s", got, c.want)
			}
		})
	}
	for want, params := range map[string]anthropic.MessageNewParams{"text today tomorrow": tools, "text today": one, "text tomorrow": chosen} {
		m, err := client.Messages.New(t.Context(), params)
		stream, sum := client.Messages.NewStreaming(t.Context(), params), anthropic.Message{}
		for stream.Next() {
			err = errors.Join(err, sum.Accumulate(stream.Current()))
		}
		if err != nil || stream.Err() != nil {
			t.Fatal(err, stream.Err())
		}
		for _, m := range []*anthropic.Message{m, &sum} {
			names := []string{"text"}
			for _, b := range m.Content[1:] {
				names = append(names, b.Name)
				if string(b.Input) != `{"city":"Ulm"}` || b.ID == "" {
					t.Error(b.RawJSON())
				}
			}
			if strings.Join(names, " ") != want || m.Content[0].Text != "every request" || m.StopReason != "tool_use" || len(unknown(*m)) > 0 {
				t.Errorf("%v: %s", unknown(*m), m.RawJSON())
			}
		}
	}
}

// Thoughts between a text and calls are accepted only in their places.
func TestAnthropicsThoughtsStayWhereTheyWere(t *testing.T) {
	client := claude(start(t))
	params := claudeAsk("interleaved-mock?tool&reasoning=2&preface=2&sealed")
	params.Thinking = anthropic.ThinkingConfigParamUnion{OfAdaptive: &anthropic.ThinkingConfigAdaptiveParam{}}
	params.Tools = []anthropic.ToolUnionParam{claudeTool("today"), claudeTool("tomorrow")}
	stream, sum := client.Messages.NewStreaming(t.Context(), params), anthropic.Message{}
	for stream.Next() {
		if err := sum.Accumulate(stream.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if stream.Err() != nil {
		t.Fatal(stream.Err())
	}
	for _, m := range []*anthropic.Message{claudeSays2(t, client, params), &sum} {
		var kinds []string
		var results []anthropic.ContentBlockParamUnion
		for _, b := range m.Content {
			kinds = append(kinds, b.Type)
			if b.Type == "tool_use" {
				results = append(results, anthropic.NewToolResultBlock(b.ID, "fine weather", false))
			}
		}
		if got := strings.Join(kinds, " "); got != "thinking redacted_thinking text thinking redacted_thinking tool_use thinking redacted_thinking tool_use" {
			t.Fatal(got)
		}
		back := params
		turn := m.ToParam()
		back.Messages = append(slices.Clone(params.Messages), turn, anthropic.NewUserMessage(results...))
		claudeSays2(t, client, back)
		turn.Content[2], turn.Content[3] = turn.Content[3], turn.Content[2]
		if _, err := client.Messages.New(t.Context(), back); err == nil || !strings.Contains(err.Error(), "cannot be modified") {
			t.Error(err)
		}
	}
}

// The provider accepts its own messages when they come back unchanged with results.
func TestAnthropicsToolTurnsGoRound(t *testing.T) {
	client := claude(start(t))
	params := claudeAsk("mock?tool&reasoning=2&sealed")
	params.Thinking = anthropic.ThinkingConfigParamOfEnabled(1024)
	params.Tools = []anthropic.ToolUnionParam{claudeTool("today"), claudeTool("tomorrow")}
	for round := range 2 {
		m := claudeSays2(t, client, params)
		results := []anthropic.ContentBlockParamUnion{}
		for _, b := range m.Content {
			if b.Type == "tool_use" {
				results = append(results, anthropic.NewToolResultBlock(b.ID, "fine weather", false))
			}
		}
		if len(results) != 2*(1-round) {
			t.Fatalf("round %d: %s", round, m.RawJSON())
		}
		if round == 0 {
			params.Messages = append(params.Messages, m.ToParam(), anthropic.NewUserMessage(results...))
		}
	}
	params.Messages[1].Content[0].OfThinking.Thinking += "!"
	if _, err := client.Messages.New(t.Context(), params); err == nil || !strings.Contains(err.Error(), "not mine") {
		t.Error(err)
	}
}

func claudeSays2(t *testing.T, client anthropic.Client, params anthropic.MessageNewParams) *anthropic.Message {
	t.Helper()
	m, err := client.Messages.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAnthropicsRefusalsAndFaultsAreItsOwn(t *testing.T) {
	address := start(t)
	client := claude(address)
	for model, want := range map[string]struct {
		status int
		kind   string
	}{
		"mock?status=429": {429, "rate_limit_error"}, "mock?status=529": {529, "overloaded_error"}, "mock?status=500": {500, "api_error"},
		"mock?status=413": {413, "request_too_large"}, "claude": {404, "not_found_error"}, "mock?misspelt": {400, "invalid_request_error"},
	} {
		_, err := client.Messages.New(t.Context(), claudeAsk(model))
		var refusal *anthropic.Error
		if !errors.As(err, &refusal) || refusal.StatusCode != want.status || !strings.Contains(refusal.RawJSON(), `"type":"`+want.kind+`"`) {
			t.Errorf("%s: %v", model, err)
		}
	}
	stranger := anthropic.NewClient(option.WithBaseURL(address+"/anthropic/"), option.WithAPIKey("other"), option.WithMaxRetries(0))
	if _, err := stranger.Messages.New(t.Context(), claudeAsk("mock")); err == nil || !strings.Contains(err.Error(), "authentication_error") {
		t.Error(err)
	}
	for model, want := range map[string]string{
		"mock?error_event_after=2": "overloaded_error", "mock?die_after=1": "EOF", "mock?reset_after=1": "reset",
	} {
		stream, heard := client.Messages.NewStreaming(t.Context(), claudeAsk(model)), 0
		for stream.Next() {
			if stream.Current().Delta.Text != "" {
				heard++
			}
		}
		if err := stream.Err(); err == nil || !strings.Contains(err.Error(), want) || heard == 0 {
			t.Errorf("%s: %v after %d", model, err, heard)
		}
	}
	for _, model := range []string{"mock?end_after=2", "mock?no_done", "mock?garbage_after=1"} {
		_, text, err := sendAs(t, address, "/anthropic/v1/messages", `{"model":"`+model+`","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"a"}]}`, map[string]string{"X-Api-Key": secretKey, "Anthropic-Version": "2023-06-01"})
		if err != nil || strings.Contains(text, "message_stop") || !strings.Contains(text, "text_delta") {
			t.Error(text, err)
		}
	}
}

// sendAs sends a body with these headers, and reads the answer.
func sendAs(t *testing.T, address, path, body string, header map[string]string) (int, string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	return do(t, request)
}

func TestAnthropicRefusesWhatItsTypesOrItsRulesDoNotAllow(t *testing.T) {
	address := start(t)
	const hi = `{"role":"user","content":[{"type":"text","text":"hi"}]}`
	const call = `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}`
	result := func(id string) string {
		return `{"role":"user","content":[{"type":"tool_result","tool_use_id":"` + id + `","content":"x"}]}`
	}
	for body, want := range map[string]string{
		`"max_tokens":9,"messages":[` + hi + `]`:                                                                                        "",
		`"max_tokens":9,"system":"s","messages":[{"role":"user","content":"hi"}]`:                                                       "",
		`"max_tokens":9,"messages":[` + hi + `,` + hi + `]`:                                                                             "",
		`"max_tokens":9,"messages":[` + hi + `,` + call + `,` + result("a") + `]`:                                                       "",
		`"messages":[` + hi + `]`:                                                                                                       "max_tokens is required",
		`"max_tokens":0,"messages":[` + hi + `]`:                                                                                        "max_tokens",
		`"max_tokens":9,"messages":[]`:                                                                                                  "messages",
		`"max_tokens":9,"n":2,"messages":[` + hi + `]`:                                                                                  "n is not known",
		`"max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"hi","name":"x"}]}]`:                                "messages[0].content[0].name is not known",
		`"max_tokens":9,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]`:                                   "messages[0].content",
		`"max_tokens":9,"messages":[{"role":"user","content":""}]`:                                                                      "white space",
		`"max_tokens":9,"messages":[{"role":"tool","content":"x"}]`:                                                                     "messages[0].role",
		`"max_tokens":9,"messages":[{"role":"assistant","content":"x"}]`:                                                                "must be the user's",
		`"max_tokens":9,"messages":[` + hi + `,{"role":"assistant","content":"x "}]`:                                                    "white space",
		`"max_tokens":9,"messages":[` + hi + `,` + call + `]`:                                                                           "not answered",
		`"max_tokens":9,"messages":[` + hi + `,` + call + `,` + hi + `]`:                                                                "not all answered",
		`"max_tokens":9,"messages":[` + hi + `,` + call + `,` + result("b") + `]`:                                                       "has no tool use",
		`"max_tokens":9,"messages":[` + hi + `,` + call + `,` + hi + `,` + result("a") + `]`:                                            "before anything else",
		`"max_tokens":9,"messages":[` + result("a") + `]`:                                                                               "has no tool use",
		`"max_tokens":9,"messages":[{"role":"user","content":" \n"}]`:                                                                   "white space",
		`"max_tokens":9,"system":[{"type":"text","text":" "}],"messages":[` + hi + `]`:                                                  "system",
		`"max_tokens":9,"messages":[` + hi + `,` + strings.Replace(call, `"a"`, `"a:0"`, 1) + `,` + result("a:0") + `]`:                 "id",
		`"max_tokens":9,"temperature":0.5,"top_p":0.5,"messages":[` + hi + `]`:                                                          "top_p",
		`"max_tokens":9,"metadata":{"user_id":"ann@example.com"},"messages":[` + hi + `]`:                                               "metadata.user_id",
		`"max_tokens":2048,"thinking":{"type":"enabled","budget_tokens":1024},"messages":[` + hi + `,` + call + `,` + result("a") + `]`: "must start with a thinking block",
		`"max_tokens":2048,"thinking":{"type":"enabled","budget_tokens":1024},"messages":[` + hi + `,` + call + `,` + result("a") + `,{"role":"assistant","content":"x"},` + hi + `]`: "",
		`"max_tokens":9,"temperature":1.5,"messages":[` + hi + `]`:                                                                                 "temperature",
		`"max_tokens":1024,"thinking":{"type":"enabled","budget_tokens":1024},"messages":[` + hi + `]`:                                             "thinking.budget_tokens",
		`"max_tokens":2048,"thinking":{"type":"enabled","budget_tokens":1000},"messages":[` + hi + `]`:                                             "thinking.budget_tokens",
		`"max_tokens":2048,"temperature":0.5,"thinking":{"type":"enabled","budget_tokens":1024},"messages":[` + hi + `]`:                           "when thinking is on",
		`"max_tokens":9,"tool_choice":{"type":"any"},"messages":[` + hi + `]`:                                                                      "tool_choice",
		`"max_tokens":9,"tools":[{"name":"a b","input_schema":{"type":"object"}}],"messages":[` + hi + `]`:                                         "tools[0].name",
		`"max_tokens":9,"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}},"messages":[` + hi + `]`:                      "additionalProperties",
		`"max_tokens":9,"messages":[` + hi + `,{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"}]},` + hi + `]`:    "not mine",
		`"max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/bmp","data":"AA"}}]}]`: "image/bmp",
	} {
		status, text, err := sendAs(t, address, "/anthropic/v1/messages", `{"model":"mock",`+body+`}`, map[string]string{"X-Api-Key": secretKey, "Anthropic-Version": "2023-06-01"})
		if err != nil || !json.Valid([]byte(text)) || (status == http.StatusOK) != (want == "") || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s %v", body, status, text, err)
		}
	}
	if status, text, _ := sendAs(t, address, "/anthropic/v1/messages", `{}`, map[string]string{"X-Api-Key": secretKey}); status != http.StatusBadRequest || !strings.Contains(text, "anthropic-version") {
		t.Error(status, text)
	}
	if got := records(t, address); !slices.ContainsFunc(got, func(r record) bool {
		return r.Path == "/anthropic/v1/messages" && r.Status == http.StatusOK && r.Finished
	}) {
		t.Error("what was answered is not recorded")
	}
}
