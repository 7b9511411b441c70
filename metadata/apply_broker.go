package metadata

import (
	"math"
	"slices"

	"ponor/commitlog"
	"ponor/metadata/metadatapb"
)

// Bounds on what a registration carries.
const (
	maxEndpoints = 16
	maxAttribute = 255 // bytes of a host, a zone, a version
)

// registerBroker makes a new incarnation of a broker id (cmd-6). The one before
// is fenced and its partitions are named to the new one in the same command, so
// that a node that restarts before anyone noticed fences its own past.
func (e *edit) registerBroker(c *metadatapb.RegisterBroker) (Result, *Error) {
	b, err := brokerFrom(c)
	if err != nil {
		return Result{}, err
	}
	old, known := e.Broker(b.ID)
	// cmd-6: idempotent for the equal nonce only. A process that was fenced
	// needs a new incarnation even so.
	if known && old.Nonce == b.Nonce && e.Live(old.Incarnation) {
		return Result{Incarnation: old.Incarnation}, nil
	}
	if e.nextBrokerEpoch == math.MaxUint64 {
		return Result{}, reject(ErrExhausted, "broker epochs")
	}
	b.Incarnation = Incarnation{Broker: b.ID, Epoch: e.nextBrokerEpoch}
	e.nextBrokerEpoch++
	b.Cordoned = old.Cordoned // an operator's word outlives the process
	e.setWAL(WAL{Incarnation: b.Incarnation, Generation: e.generation})
	e.putBroker(b.ID, &b)
	if known {
		w, _ := e.WAL(old.Incarnation)
		if w.State == Active || w.State == Fenced && !e.Live(w.Sealer) {
			e.fence(w, b.Incarnation)
		}
		for _, s := range streamsOf(e.owned, old.Incarnation.Epoch) {
			e.name(s, b.Incarnation)
		}
	}
	return Result{Incarnation: b.Incarnation}, nil
}

// brokerFrom checks a registration and reads it.
func brokerFrom(c *metadatapb.RegisterBroker) (Broker, *Error) {
	b := Broker{
		ID: BrokerID(c.GetBroker()), Zone: c.GetZone(), Version: c.GetVersion(),
		ControllerAddress: c.GetControllerAddress(), Voter: c.GetVoter(),
	}
	switch {
	case b.ID < 0:
		return b, reject(ErrInvalid, "broker id %d is negative", b.ID)
	case len(c.GetNonce()) != NonceBytes:
		return b, reject(ErrInvalid, "nonce of broker %d has %d bytes instead of %d", b.ID, len(c.GetNonce()), NonceBytes)
	case len(c.GetEndpoints()) > maxEndpoints:
		return b, reject(ErrInvalid, "broker %d has %d endpoints, the most is %d", b.ID, len(c.GetEndpoints()), maxEndpoints)
	case max(len(b.Zone), len(b.Version), len(b.ControllerAddress)) > maxAttribute:
		return b, reject(ErrInvalid, "broker %d has an attribute longer than %d bytes", b.ID, maxAttribute)
	}
	b.Nonce = Nonce(c.GetNonce())
	for _, p := range c.GetEndpoints() {
		ep := Endpoint{Name: p.GetName(), Host: p.GetHost(), Port: p.GetPort(), Security: p.GetSecurity()}
		if ep.Port < 0 || ep.Port > math.MaxUint16 || max(len(ep.Name), len(ep.Host), len(ep.Security)) > maxAttribute {
			return b, reject(ErrInvalid, "broker %d has an endpoint that cannot be", b.ID)
		}
		if _, dup := b.Endpoint(ep.Name); dup {
			return b, reject(ErrInvalid, "broker %d has listener %q twice", b.ID, ep.Name)
		}
		b.Endpoints = append(b.Endpoints, ep)
	}
	return b, nil
}

// fence ends an incarnation, or gives a fenced one another sealer, who must be
// alive or zero for none. From here on nothing moves its trim or the ends of
// its streams but Sealed (cmd-4).
func (e *edit) fence(w WAL, sealer Incarnation) {
	first := w.State == Active
	switch {
	case first:
		w.State, w.Sealer = Fenced, sealer
	case w.State == Fenced && !sealer.IsZero():
		w.Sealer = sealer
	}
	e.setWAL(w)
	if !first {
		return
	}
	for _, s := range streamsOf(e.owned, w.Incarnation.Epoch) {
		p, _ := e.partition(s)
		next := *p
		// slot-4: its WAL may hold records of the stream if it could have
		// opened it. It could not while an older WAL was unsealed, because
		// Unsealed only shrinks as long as the owner stays; then the older WAL
		// is still the only one that matters.
		if p.Openable() && !p.gone {
			next.Unsealed = []Incarnation{w.Incarnation}
		}
		next.gone = p.Deleting // del-1: a dead owner counts, once it is sealed
		e.put(p, &next)
	}
}

// name makes target the owner of a partition at the next epoch (epoch-1), if
// its owner is dead (own-1), target lives (cmd-3) and its topic is not being
// deleted. It says whether it did.
func (e *edit) name(s commitlog.StreamID, target Incarnation) bool {
	p, ok := e.partition(s)
	if !ok || p.Deleting || e.Live(p.Owner) || !e.Live(target) || p.Epoch == math.MaxInt32 {
		return false
	}
	next := *p
	next.Owner = target
	next.Epoch++
	next.opened()
	e.put(p, &next)
	return true
}

// fenceBroker ends an incarnation and names incoming owners (cmd-4). Sent again
// it only names partitions that still, or once more, have a dead owner.
func (e *edit) fenceBroker(c *metadatapb.Fence) (Result, *Error) {
	inc := IncarnationFrom(c.GetIncarnation())
	w, ok := e.WAL(inc)
	if !ok {
		return Result{}, reject(ErrUnknownIncarnation, "%s was never registered", inc)
	}
	// The sealer must be another one: inc is about to be dead.
	sealer := IncarnationFrom(c.GetSealer())
	if sealer == inc || !e.Live(sealer) {
		sealer = Incarnation{}
	}
	e.fence(w, sealer)
	var r Result
	for _, a := range c.GetAssignments() {
		s, ok := e.stream(a.GetTopicId(), a.GetPartition())
		if !ok || !e.name(s, IncarnationFrom(a.GetOwner())) {
			r.Skipped++
		}
	}
	return r, nil
}

// stream finds the stream of a partition given by the bytes of its topic's id.
func (e *edit) stream(topicID []byte, number int32) (commitlog.StreamID, bool) {
	t, ok := e.topics.Get(string(topicID))
	if !ok || number < 0 || int(number) >= len(t.streams) {
		return 0, false
	}
	return t.streams[number], true
}

// sealed takes the result of sealing a WAL (cmd-4, cmd-5): slot end holds its
// fence, and these are the records it holds beyond the committed ends. The
// streams that waited for it may be opened afterwards.
func (e *edit) sealed(c *metadatapb.Sealed) (Result, *Error) {
	inc := IncarnationFrom(c.GetIncarnation())
	w, ok := e.WAL(inc)
	switch {
	case !ok:
		return Result{}, reject(ErrUnknownIncarnation, "%s was never registered", inc)
	case w.State == Active:
		// cmd-4: a sealer works from an image at or after the Fence; before it,
		// trim and ends still move.
		return Result{}, reject(ErrNotFenced, "%s has to be fenced before it is sealed", inc)
	case w.State == Sealed && c.GetEnd() > w.SealedEnd:
		// slot-3: the fence at the end is never deleted, so nobody gets past it.
		return Result{}, alarm(ErrAlreadySealed, "%s at %d, now said to end at %d", inc, w.SealedEnd, c.GetEnd())
	case w.State == Sealed:
		// cmd-4: the first one wins. A sealer that is late may find a lower end:
		// slots below the fence were repacked and swept meanwhile (obj-1).
		return Result{}, reject(ErrAlreadySealed, "%s at %d", inc, w.SealedEnd)
	case c.GetEnd() < w.Trim:
		// cmd-4: the sealer looked from an older trim, met slots deleted since,
		// and took the gap for the end.
		return Result{}, alarm(ErrBelowTrim, "%s sealed at %d, its trim is %d", inc, c.GetEnd(), w.Trim)
	}
	if object, ok := e.referencedFrom(inc, c.GetEnd()); ok {
		// obj-1, slot-5: an extent is committed of a slot that was durable with
		// all before it, so a fence at or below it means that slots were lost.
		return Result{}, alarm(ErrConflict, "%s sealed at %d, but %s is referenced", inc, c.GetEnd(), object)
	}
	g := grant{seals: inc, sealLow: w.Trim, sealEnd: c.GetEnd()}
	found := make(map[commitlog.StreamID]Extent, len(c.GetStreams()))
	var r Result
	for _, ss := range c.GetStreams() {
		x, skip, err := e.sealedStream(inc, ss, g)
		if err != nil {
			return Result{}, err
		}
		s := commitlog.StreamID(ss.GetStream())
		if _, dup := found[s]; dup {
			return Result{}, alarm(ErrInvalid, "stream %d twice in one Sealed", s)
		}
		if skip {
			r.Skipped++
		} else {
			found[s] = x
		}
	}
	w.State, w.SealedEnd, w.Sealer = Sealed, c.GetEnd(), Incarnation{}
	e.setWAL(w)
	for _, s := range streamsOf(e.waiting, inc.Epoch) {
		p, _ := e.partition(s)
		next := *p
		next.Unsealed = slices.DeleteFunc(slices.Clone(p.Unsealed), func(u Incarnation) bool { return u == inc })
		if x, ok := found[s]; ok {
			next.End = x.End // cmd-5: the next epoch starts here
			next.Extents = slices.Concat(p.Extents, []Extent{x})
		}
		if e.Live(next.Owner) { // a dead one did not live to see it, so it never opens
			next.opened()
		}
		e.put(p, &next)
	}
	return r, nil
}

// referencedFrom finds the first slot of a WAL, from a number on, that an extent
// names. Names of one WAL's slots follow each other in the order of numbers.
func (e *edit) referencedFrom(inc Incarnation, slot uint64) (object string, found bool) {
	from := ObjectName{Kind: WALSlot, Creator: inc, Number: slot}.String()
	last := ObjectName{Kind: WALSlot, Creator: inc, Number: math.MaxUint64}.String()
	e.refs.Ascend(from, func(name string, _ int) bool {
		object, found = name, name <= last
		return false
	})
	return object, found
}

// sealedStream checks one stream of a Sealed. Streams of deleted topics are
// skipped: nobody will ask for their records.
func (e *edit) sealedStream(inc Incarnation, ss *metadatapb.SealedStream, g grant) (x Extent, skip bool, err *Error) {
	s := commitlog.StreamID(ss.GetStream())
	p, ok := e.partition(s)
	if !ok {
		if s == 0 || s >= e.nextStream {
			return x, false, alarm(ErrUnknownStream, "%d was never created", s)
		}
		return x, true, nil
	}
	if !slices.Contains(p.Unsealed, inc) {
		if p.Deleting {
			return x, true, nil
		}
		// Its records are committed, or it never opened the stream: either way
		// the sealer did not work from the image.
		return x, false, alarm(ErrNotOwner, "%s (stream %d) does not wait for %s", p, s, inc)
	}
	base, end := commitlog.Offset(ss.GetBase()), commitlog.Offset(ss.GetEnd())
	if base != p.End { // cmd-4
		return x, false, alarm(ErrOutOfOrder, "%s (stream %d) sealed from %d, its committed end is %d", p, s, base, p.End)
	}
	if end == base && ss.GetExtent() == nil {
		return x, true, nil
	}
	xs, err := e.extents([]*metadatapb.Extent{ss.GetExtent()}, base, end, g)
	if err != nil {
		return x, false, err
	}
	if !xs[0].Indirect && xs[0].Epoch > p.Epoch {
		return x, false, alarm(ErrStaleEpoch, "%s (stream %d) sealed with epoch %d, it is at %d", p, s, xs[0].Epoch, p.Epoch)
	}
	return xs[0], false, nil
}

// unregisterBroker forgets a broker id that is dead and owns nothing. Its WALs
// stay: object names outlive it.
func (e *edit) unregisterBroker(c *metadatapb.UnregisterBroker) (Result, *Error) {
	id := BrokerID(c.GetBroker())
	b, ok := e.brokers.Get(id)
	if !ok {
		return Result{}, reject(ErrUnknownBroker, "%d", id)
	}
	if e.Live(b.Incarnation) {
		return Result{}, reject(ErrBrokerInUse, "%d is alive; stop it first", id)
	}
	if n := e.OwnedCount(b.Incarnation); n > 0 {
		return Result{}, reject(ErrBrokerInUse, "%d still owns %d partitions; they move as soon as a broker can take them", id, n)
	}
	e.putBroker(id, nil)
	return Result{}, nil
}

// brokerState notes what an operator asks of a broker.
func (e *edit) brokerState(c *metadatapb.BrokerState) (Result, *Error) {
	b, ok := e.brokers.Get(BrokerID(c.GetBroker()))
	if !ok {
		return Result{}, reject(ErrUnknownBroker, "%d", c.GetBroker())
	}
	next := *b
	next.Cordoned, next.Draining = c.GetCordoned(), c.GetDraining()
	e.putBroker(next.ID, &next)
	return Result{}, nil
}
