package app

import (
	"context"
	"errors"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"sovereign/trainer"
)

type trainCommand struct {
	Serve  trainServe  `cmd:"" help:"Serve a trained model by OpenAI's API, until a signal comes. It is what the engines small and llama run."`
	Worker trainWorker `cmd:"" help:"Lease training runs of a server and train them, until a signal comes. The first time, --install makes the Python environment that it needs."`
}

type trainWorker struct {
	Install   bool     `help:"Make the worker's environment first, unless it is there. Without --token-file, do nothing else."`
	Engine    string   `enum:"small,trl" default:"small" help:"small trains tiny models in plain Python, for trying things out. trl trains with TRL on PyTorch: some gigabytes, and Python 3.12."`
	Dir       string   `placeholder:"FOLDER" help:"Folder of the environment; by default sovereign/trainer in the user's data folder."`
	Python    string   `placeholder:"FILE" help:"The Python to install with; by default the first one in the path that is new enough."`
	URL       string   `name:"url" placeholder:"URL" help:"The server, such as http://127.0.0.1:8080."`
	TokenFile string   `placeholder:"FILE" help:"File with the token that admin worker create has printed."`
	Model     []string `sep:"none" placeholder:"ID=FOLDER" help:"A base model on this disk. It may be given again."`
	GPUType   string   `name:"gpu-type" placeholder:"NAME" help:"Name of the price of this machine's GPUs, in the server's training.prices."`
	Work      string   `placeholder:"FOLDER" help:"Where attempts keep their files; by default a temporary folder."`
	Once      bool     `help:"End after one run. The exit code is 1 if it did not succeed."`
}

// Run implements the command.
func (c *trainWorker) Run(t *terminal) error {
	dir, err := environmentDir(c.Dir)
	if err != nil {
		return err
	}
	e := &trainer.Environment{Dir: dir, Engine: c.Engine, Python: c.Python, Out: t.err}
	if c.Install {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		err := e.Install(ctx)
		stop()
		if err != nil || c.TokenFile == "" {
			return err
		}
	}
	if c.URL == "" || c.TokenFile == "" {
		return errors.New("--url and --token-file are needed (see sovereign train worker --help)")
	}
	return e.Exec("work", append([]string{"--engine", c.Engine}, c.args()...))
}

// environmentDir is the folder of environments: the named one, or that of the user.
func environmentDir(named string) (string, error) {
	if named == "" {
		return trainer.DefaultDir()
	}
	return filepath.Abs(named)
}

type trainServe struct {
	Engine string `enum:"small,llama" default:"small" help:"small serves the tiny models of the worker's engine small. llama serves others with llama-server, which must be installed."`
	Dir    string `placeholder:"FOLDER" help:"Folder of the environment, as of train worker. It is made first, unless it is there: with Python, and nothing else."`
	Model  string `required:"" placeholder:"FOLDER" help:"The model's files, or tiny/bigram."`
	Name   string `required:"" help:"What requests call it."`
	Host   string `default:"127.0.0.1" help:"Address to listen on."`
	Port   int    `required:"" help:"Port to listen on."`

	Adapter     string `placeholder:"FOLDER" help:"A LoRA adapter of the model, for llama."`
	AdapterName string `help:"What requests call the model with its adapter."`
}

// serveCommands are the commands of the trainer's package, by engine.
var serveCommands = map[string]string{"small": "serve", "llama": "llama"}

// Run implements the command.
func (c *trainServe) Run(t *terminal) error {
	dir, err := environmentDir(c.Dir)
	if err != nil {
		return err
	}
	e := &trainer.Environment{Dir: dir, Engine: "small", Wait: true, Out: t.err} // both need Python alone
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err = e.Install(ctx)
	stop()
	if err != nil {
		return err
	}
	args := []string{"--model", c.Model, "--name", c.Name, "--host", c.Host, "--port", strconv.Itoa(c.Port)}
	if c.Engine == "llama" {
		args = append(args, "--work", dir, "--adapter", c.Adapter, "--adapter-name", c.AdapterName)
	}
	return e.Exec(serveCommands[c.Engine], args)
}

// args are the worker's own.
func (c *trainWorker) args() []string {
	args := []string{"--url", c.URL, "--token-file", c.TokenFile}
	for _, model := range c.Model {
		args = append(args, "--model", model)
	}
	if c.GPUType != "" {
		args = append(args, "--gpu-type", c.GPUType)
	}
	if c.Work != "" {
		args = append(args, "--work", c.Work)
	}
	if c.Once {
		args = append(args, "--once")
	}
	return args
}
