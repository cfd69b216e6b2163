package judge

import (
	"cmp"
	"net/url"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/wire/chat"
)

// A turn is the part of a message that is shown. A model's reasoning is not part of what it says, and is not shown.
type turn struct {
	Role         string             `json:"role"`
	Name         string             `json:"name"`
	Content      jsontext.Value     `json:"content"`
	Refusal      *string            `json:"refusal"`
	Audio        *voice             `json:"audio"`
	ToolCalls    []jsontext.Value   `json:"tool_calls"`
	FunctionCall *chat.FunctionCall `json:"function_call"`
	ToolCallID   string             `json:"tool_call_id"`
}

// A voice is a spoken answer.
type voice struct {
	Data       string `json:"data"`
	Transcript string `json:"transcript"`
}

// said returns the pieces of a message, at least one. Of what cannot be read, only the size is shown.
func said(message jsontext.Value, role string) (all []piece) {
	t := turn{Role: role}
	if json.Unmarshal(message, &t, lenient) != nil {
		return []piece{{head: "a message in an unknown form of " + bytes(len(message))}}
	}
	all = t.content()
	if t.Refusal != nil && *t.Refusal != "" {
		all = append(all, t.refuses(*t.Refusal))
	}
	if t.Audio != nil {
		all = append(all, piece{
			head: t.who() + " speaks, in " + inBase64(t.Audio.Data) + " of audio:", text: defused(t.Audio.Transcript),
		})
	}
	for _, c := range t.ToolCalls {
		all = append(all, t.calls(c))
	}
	if f := t.FunctionCall; f != nil {
		all = append(all, piece{head: t.who() + " calls " + name(f.Name) + " with:", text: defused(f.Arguments)})
	}
	if len(all) == 0 {
		all = t.speaks("")
	}
	return all
}

var roles = map[string]string{
	chat.RoleSystem: chat.RoleSystem, chat.RoleDeveloper: chat.RoleDeveloper, chat.RoleUser: chat.RoleUser,
	chat.RoleAssistant: chat.RoleAssistant, chat.RoleTool: chat.RoleTool,
}

// who names the speaker of a turn.
func (t *turn) who() string {
	who := cmp.Or(roles[t.Role], name(t.Role))
	if t.Name != "" {
		who += " " + name(t.Name)
	}
	if t.ToolCallID != "" {
		who += " in reply to " + name(t.ToolCallID)
	}
	return who
}

func (t *turn) speaks(text string) []piece {
	if text == "" {
		return []piece{{head: t.who() + " says nothing"}}
	}
	return []piece{{head: t.who() + ":", text: defused(text)}}
}

func (t *turn) refuses(text string) piece {
	return piece{head: t.who() + " refuses:", text: defused(text)}
}

// content returns a text, parts, or nothing. Each text is a piece of its own, because what is between them is not
// shown.
func (t *turn) content() (all []piece) {
	switch t.Content.Kind() {
	case '"':
		var text string
		if json.Unmarshal(t.Content, &text, lenient) == nil {
			return t.speaks(text)
		}
	case '[':
		var parts []jsontext.Value
		if json.Unmarshal(t.Content, &parts, lenient) == nil {
			for _, p := range parts {
				all = append(all, t.part(p))
			}
			return all
		}
	case 'n', jsontext.KindInvalid: // it was left out
		return nil
	default:
	}
	return []piece{{head: t.who() + ", in an unknown form of " + bytes(len(t.Content))}}
}

func (t *turn) part(value jsontext.Value) piece {
	var p chat.Part
	if value.Kind() == '"' { // some clients send texts so
		var text string
		if json.Unmarshal(value, &text, lenient) == nil {
			return t.speaks(text)[0]
		}
	}
	if json.Unmarshal(value, &p, lenient) != nil {
		return piece{head: t.who() + " sends something in an unknown form of " + bytes(len(value))}
	}
	sends := t.who() + " sends "
	switch {
	case p.Type == chat.PartText:
		return t.speaks(p.Text)[0]
	case p.Type == chat.PartRefusal:
		return t.refuses(p.Refusal)
	case p.Type == chat.PartImage && p.ImageURL != nil:
		return piece{head: sends + "[image], " + from(p.ImageURL.URL), media: p.ImageURL.URL}
	case p.Type == chat.PartAudio && p.InputAudio != nil:
		return piece{
			head:  sends + "[audio], " + inBase64(p.InputAudio.Data) + " of " + name(p.InputAudio.Format),
			media: p.InputAudio.Data,
		}
	case p.Type == chat.PartFile && p.File != nil:
		return piece{
			head: sends + "[file] " + name(p.File.Filename) + ", " + from(p.File.FileData), media: p.File.FileData,
		}
	}
	return piece{head: sends + "a part of type " + name(p.Type)}
}

// calls returns the piece of a tool call.
func (t *turn) calls(value jsontext.Value) piece {
	var c chat.ToolCall
	var custom struct {
		Name  string `json:"name"`
		Input string `json:"input"`
	}
	if json.Unmarshal(value, &c, lenient) != nil || len(c.Custom) > 0 &&
		json.Unmarshal(c.Custom, &custom, lenient) != nil {
		return piece{head: t.who() + " calls a tool, in an unknown form of " + bytes(len(value))}
	}
	head := t.who() + " calls " + name(cmp.Or(c.Function.Name, custom.Name))
	if c.ID != "" {
		head += " as " + name(c.ID)
	}
	return piece{head: head + " with:", text: defused(cmp.Or(c.Function.Arguments, custom.Input))}
}

// from says where data is: the host of its address or, for data in the message, its size. The data is not shown.
func from(address string) string {
	if kind, data, ok := chat.DataURL(address); ok {
		return inBase64(data) + " of " + name(kind)
	}
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return "at " + name(u.Hostname())
	}
	return "of " + bytes(len(address))
}

func bytes(n int) string { return strconv.Itoa(n) + " bytes" }

// inBase64 writes the size of base64 data.
func inBase64(data string) string { return bytes(len(data) * 3 / 4) }
