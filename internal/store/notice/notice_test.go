package notice_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/notice"
)

const ws = tenant.ID("ws_1")

func count(t *testing.T, d *db.DB) int { t.Helper(); return dbtest.Count(t, d, "notices") }

func TestANoticeExistsWithItsCauseOrNotAtAll(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		calls := 0
		d.Listen(notice.Topic, func() { calls++ })
		broken := errors.New("the cause fails")
		_, err := d.Tx(t.Context(), func(tx *db.Tx) error {
			if err := notice.Add(t.Context(), tx, ws, notice.Notice{Kind: notice.WalletLow}); err != nil {
				return err
			}
			return broken
		})
		if !errors.Is(err, broken) || count(t, d) != 0 || calls != 0 {
			t.Errorf("%v, %d notices, %d calls", err, count(t, d), calls)
		}
		if _, err := d.Tx(t.Context(), func(tx *db.Tx) error {
			return notice.Add(t.Context(), tx, ws, notice.Notice{Kind: notice.WalletLow})
		}); err != nil || count(t, d) != 1 || calls != 1 {
			t.Errorf("%v, %d notices, %d calls", err, count(t, d), calls)
		}
	})
}

func TestOnceIsOnceUntilItIsCleared(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		once := func(of tenant.ID, mark string) {
			t.Helper()
			if _, err := d.Tx(t.Context(), func(tx *db.Tx) error {
				return notice.Once(t.Context(), tx, of, mark, notice.Notice{Kind: notice.WalletLow})
			}); err != nil {
				t.Fatal(err)
			}
		}
		for i, step := range []struct {
			ws   tenant.ID
			mark string
			want int
		}{{ws, "a", 1}, {ws, "a", 1}, {ws, "b", 2}, {"ws_2", "a", 3}} {
			if once(step.ws, step.mark); count(t, d) != step.want {
				t.Errorf("step %d: %d notices", i, count(t, d))
			}
		}
		if _, err := d.Tx(t.Context(), func(tx *db.Tx) error { return notice.Clear(t.Context(), tx, ws, "a") }); err != nil {
			t.Fatal(err)
		}
		once("ws_2", "a")
		if once(ws, "a"); count(t, d) != 4 {
			t.Errorf("after it was cleared: %d notices", count(t, d))
		}
	})
}

// Texts of customers are stored whatever they are: cut, without credentials, and a title is one line.
func TestAnyTextIsStoredAsPlainText(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		type row struct{ Title, Body string }
		store := func(title, text string) row {
			noticeID := ""
			if _, err := d.Tx(t.Context(), func(tx *db.Tx) (err error) {
				noticeID, err = notice.Write(t.Context(), tx, ws, notice.Notice{Kind: notice.JobEnded, Subject: title, Title: title, Text: text})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			stored, err := db.One[row](t.Context(), d.In(ws), `SELECT title, body FROM notices WHERE workspace_id = $1 AND id = $2`, noticeID)
			if err != nil {
				t.Fatal(err)
			}
			return stored
		}
		rapid.Check(t, func(r *rapid.T) {
			got := store(string(rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(r, "title")), rapid.String().Draw(r, "text"))
			if strings.ContainsAny(got.Title, "\r\n\x00\x1b") || utf8.RuneCountInString(got.Title) > 200 || !utf8.ValidString(got.Title) {
				r.Fatalf("the title is %q", got.Title)
			}
		})
		got := store("a\r\nBcc: x@y.z", "key sk-proj-"+strings.Repeat("a1B2", 12)+" "+strings.Repeat("x", 5000))
		if got.Title != "a  Bcc: x@y.z" || strings.Contains(got.Body, "a1B2a1B2") || utf8.RuneCountInString(got.Body) > 4000 {
			t.Errorf("%q, %.100q", got.Title, got.Body)
		}
	})
}

func TestEveryKindThatCanBeChosenSaysWhen(t *testing.T) {
	for _, k := range notice.Kinds {
		if !k.Kind.Chosen() || k.When == "" {
			t.Errorf("%+v", k)
		}
	}
	if len(notice.Kinds) != 8 || notice.Test.Chosen() || notice.ChannelDisabled.Chosen() || notice.Kind("").Chosen() {
		t.Error("the kinds are not those of the contract")
	}
}
