package finetune

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"sovereign/internal/base/fault"
)

const good = `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`

func TestLinesOfEachFormatAreRead(t *testing.T) {
	for text, want := range map[string]Summary{
		good:                              {Chat, 1, int64(len(good) + 1)},
		good + "\n" + good + "\n\n":       {Chat, 2, int64(2*len(good) + 3)},
		`{"prompt":"a","completion":"b"}`: {PromptCompletion, 1, 32},
		`{"prompt":"","completion":"b","weight":0.9}`:                          {PromptCompletion, 1, 44},
		`{"prompt":"a","chosen":"b","rejected":"c"}`:                           {Preference, 1, 43},
		`{"messages":[{"role":"assistant","tool_calls":[{}]}]}`:                {Chat, 1, 54},
		`{"prompt":[{"role":"user","content":"a"}],"completion":"b"}` + "\r\n": {PromptCompletion, 1, 60},
	} {
		if got, err := readLines(strings.NewReader(text)); err != nil || got != want {
			t.Errorf("%s: %+v, want %+v: %v", text, got, want, err)
		}
	}
}

func TestAFaultIsNamedByItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "the file has no lines",
		"\n\n":                           "the file has no lines",
		good + "\nnope\n" + good:         "line 2: is not a JSON object with the members of an example",
		good + "\n\n" + good:             "line 2: is blank, and more lines follow",
		`{"messages":[]}`:                "line 1: messages is empty",
		`{"x":1}`:                        "line 1: has neither messages, nor prompt and completion, nor prompt, chosen and rejected",
		`{"prompt":"a"}`:                 "line 1: completion is missing, or neither a text nor messages",
		`{"prompt":"a","completion":""}`: "line 1: completion must be a text that is not empty",
		`{"prompt":"a","chosen":"b"}`:    "line 1: rejected is missing, or neither a text nor messages",
		good + "\n" + `{"prompt":"a","completion":"b"}`: "line 2: is prompt_completion, and the lines before are chat",
		`{"messages":[{"role":"user","content":"a"}]}`:  "line 1: messages must end with a message of the role assistant, and ends with user",
		`{"messages":[{"role":"robot","content":"a"}]}`: `line 1: messages[0].role is "robot", and must be system, developer, user, assistant or tool`,
		`{"messages":[{"role":"user"}]}`:                "line 1: messages[0] has neither content nor tool_calls",
		"{\"prompt\":\"\xff\",\"completion\":\"b\"}":    "line 1: is not UTF-8",
		good + "\n" + strings.Repeat("x", maxLine+1):    "line 2: is longer than 4194304 bytes",
		"1\n2\n": "line 1: is not a JSON object with the members of an example; line 2: is not a JSON object with the members of an example",
	} {
		_, err := readLines(strings.NewReader(text))
		if f := fault.From(err); err == nil || f.Kind != fault.InvalidParameter || f.Message != want {
			t.Errorf("%.80q: want %q, got %v", text, want, err)
		}
	}
	if _, err := readLines(strings.NewReader(strings.Repeat("x\n", 100))); !strings.HasSuffix(err.Error(), "line 20: is not a JSON object with the members of an example; and perhaps more") {
		t.Error(err)
	}
	broken := errors.New("the connection broke")
	if _, err := readLines(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func FuzzLines(f *testing.F) {
	f.Add(good)
	f.Add(good + "\n\n" + good)
	f.Add(`{"prompt":[{"role":"user","content":[{"type":"text"}]}],"chosen":"a","rejected":"b"}`)
	f.Fuzz(func(t *testing.T, text string) {
		sum, err := readLines(strings.NewReader(text))
		if err == nil && (sum.Rows < 1 || sum.Format == "" || sum.Rows > int64(strings.Count(text, "\n")+1)) {
			t.Errorf("%+v", sum)
		}
	})
}

func TestARequestIsCheckedByItsFields(t *testing.T) {
	ok := func() Request { return Request{BaseModel: "m", TrainingFile: "file_1", Budget: 1e9} }
	for want, change := range map[string]func(*Request){
		"":                              func(*Request) {},
		"baseModel is missing":          func(r *Request) { r.BaseModel = "" },
		"trainingFile or datasetId":     func(r *Request) { r.DatasetID = "ds_1" },
		"method must be sft or dpo":     func(r *Request) { r.Method = "ppo" },
		"datasetId has no preferences":  func(r *Request) { r.TrainingFile, r.DatasetID, r.Method = "", "ds_1", "dpo" },
		"suffix must be 1 to 40":        func(r *Request) { r.Suffix = "A b" },
		"budgetUsd must be at least":    func(r *Request) { r.Budget = 1 },
		"gpuCount must be 1 to 64":      func(r *Request) { r.GPUCount = 65 },
		"hyperparameters.epochs must":   func(r *Request) { r.Hyperparameters.Epochs = 101 },
		"hyperparameters.learningRate":  func(r *Request) { r.Hyperparameters.LearningRate = -1 },
		"hyperparameters.loraRank must": func(r *Request) { rank := int64(-1); r.Hyperparameters.LoRARank = &rank },
	} {
		r := ok()
		change(&r)
		r.defaults()
		if err := r.Check(); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestStepsAreRoundedUpByEpoch(t *testing.T) {
	h := Hyperparameters{Epochs: 3, BatchSize: 8, GradientAccumulation: 2}
	for rows, want := range map[int64]int64{1: 3, 16: 3, 17: 6, 160: 30} {
		if got := h.steps(rows); got != want {
			t.Errorf("%d rows: %d steps, want %d", rows, got, want)
		}
	}
	if h.MaxSteps = 5; h.steps(160) != 5 {
		t.Error("maxSteps is not obeyed")
	}
}
