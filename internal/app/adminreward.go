package app

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"sovereign/internal/domain/reward"
)

type rewardCommand struct {
	List  rewardList  `cmd:"" help:"List a workspace's reward sessions, the newest first."`
	Purge rewardPurge `cmd:"" help:"Delete the tasks, scored items and tokens of reward sessions that have ended. The sessions stay, with what they spent."`
}

type rewardList struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
	page        `embed:""`
	Status      string `enum:",ACTIVE,COMPLETED,OVERBUDGET,STOPPED,FAILED" default:"" placeholder:"STATUS" help:"Only those of this status."`
}

func (c *rewardList) Run(a *admin) error {
	query := c.query()
	query.Set("workspace", c.Workspace)
	if c.Status != "" {
		query.Set("status", c.Status)
	}
	return list(a, c.JSON, "/admin/reward/sessions", query, "ID\tSTATUS\tHELD\tSPENT\tBUDGET\tSCORED\tENDED\tPURGED\tLABEL",
		func(s reward.Session) string {
			return fmt.Sprintf("%s\t%s\t%v\t%s\t%s\t%d\t%s\t%s\t%s", s.ID, s.Status, s.Anchor.Held, s.Spent, s.Budget, s.Scored,
				when(s.StoppedAt), when(s.PurgedAt), s.Label)
		})
}

type rewardPurge struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
	Session     string `xor:"which" required:"" placeholder:"ID" help:"A session that has ended."`
	OlderThan   *days  `xor:"which" required:"" placeholder:"DAYS" help:"All sessions that ended at least this long ago, such as 30d."`
}

func (c *rewardPurge) Run(a *admin) error {
	in := reward.PurgeRequest{Workspace: c.Workspace, SessionID: c.Session}
	if c.OlderThan != nil {
		in.OlderThanDays = (*int64)(c.OlderThan)
	}
	var purged reward.Purged
	if err := a.call(http.MethodPost, "/admin/reward/purges", in, &purged, once); err != nil {
		return err
	}
	return a.show(c.JSON, purged, func(w io.Writer) { _, _ = fmt.Fprintf(w, "purged sessions\t%d\n", purged.Sessions) })
}

// days is a number of days on the command line, such as 30d.
type days int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *days) UnmarshalText(text []byte) error {
	number, ok := strings.CutSuffix(string(text), "d")
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || n < 0 || n > 36_500 {
		return fmt.Errorf("%q is not a number of days such as 30d", text)
	}
	*d = days(n)
	return nil
}
