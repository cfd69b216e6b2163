package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
)

// A turn is all messages of one role in a row.
type turn struct {
	role   string
	blocks []anthropic.ContentBlockParamUnion
}

var (
	anthropicID     = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	anthropicName   = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	anthropicImages = []anthropic.Base64ImageSourceMediaType{"image/jpeg", "image/png", "image/gif", "image/webp"}
)

const (
	leastBudget = 1024
	mostMarks   = 4 // of the prompt's cache
)

// anthropicRules are the rules of the API that converters break.
func anthropicRules(p *anthropic.MessageNewParams) ([]turn, error) {
	temperature := p.Temperature.Or(1)
	switch {
	case p.MaxTokens < 1:
		return nil, bad("max_tokens", "it must be at least 1")
	case temperature < 0 || temperature > 1:
		return nil, bad("temperature", "it must be 0 to 1")
	case p.TopP.Or(1) < 0 || p.TopP.Or(1) > 1:
		return nil, bad("top_p", "it must be 0 to 1")
	case p.Temperature.Valid() && p.TopP.Valid():
		return nil, bad("top_p", "it cannot be specified beside temperature for this model")
	case strings.Contains(p.Metadata.UserID.Or(""), "@"):
		return nil, bad("metadata.user_id", "it looks like an e-mail address")
	case slices.ContainsFunc(p.StopSequences, func(s string) bool { return strings.TrimSpace(s) == "" }):
		return nil, bad("stop_sequences", "each must have more than white space")
	case slices.ContainsFunc(p.System, func(b anthropic.TextBlockParam) bool { return blank(b.Text) }):
		return nil, bad("system", "text blocks must have more than white space")
	}
	if err := thinkingRules(p); err != nil {
		return nil, err
	}
	if err := toolRules(p); err != nil {
		return nil, err
	}
	if err := closed("output_config.format.schema", p.OutputConfig.Format.Schema); err != nil {
		return nil, err
	}
	turns, err := anthropicTurns(p)
	if err != nil {
		return nil, err
	}
	if p.Thinking.OfEnabled != nil && unthought(turns) {
		return nil, bad(
			"messages",
			"a final assistant message with tool uses must start with a thinking block when thinking is enabled",
		)
	}
	return turns, callRules(turns)
}

func blank(text string) bool { return strings.TrimSpace(text) == "" }

// unthought reports whether the request continues after tool calls that have no thought before them.
func unthought(turns []turn) bool {
	called := false
	for _, t := range slices.Backward(turns) {
		results := slices.ContainsFunc(t.blocks, func(b anthropic.ContentBlockParamUnion) bool {
			return b.OfToolResult != nil
		})
		if t.role == "user" && !results {
			break
		}
		for _, b := range t.blocks {
			if b.OfThinking != nil || b.OfRedactedThinking != nil {
				return false
			}
			called = called || b.OfToolUse != nil
		}
	}
	return called
}

func thinkingRules(p *anthropic.MessageNewParams) error {
	enabled := p.Thinking.OfEnabled
	if enabled != nil && (enabled.BudgetTokens < leastBudget || enabled.BudgetTokens >= p.MaxTokens) {
		return bad(
			"thinking.budget_tokens", "it is %d, and must be at least %d and less than max_tokens, which is %d",
			enabled.BudgetTokens, leastBudget, p.MaxTokens,
		)
	}
	if enabled == nil && p.Thinking.OfAdaptive == nil {
		return nil
	}
	switch {
	case p.Temperature.Or(1) != 1:
		return bad("temperature", "it may only be set to 1 when thinking is on")
	case p.TopK.Valid():
		return bad("top_k", "it must be unset when thinking is on")
	case p.TopP.Or(1) < 0.95:
		return bad("top_p", "it must be at least 0.95, or unset, when thinking is on")
	case p.ToolChoice.OfAny != nil || p.ToolChoice.OfTool != nil:
		return bad("tool_choice", "thinking may not be on when it forces the use of a tool")
	}
	return nil
}

func toolRules(p *anthropic.MessageNewParams) error {
	names := map[string]bool{}
	for i, t := range p.Tools {
		name := value(t.GetName())
		if names[name] || !anthropicName.MatchString(name) {
			return bad(fmt.Sprintf("tools[%d].name", i), "%q is no name, or is there twice", name)
		}
		names[name] = true
	}
	choice := p.ToolChoice
	if len(names) == 0 && (choice.OfAny != nil || choice.OfAuto != nil || choice.OfTool != nil) {
		return bad("tool_choice", "it may only be set where there are tools")
	}
	if choice.OfTool != nil && !names[choice.OfTool.Name] {
		return bad("tool_choice", "there is no tool %q", choice.OfTool.Name)
	}
	return nil
}

// closed wants every object of a schema to say that it has no other members.
func closed(place string, schema any) error {
	switch schema := schema.(type) {
	case map[string]any:
		if open, said := schema["additionalProperties"].(bool); schema["type"] == "object" && (!said || open) {
			return bad(place, "an object must have additionalProperties: false")
		}
		for name, within := range schema {
			if err := closed(place+"."+name, within); err != nil {
				return err
			}
		}
	case []any:
		for i, within := range schema {
			if err := closed(fmt.Sprintf("%s[%d]", place, i), within); err != nil {
				return err
			}
		}
	}
	return nil
}

// anthropicTurns merges messages of the same role, and checks every block by itself.
func anthropicTurns(p *anthropic.MessageNewParams) (turns []turn, err error) {
	marks := 0
	for i, m := range p.Messages {
		place, role := fmt.Sprintf("messages[%d]", i), string(m.Role)
		switch {
		case role != "user" && role != "assistant":
			return nil, bad(place+".role", "%q is none", role)
		case i == 0 && role != "user":
			return nil, bad(place+".role", "the first message must be the user's")
		case len(m.Content) == 0 && (role == "user" || i < len(p.Messages)-1):
			return nil, bad(place+".content", "it must not be empty")
		}
		var before trail
		for j, block := range m.Content {
			if err := blockRules(fmt.Sprintf("%s.content[%d]", place, j), role, block, &before); err != nil {
				return nil, err
			}
			if mark := block.GetCacheControl(); mark != nil && mark.Type != "" {
				marks++
			}
		}
		if n := len(turns); n > 0 && turns[n-1].role == role {
			turns[n-1].blocks = append(turns[n-1].blocks, m.Content...)
			continue
		}
		turns = append(turns, turn{role, m.Content})
	}
	if len(turns) == 0 {
		return nil, bad("messages", "at least one is required")
	}
	if marks > mostMarks {
		return nil, bad("cache_control", "there are %d, and %d are the most", marks, mostMarks)
	}
	if last := turns[len(turns)-1]; last.role == "assistant" {
		if text := last.message().Content.(string); strings.TrimRight(text, " \n\t") != text {
			return nil, bad("messages", "the last one must not end with white space when it is the assistant's")
		}
	}
	return turns, nil
}

// mine is the role that may send a block; the blocks that are not listed may come from either.
var mine = map[string]string{
	"tool_use": "assistant", "thinking": "assistant", "redacted_thinking": "assistant", "tool_result": "user",
	"image": "user", "document": "user",
}

func blockRules(place, role string, b anthropic.ContentBlockParamUnion, before *trail) error {
	defer before.follow(b)
	if owner := mine[value(b.GetType())]; owner != "" && owner != role {
		return bad(place, "a %s block is none of the %s's", *b.GetType(), role)
	}
	switch {
	case b.OfText != nil && blank(b.OfText.Text):
		return bad(place, "text blocks must have more than white space")
	case b.OfImage != nil:
		return imageRules(place, b.OfImage)
	case b.OfThinking != nil && b.OfThinking.Signature != before.sign(b.OfThinking.Thinking):
		return bad(place, "the signature of this thinking block is not mine: thinking blocks cannot be modified, and stay where they were")
	case b.OfRedactedThinking != nil && b.OfRedactedThinking.Data != sealedThought():
		return bad(place, "the data of this redacted thinking block is not mine")
	case b.OfToolUse != nil &&
		(!anthropicID.MatchString(b.OfToolUse.ID) || !anthropicName.MatchString(b.OfToolUse.Name)):
		return bad(place, "the id or the name of this tool use is none")
	case b.OfToolUse != nil:
		if _, ok := b.OfToolUse.Input.(map[string]any); !ok {
			return bad(place+".input", "it must be an object")
		}
	case b.OfToolResult != nil:
		for i, part := range b.OfToolResult.Content {
			if part.OfText != nil && blank(part.OfText.Text) {
				return bad(place, "text blocks must have more than white space")
			}
			if part.OfImage != nil {
				return imageRules(fmt.Sprintf("%s.content[%d]", place, i), part.OfImage)
			}
		}
	}
	return nil
}

// follow continues with a block. Consecutive texts count as one.
func (t *trail) follow(b anthropic.ContentBlockParamUnion) {
	switch {
	case b.OfText != nil:
		t.text(b.OfText.Text)
	case b.OfToolUse != nil:
		t.mark(b.OfToolUse.ID)
	case b.OfThinking != nil, b.OfRedactedThinking != nil:
		t.mark(*b.GetType())
	}
}

func imageRules(place string, image *anthropic.ImageBlockParam) error {
	source := image.Source
	switch {
	case source.OfBase64 != nil &&
		(source.OfBase64.Data == "" || !slices.Contains(anthropicImages, source.OfBase64.MediaType)):
		return bad(place+".source", "an image must have data, and %q is no type of one", source.OfBase64.MediaType)
	case source.OfURL != nil && !strings.HasPrefix(source.OfURL.URL, "http"):
		return bad(place+".source.url", "it is none")
	}
	return nil
}

// callRules check that the next turn begins with one result for every call, and has no other results.
func callRules(turns []turn) error {
	seen := map[string]bool{}
	var open []string
	for i, t := range turns {
		place := fmt.Sprintf("the turn after %d others", i)
		var answered []string
		for j, b := range t.blocks {
			if b.OfToolResult == nil {
				continue
			}
			if j > len(answered) {
				return bad(place, "tool results must come before anything else")
			}
			if id := b.OfToolResult.ToolUseID; !slices.Contains(open, id) || slices.Contains(answered, id) {
				return bad(place, "the tool result %q has no tool use in the turn before it, or it is there twice", id)
			}
			answered = append(answered, b.OfToolResult.ToolUseID)
		}
		if len(answered) != len(open) {
			return bad(place, "tool uses %v are not all answered", open)
		}
		open = nil
		for _, b := range t.blocks {
			if b.OfToolUse == nil {
				continue
			}
			if id := b.OfToolUse.ID; seen[id] {
				return bad(place, "the tool use id %q is there twice", id)
			}
			seen[b.OfToolUse.ID] = true
			open = append(open, b.OfToolUse.ID)
		}
	}
	if len(open) > 0 {
		return bad("messages", "tool uses %v are not answered", open)
	}
	return nil
}

// message is a turn as far as the answer depends on it. A turn with results has the role of a tool.
func (t turn) message() message {
	role, texts := t.role, []string{}
	for _, b := range t.blocks {
		switch {
		case b.OfText != nil:
			texts = append(texts, b.OfText.Text)
		case b.OfToolResult != nil:
			role = "tool"
			for _, part := range b.OfToolResult.Content {
				if part.OfText != nil {
					texts = append(texts, part.OfText.Text)
				}
			}
		}
	}
	return message{role, strings.Join(texts, " ")}
}
