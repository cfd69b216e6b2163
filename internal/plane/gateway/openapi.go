package gateway

import "github.com/go-json-experiment/json/jsontext"

// The types of this file describe bodies in the OpenAPI document. They name what the gateway itself reads or promises.
// Every other member of OpenAI's API is passed to the provider, and back, as it is.

// A ChatRequest is the body of POST /v1/chat/completions.
type ChatRequest struct {
	_                   struct{}         `json:"-" additionalProperties:"true"`
	Model               string           `json:"model" doc:"A catalog id, an alias, ft/<name> of a trained model, or dedicated/<routing-key>"`
	Messages            []jsontext.Value `json:"messages" nullable:"false" minItems:"1" doc:"As in OpenAI's API"`
	Models              []string         `json:"models,omitempty" maxItems:"8" doc:"Catalog ids to fall back to, in order, before the first content; they replace the alias's"`
	Stream              bool             `json:"stream,omitempty" doc:"Answer with server-sent events"`
	StreamOptions       jsontext.Value   `json:"stream_options,omitempty" doc:"include_usage: a last event with the usage"`
	MaxCompletionTokens int64            `json:"max_completion_tokens,omitempty" minimum:"1" doc:"Bounds the output, and lowers the hold on the wallet"`
	MaxTokens           int64            `json:"max_tokens,omitempty" minimum:"1" doc:"The older name of max_completion_tokens"`
	N                   int64            `json:"n,omitempty" minimum:"1" maximum:"128" doc:"Choices"`
}

// A ChatAnswer is what comes back, or the sum of a stream's events.
type ChatAnswer struct {
	_       struct{}         `json:"-" additionalProperties:"true"`
	ID      string           `json:"id"`
	Object  string           `json:"object"`
	Created int64            `json:"created"`
	Model   string           `json:"model" doc:"As the provider names it; X-Service-Served-Model has the catalog's id"`
	Choices []jsontext.Value `json:"choices"`
	Usage   jsontext.Value   `json:"usage,omitempty"`
}

// A RerankRequest is the body of POST /v1/rerank.
type RerankRequest struct {
	_               struct{}         `json:"-" additionalProperties:"true"`
	Model           string           `json:"model" doc:"A catalog id or an alias"`
	Query           string           `json:"query" minLength:"1"`
	Documents       []jsontext.Value `json:"documents" nullable:"false" minItems:"1" doc:"Texts, or objects with a text"`
	TopN            int64            `json:"top_n,omitempty" minimum:"1" doc:"How many of the best come back; all by default"`
	ReturnDocuments bool             `json:"return_documents,omitempty" doc:"Each result holds its document"`
	Models          []string         `json:"models,omitempty" maxItems:"8" doc:"Catalog ids to fall back to, in order"`
}

// A RerankAnswer is what comes back, the best first.
type RerankAnswer struct {
	ID      string         `json:"id"`
	Model   string         `json:"model"`
	Results []Ranked       `json:"results" nullable:"false"`
	Usage   jsontext.Value `json:"usage,omitempty" doc:"prompt_tokens and total_tokens, or search_units, as the provider reports"`
}

// A RerankV2Request is the body of POST /v2/rerank, as in Cohere's API.
type RerankV2Request struct {
	_               struct{} `json:"-" additionalProperties:"true"`
	Model           string   `json:"model" doc:"A catalog id or an alias"`
	Query           string   `json:"query" minLength:"1"`
	Documents       []string `json:"documents" nullable:"false" minItems:"1"`
	TopN            int64    `json:"top_n,omitempty" minimum:"1" doc:"How many of the best come back; all by default"`
	MaxTokensPerDoc int64    `json:"max_tokens_per_doc,omitempty" minimum:"1" doc:"Where long documents are cut"`
}

// A RerankV2Answer is what comes back, the best first.
type RerankV2Answer struct {
	ID      string     `json:"id"`
	Results []Ranked   `json:"results" nullable:"false"`
	Meta    RerankMeta `json:"meta"`
}

// A RerankMeta says what was used.
type RerankMeta struct {
	APIVersion struct {
		Version string `json:"version" enum:"2"`
	} `json:"api_version"`
	BilledUnits struct {
		SearchUnits int64 `json:"search_units" doc:"As the provider reports, else one for every hundred documents begun"`
		InputTokens int64 `json:"input_tokens,omitempty" doc:"Where the provider reports tokens"`
	} `json:"billed_units"`
}

// A Ranked document.
type Ranked struct {
	Index          int     `json:"index" doc:"In the request's list"`
	RelevanceScore float64 `json:"relevance_score" doc:"Compares within one answer only"`
	Document       *struct {
		Text string `json:"text"`
	} `json:"document,omitempty" doc:"Where return_documents asks for it"`
}

// A ResponsesRequest is the body of POST /v1/responses.
type ResponsesRequest struct {
	_               struct{}       `json:"-" additionalProperties:"true"`
	Model           string         `json:"model" doc:"A catalog id or an alias"`
	Input           jsontext.Value `json:"input" doc:"A text or a list of items, as in OpenAI's API"`
	Stream          bool           `json:"stream,omitempty" doc:"Answer with server-sent events"`
	MaxOutputTokens int64          `json:"max_output_tokens,omitempty" minimum:"1" doc:"Bounds the output, and lowers the hold on the wallet"`
	Models          []string       `json:"models,omitempty" maxItems:"8" doc:"Catalog ids to fall back to, in order, before the first content"`
}

// A ResponsesAnswer is what comes back, or what the last event of a stream holds.
type ResponsesAnswer struct {
	_      struct{}         `json:"-" additionalProperties:"true"`
	ID     string           `json:"id"`
	Object string           `json:"object"`
	Status string           `json:"status"`
	Model  string           `json:"model"`
	Output []jsontext.Value `json:"output"`
	Usage  jsontext.Value   `json:"usage,omitempty"`
}

// An EmbeddingsRequest is the body of POST /v1/embeddings.
type EmbeddingsRequest struct {
	_              struct{}       `json:"-" additionalProperties:"true"`
	Model          string         `json:"model" doc:"A catalog id or an alias"`
	Input          jsontext.Value `json:"input" doc:"A text, or a list of texts or tokens"`
	Models         []string       `json:"models,omitempty" maxItems:"8" doc:"Catalog ids to fall back to, in order"`
	EncodingFormat string         `json:"encoding_format,omitempty" enum:"float,base64"`
}

// An EmbeddingsAnswer is what comes back.
type EmbeddingsAnswer struct {
	_      struct{}         `json:"-" additionalProperties:"true"`
	Object string           `json:"object"`
	Data   []jsontext.Value `json:"data"`
	Model  string           `json:"model"`
	Usage  jsontext.Value   `json:"usage"`
}
