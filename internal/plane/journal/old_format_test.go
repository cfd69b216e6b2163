package journal

import (
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
		record := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)))
		record = append(binary.LittleEndian.AppendUint32(record, crc32.Checksum(payload, castagnoli)), payload...)
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
