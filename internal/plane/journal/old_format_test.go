package journal

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"sovereign/internal/live"
)

// A record of the release before there were prices for writing into a cache, for audio, reasoning and searches.
func TestARecordOfAnEarlierReleaseIsRead(t *testing.T) {
	for _, kind := range []Kind{Opened, Progressed, Settled} {
		payload := appendText([]byte{byte(kind)}, "req_1")
		for _, amount := range []int64{1000, 10, 3, 7, 2, 900, 800} {
			payload = binary.AppendVarint(payload, amount)
		}
		if kind != Progressed {
			payload = append(payload, 1)
			for _, text := range []string{"chat", "m", "prod", "prod", "p", "finished", "ws_1", "key_1"} {
				payload = appendText(payload, text)
			}
			for _, rate := range []int64{5, 4, 9} {
				payload = binary.AppendVarint(payload, rate)
			}
		}
		record := recordOf(payload)
		want := Entry{Kind: kind, Charge: Charge{Request: "req_1", At: 1000, Usage: live.Usage{Input: 10, Cached: 3, Output: 7, Reasoning: 2}, Cost: 900, Charged: 800}}
		if kind != Progressed {
			want.Route, want.Model, want.Requested, want.Alias, want.Provider, want.Outcome = "chat", "m", "prod", "prod", "p", "finished"
			want.Workspace, want.Key, want.Counted = "ws_1", "key_1", true
			want.Price = live.Flat(5, 9)
			want.Price.CachedInput = 4
		}
		if got, size, err := decodeEntry(record, map[string]string{}); err != nil || size != len(record) || got != want {
			t.Errorf("%d: %v\n%+v\nwant\n%+v", kind, err, got, want)
		}
	}
}

// A record of the release before there were named holds and seconds of a GPU. What uses neither is still written so,
// byte for byte: that release can read it.
func TestWhatUsesNoHoldIsWrittenAsByAnEarlierRelease(t *testing.T) {
	for _, kind := range []Kind{Opened, Progressed, Settled} {
		e := Entry{Kind: kind, Charge: charge("req_1", 900)}
		e.Usage.Searches, e.Own = 6, true
		payload := appendText([]byte{byte(kind)}, "req_1")
		for _, amount := range []int64{1700, 10, 3, 7, 2, 900, 900} {
			payload = binary.AppendVarint(payload, amount)
		}
		if kind != Progressed {
			payload = append(payload, 0)
			for _, text := range []string{"chat", "m", "a", "a", "p", "finished", "ws_1", "key_1"} {
				payload = appendText(payload, text)
			}
			for _, rate := range []int64{5, 4, 9} {
				payload = binary.AppendVarint(payload, rate)
			}
			payload = append(payload, 1)
			for _, rate := range []int64{6, 7, 8, 11, 12} {
				payload = binary.AppendVarint(payload, rate)
			}
		}
		for _, amount := range []int64{0, 0, 0, 6} {
			payload = binary.AppendVarint(payload, amount)
		}
		if got := appendEntry(nil, &e); !bytes.Equal(got, recordOf(payload)) {
			t.Errorf("%d: written as\n%q, want\n%q", kind, got, recordOf(payload))
		}
		want := e
		if kind == Progressed {
			want = Entry{Kind: kind, Charge: Charge{Request: "req_1", At: 1700, Usage: e.Usage, Cost: 900, Charged: 900}}
		}
		if got, size, err := decodeEntry(recordOf(payload), map[string]string{}); err != nil || size != len(payload)+headerSize || got != want {
			t.Errorf("%d: %v\n%+v\nwant\n%+v", kind, err, got, want)
		}
	}
}

// A record of the release before there were tags is read, and a tag is kept, with and without a hold.
func TestATagFollowsWhatEarlierReleasesWrote(t *testing.T) {
	for _, hold := range []string{"", "rs_1"} {
		e := Entry{Kind: Settled, Charge: charge("req_1", 900)}
		e.Hold = hold
		e.Usage.GPUSeconds = int64(len(hold)) // a release before wrote these two after the rest
		before := appendEntry(nil, &e)
		if got, _, err := decodeEntry(before, map[string]string{}); err != nil || got != e {
			t.Errorf("%v\n%+v\nwant\n%+v", err, got, e)
		}
		e.Tag = "nightly"
		after := appendEntry(nil, &e)
		if got, size, err := decodeEntry(after, map[string]string{}); err != nil || size != len(after) || got != e {
			t.Errorf("%v\n%+v\nwant\n%+v", err, got, e)
		}
		if hold != "" && !bytes.HasPrefix(after[headerSize:], before[headerSize:]) {
			t.Error("the tag is not at the end")
		}
	}
}

// A request that dies is charged to the hold that its first entry names, with the seconds that its last entry counts.
func TestAnOrphanKeepsItsHold(t *testing.T) {
	disk := tempDisk(t)
	j := begun(t, disk)
	e := Entry{Kind: Opened, Charge: charge("req_1", 5)}
	e.Hold, e.Price.GPUSecond, e.Tag = "rs_1", 77, "nightly"
	later := e
	later.Kind, later.Usage.GPUSeconds, later.Charged = Progressed, 60, 9
	if err := j.Append(e, later); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	orphans, err := next.Orphans(1)
	if err != nil || len(orphans) != 1 || orphans[0].Hold != "rs_1" || orphans[0].Price.GPUSecond != 77 || orphans[0].Usage.GPUSeconds != 60 || orphans[0].Charged != 9 || orphans[0].Tag != "nightly" {
		t.Errorf("%v %+v", err, orphans)
	}
}

// recordOf returns a payload with its header.
func recordOf(payload []byte) []byte {
	record := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)))
	return append(binary.LittleEndian.AppendUint32(record, crc32.Checksum(payload, castagnoli)), payload...)
}
