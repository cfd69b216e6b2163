package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/genai"
)

// geminiWire is that of Google's Gemini API.
var geminiWire = wire{
	key:     func(h http.Header) string { return h.Get("X-Goog-Api-Key") },
	unknown: http.StatusBadRequest, // that is what Google says
	refusal: func(a *answer, status int, code, _, message string) any {
		var details []any
		if code == "invalid_api_key" {
			details = append(details, map[string]any{
				"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID",
				"domain": "googleapis.com",
			})
		}
		if a.plan.retryAfter != "" {
			details = append(details, map[string]any{
				"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": a.plan.retryAfter + "s",
			})
		}
		return googleError(status, message, details)
	},
	broken: func(_ *answer, message string) string {
		return event{value: googleError(http.StatusServiceUnavailable, message, nil)}.lines()
	},
}

// googleStates are Google's words by status.
var googleStates = map[int]string{
	http.StatusBadRequest: "INVALID_ARGUMENT", http.StatusUnauthorized: "UNAUTHENTICATED",
	http.StatusForbidden: "PERMISSION_DENIED", http.StatusNotFound: "NOT_FOUND",
	http.StatusRequestEntityTooLarge: "INVALID_ARGUMENT", http.StatusUnprocessableEntity: "INVALID_ARGUMENT",
	http.StatusTooManyRequests: "RESOURCE_EXHAUSTED", http.StatusInternalServerError: "INTERNAL",
	http.StatusServiceUnavailable: "UNAVAILABLE", http.StatusGatewayTimeout: "DEADLINE_EXCEEDED",
}

func googleError(status int, message string, details []any) any {
	state := googleStates[status]
	if state == "" {
		state = "UNKNOWN"
	}
	inner := map[string]any{"code": status, "message": message, "status": state}
	if details != nil {
		inner["details"] = details
	}
	return map[string]any{"error": inner}
}

// A geminiRequest is the body of generateContent, in Google's own types.
type geminiRequest struct {
	Contents          []*genai.Content        `json:"contents,omitempty"`
	SystemInstruction *genai.Content          `json:"systemInstruction,omitempty"`
	Tools             []*genai.Tool           `json:"tools,omitempty"`
	ToolConfig        *genai.ToolConfig       `json:"toolConfig,omitempty"`
	GenerationConfig  *genai.GenerationConfig `json:"generationConfig,omitempty"`
	SafetySettings    []*genai.SafetySetting  `json:"safetySettings,omitempty"`
	CachedContent     string                  `json:"cachedContent,omitempty"`
}

// A geminiEmbed is the body of batchEmbedContents.
type geminiEmbed struct {
	Requests []struct {
		Model                string         `json:"model,omitempty"`
		Content              *genai.Content `json:"content,omitempty"`
		TaskType             string         `json:"taskType,omitempty"`
		Title                string         `json:"title,omitempty"`
		OutputDimensionality *int           `json:"outputDimensionality,omitempty"`
	} `json:"requests,omitempty"`
}

// readGemini reads a request, whose model and method are the path's.
func (p *provider) readGemini(a *answer) error {
	call := a.r.PathValue("call")
	at := strings.LastIndex(call, ":")
	if at < 0 {
		return bad("path", "there is no method in %q", call)
	}
	a.ask.Model = call[:at]
	switch method := call[at+1:]; method {
	case "batchEmbedContents":
		return readGeminiEmbed(a)
	case "streamGenerateContent":
		if a.r.URL.Query().Get("alt") != "sse" {
			return bad("alt", "this stand-in streams events alone, which alt=sse asks for")
		}
		a.ask.Stream = true
	case "generateContent":
	default:
		return bad("path", "there is no method %q", method)
	}
	var request geminiRequest
	if err := understood("", []byte(a.record.Body), &request); err != nil {
		return err
	}
	if err := geminiRules(&request); err != nil {
		return err
	}
	plan, err := parsePlan(a.ask.Model)
	if err != nil {
		return err
	}
	if err := p.geminiCalls(request.Contents, plan.vouched); err != nil {
		return err
	}
	request.tell(&a.ask)
	return nil
}

// tell translates the request into an ask.
func (r *geminiRequest) tell(a *ask) {
	contents := r.Contents
	if r.SystemInstruction != nil {
		contents = append([]*genai.Content{r.SystemInstruction}, contents...)
	}
	for _, content := range contents {
		m := message{Role: content.Role, Content: geminiText(content)}
		for _, part := range content.Parts {
			if part.FunctionResponse != nil {
				m.Role = "tool"
			}
		}
		a.Messages = append(a.Messages, m)
	}
	for _, group := range r.Tools {
		for _, f := range group.FunctionDeclarations {
			a.Tools = append(a.Tools, geminiTool(f))
		}
	}
	if r.ToolConfig != nil && r.ToolConfig.FunctionCallingConfig != nil {
		calling := r.ToolConfig.FunctionCallingConfig
		if calling.Mode == genai.FunctionCallingConfigModeNone {
			a.ToolChoice = "none"
		}
		if len(calling.AllowedFunctionNames) == 1 {
			a.ToolChoice = map[string]any{"function": map[string]any{"name": calling.AllowedFunctionNames[0]}}
		}
	}
	g := r.GenerationConfig
	if g == nil {
		return
	}
	if g.MaxOutputTokens > 0 {
		limit := int(g.MaxOutputTokens)
		a.MaxTokens = &limit
	}
	if g.CandidateCount > 0 {
		n := int(g.CandidateCount)
		a.N = &n
	}
	if g.ResponseMIMEType == "application/json" {
		a.ResponseFormat = &format{Type: "json_schema"}
		a.ResponseFormat.JSONSchema.Schema = geminiSchema(g.ResponseSchema, g.ResponseJsonSchema)
	}
	a.thinks = g.ThinkingConfig != nil && g.ThinkingConfig.IncludeThoughts
}

func geminiTool(f *genai.FunctionDeclaration) (out tool) {
	out.Function.Name, out.Function.Parameters = f.Name, geminiSchema(f.Parameters, f.ParametersJsonSchema)
	return out
}

// geminiSchema is a schema as JSON has it: Google writes the names of types in capitals.
func geminiSchema(google *genai.Schema, plain any) map[string]any {
	if google == nil {
		schema, _ := plain.(map[string]any)
		return schema
	}
	text, err := json.Marshal(google)
	var out map[string]any
	if err != nil || json.Unmarshal(text, &out) != nil {
		panic("a schema that was read cannot be written")
	}
	lower(out)
	return out
}

func lower(schema any) {
	switch schema := schema.(type) {
	case map[string]any:
		if kind, ok := schema["type"].(string); ok {
			schema["type"] = strings.ToLower(kind)
		}
		for _, within := range schema {
			lower(within)
		}
	case []any:
		for _, within := range schema {
			lower(within)
		}
	}
}

func geminiText(content *genai.Content) string {
	var texts []string
	for _, part := range content.Parts {
		if part.Text != "" && !part.Thought {
			texts = append(texts, part.Text)
		}
		if part.FunctionResponse != nil {
			texts = append(texts, encode(part.FunctionResponse.Response))
		}
	}
	return strings.Join(texts, " ")
}

func readGeminiEmbed(a *answer) error {
	var request geminiEmbed
	if err := understood("", []byte(a.record.Body), &request); err != nil {
		return err
	}
	if n := len(request.Requests); n == 0 || n > 100 {
		return bad("requests", "there are %d, and 1 to 100 can be embedded at once", n)
	}
	texts := []string{}
	for _, one := range request.Requests {
		name, err := url.PathUnescape(one.Model)
		if err != nil || name != "models/"+a.ask.Model && one.Model != "models/"+a.ask.Model {
			return bad("requests.model", "it is %q, and the path's is %q", one.Model, a.ask.Model)
		}
		if one.Content == nil || len(one.Content.Parts) == 0 || geminiText(one.Content) == "" {
			return bad("requests.content", "it must not be empty")
		}
		if one.Title != "" && one.TaskType != "RETRIEVAL_DOCUMENT" {
			return bad("requests.title", "only documents have one")
		}
		texts, a.ask.Dimensions = append(texts, geminiText(one.Content)), one.OutputDimensionality
	}
	a.ask.Input = json.RawMessage(encode(texts))
	return nil
}
