package embed_test

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"sovereign/internal/wire/embed"
)

func packed(vector ...float32) string {
	var raw []byte
	for _, x := range vector {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(raw)
}

func TestVectorsAreWrittenInTheEncodingThatWasAskedFor(t *testing.T) {
	one, two := packed(1, -2.5), packed(0.1)
	for _, c := range []struct {
		to         embed.Encoding
		from, want string
	}{
		{
			embed.Base64, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1,-2.5]},{"embedding" : [0.1] ,"index":1}],"model":"embedding"}`,
			`{"object":"list","data":[{"object":"embedding","index":0,"embedding":"` + one + `"},{"embedding" : "` + two + `" ,"index":1}],"model":"embedding"}`,
		},
		{embed.Float, `{"data":[{"embedding":"` + one + `"},{"embedding":"` + two + `"}],"usage":{}}`, `{"data":[{"embedding":[1,-2.5]},{"embedding":[0.1]}],"usage":{}}`},
		{embed.Float, `{"data": [ {"embedding":"` + packed(1) + `"} , {"embedding":[2]} ] }`, `{"data": [{"embedding":[1]},{"embedding":[2]}] }`}, // one was right already
		{embed.Float, `{"data":[{"embedding":"` + base64.RawStdEncoding.EncodeToString([]byte{0, 0, 128, 63}) + `"}]}`, `{"data":[{"embedding":[1]}]}`},
	} {
		if c.to.Encodes([]byte(c.from)) {
			t.Errorf("%s looks like %s", c.from, c.to)
		}
		if got := string(c.to.Recode([]byte(c.from))); got != c.want || !c.to.Encodes([]byte(got)) {
			t.Errorf("%s\nbecame %s\nwant   %s", c.from, got, c.want)
		}
	}
}

// What cannot be written in another encoding is the provider's own form, and reaches the caller as it came.
func TestAVectorOfAnotherFormStaysAsItIs(t *testing.T) {
	for answer, to := range map[string]embed.Encoding{
		`{"data":[{"embedding":[[1],[2]]}]}`:                              embed.Base64,
		`{"data":[{"embedding":[]}]}`:                                     embed.Base64,
		`{"data":[{"embedding":[1e39]}]}`:                                 embed.Base64,
		`{"data":[{"embedding":[1,"x"]}]}`:                                embed.Base64,
		`{"data":[{"embedding":{"float":[1]}}]}`:                          embed.Base64,
		`{"data":[{"embedding":[1]},,{"embedding":[2]}]}`:                 embed.Base64,
		`{"data":[7,{"index":0}]}`:                                        embed.Base64,
		`{"data":{"embedding":[1]}}`:                                      embed.Base64,
		`{"vectors":[{"embedding":[1]}]}`:                                 embed.Base64,
		`{"data":[{"embedding":"not base64!"}]}`:                          embed.Float,
		`{"data":[{"embedding":"AAA="}]}`:                                 embed.Float,
		`{"data":[{"embedding":""}]}`:                                     embed.Float,
		`{"data":[{"embedding":"` + packed(float32(math.Inf(1))) + `"}]}`: embed.Float,
		`{"data":[{"embedding":"` + packed(float32(math.NaN())) + `"}]}`:  embed.Float,
		`{"data":[{"embedding":[1],"embedding":[2]}]}`:                    embed.Base64,
		`not JSON`: embed.Base64,
	} {
		if got := string(to.Recode([]byte(answer))); got != answer {
			t.Errorf("%s\nbecame %s", answer, got)
		}
	}
}

func TestAnAnswerAsAskedForIsRecognised(t *testing.T) {
	for answer, is := range map[string]embed.Encoding{
		`{"data":[{"object":"embedding","embedding":[1]}]}`:                                         embed.Float,
		`{"model":"embedding","data":[{"object" : "embedding" , "embedding"` + "\n\t" + `: "AA"}]}`: embed.Base64,
	} {
		other := map[embed.Encoding]embed.Encoding{embed.Float: embed.Base64, embed.Base64: embed.Float}[is]
		if !is.Encodes([]byte(answer)) || other.Encodes([]byte(answer)) {
			t.Errorf("%s is not taken for %s", answer, is)
		}
	}
	for _, none := range []string{``, `{}`, `"embedding"`, `"embedding":`, `{"data":[{"embedding":{"float":[1]}}]}`} {
		if !embed.Float.Encodes([]byte(none)) || !embed.Base64.Encodes([]byte(none)) {
			t.Errorf("%q has no vector that could be recoded", none)
		}
	}
}

// Numbers become base64 and numbers again without a loss: both hold float32.
func TestRecodingTwiceGivesTheSameNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vectors := rapid.SliceOfN(rapid.SliceOfN(rapid.Float32(), 1, 20), 1, 5).Draw(t, "vectors")
		var data []string
		for i, v := range vectors {
			text, err := json.Marshal(v)
			if err != nil {
				t.Skip("JSON has no such number")
			}
			data = append(data, fmt.Sprintf(`{"index":%d,"embedding":%s}`, i, text))
		}
		answer := `{"data":[` + strings.Join(data, ",") + `]}`
		if got := string(embed.Float.Recode(embed.Base64.Recode([]byte(answer)))); got != answer {
			t.Fatalf("%s\nbecame %s", answer, got)
		}
	})
}

func FuzzRecode(f *testing.F) {
	f.Add([]byte(`{"data":[{"embedding":[1,2]},{"embedding":"AACAPw=="}]}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		for _, to := range []embed.Encoding{embed.Float, embed.Base64} {
			to.Encodes(answer)
			if got := to.Recode(answer); len(got) > 16*len(answer)+16 {
				t.Errorf("%d bytes became %d", len(answer), len(got))
			}
		}
	})
}

func BenchmarkEncodes(b *testing.B) {
	answer := []byte(`{"object":"list","data":[{"object":"embedding","index":0,"embedding":"` + packed(make([]float32, 1536)...) + `"}]}`)
	b.ReportAllocs()
	for b.Loop() {
		if !embed.Base64.Encodes(answer) {
			b.Fatal("not recognised")
		}
	}
}
