package answer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestThePlainUsageReaderAgreesWithTheDecoder(t *testing.T) {
	number := rapid.OneOf(rapid.StringMatching(`[1-9][0-9]{0,4}`), rapid.Just("0"), rapid.SampledFrom([]string{"0", "1", "12", "007", "999999999", "1000000000", "12345678901", "-1", "1.0", "1.5", "1e3", "null", `"3"`, "true", "", " 5", "[]"}))
	names := rapid.SampledFrom([]string{"completion_tokens", "total_tokens", "prompt_tokens", "Prompt_Tokens", "promptTokens", "cost", "input"})
	inner := rapid.SampledFrom([]string{"cached_tokens", "cache_write_tokens", "audio_tokens", "reasoning_tokens", "accepted_prediction_tokens", "image_tokens", "CachedTokens"})
	rapid.Check(t, func(t *rapid.T) {
		object := func(name *rapid.Generator[string], label string) string {
			var members []string
			for range rapid.IntRange(0, 4).Draw(t, label) {
				members = append(members, fmt.Sprintf(`"%s":%s`, name.Draw(t, "name"), number.Draw(t, "number")))
			}
			return strings.Join(members, ",")
		}
		members := []string{`"prompt_tokens":` + number.Draw(t, "prompt"), object(names, "members")}
		for _, details := range []string{"prompt_tokens_details", "completion_tokens_details"} {
			if rapid.Bool().Draw(t, details) {
				members = append(members, fmt.Sprintf(`"%s":{%s}`, details, object(inner, "details")))
			}
		}
		value := []byte("{" + strings.Join(members, ",") + "}")
		if diff := cmp.Diff(decodedUsage(value), Usage(value)); diff != "" {
			t.Fatalf("%s\n%s", value, diff)
		}
	})
	if plainUsage([]byte(`{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15}`)) == nil {
		t.Error("the simplest usage is not read by plainUsage")
	}
}
