package engine

import (
	"context"

	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// runNotFound calls the router's fallback, with the default retries.
func (p *Processor) runNotFound(
	ctx context.Context, m *idemtype.Message, typ string, budget *waitBudget,
) (came observe.Settlement, err error) {
	t := &task{
		message: m,
		budget:  budget,
		reading: reading{
			claimed: true, typ: typ, route: &bound{Handler: &Handler{Settings: DefaultSettings()}},
		},
	}
	t.route.Call = func(ctx context.Context, _ any, _ []Input) error {
		return p.routes.notFound(ctx, m)
	}
	for waits := 0; ; {
		t.attempt = t.failures + 1
		hard, release := p.stopContext(ctx, true)
		o := p.run(hard, t, nil, nil, noClaims)
		release()
		if o.meaning == succeeded {
			return observe.SettledFallback, nil
		}
		p.judge(ctx, t, o, false)
		s, err := p.finish(ctx, ctx, t, o, unrecorded{})
		switch {
		case s.settled || err != nil:
			return t.kind, err
		case s.outage != nil:
			waits++
			err = budget.wait(ctx, outageWait(waits), s.outage)
		default:
			err = sleepUntil(ctx, s.notBefore)
		}
		if err != nil {
			return t.kind, err
		}
	}
}
