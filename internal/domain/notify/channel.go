// Package notify delivers notices to the channels of a workspace: e-mail addresses, and webhooks that are signed as
// Standard Webhooks says. A notice is in the outbox with its cause (store/notice); a delivery is tried again until it
// succeeds or a day has passed, so that a receiver gets it at least once, always with the same id.
package notify

import (
	"fmt"
	"net/mail"
	"slices"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/net/netguard"
	"sovereign/internal/store/notice"
)

// A Type is the way in which a channel delivers.
type Type string

// The types.
const (
	Email   Type = "email"
	Webhook Type = "webhook"
)

// A Channel is where notices of some kinds go.
type Channel struct {
	ID             string        `json:"id"`
	Object         string        `json:"object" enum:"channel"`
	Type           Type          `json:"type" enum:"email,webhook"`
	Address        string        `json:"address" doc:"The e-mail address, or the URL of the webhook"`
	Kinds          []notice.Kind `json:"kinds" db:"-" nullable:"false"`
	Enabled        bool          `json:"enabled"`
	FailingSince   *clock.Time   `json:"failing_since" db:"-" doc:"Since when every attempt has failed; after three days the channel is disabled"`
	DisabledReason string        `json:"disabled_reason,omitempty" doc:"Why the server disabled it"`
	CreatedAt      clock.Time    `json:"created_at"`
	UpdatedAt      clock.Time    `json:"updated_at"`
	Secret         string        `json:"secret,omitempty" db:"-" doc:"Of a webhook: what its signatures are made with; shown once"`
}

// A NewChannel is a channel to make.
type NewChannel struct {
	Type    Type          `json:"type" enum:"email,webhook"`
	Address string        `json:"address" maxLength:"2048" doc:"An e-mail address, or a public http or https URL"`
	Kinds   []notice.Kind `json:"kinds" nullable:"false" doc:"Which notices go there; GET /notifications lists them"`
	Enabled *bool         `json:"enabled,omitzero" doc:"true when it is left out"`
}

// A ChannelChange is what shall be set; what is nil stays. The address stays: a secret belongs to one receiver.
type ChannelChange struct {
	Kinds   *[]notice.Kind `json:"kinds,omitzero"`
	Enabled *bool          `json:"enabled,omitzero"`
}

// maxAddress bounds an e-mail address, in bytes.
const maxAddress = 254

// check reports the first rule that n breaks, naming the field, and puts a URL into its one spelling.
func (n *NewChannel) check(guard *netguard.Guard, mails bool) error {
	if err := checkKinds(n.Kinds); err != nil {
		return err
	}
	switch n.Type {
	case Webhook:
		at, err := guard.Parse(n.Address)
		if err != nil {
			return fault.Invalid("address", err.Error())
		}
		n.Address = at.String()
	case Email:
		if !mails {
			return fault.Conflict("e-mail is not configured here: use a webhook, or ask the operator for smtp")
		}
		if !isAddress(n.Address) {
			return fault.Invalid("address", "must be an e-mail address such as ops@example.com")
		}
	default:
		return fault.Invalid("type", "must be email or webhook")
	}
	return nil
}

// isAddress reports whether a text is one plain e-mail address: nothing that could end a header or add a receiver.
func isAddress(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' || c == '<' || c == '>' || c == ',' || c == ';' || c == '"' || c == '\\' || c == '(' {
			return false
		}
	}
	parsed, err := mail.ParseAddress(text)
	return err == nil && parsed.Name == "" && parsed.Address == text && len(text) <= maxAddress
}

func checkKinds(kinds []notice.Kind) error {
	if len(kinds) == 0 {
		return fault.Invalid("kinds", "must name at least one kind")
	}
	for i, k := range kinds {
		switch {
		case !k.Chosen():
			return fault.Invalid(fmt.Sprintf("kinds[%d]", i), "is not a kind of notices")
		case slices.Contains(kinds[:i], k):
			return fault.Invalid(fmt.Sprintf("kinds[%d]", i), "is named twice")
		}
	}
	return nil
}

// wants reports whether a notice goes to a channel. A test goes to the channel that it is about.
func (c *Channel) wants(kind notice.Kind, subject string) bool {
	switch kind {
	case notice.Test:
		return subject == c.ID
	case notice.ChannelDisabled:
		return c.Enabled && subject != c.ID
	default:
		return c.Enabled && slices.Contains(c.Kinds, kind)
	}
}

// sealedFor is the associated data that a secret is sealed with: it opens for this workspace, channel and URL alone.
func sealedFor(ws tenant.ID, id, address string) string {
	return "signing secret of " + string(ws) + " for the channel " + id + " at " + address
}

// A DeliveryState is how far a delivery is.
type DeliveryState string

// The states.
const (
	Pending   DeliveryState = "pending"
	Delivered DeliveryState = "delivered"
	Failed    DeliveryState = "failed"
)

// deliveryStates lists every permitted change of state: what has ended may be delivered again on demand.
var deliveryStates = map[DeliveryState][]DeliveryState{
	Pending:   {Pending, Delivered, Failed},
	Delivered: {Pending},
	Failed:    {Pending},
}

func (s DeliveryState) may(to DeliveryState) bool { return slices.Contains(deliveryStates[s], to) }

// A Delivery is a notice on its way to a channel.
type Delivery struct {
	ID        string        `json:"id"`
	Object    string        `json:"object" enum:"delivery"`
	ChannelID string        `json:"channel_id"`
	NoticeID  string        `json:"notice_id" doc:"Its webhook-id; the same in every attempt"`
	Kind      notice.Kind   `json:"kind"`
	State     DeliveryState `json:"state" enum:"pending,delivered,failed"`
	Attempts  int64         `json:"attempts"`
	NextAt    *clock.Time   `json:"next_attempt_at" db:"-"`
	Failure   string        `json:"last_error,omitempty"`
	CreatedAt clock.Time    `json:"created_at"`
	EndedAt   *clock.Time   `json:"ended_at"`
}

// The times of deliveries.
const (
	firstDelay   = 5 * time.Second
	longestDelay = time.Hour
	giveUpAfter  = 24 * time.Hour
	disableAfter = 3 * 24 * time.Hour
	// claimTime is how long an attempt has a delivery for itself. A process that dies leaves it to the next one then.
	claimTime = 2 * time.Minute
	keepFor   = 30 * 24 * time.Hour
	// keepMarks is longer than the longest period that a mark stands for, a month.
	keepMarks = 62 * 24 * time.Hour
)

// delay is the time between the attempt of that number and the next one. It grows fourfold.
func delay(attempts int64) time.Duration {
	return min(firstDelay<<(2*min(max(attempts-1, 0), 10)), longestDelay)
}

// DefaultWalletLow is the mark below which a wallet is low, until a workspace sets another.
const DefaultWalletLow = 5 * money.Dollar
