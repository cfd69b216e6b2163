package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/go-json-experiment/json"

	"sovereign/internal/store/vault"
)

// release is set by the linker; see the Makefile.
var release = "dev"

// version is the release, with the commit it was built from where that is known.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" && len(setting.Value) >= 12 {
				return release + "+" + setting.Value[:12]
			}
		}
	}
	return release
}

type grammar struct {
	Serve   serveCommand   `cmd:"" help:"Run the server."`
	Admin   adminCommand   `cmd:"" help:"Administer a server, running or not."`
	Gate    gateCommand    `cmd:"" help:"Wait for an eval and ask its deploy gate. Exits with 0 if it passes, 1 if it refuses, 2 if it could not be asked."`
	Train   trainCommand   `cmd:"" help:"Run a training worker on this machine."`
	Verify  verifyCommand  `cmd:"" help:"Check a signed certificate, model version or head of a chain, offline."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

type configFlag struct {
	Config string `placeholder:"FILE" help:"Configuration file (YAML). Every key is also a flag, and SOVEREIGN_… in the environment."`
}

type serveCommand struct {
	configFlag `embed:""`
	Config     `embed:""`
	Bootstrap  bool `help:"On an empty database, make a workspace, an owner, $25 of credit and a key, and print them once."`
	Demo       bool `help:"Fill a demo workspace with simulated traffic, for the owner of the first workspace, unless there is one."`
}

type verifyCommand struct {
	File string `arg:"" help:"The certificate, the model version or the head (JSON)."`
	JWKS string `name:"jwks" required:"" placeholder:"FILE" help:"The public keys (JWKS)."`
}

type versionCommand struct{}

// A terminal is a command line, and the streams for its output.
type terminal struct {
	args     []string
	out, err io.Writer
}

// Main runs a command line and returns its exit code. An error is one line on stderr.
func Main(args []string, stdout, stderr io.Writer) int {
	syscall.Umask(0o077) // files of this process are for its user alone
	t := &terminal{args: args, out: stdout, err: stderr}
	if err := t.run(); err != nil {
		_, _ = fmt.Fprintln(stderr, "sovereign: "+oneLine(err))
		return exitCode(err)
	}
	return 0
}

func (t *terminal) run() error {
	parsed, err := parse(t.args, t.out)
	if err != nil && len(t.args) > 0 && t.args[0] == "gate" {
		return &exitError{gateUnasked, err} // a mistyped command line is not a refusal
	}
	if err != nil || parsed == nil {
		return err // without an error, help was asked for and given
	}
	var operator *admin
	connect := func() (*admin, error) {
		var err error
		mode := mustExist
		if parsed.context.Command() == "admin bootstrap" {
			mode = mayCreate
		}
		operator, err = dial(parsed.grammar.Admin.Storage, mode, t.out)
		return operator, err
	}
	defer func() {
		if operator != nil {
			operator.close()
		}
	}()
	if strings.HasPrefix(parsed.context.Command(), "admin ") {
		if err := parsed.grammar.Admin.complete(); err != nil {
			return parsed.file.locate(err)
		}
	}
	if err := parsed.context.BindToProvider(connect); err != nil {
		return err
	}
	return parsed.context.Run(t, parsed.file)
}

// A parsed command line.
type parsed struct {
	grammar *grammar
	context *kong.Context
	file    *file
}

// variables gives every flag its variable of the environment: --limits-body is SOVEREIGN_LIMITS_BODY.
func variables(node *kong.Node) {
	for _, flag := range node.Flags {
		if flag.Name == "help" {
			continue
		}
		name := "SOVEREIGN_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		flag.Envs, flag.Tag.Envs = []string{name}, []string{name}
	}
	for _, child := range node.Children {
		variables(child)
	}
}

// parse reads a command line and the configuration file that it names. It returns nil when help was printed.
func parse(args []string, out io.Writer) (*parsed, error) {
	path, err := configPath(args)
	if err != nil {
		return nil, err
	}
	p := &parsed{grammar: &grammar{}}
	helped := false
	options := []kong.Option{
		kong.Name("sovereign"),
		kong.Description("A self-hosted model improvement gateway."),
		kong.PostBuild(func(k *kong.Kong) error { variables(k.Model.Node); return nil }),
		kong.Writers(out, io.Discard),
		kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
	}
	if path != "" {
		if p.file, err = readFile(path); err != nil {
			return nil, err
		}
		options = append(options, kong.Resolvers(p.file))
	}
	parser, err := kong.New(p.grammar, options...)
	if err != nil {
		return nil, err
	}
	p.context, err = parser.Parse(args)
	if helped {
		return nil, nil //nolint:nilnil // help was the answer
	}
	if err != nil {
		return nil, fmt.Errorf("%w (see %s --help)", err, asked(err))
	}
	return p, nil
}

// asked is the command that a wrong command line was for.
func asked(err error) string {
	var mistake *kong.ParseError
	if errors.As(err, &mistake) {
		if node := mistake.Context.Selected(); node != nil {
			return node.FullPath()
		}
	}
	return "sovereign"
}

// configPath finds --config before the command line is parsed, because the file sets defaults of its flags.
func configPath(args []string) (string, error) {
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--config="); ok {
			return value, nil
		}
		if arg == "--config" {
			if i+1 == len(args) {
				return "", errors.New("--config needs a file")
			}
			return args[i+1], nil
		}
	}
	return os.Getenv("SOVEREIGN_CONFIG"), nil
}

// Run implements the command.
func (c *serveCommand) Run(t *terminal, underneath *file) error {
	if err := c.complete(); err != nil {
		return underneath.locate(err)
	}
	return underneath.locate(serve(&c.Config, func() (*Config, error) {
		return reread(t.args)
	}, greeting{c.Bootstrap, c.Demo}, t.out, t.err))
}

// reread parses the same command line again, with what the file says now.
func reread(args []string) (*Config, error) {
	again, err := parse(args, io.Discard)
	if err != nil {
		return nil, err
	}
	c := &again.grammar.Serve.Config
	if err := c.complete(); err != nil {
		return nil, again.file.locate(err)
	}
	return c, nil
}

// Run implements the command.
func (c *verifyCommand) Run(t *terminal) error {
	document, err := os.ReadFile(c.File)
	if err != nil {
		return err
	}
	keys, err := os.ReadFile(c.JWKS)
	if err != nil {
		return err
	}
	key, err := vault.VerifyDocument(document, keys)
	if err != nil {
		return fmt.Errorf("%s, with the keys of %s: %w", c.File, c.JWKS, err)
	}
	var says struct {
		CriterionID string `json:"criterion_id"`
		Version     int64  `json:"criterion_version"`
		JudgeModel  string `json:"judge_model"`
		N           int64  `json:"n"`
		Trust       string `json:"trust"`
		IssuedAt    string `json:"issued_at"`
	}
	_, err = fmt.Fprintf(t.out, "%s: valid, signed by %s\n", c.File, key)
	// it is a certificate; other documents may be signed, too
	if err == nil && json.Unmarshal(document, &says) == nil && says.CriterionID != "" {
		_, err = fmt.Fprintf(
			t.out, "%s: %s, version %d, judged by %s: %s, n = %d, issued %s\n", c.File, says.CriterionID, says.Version,
			says.JudgeModel, says.Trust, says.N, says.IssuedAt,
		)
	}
	return err
}

// Run implements the command.
func (c *versionCommand) Run(t *terminal) error {
	_, err := fmt.Fprintln(t.out, "sovereign "+version())
	return err
}
