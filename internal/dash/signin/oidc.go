package signin

// A Provider is an identity provider (OpenID Connect).
type Provider struct {
	Name string // as people know it
	Only bool   // no other way in: no passwords, no links but the operator's
}
