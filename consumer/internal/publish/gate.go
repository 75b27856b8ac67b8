package publish

import "sync"

// gate is held shared while a message goes to sarama, which may take no message for a while. Lock
// ends that waiting first, so that a producer is closed at once.
type gate struct {
	sync.RWMutex
	ending chan struct{} // closed by the first Lock
	once   sync.Once
}

// Lock shadows the method of the mutex.
func (g *gate) Lock() {
	g.once.Do(func() { close(g.ending) })
	g.RWMutex.Lock()
}
