package sse_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sovereign/internal/text/sse"
)

type event struct{ Name, Data string }

// all reads a stream that comes in these pieces. Each is overwritten once it was read.
func all(most int, pieces ...[]byte) (events []event, rest bool, err error) {
	r := sse.Reader{Most: most}
	for _, p := range pieces {
		p = bytes.Clone(p)
		err = r.Feed(p, func(e sse.Event) error {
			events = append(events, event{e.Name, string(e.Data)})
			return nil
		})
		clear(p)
		if err != nil {
			return events, false, err
		}
	}
	return events, r.Rest(), nil
}

func TestWhatAStreamSays(t *testing.T) {
	for stream, want := range map[string][]event{
		"":                                           nil,
		"data: a\n\n":                                {{"", "a"}},
		"data:a\n\n":                                 {{"", "a"}},
		"data:  a \n\n":                              {{"", " a "}},
		"data: a\r\n\r\n":                            {{"", "a"}},
		"data: a\r\ndata: b\n\r\n":                   {{"", "a\nb"}},
		"data: a\ndata: b\n\ndata: c\n\n":            {{"", "a\nb"}, {"", "c"}},
		"data:\ndata: b\n\n":                         {{"", "\nb"}},
		"data: a\ndata:\n\n":                         {{"", "a\n"}},
		"data:\ndata:\n\n":                           {{"", "\n"}},
		"data:\n\n":                                  nil,
		"data: \n\ndata: x\n\n":                      {{"", "x"}},
		"\n\n\r\n\n":                                 nil,
		": ping\ndata: a\n: ping\n\n":                {{"", "a"}},
		":\n\n:\n\n":                                 nil,
		"event: e\ndata: a\n\ndata: b\n\n":           {{"e", "a"}, {"", "b"}},
		"data: a\nevent:e\n\n":                       {{"e", "a"}},
		"event: e\nevent: f\ndata: a\n\n":            {{"f", "a"}},
		"event: e\n\ndata: a\n\n":                    {{"", "a"}},
		"id: 1\nretry: 5\ndata: a\n\n":               {{"", "a"}},
		"id: 1\n\nretry: 5\n\n":                      nil,
		"data: {\"a\":\"b: c\"}\n\ndata: [DONE]\n\n": {{"", `{"a":"b: c"}`}, {"", "[DONE]"}},
		"data: a\rb\n\n":                             {{"", "a\rb"}},
		"data: é\u2028😀\n\n":                         {{"", "é\u2028😀"}},
		"data: data: a\n\n":                          {{"", "data: a"}},
		"event: " + strings.Repeat("e", 9) + "\ndata:1\n\n": {{strings.Repeat("e", 9), "1"}},
	} {
		got, rest, err := all(0, []byte(stream))
		if err != nil || rest {
			t.Errorf("%q: %v, rest %v", stream, err, rest)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", stream, diff)
		}
	}
}

func TestWhatIsNoStreamIsRefused(t *testing.T) {
	for _, stream := range []string{"<html>\n", "{\"error\":1}\n", "data: a\n\nnonsense\n", "date: a\n", " data: a\n", "data\n", "x\n\n"} {
		if _, _, err := all(0, []byte(stream)); !errors.Is(err, sse.ErrStream) {
			t.Errorf("%q: %v", stream, err)
		}
	}
	events, _, err := all(0, []byte("data: a\n\nnonsense\ndata: b\n\n"))
	if err == nil || len(events) != 1 {
		t.Errorf("%v, %v", events, err)
	}
}

func TestAStreamThatBreaksOffHasARest(t *testing.T) {
	for stream, want := range map[string]bool{
		"": false, "data: a\n\n": false, ": ping\n": false, "data: a\n\n: ping\n": false,
		"d": true, "data: a": true, "data: a\n": true, "data: a\r\n\r": true, "data:\n": true, "data: a\n\ndata: b\n": true,
	} {
		if _, rest, err := all(0, []byte(stream)); rest != want || err != nil {
			t.Errorf("%q: %v, %v", stream, rest, err)
		}
	}
}

func TestAnEventHasABound(t *testing.T) {
	const most = 100
	for name, stream := range map[string]string{
		"a line":            "data: " + strings.Repeat("x", most-5) + "\n\n",
		"a line, unended":   "data: " + strings.Repeat("x", most),
		"a comment":         ":" + strings.Repeat("x", most) + "\n",
		"many lines":        strings.Repeat("data: 0123456789\n", 12) + "\n",
		"many empty lines":  strings.Repeat("data:\n", most) + "\n",
		"no line at all":    strings.Repeat("x", most+1),
		"a name":            "event:" + strings.Repeat("x", most) + "\n",
		"after a good one":  "data: a\n\ndata: " + strings.Repeat("x", most) + "\n\n",
		"a carriage return": "data: " + strings.Repeat("x", most-6) + "\r\n\n",
	} {
		if _, _, err := all(most, []byte(stream)); !errors.Is(err, sse.ErrStream) {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := all(0, []byte(stream)); errors.Is(err, sse.ErrStream) && name != "no line at all" {
			t.Errorf("%s, unbounded: %v", name, err)
		}
	}
	for _, stream := range []string{"data: " + strings.Repeat("x", most-6) + "\n\n", strings.Repeat("data: "+strings.Repeat("x", most-6)+"\n\n: ping\nid: 1\n", 50)} {
		if _, _, err := all(most, []byte(stream)); err != nil {
			t.Error(err)
		}
	}
}

func TestAnErrorOfWhoReadsStops(t *testing.T) {
	var r sse.Reader
	full, seen := errors.New("full"), 0
	err := r.Feed([]byte("data: a\n\ndata: b\n\n"), func(sse.Event) error {
		seen++
		return full
	})
	if !errors.Is(err, full) || seen != 1 {
		t.Errorf("%v after %d", err, seen)
	}
}

// anyStream is lines of all sorts; now and then one that is none of a stream's.
func anyStream() *rapid.Generator[[]byte] {
	line := rapid.OneOf(
		rapid.Just(""), rapid.Just(""), rapid.Just("data:"), rapid.Just("data: {\"a\":1}"), rapid.Just(": ping"), rapid.Just("event: message"), rapid.Just("data: [DONE]"),
		rapid.Map(rapid.StringMatching(`[ -~é\r]{0,20}`), func(s string) string { return "data:" + s }),
		rapid.Map(rapid.StringMatching(`(event|id|retry|):[ -~]{0,8}`), func(s string) string { return s }),
		rapid.Custom(func(t *rapid.T) string {
			if rapid.IntRange(0, 9).Draw(t, "odd") > 0 {
				return ""
			}
			return rapid.StringMatching(`[ -~\x00]{0,20}`).Draw(t, "garbage")
		}),
	)
	return rapid.Custom(func(t *rapid.T) []byte {
		var b bytes.Buffer
		for _, l := range rapid.SliceOfN(line, 0, 30).Draw(t, "lines") {
			b.WriteString(l + rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end"))
		}
		return b.Bytes()[:rapid.IntRange(0, b.Len()).Draw(t, "until")]
	})
}

func TestAStreamCutAnywhereReadsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stream, most := anyStream().Draw(t, "stream"), rapid.SampledFrom([]int{0, 10, 25, 60}).Draw(t, "most")
		want, wantRest, wantErr := all(most, stream)
		cuts := rapid.SliceOf(rapid.IntRange(0, len(stream))).Draw(t, "cuts")
		slices.Sort(cuts)
		var pieces [][]byte
		from := 0
		for _, to := range append(cuts, len(stream)) {
			pieces, from = append(pieces, stream[from:to]), to
		}
		got, rest, err := all(most, pieces...)
		if diff := cmp.Diff(want, got); diff != "" || rest != wantRest || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("%q: %s, rest %v and %v, %v and %v", pieces, diff, rest, wantRest, err, wantErr)
		}
	})
}

// plain reads a stream the simple way: all at once, line by line.
func plain(stream string) (events []event) {
	var data []string
	name := ""
	lines := strings.Split(stream, "\n")
	for _, line := range lines[:len(lines)-1] {
		line = strings.TrimSuffix(line, "\r")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if text := strings.Join(data, "\n"); text != "" {
				events = append(events, event{name, text})
			}
			name, data = "", nil
		case field == "data":
			data = append(data, value)
		case field == "event":
			name = value
		}
	}
	return events
}

func TestAStreamIsReadAsItsLinesSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stream := anyStream().Draw(t, "stream")
		got, _, err := all(0, stream)
		if err != nil {
			return
		}
		if diff := cmp.Diff(plain(string(stream)), got); diff != "" {
			t.Fatalf("%q: %s", stream, diff)
		}
	})
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("event: e\ndata: a\r\ndata: b\n\n: ping\ndata: [DONE]\n\n"), uint16(7))
	f.Add([]byte("id: 1\nretry: 2\ndata:\n\n<html>"), uint16(1))
	f.Fuzz(func(t *testing.T, stream []byte, cut uint16) {
		for _, most := range []int{0, 32} {
			at := int(cut) % (len(stream) + 1)
			want, wantRest, wantErr := all(most, stream)
			got, rest, err := all(most, stream[:at], stream[at:])
			if diff := cmp.Diff(want, got); diff != "" || rest != wantRest || (err == nil) != (wantErr == nil) {
				t.Fatalf("%s, rest %v and %v, %v and %v", diff, rest, wantRest, err, wantErr)
			}
			if most == 0 && err == nil && !slices.Equal(plain(string(stream)), got) {
				t.Fatalf("%v", got)
			}
		}
	})
}
