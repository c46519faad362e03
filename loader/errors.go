package loader

import "errors"

var (
	// ErrUnsupported: this machine cannot hold the fence; wrapped with what is missing.
	ErrUnsupported = errors.New("the kernel cannot enforce")
	// ErrFull: no session slot is free.
	ErrFull = errors.New("no session slot is free")
	// ErrBusy: a session still has processes.
	ErrBusy = errors.New("the session still has processes")
)

// Problem is an error with the way out.
type Problem struct {
	Err  error  // what went wrong; never nil
	Hint string // what to do about it, one sentence without a full stop
}

func (p *Problem) Error() string { return p.Err.Error() }

// Unwrap returns the error itself.
func (p *Problem) Unwrap() error { return p.Err }
