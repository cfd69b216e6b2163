package gemini

import "github.com/go-json-experiment/json/jsontext"

// generateRequest is the body of generateContent and of streamGenerateContent.
type generateRequest struct {
	SystemInstruction *content           `json:"systemInstruction,omitzero"`
	Contents          []content          `json:"contents"`
	Tools             []toolDeclarations `json:"tools,omitzero"`
	ToolConfig        *toolConfig        `json:"toolConfig,omitzero"`
	GenerationConfig  *generationConfig  `json:"generationConfig,omitempty"`
}

// The roles of contents.
const (
	roleUser  = "user"
	roleModel = "model"
)

// content is one turn.
type content struct {
	Role  string `json:"role,omitzero"`
	Parts []part `json:"parts"`
}

// part is one part of a turn. Exactly one of its data members is set.
type part struct {
	Text             *string           `json:"text,omitzero"`
	InlineData       *blob             `json:"inlineData,omitzero"`
	FileData         *fileData         `json:"fileData,omitzero"`
	FunctionCall     *functionCall     `json:"functionCall,omitzero"`
	FunctionResponse *functionResponse `json:"functionResponse,omitzero"`
	Thought          bool              `json:"thought,omitzero"`
	ThoughtSignature string            `json:"thoughtSignature,omitzero"`
	MediaResolution  *mediaResolution  `json:"mediaResolution,omitzero"`
}

type blob struct {
	MIMEType    string `json:"mimeType"`
	Data        string `json:"data"` // base64
	DisplayName string `json:"displayName,omitzero"`
}

type fileData struct {
	MIMEType string `json:"mimeType,omitzero"`
	FileURI  string `json:"fileUri"`
}

type functionCall struct {
	ID   string         `json:"id,omitzero"`
	Name string         `json:"name"`
	Args jsontext.Value `json:"args,omitzero"`
}

type functionResponse struct {
	ID       string         `json:"id,omitzero"`
	Name     string         `json:"name"`
	Response jsontext.Value `json:"response"`
	Parts    []part         `json:"parts,omitzero"` // inlineData only
}

type mediaResolution struct {
	Level string `json:"level"`
}

// toolDeclarations are the functions that may be called.
type toolDeclarations struct {
	FunctionDeclarations []functionDeclaration `json:"functionDeclarations"`
}

type functionDeclaration struct {
	Name                 string         `json:"name"`
	Description          string         `json:"description,omitzero"`
	ParametersJSONSchema jsontext.Value `json:"parametersJsonSchema,omitzero"`
}

type toolConfig struct {
	FunctionCallingConfig callingConfig `json:"functionCallingConfig"`
}

type callingConfig struct {
	Mode                 string   `json:"mode"`
	AllowedFunctionNames []string `json:"allowedFunctionNames,omitzero"`
}

// generationConfig are the sampling parameters and the format of the answer.
type generationConfig struct {
	Temperature        *float64        `json:"temperature,omitzero"`
	TopP               *float64        `json:"topP,omitzero"`
	TopK               *int64          `json:"topK,omitzero"`
	CandidateCount     *int64          `json:"candidateCount,omitzero"`
	MaxOutputTokens    *int64          `json:"maxOutputTokens,omitzero"`
	StopSequences      []string        `json:"stopSequences,omitempty"`
	Seed               *int64          `json:"seed,omitzero"`
	PresencePenalty    *float64        `json:"presencePenalty,omitzero"`
	FrequencyPenalty   *float64        `json:"frequencyPenalty,omitzero"`
	ResponseLogprobs   bool            `json:"responseLogprobs,omitzero"`
	Logprobs           *int64          `json:"logprobs,omitzero"`
	ResponseMIMEType   string          `json:"responseMimeType,omitzero"`
	ResponseJSONSchema jsontext.Value  `json:"responseJsonSchema,omitzero"`
	ThinkingConfig     *thinkingConfig `json:"thinkingConfig,omitzero"`
}

type thinkingConfig struct {
	IncludeThoughts bool   `json:"includeThoughts,omitzero"`
	ThinkingBudget  *int64 `json:"thinkingBudget,omitzero"`
	ThinkingLevel   string `json:"thinkingLevel,omitzero"`
}

// generateResponse is a complete answer, or an event of a stream.
type generateResponse struct {
	Candidates     []candidate    `json:"candidates"`
	PromptFeedback promptFeedback `json:"promptFeedback"`
	UsageMetadata  *usageMetadata `json:"usageMetadata"`
	ModelVersion   string         `json:"modelVersion"`
	ResponseID     string         `json:"responseId"`
	Error          *apiError      `json:"error"`
}

type promptFeedback struct {
	BlockReason string `json:"blockReason"`
}

type candidate struct {
	Index         int             `json:"index"` // absent when it is 0
	Content       answerContent   `json:"content"`
	FinishReason  string          `json:"finishReason"`
	FinishMessage string          `json:"finishMessage"`
	Logprobs      *logprobsResult `json:"logprobsResult"`
}

type answerContent struct {
	Parts []answerPart `json:"parts"`
}

// answerPart is a part of an answer.
type answerPart struct {
	Text             *string        `json:"text"`
	Thought          bool           `json:"thought"`
	ThoughtSignature string         `json:"thoughtSignature"`
	FunctionCall     *functionCall  `json:"functionCall"`
	Other            jsontext.Value `json:",embed"`
}

type logprobsResult struct {
	ChosenCandidates []logprob `json:"chosenCandidates"`
	TopCandidates    []struct {
		Candidates []logprob `json:"candidates"`
	} `json:"topCandidates"`
}

type logprob struct {
	Token          string  `json:"token"`
	LogProbability float64 `json:"logProbability"`
}

// usageMetadata counts tokens. The prompt count includes cached tokens; the candidates count excludes thoughts.
type usageMetadata struct {
	PromptTokenCount        *int64     `json:"promptTokenCount"`
	ToolUsePromptTokenCount int64      `json:"toolUsePromptTokenCount"`
	CachedContentTokenCount int64      `json:"cachedContentTokenCount"`
	CandidatesTokenCount    int64      `json:"candidatesTokenCount"`
	ThoughtsTokenCount      int64      `json:"thoughtsTokenCount"`
	PromptTokensDetails     modalities `json:"promptTokensDetails"`
	CacheTokensDetails      modalities `json:"cacheTokensDetails"`
	CandidatesTokensDetails modalities `json:"candidatesTokensDetails"`
}

type modalities []struct {
	Modality   string `json:"modality"`
	TokenCount int64  `json:"tokenCount"`
}
