package notify

import (
	"testing"
	"time"

	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/notice"
)

// An address is anyone's: a workspace must not flood it with what this server sends.
func TestWhatIsSentOnDemandIsBounded(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx, ws, other := t.Context(), f.workspace(), f.workspace()
		var last Delivery
		c := f.channel(ws, "http://127.0.0.1:1", notice.WalletLow)
		for range mostTests {
			made, err := f.Test(ctx, ws, admin, c.ID)
			if err != nil {
				t.Fatal(err)
			}
			last = made
		}
		another := f.channel(ws, "http://127.0.0.1:1", notice.WalletLow)
		_, err := f.Test(ctx, ws, admin, another.ID)
		dbtest.Refused(t, err, 429)
		if _, err := f.Test(ctx, other, admin, f.channel(other, "http://127.0.0.1:1", notice.WalletLow).ID); err != nil {
			t.Errorf("another workspace: %v", err)
		}
		f.at = f.at.Add(2 * time.Hour)
		if _, err := f.Test(ctx, ws, admin, another.ID); err != nil {
			t.Errorf("hours later: %v", err)
		}
		if _, err := db.Exec(ctx, f.db.In(ws), `
			UPDATE notice_deliveries SET state = 'delivered', attempts = $3 WHERE workspace_id = $1 AND id = $2`, last.ID, mostAttempts); err != nil {
			t.Fatal(err)
		}
		_, err = f.Redeliver(ctx, ws, admin, c.ID, last.ID)
		dbtest.Refused(t, err, 409)
	})
}
