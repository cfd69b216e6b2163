// Command serve runs a PostgreSQL server for a test run. It prints the server's URL, and ends with its standard input.
package main

import (
	"fmt"
	"io"
	"os"

	"sovereign/internal/store/db/dbtest"
)

func main() {
	if err := serve(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "PostgreSQL for the tests:", err)
		os.Exit(1)
	}
}

func serve() error {
	s, err := dbtest.NewServer()
	if err != nil {
		return err
	}
	if err := s.Start(); err != nil {
		return err
	}
	fmt.Println(s.URL())
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := s.Stop(); err != nil {
		return err
	}
	return s.Remove()
}
