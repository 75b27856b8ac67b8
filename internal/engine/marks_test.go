package engine

import (
	"time"

	"github.com/idem-go/idem/internal/mark"
)

// The functions of package idem with these names.

func Permanent(err error) error { return mark.New(mark.Permanent, 0, err) }

func NotApplied(err error) error { return mark.New(mark.NotApplied, 0, err) }

func Unavailable(err error) error { return mark.New(mark.Unavailable, 0, err) }

func RetryAfter(d time.Duration, err error) error { return mark.New(mark.RetryAfter, d, err) }
