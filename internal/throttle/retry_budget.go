package throttle

import (
	"sync"
	"time"
)

// RetryBudget bounds how often a handler runs again, in one process. When all runs fail, their
// retries would keep down a system that tries to recover. There may be a burst of retries, then ten
// a second, and one for every five successes. The zero value has the whole burst.
type RetryBudget struct {
	mu    sync.Mutex
	spent float64 // retries, less those that were earned since
	at    time.Time
}

const (
	budgetBurst  = 100
	budgetRate   = 10 // a second
	budgetEarned = 0.2
)

// Earn notes n successes.
func (b *RetryBudget) Earn(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = max(0, b.spent-float64(n)*budgetEarned)
}

// Spend takes a retry and returns the time to wait before that retry.
func (b *RetryBudget) Spend() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if !b.at.IsZero() {
		b.spent = max(0, b.spent-now.Sub(b.at).Seconds()*budgetRate)
	}
	b.at = now
	b.spent++
	if b.spent <= budgetBurst {
		return 0
	}
	return time.Duration((b.spent - budgetBurst) / budgetRate * float64(time.Second))
}

// Refund returns a retry that was not made.
func (b *RetryBudget) Refund() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = max(0, b.spent-1)
}
