package memstore

import "container/heap"

// expiryHeap has the record that expires first on top. Each record has its index, so that a change
// costs O(log n).
type expiryHeap []*record

func (h *expiryHeap) push(r *record)   { heap.Push(h, r) }
func (h *expiryHeap) fix(r *record)    { heap.Fix(h, r.index) }
func (h *expiryHeap) remove(r *record) { heap.Remove(h, r.index) }

// Len, Less, Swap, Push and Pop are for package heap.

func (h expiryHeap) Len() int           { return len(h) }
func (h expiryHeap) Less(i, j int) bool { return h[i].Expires.Before(h[j].Expires) }

func (h expiryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *expiryHeap) Push(x any) {
	r := x.(*record)
	r.index = len(*h)
	*h = append(*h, r)
}

func (h *expiryHeap) Pop() any {
	old := *h
	last := len(old) - 1
	r := old[last]
	old[last] = nil // for the garbage collector
	*h = old[:last]
	return r
}
