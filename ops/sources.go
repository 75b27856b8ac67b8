package ops

import "context"

// sources has the data of the page. A source that is not configured is nil.
type sources struct {
	monitor     *Monitor
	events      eventFinder
	deadLetters deadLetterBox
	group       groupReader
	claims      claimLister
	deferred    deferredLister
	outbox      outboxReader
	doctor      func(context.Context) ([]Finding, error)
	close       func() error
}

// cells has the sources with the same data for all persons.
type cells struct {
	topics   *cell[[]string]
	group    *cell[groupState]
	claims   *cell[[]storeClaims]
	deferred *cell[deferredState]
	outbox   *cell[outboxState]
	doctor   *cell[[]Finding]
}

// fromCell asks a cell, or returns the missing setting.
func fromCell[T any](ctx context.Context, c *cell[T], how string) part[T] {
	if c == nil {
		return missing[T](how)
	}
	return c.get(ctx)
}

// Advice for sources that are not configured.
const (
	howKafka   = "The page does not know the brokers. Give ops.Config.Consumer (with Brokers and Group), or Client (idem ops: --brokers and --group)."
	howStore   = "The page knows no store. Give ops.Config.Consumer.Store, or Stores (idem ops: --store)."
	howMonitor = "This process has no monitor. Put ops.NewMonitor() into Observers of the consumer's configuration, and into ops.Config.Monitor. The command idem ops handles no events: mount the page in the consumer's process."
	howOutbox  = "The page knows no outbox. Give ops.Config.Outbox, such as a *pgoutbox.Outbox (idem ops: --outbox)."
	howDoctor  = "This process has no doctor. Set ops.Config.Doctor, for example to doctor.New of package ops/doctor."
)
