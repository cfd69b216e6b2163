// Sovereign is a self-hosted model improvement gateway. See README.md.
package main

import (
	"os"

	"sovereign/internal/app"
)

func main() {
	os.Exit(app.Main(os.Args[1:], os.Stdout, os.Stderr))
}
