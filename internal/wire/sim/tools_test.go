package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"
)

func TestStructuredOutputSatisfiesTheSchemaOfTheRequest(t *testing.T) {
	schema := `{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":120},"tags":{"type":"array","items":{"enum":["x","y"]}}},"required":["name","age","tags"],"additionalProperties":false}`
	rapid.Check(t, func(t *rapid.T) {
		h := askChat(t, "sim/chat", chatBody(rapid.String().Draw(t, "question"), `"response_format":{"type":"json_schema","json_schema":{"name":"person","strict":true,"schema":`+schema+`}}`))
		plain := parse[map[string]any](t, schema)
		if why := breaks(plain, plain, parse[any](t, h.text())); why != "" || h.Choices[0].Finish != "stop" {
			t.Fatalf("%s: %s", h.text(), why)
		}
		if !strings.HasPrefix(h.text(), `{"name":`) {
			t.Fatalf("not in the schema's order: %s", h.text())
		}
	})
	object := parse[map[string]any](t, askChat(t, "sim/chat", chatWith(`"response_format":{"type":"json_object"}`)).text())
	if answer, _ := object["answer"].(string); object["simulated"] != true || !strings.HasPrefix(answer, "Simulated answer") {
		t.Error(object)
	}
}

var weather = `{"type":"function","function":{"name":"get_weather","description":"Weather of a place","parameters":{"type":"object","properties":{"city":{"type":"string"},"unit":{"enum":["C","F"]}},"required":["city","unit"],"additionalProperties":false}}}`

func TestToolsAreCalledByChoiceOrByName(t *testing.T) {
	tools := `"tools":[` + weather + `,{"type":"function","function":{"name":"clock"}},{"type":"function","function":{"name":"get"}}]`
	for _, c := range []struct {
		question, fields string
		want             []string
	}{
		{"How are you?", "", nil},
		{"I forget together", "", nil},
		{"get_weather in Rome", "", []string{"get_weather"}},
		{"Please GET-WEATHER!", `,"tool_choice":"auto"`, []string{"get_weather"}},
		{"clock and get_weather", "", []string{"get_weather", "clock"}},
		{"clock and get_weather", `,"parallel_tool_calls":true`, []string{"get_weather", "clock"}},
		{"clock and get_weather", `,"parallel_tool_calls":false`, []string{"get_weather"}},
		{"clock and get_weather", `,"tool_choice":"none"`, nil},
		{"How are you?", `,"tool_choice":"required"`, []string{"get_weather"}},
		{"The clock?", `,"tool_choice":"required"`, []string{"clock"}},
		{"get_weather", `,"tool_choice":{"type":"function","function":{"name":"clock"}}`, []string{"clock"}},
	} {
		h := askChat(t, "sim/chat", chatBody(c.question, tools+c.fields+`,"n":2`))
		for _, choice := range h.Choices {
			var got []string
			for _, call := range choice.Message.ToolCalls {
				got = append(got, call.Function.Name)
				if call.Type != "function" || !strings.HasPrefix(call.ID, "call_") {
					t.Errorf("%+v", call)
				}
				var arguments map[string]any
				if err := json.Unmarshal([]byte(call.Function.Arguments), &arguments); err != nil {
					t.Error(err)
				}
				if call.Function.Name == "get_weather" && (arguments["city"] == nil || arguments["unit"] != "C" && arguments["unit"] != "F") {
					t.Errorf("arguments %v", arguments)
				}
			}
			calls := len(c.want) > 0
			if slices.Contains(got, "get") {
				got = slices.DeleteFunc(got, func(name string) bool { return name == "get" }) // contained in get_weather too
			}
			if !slices.Equal(got, c.want) || (choice.Finish == "tool_calls") != calls || (choice.Message.Content == nil) != calls {
				t.Errorf("%s %s: %v, %s", c.question, c.fields, got, choice.Finish)
			}
		}
	}
}

// What agents ask seldom names the tool: the words decide.
func TestAToolThatFitsIsCalledUnasked(t *testing.T) {
	tool := func(name, description string) string {
		return fmt.Sprintf(`{"type":"function","function":{"name":%q,"description":%q}}`, name, description)
	}
	tools := `"tools":[` + strings.Join([]string{
		tool("get_weather", "Get the current weather for a city"), tool("searchFlights", "Find connections between two airports"),
		tool("calculator", "Evaluates arithmetic expressions, with sums and products"),
	}, ",") + `]`
	for question, want := range map[string]string{
		"What is the weather in Ulm?":                    "get_weather",
		"Is there a flight to Rome?":                     "searchFlights",
		"Which connections are there between airports?":  "searchFlights",
		"Evaluate this arithmetic expression: 2 + 2":     "calculator",
		"What is the current state of the city's parks?": "get_weather", // two words of its description
		"Who is the current president?":                  "",            // one word alone
		"Can you get me the user's tool, please?":        "",            // nothing but weak words
		"How are you?": "",
	} {
		for _, choice := range []string{"", `,"tool_choice":"auto"`, `,"tool_choice":"none"`} {
			var names []string
			for _, call := range askChat(t, "sim/chat", chatBody(question, tools+choice)).Choices[0].Message.ToolCalls {
				names = append(names, call.Function.Name)
			}
			called := strings.Join(names, "")
			if want := map[bool]string{false: want}[strings.Contains(choice, "none")]; called != want {
				t.Errorf("%s %s: %q is called, want %q", question, choice, called, want)
			}
		}
	}
}

// An agent ends: whatever follows the result, there is no second call for the same text, and one for the next.
func TestAToolIsCalledOnceForEachTextOfTheUser(t *testing.T) {
	ask := `{"role":"user","content":"What is the weather in Ulm?"}`
	called := `{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"get_weather","arguments":"{}"}}]}`
	result := `{"role":"tool","tool_call_id":"call_1","content":"21 degrees of weather"}`
	for messages, calls := range map[string]int{
		ask:                               1,
		ask + "," + called + "," + result: 0,
		ask + "," + called + "," + result + `,{"role":"system","content":"Answer about the weather now."}`:                                 0,
		ask + "," + called + "," + result + `,{"role":"assistant","content":"Warm."},{"role":"user","content":"And the weather in Bonn?"}`: 1,
	} {
		h := askChat(t, "sim/chat", `{"model":"m","messages":[`+messages+`],"tools":[`+weather+`]}`)
		if got := len(h.Choices[0].Message.ToolCalls); got != calls {
			t.Errorf("%d calls after %s", got, messages)
		}
	}
}

func TestAToolResultIsAnsweredWithText(t *testing.T) {
	body := `{"model":"m","messages":[{"role":"user","content":"get_weather"},` +
		`{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"get_weather","arguments":"{}"}}]},` +
		`{"role":"tool","tool_call_id":"call_1","content":"21 degrees"}],"tools":[` + weather + `],"tool_choice":"required"}`
	h := askChat(t, "sim/chat", body)
	if !strings.HasPrefix(h.text(), `Simulated answer of sim/chat to "get_weather", given "21 degrees": `) || h.Choices[0].Finish != "stop" {
		t.Errorf("%+v", h)
	}
}

func TestATruncatedToolCallHasFinishReasonLength(t *testing.T) {
	for limit := range 30 {
		h := askChat(t, "sim/chat", chatBody("clock and get_weather", fmt.Sprintf(`"tools":[%s,{"type":"function","function":{"name":"clock"}}],"max_tokens":%d`, weather, limit+1)))
		c := h.Choices[0]
		if h.Usage.Completion > int64(limit+1) || (c.Finish == "length") == (len(c.Message.ToolCalls) == 2 && c.Message.ToolCalls[1].Function.Arguments == "{}") {
			t.Errorf("%d: %+v", limit+1, c)
		}
	}
}
