//go:build !linux

package rota

import "syscall"

// A Rota has no goroutines here: everybody waits on its own.
type Rota struct{}

// New is a rota that has no places.
func New(int) *Rota { return nil }

// Close ends it.
func (*Rota) Close() {}

func (*Rota) enter(syscall.RawConn, *Place) (leave func(), ok bool) { return nil, false }

type wheel struct{}
