package vault

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ErrVoided reports that a document is genuine, but was voided.
var ErrVoided = errors.New("is genuine, and was voided")

// ErrDocument reports that a signed document does not verify.
var ErrDocument = errors.New("does not verify")

// VerifyDocument checks a signed document, such as a certificate, offline. Its signature.jws is a compact JWS. The
// JWS payload is the document without signature and without the members whose name begins with voided, which are not
// signed. The signature must be by a key of jwks, and the document must show exactly what was signed. A document that
// says of itself that it was voided is ErrVoided; one that does not say so may have been voided all the same. It
// returns the id of the signing key.
func VerifyDocument(document, jwks []byte) (keyID string, err error) {
	var keys jose.JSONWebKeySet
	if err := json.Unmarshal(jwks, &keys); err != nil {
		return "", fmt.Errorf("the key set is not a JWKS: %w", err)
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(document, &members); err != nil {
		return "", fmt.Errorf("the document is not a JSON object: %w", err)
	}
	var signature Signature
	if err := json.Unmarshal(members["signature"], &signature, json.RejectUnknownMembers(true)); err != nil ||
		signature.JWS == "" {
		return "", errors.New("the document has no signature")
	}
	if signature.Alg != string(jose.EdDSA) {
		return "", fmt.Errorf("%w: it names the algorithm %q", ErrDocument, signature.Alg)
	}
	payload, err := verified(signature.JWS, signature.KeyID, keys)
	if err != nil {
		return "", err
	}
	voided := string(members["voided"]) == "true"
	for name := range members {
		if unsigned(name) {
			delete(members, name)
		}
	}
	shown, err := json.Marshal(members, json.Deterministic(true))
	if err != nil {
		return "", err
	}
	if same, err := equal(shown, payload); err != nil {
		return "", err
	} else if !same {
		return "", fmt.Errorf("%w: what it shows differs from what was signed", ErrDocument)
	}
	if voided {
		return signature.KeyID, ErrVoided
	}
	return signature.KeyID, nil
}

func verified(compact, keyID string, keys jose.JSONWebKeySet) ([]byte, error) {
	parsed, err := jose.ParseSignedCompact(compact, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return nil, fmt.Errorf("%w: the signature is not a compact EdDSA JWS", ErrDocument)
	}
	// base64 has several encodings of the same bytes; only one is accepted.
	if exact, err := parsed.CompactSerialize(); err != nil || exact != compact {
		return nil, fmt.Errorf("%w: the signature is not in its one spelling", ErrDocument)
	}
	if parsed.Signatures[0].Header.KeyID != keyID {
		return nil, fmt.Errorf("%w: it names key %q and was signed with %q", ErrDocument, keyID,
			parsed.Signatures[0].Header.KeyID)
	}
	candidates := keys.Key(keyID)
	if len(candidates) == 0 {
		return nil, fmt.Errorf("%w: key %q is not in the key set", ErrDocument, keyID)
	}
	for _, key := range candidates {
		if payload, err := parsed.Verify(key); err == nil {
			return payload, nil
		}
	}
	return nil, fmt.Errorf("%w: the signature is not by key %q", ErrDocument, keyID)
}

// keepNumbers leaves numbers as they are written: as floats, different ones could be equal.
var keepNumbers = json.JoinOptions(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))

// equal compares two JSON texts, regardless of the order of members, whitespace and the escaping of characters.
func equal(a, b []byte) (bool, error) {
	one, other := jsontext.Value(bytes.Clone(a)), jsontext.Value(bytes.Clone(b))
	if err := errors.Join(one.Canonicalize(keepNumbers), other.Canonicalize(keepNumbers)); err != nil {
		return false, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	return bytes.Equal(one, other), nil
}
