//go:build screenshots

package browser

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// The names on the pictures.
const (
	pictureTopic = "shop-payments"
	pictureGroup = "billing"
)

// trading is how long events come before the pictures are taken: charts show five minutes.
const trading = 90 * time.Second

// TestScreenshots takes the pictures of docs/images: make screenshots.
func TestScreenshots(t *testing.T) {
	brokers := testenv.Kafka(t)
	admin := testenv.KafkaAdmin(t, brokers)
	require.NoError(t, admin.CreateTopic(pictureTopic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false))
	t.Cleanup(func() {
		topics, err := admin.ListTopics()
		assert.NoError(t, err)
		for name := range topics {
			if name == pictureTopic || len(name) > len(pictureTopic) && name[:len(pictureTopic)+1] == pictureTopic+"." {
				assert.NoError(t, admin.DeleteTopic(name))
			}
		}
		assert.NoError(t, admin.DeleteConsumerGroup(pictureGroup))
	})
	b := startBrowser(t)
	w := worldOf(t, pictureTopic, pictureGroup)
	shop := w.open()
	shop.trade(trading)
	w.send("order.paid", "order-4711")
	w.deadLetterCount(5)
	large, small := desktop, phone
	small.scale = 2
	dark := func(l look) look { l.dark = true; return l }
	for _, p := range []struct {
		name, page string
		look       look
	}{
		{"start-light", "", large},
		{"event", "event?id=order-4711", large},
		{"activity", "activity", dark(large)},
		{"dead-letters-phone", "dead-letters", small},
		{"event-phone", "event?id=order-4711", dark(small)},
	} {
		tb := b.tab(t, w, p.look)
		shop.trade(3 * time.Second) // rates need some seconds of events
		tb.run(chromedp.Navigate(w.url + p.page))
		tb.until(`document.readyState === "complete"`, "loaded")
		tb.run(chromedp.Evaluate[chromedp.Void](`document.activeElement.blur()`))
		shot, err := chromedp.Run(tb.ctx, chromedp.CaptureScreenshot())
		require.NoError(t, err)
		small := palette(t, shot)
		assert.Less(t, len(small), 150<<10, p.name)
		dir := filepath.Join("..", "..", "docs", "images")
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "ops-"+p.name+".png"), small, 0o644))
	}
}

// shop is one on an ordinary day: most events are handled, some come twice, a few fail.
type shop struct {
	*world
	rng  *rand.Rand
	next int
	last []string
}

func (w *world) open() *shop {
	w.provider.answer(http.StatusUnprocessableEntity, "the card was declined", "order-4711", "order-1893")
	w.provider.answer(http.StatusUnprocessableEntity, "the address does not exist", "parcel-880")
	w.provider.answer(http.StatusInternalServerError, "the provider answered 500", "invoice-77", "account-12")
	w.send("order.paid", "order-1893")
	w.send("order.shipped", "parcel-880")
	w.produce(w.topic,
		record{id: "invoice-77", typ: "invoice.sent", value: `{"order":"order-3107"}`, headers: [][2]string{{"tenant", "acme"}}},
		record{id: "order-garbled", typ: "order.paid", value: `{"amount": "forty-two"}`},
		record{id: "account-12", typ: "account.closed", key: "customer-12", value: `{}`},
		record{id: "account-12-undone", typ: "account.closed", key: "customer-12", value: `{}`},
	)
	return &shop{world: w, rng: rand.New(rand.NewPCG(1, 2)), next: 10_000} // the same day each time
}

// trade produces events for as long.
func (s *shop) trade(d time.Duration) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for from := time.Now(); time.Since(from) < d; <-ticker.C {
		var batch []record
		for range 6 + s.rng.IntN(10) {
			id := fmt.Sprintf("order-%d", s.next)
			s.next++
			if len(s.last) > 0 && s.rng.IntN(7) == 0 {
				id = s.last[s.rng.IntN(len(s.last))]
			}
			s.last = append(s.last[max(0, len(s.last)-500):], id)
			batch = append(batch, record{id: id, typ: "order.paid", key: "customer-" + id, value: `{"order":"` + id + `","amount":4200,"currency":"EUR"}`})
		}
		s.produce(s.topic, batch...)
	}
}

// palette makes a picture of at most 256 colours, which is small: those that are there most often,
// and for the others the nearest.
func palette(t *testing.T, shot []byte) []byte {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(shot))
	require.NoError(t, err)
	count := make(map[color.RGBA]int)
	bounds := img.Bounds()
	at := func(x, y int) color.RGBA {
		r, g, b, _ := img.At(x, y).RGBA()
		return color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}
	}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	colours := make([]color.RGBA, 0, len(count))
	for c := range count {
		colours = append(colours, c)
	}
	slices.SortFunc(colours, func(a, b color.RGBA) int { return count[b] - count[a] })
	var chosen color.Palette
	for _, c := range colours[:min(len(colours), 256)] {
		chosen = append(chosen, c)
	}
	flat := image.NewPaletted(bounds, chosen)
	nearest := make(map[color.RGBA]uint8)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := at(x, y)
			i, ok := nearest[c]
			if !ok {
				i = uint8(chosen.Index(c))
				nearest[c] = i
			}
			flat.SetColorIndex(x, y, i)
		}
	}
	var b bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, flat))
	return b.Bytes()
}
