package db

import (
	"context"
	"errors"
)

// An Again is an error after which a transaction, once it is rolled back, may be run again.
type Again interface {
	error
	// Again does what the transaction lacked, outside of any. It returns nil when the transaction shall be run again,
	// and else the error to return instead.
	Again(ctx context.Context) error
}

// maxAgain bounds how often a transaction is run again because of an Again.
const maxAgain = 10

// prepare reports whether a transaction that failed is to be run again, or with which error it has failed.
func prepare(ctx context.Context, err error, times int) (again bool, _ error) {
	var lacks Again
	if !errors.As(err, &lacks) || times >= maxAgain {
		return false, err
	}
	if err := lacks.Again(ctx); err != nil {
		return false, err
	}
	return true, nil
}
