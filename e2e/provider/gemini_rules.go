package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"google.golang.org/genai"
)

var geminiName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}$`)

// foreign are signatures that Google accepts for calls which none of its models made.
var foreign = []string{"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}

// geminiRules are the rules of the API that converters break.
func geminiRules(r *geminiRequest) error {
	if len(r.Contents) == 0 {
		return bad("contents", "it must not be empty")
	}
	for i, content := range r.Contents {
		place := fmt.Sprintf("contents[%d]", i)
		if content.Role != genai.RoleUser && content.Role != genai.RoleModel {
			return bad(place+".role", "%q is neither user nor model", content.Role)
		}
		if err := partRules(place, content); err != nil {
			return err
		}
	}
	if r.SystemInstruction != nil {
		if err := partRules("systemInstruction", r.SystemInstruction); err != nil {
			return err
		}
	}
	if err := functionRules(r); err != nil {
		return err
	}
	return configRules(r.GenerationConfig)
}

// partRules want every part to be one thing.
func partRules(place string, content *genai.Content) error {
	if len(content.Parts) == 0 {
		return bad(place+".parts", "there must be at least one")
	}
	for i, part := range content.Parts {
		place, things := fmt.Sprintf("%s.parts[%d]", place, i), 0
		for _, there := range []bool{
			part.Text != "", part.InlineData != nil, part.FileData != nil, part.FunctionCall != nil,
			part.FunctionResponse != nil, part.ExecutableCode != nil, part.CodeExecutionResult != nil,
		} {
			if there {
				things++
			}
		}
		switch {
		case things > 1 || things == 0 && len(part.ThoughtSignature) == 0:
			return bad(place, "it must have one initialized field of data, and has %d", things)
		case part.InlineData != nil && (part.InlineData.MIMEType == "" || len(part.InlineData.Data) == 0):
			return bad(place+".inlineData", "data and their type are needed")
		case part.FileData != nil && part.FileData.FileURI == "":
			return bad(place+".fileData", "a URI is needed")
		case part.FunctionCall != nil &&
			(content.Role != genai.RoleModel || !geminiName.MatchString(part.FunctionCall.Name)):
			return bad(place+".functionCall", "it must be the model's, and have a name")
		case part.FunctionResponse != nil && (content.Role != genai.RoleUser || part.FunctionResponse.Name == "" || part.FunctionResponse.Response == nil):
			return bad(place+".functionResponse", "it must be the user's, and have a name and a response")
		}
	}
	return nil
}

func functionRules(r *geminiRequest) error {
	names := map[string]bool{}
	for _, group := range r.Tools {
		for i, f := range group.FunctionDeclarations {
			switch {
			case names[f.Name] || !geminiName.MatchString(f.Name):
				return bad(
					fmt.Sprintf("tools.functionDeclarations[%d].name", i), "%q is no name, or is there twice", f.Name,
				)
			case f.Parameters != nil && f.ParametersJsonSchema != nil:
				return bad(fmt.Sprintf("tools.functionDeclarations[%d]", i), "it has two schemas")
			}
			names[f.Name] = true
		}
	}
	if r.ToolConfig == nil || r.ToolConfig.FunctionCallingConfig == nil {
		return nil
	}
	calling := r.ToolConfig.FunctionCallingConfig
	if len(names) == 0 {
		return bad("toolConfig.functionCallingConfig", "it may only be set where there are functions")
	}
	if len(calling.AllowedFunctionNames) > 0 && calling.Mode != genai.FunctionCallingConfigModeAny &&
		calling.Mode != genai.FunctionCallingConfigModeValidated {
		return bad(
			"toolConfig.functionCallingConfig.allowedFunctionNames",
			"they may only be set when the mode is ANY or VALIDATED",
		)
	}
	for _, name := range calling.AllowedFunctionNames {
		if !names[name] {
			return bad("toolConfig.functionCallingConfig.allowedFunctionNames", "there is no function %q", name)
		}
	}
	return nil
}

func configRules(g *genai.GenerationConfig) error {
	if g == nil {
		return nil
	}
	schema := g.ResponseSchema != nil || g.ResponseJsonSchema != nil
	switch {
	case g.Temperature != nil && (*g.Temperature < 0 || *g.Temperature > 2):
		return bad("generationConfig.temperature", "it must be 0 to 2")
	case g.TopP != nil && (*g.TopP < 0 || *g.TopP > 1):
		return bad("generationConfig.topP", "it must be 0 to 1")
	case g.MaxOutputTokens < 0 || g.CandidateCount < 0 || g.CandidateCount > 8:
		return bad("generationConfig", "maxOutputTokens or candidateCount is out of range")
	case len(g.StopSequences) > 5:
		return bad("generationConfig.stopSequences", "there are %d, and 5 are the most", len(g.StopSequences))
	case schema && g.ResponseMIMEType != "application/json":
		return bad("generationConfig.responseMimeType", "a schema needs application/json")
	case g.ResponseSchema != nil && g.ResponseJsonSchema != nil:
		return bad("generationConfig", "it has two schemas")
	case g.ThinkingConfig != nil && g.ThinkingConfig.ThinkingBudget != nil && g.ThinkingConfig.ThinkingLevel != "":
		return bad("generationConfig.thinkingConfig", "a budget and a level are one too many")
	}
	return nil
}

// geminiCalls wants every call to be answered in the next turn, by its name and its id, and the signatures to be mine.
func (p *provider) geminiCalls(contents []*genai.Content, own bool) error {
	var open []*genai.FunctionCall
	for i, content := range contents {
		place := fmt.Sprintf("contents[%d]", i)
		var calls []*genai.FunctionCall
		answers := 0
		for _, part := range content.Parts {
			if part.FunctionCall != nil {
				calls = append(calls, part.FunctionCall)
			}
			if part.FunctionResponse == nil {
				continue
			}
			at := slices.IndexFunc(open, func(c *genai.FunctionCall) bool {
				return c.Name == part.FunctionResponse.Name && c.ID == part.FunctionResponse.ID
			})
			if at < 0 {
				return bad(
					place, "the function response %s %q answers no function call of the turn before it",
					part.FunctionResponse.Name, part.FunctionResponse.ID,
				)
			}
			open = slices.Delete(open, at, at+1)
			answers++
		}
		switch {
		case len(open) > 0:
			return bad(
				place, "the number of function response parts must equal that of the function call parts before them",
			)
		case len(calls) > 0 && (i == 0 || contents[i-1].Role != genai.RoleUser):
			return bad(place, "a function call must come right after the user's turn")
		}
		if err := p.geminiSignatures(place, content, own); err != nil {
			return err
		}
		open = calls
	}
	if len(open) > 0 {
		return bad("contents", "%d function calls are not answered", len(open))
	}
	return nil
}

// geminiSignatures recognizes what it has given out, by its id or, without one, by what it says: the first call of a
// turn must come back with its signature, its own where the plan wants that, and no signature on anything else than it
// was given for.
func (p *provider) geminiSignatures(place string, content *genai.Content, own bool) error {
	first := true
	for _, part := range content.Parts {
		// A vouched text may come back in a part of its own, or beside its signature in an empty one.
		vouched, given := signed("text", geminiText(content)), false
		if part.Thought {
			vouched = ""
		}
		if call := part.FunctionCall; call != nil {
			what := vouches(call.Name, call.Args)
			_, given = p.calls.Load(cmp.Or(call.ID, what))
			vouched, given, first = signed("call", what), given && first, false
		}
		signature := string(part.ThoughtSignature)
		switch {
		case given && signature == "":
			return bad(place, "function call %s is missing its thought signature", part.FunctionCall.Name)
		case signature != "" && signature != vouched && (given && own || !slices.Contains(foreign, signature)):
			return bad(place, "a thought signature is not mine, or not of this part")
		}
	}
	return nil
}

// vouches is what the signature of a call stands for.
func vouches(name string, arguments map[string]any) string {
	if arguments == nil {
		arguments = map[string]any{}
	}
	return name + " " + encode(arguments)
}
