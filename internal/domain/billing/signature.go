package billing

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"sovereign/internal/base/secret"
)

// tolerance is how far the time of a signature may be from now. It bounds how long an event can be replayed; one that
// is replayed within it changes nothing.
const tolerance = 5 * time.Minute

// maxSignatures bounds the signatures of one header. Stripe sends one for each secret in force, which are two at most.
const maxSignatures = 16

var errSignature = errors.New("the signature does not fit")

// verify checks the header Stripe-Signature (t=TIME,v1=HEX,…) of a body. One signature that fits is enough. Each is
// compared in constant time.
func verify(key secret.Text, header string, body []byte, now time.Time) error {
	if key.Empty() { // an empty key would sign whatever anyone sends
		return errSignature
	}
	var stamp string
	var signatures [][]byte
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "t":
			if stamp != "" {
				return errSignature
			}
			stamp = value
		case "v1":
			if sum, err := hex.DecodeString(value); err == nil && len(signatures) < maxSignatures {
				signatures = append(signatures, sum)
			}
		}
	}
	at, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || at < 0 || at > 1<<40 || now.Sub(time.Unix(at, 0)).Abs() > tolerance {
		return errSignature
	}
	want := sign(key, stamp, body)
	fits := false
	for _, signature := range signatures {
		fits = hmac.Equal(signature, want) || fits
	}
	if !fits {
		return errSignature
	}
	return nil
}

// sign is the signature of a body at a time.
func sign(key secret.Text, stamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(key.Reveal()))
	mac.Write([]byte(stamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}
