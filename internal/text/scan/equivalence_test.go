package scan_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"sovereign/internal/text/scan"
)

// checkSame compares Object with the byte-by-byte reference: the same members, or the same error text.
func checkSame(t interface{ Fatalf(string, ...any) }, text []byte) {
	got, err := scan.Object(text, nil)
	want, wantErr := referenceObject(text, nil)
	if fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Fatalf("%.300q: %v, want %v", text, err, wantErr)
	}
	for _, kind := range []error{scan.ErrSyntax, scan.ErrDepth, scan.ErrDuplicate, scan.ErrText} {
		if errors.Is(err, kind) != errors.Is(wantErr, kind) {
			t.Fatalf("%.300q: %v is not of the kind of %v", text, err, wantErr)
		}
	}
	if err != nil {
		return
	}
	if len(got) != len(want) {
		t.Fatalf("%.300q has %d members, want %d", text, len(got), len(want))
	}
	for i, m := range want {
		if !equal(got[i], m) {
			t.Fatalf("%.300q has the member %+v, want %+v", text, got[i], m)
		}
		n, array := referenceCount(m.Value, len(text))
		if !array {
			n = -1
		}
		if got[i].Elements != n {
			t.Fatalf("%.300q: %q has %d elements, want %d", text, m.Name, got[i].Elements, n)
		}
	}
}

func FuzzObjectMatchesReference(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
		f.Add([]byte(`{"a":"` + strings.Repeat("a", 40) + `\"` + strings.Repeat(`\\\"`, 20) + `","b":[` + seed + `]}`))
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkSame(t, text) })
}

// long draws the inside of a string that spans words and blocks, with escapes anywhere in it.
func long(t *rapid.T) string {
	part := rapid.SampledFrom([]string{
		"a", "bc ", "def, ghi", strings.Repeat("x", 7), strings.Repeat("x", 31), strings.Repeat("x", 64), strings.Repeat("x", 129),
		`\"`, `\"`, `\\`, `\n`, `\u0022`, `\\\"`, `\\\\`, strings.Repeat(`\`, 62), strings.Repeat(`\\`, 65), strings.Repeat(`\"`, 33), strings.Repeat(`a\"`, 21),
		"é", "漢", "😀", strings.Repeat("é", 16), strings.Repeat("漢字", 11), strings.Repeat("😀", 16), "{", "]", ",", "\n", "\x7f", "\u0080", "\ud7ff", "\ue000", "\U0010ffff",
	})
	return strings.Join(rapid.SliceOfN(part, 0, 12).Draw(t, "parts"), "")
}

func TestLongTextsMatchReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(`{"model":"` + long(t) + `","messages":[{"content":"` + long(t) + `"},"` + long(t) + `"` +
			rapid.SampledFrom([]string{"", ",1", " , [ ]", ",", ",,2", " 3", "}", "]"}).Draw(t, "more") + `],"` + long(t) + `":` + drawValue(t, 2) + `}`)
		checkSame(t, text)
		for range 4 {
			damaged := bytes.Clone(text)
			at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
			damaged[at] = rapid.SampledFrom([]byte("\"\\{}[],: 0atn\x00\x1f\x80\xbf\xc0\xc3\xe0\xed\xf0\xf4\xff")).Draw(t, "with")
			checkSame(t, damaged)
			checkSame(t, damaged[:rapid.IntRange(0, len(text)).Draw(t, "length")])
		}
	})
}

// TestOnlyUTF8WithoutNULIsAccepted tries every two leading bytes of a character, complete and truncated, within one
// block and across two.
func TestOnlyUTF8WithoutNULIsAccepted(t *testing.T) {
	ends := []byte{0, 'a', 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xFF}
	letters := bytes.Repeat([]byte("a"), 160)
	text := bytes.Clone(letters)
	check := func(before int, character []byte) {
		copy(text, letters)
		copy(text[before:], character)
		_, err := scan.Object(text, nil)
		if want := utf8.Valid(text) && bytes.IndexByte(text, 0) < 0; errors.Is(err, scan.ErrText) == want {
			t.Fatalf("%x behind %d bytes: %v", character, before, err)
		}
	}
	for first := range 256 {
		for second := range 256 {
			for _, before := range []int{62, 63, 158} {
				check(before, []byte{byte(first), byte(second)})
			}
			if first < 0xE0 {
				continue
			}
			for _, third := range ends {
				check(61, []byte{byte(first), byte(second), third})
				check(157, []byte{byte(first), byte(second), third})
				if first < 0xF0 {
					continue
				}
				for _, fourth := range ends {
					check(62, []byte{byte(first), byte(second), third, fourth})
				}
			}
		}
	}
	for _, torn := range []string{"é", "漢", "😀"} {
		for before := range 130 {
			for _, between := range []int{1, 2, 7, 8, 62, 63, 64, 65, 126, 127, 128, 129} {
				text := strings.Repeat("a", before) + torn[:1] + strings.Repeat("a", between) + torn[1:]
				if _, err := scan.Object([]byte(text), nil); !errors.Is(err, scan.ErrText) {
					t.Fatalf("%q: %v", text, err)
				}
			}
		}
	}
}

// Strings with escaped quotes are scanned block by block: the test places runs of backslashes at every offset of a
// block.
func TestRunsOfBackslashesAreCountedAcrossBlocks(t *testing.T) {
	for before := range 70 {
		for _, run := range []int{0, 1, 2, 3, 4, 31, 32, 62, 63, 64, 65, 66, 127, 128, 129, 130} {
			for _, behind := range []string{`"`, `a"`, `\"`} {
				inner := strings.Repeat(`\"`, 12) + strings.Repeat("a", before) + strings.Repeat(`\`, run) + behind
				checkSame(t, []byte(`{"a":"`+inner+`,"b":"`+strings.Repeat("c", 80)+`\""}`))
				checkSame(t, []byte(`{"a":"`+inner+`","b":"`+strings.Repeat("c", 80)+`"}`))
			}
		}
	}
}

func TestTruncatedTextIsValidatedAtEveryLength(t *testing.T) {
	alphabet := []string{"a", "é", "漢", "한", "ก", "😀", "\U0010ffff", strings.Repeat("a", 61)}
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(alphabet), 0, 80).Draw(t, "text"), ""))
		for cut := range text {
			if _, err := scan.Object(text[:cut], nil); errors.Is(err, scan.ErrText) == utf8.Valid(text[:cut]) {
				t.Fatalf("%q: %v", text[:cut], err)
			}
		}
	})
}

func TestTheElementsOfAnArrayAreCounted(t *testing.T) {
	for value, want := range map[string]int{
		`[]`: 0, `[ ]`: 0, `[1]`: 1, `[1,2]`: 2, ` [ "a,b" , [1,2] , {"c":[3,4]} ] `: 3, `[[],[]]`: 2, "[\n1\n,\n2\n]": 2,
		`{}`: -1, `1`: -1, `null`: -1, `"[1]"`: -1, `[1,,2]`: -1, `[1 2]`: -1, `[,]`: -1, `[1,]`: -1, `[,1]`: -1, `[:]`: -1, `[é]`: -1,
		strings.Repeat("[", most) + strings.Repeat("]", most): 1,
	} {
		members, err := scan.Object([]byte(`{"a":`+value+`}`), nil)
		if err != nil || members[0].Elements != want {
			t.Errorf("%.20s: %+v %v, want %d", value, members, err, want)
		}
	}
}

func TestUsualBodiesAreReadWithoutAllocating(t *testing.T) {
	members := make([]scan.Member, 0, 32)
	for _, text := range []string{event, answer, asked} {
		if n := testing.AllocsPerRun(10, func() { _, _ = scan.Object([]byte(text), members) }); n > 1 { // the text itself
			t.Errorf("%.60s: %v allocations", text, n)
		}
	}
}

// TestInvalidBytesAreFoundInLongStrings inserts invalid bytes at every offset, also in texts with another error.
func TestInvalidBytesAreFoundInLongStrings(t *testing.T) {
	prose := strings.Repeat("So it goes on and on, line by line. ", 20)
	for _, text := range []string{
		`{"a":"` + prose + `","b":["` + prose + `\"","` + prose[:200] + `é` + prose + `",{"c":"` + prose[:290] + `"}],"d":1}`,
		`{"a":"` + prose + `","b":["` + prose + `"],"a":"` + prose + `"}`, // refused
		`{"a":"` + prose + `","b":["` + prose + `"}`,
	} {
		checkSame(t, []byte(text))
		for _, bad := range []string{"\x00", "\x80", "\xff", "\xe2\x82", "\xc3"} {
			for at := range len(text) + 1 {
				checkSame(t, []byte(text[:at]+bad+text[at:]))
				if at+len(bad) <= len(text) {
					checkSame(t, []byte(text[:at]+bad+text[at+len(bad):]))
				}
			}
		}
	}
}

// TestABackslashBeforeABlockEscapesItsFirstByte places backslashes and a quote at every offset around block boundaries.
func TestABackslashBeforeABlockEscapesItsFirstByte(t *testing.T) {
	for before := range 500 {
		for slashes := range 5 {
			inner := strings.Repeat("x", before) + strings.Repeat(`\`, slashes) + `"`
			checkSame(t, []byte(`{"a":"`+inner+strings.Repeat("y", 600)+`","b":1}`))
			checkSame(t, []byte(`{"a":["`+inner+`,"b":1]}`+strings.Repeat(" ", 600)))
		}
	}
}

// TestTextsThatEndInsideAString truncates strings at every length, also after a backslash.
func TestTextsThatEndInsideAString(t *testing.T) {
	for before := range 700 {
		for _, last := range []string{``, `\`, `\\`, `\"`} {
			checkSame(t, []byte(`{"a":"`+strings.Repeat("x", before)+last))
			checkSame(t, []byte(`{"a":["`+strings.Repeat("x", before)+last))
		}
	}
}
