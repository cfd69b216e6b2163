package edge

import (
	"testing"

	"sovereign/internal/base/apikey"
)

// What a connection remembers of one key is never taken for another's, and what is no key is never remembered.
func TestAConnectionCachesTheDigestOfItsLastKey(t *testing.T) {
	first, firstDigest, _ := apikey.New()
	second, secondDigest, _ := apikey.New()
	headers := map[string]*apikey.Digest{
		"Bearer " + first.Reveal(): &firstDigest, "bearer " + first.Reveal(): &firstDigest, "Bearer " + second.Reveal(): &secondDigest,
		"": nil, "Bearer": nil, first.Reveal(): nil, "Basic " + first.Reveal(): nil, "Bearer " + first.Reveal()[1:]: nil,
		"Bearer " + first.Reveal() + " ": nil,
	}
	for _, alone := range []bool{true, false} {
		conn := &connection{}
		for one := range headers {
			for other := range headers {
				for _, header := range []string{one, other, other, one} {
					want := headers[header]
					c := call{conn: conn}
					if digest, err := c.readKey(header, alone); (err == nil) != (want != nil) || want != nil && digest != *want {
						t.Fatalf("a header of %d bytes, after others: %v", len(header), err)
					}
				}
			}
		}
		if !alone && !conn.lastHeader.Empty() {
			t.Error("a connection with many requests at once remembers one")
		}
	}
	none := call{}
	if digest, err := none.readKey("Bearer "+first.Reveal(), true); err != nil || digest != firstDigest {
		t.Error(err)
	}
}
