package watermillidem_test

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/watermillidem"
	"github.com/idem-go/idem/dedup/memstore"
)

func Example() {
	events := idem.NewRouter(idem.ID(watermillidem.ID()))
	handled := make(chan int, 2)
	idem.On(events, "paid", func(_ context.Context, e idem.Event[payment]) error {
		handled <- e.Data.Amount
		return nil
	})
	processor, err := idem.NewProcessor(events, idem.Config{Store: memstore.New(), Scope: "billing"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer processor.Close()

	pubsub := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		fmt.Println(err)
		return
	}
	router.AddConsumerHandler("billing", "payments", pubsub, watermillidem.Handler(processor))
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()
	for _, i := range []int{7, 7, 8} { // the second delivery of 7 is a duplicate
		if err := pubsub.Publish("payments", msg(i)); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(<-handled + <-handled)
	fmt.Println(router.Close())
	// Output:
	// 15
	// <nil>
}
