package app

import "sovereign/internal/domain/workspace"

type cacheCommand struct {
	On  cacheOn  `cmd:"" help:"Remember answers, and give them again to the same question for nothing."`
	Off cacheOff `cmd:"" help:"Remember nothing, but for requests that ask for it."`
}

type cacheOn struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
}

func (c *cacheOn) Run(a *admin) error {
	on := true
	return a.set(c.JSON, c.Workspace, workspace.SettingsChange{Cache: &on})
}

type cacheOff struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
}

func (c *cacheOff) Run(a *admin) error {
	off := false
	return a.set(c.JSON, c.Workspace, workspace.SettingsChange{Cache: &off})
}

type loggingCommand struct {
	On  loggingOn  `cmd:"" help:"Log chat exchanges, without credentials. It is in force when the command returns."`
	Off loggingOff `cmd:"" help:"Log nothing more. Rows that are there stay until their time is over, and cannot be read meanwhile."`
}

type loggingOn struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
	Retention   int64 `enum:"7,30,90" default:"30" help:"Days for which a row is kept: 7, 30 or 90. It holds for rows from now on."`
}

func (c *loggingOn) Run(a *admin) error {
	return a.set(c.JSON, c.Workspace, workspace.SettingsChange{LogRetentionDays: &c.Retention})
}

type loggingOff struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
}

func (c *loggingOff) Run(a *admin) error {
	off := int64(0)
	return a.set(c.JSON, c.Workspace, workspace.SettingsChange{LogRetentionDays: &off})
}
