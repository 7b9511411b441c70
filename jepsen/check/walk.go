package check

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math/bits"
	"slices"
	"time"

	"ponor/jepsen/history"
)

// proc is a process during the walk.
type proc struct {
	id         int32
	subscribed bool
	group      *group
	cursors    map[history.Key]*cursor
	touched    []*cursor // by the op at hand
	empties    int       // polls that gave nothing at all
	quiet      int       // of them in the final phase, since one gave something
	polled     int64     // invocation of its last ok poll
	members    []*member // of its group, that it subscribes to
}

func (p *proc) String() string { return fmt.Sprintf("process %d", p.id) }

// onePoll is who moved within an op.
type onePoll struct{}

func (onePoll) String() string { return "one poll" }

// cursor is where a process, or a group, is in a key.
type cursor struct {
	key   history.Key
	last  int32 // index of the last record of its last ok poll, -1: none yet
	high  int32 // highest index it read
	whole bool  // it reads from the beginning of the log
	since int64 // invocation of the assignment
	final bool  // that was in the final phase
	at    int64 // when it read something last, or was assigned
	empty int   // proc.empties at that time
	// Within one op:
	op     int64
	inner  int32
	exempt bool // the key was in a rebalance meanwhile
}

// group is a consumer group during the walk.
type group struct {
	name    string
	members map[history.Key]*member
}

func (g *group) String() string { return "group " + g.name }

// member is what a group did with a key, all its members together.
type member struct {
	cursor
	read    bitset
	from    int32 // lowest index read
	again   int64 // records read more than once
	empties int   // polls of subscribers that gave nothing at all
	polled  int64 // invocation of the last ok poll of a subscriber
	upTo    int64 // highest offset committed
}

// emptyPolls are so many that a client has nothing left that it got and did not
// hand out.
const emptyPolls = 3

// walker follows the processes through a history.
type walker struct {
	*run
	procs  map[int32]*proc
	groups map[string]*group
	pollSkip, pollBack, innerSkip, innerBack,
	lag, counts, unstable, stuck, groupStuck *found
	lagMost, lagHealed int64
}

const (
	whySubscribed = "a rebalance moves consumers that subscribe"
	whyCounted    = "groups promise at least once"
)

// walk checks what every process read, in order.
func (r *run) walk() {
	w := &walker{
		run: r, procs: map[int32]*proc{}, groups: map[string]*group{},
		pollSkip: r.check("L7", "poll-skip"), pollBack: r.check("L8", "nonmonotonic-poll"),
		innerSkip: r.check("L9", "int-poll-skip"), innerBack: r.check("L10", "int-nonmonotonic-poll"),
		lag: r.check("L16", "realtime-lag"), counts: r.check("L17", "consume-counts"),
		unstable: r.check("L20", "unstable-read"), stuck: r.check("V6", "empty-polls"), groupStuck: r.check("G6", "group-progress"),
	}
	r.kept = r.check("L26", "deleted-records")
	for i := range r.Ops {
		w.op(&r.Ops[i])
	}
	for _, p := range inOrder(w.procs) {
		w.retire(p)
	}
	for _, g := range inOrder(w.groups) {
		for _, m := range inOrder(g.members) {
			w.behind(w.groupStuck, &m.cursor, m.empties, m.polled, GroupBound, g)
		}
	}
	r.consumers = w.groups
	if w.lag.Checked > 0 {
		w.lag.figure("max_ms", float64(w.lagMost)/1e6)
		w.lag.figure("max_after_heal_ms", float64(w.lagHealed)/1e6)
	}
	w.repeats()
}

// GroupBound adds to StuckBound the time in which a group notices that a member
// is gone.
const GroupBound = StuckBound + time.Minute

func (w *walker) op(o *history.Op) {
	switch {
	case o.F == history.Poll && o.Spec == whole:
		w.readAll(o)
		return
	case o.F == history.Poll || len(o.Polls) > 0:
		w.poll(o)
	case o.Type != history.Fail && o.F == history.Assign:
		w.assign(o)
	case o.Type != history.Fail && (o.F == history.Subscribe || o.F == history.Join):
		w.subscribe(o)
	}
	if p := w.procs[o.Process]; p != nil && retires(o) {
		w.retire(p)
		delete(w.procs, o.Process)
	}
}

// retires says that the process does nothing after an operation. A member goes on
// after a commit that came in a rebalance, which may have been repeated and so has an
// unknown effect; one that does not go on crashes.
func retires(o *history.Op) bool { return o.Type == history.Info && o.F != history.Commit }

func (w *walker) proc(id int32) *proc {
	p := w.procs[id]
	if p == nil {
		p = &proc{id: id, cursors: map[history.Key]*cursor{}}
		w.procs[id] = p
	}
	return p
}

// assign keeps the cursors of keys that stay, unless it seeks.
func (w *walker) assign(o *history.Op) {
	p := w.proc(o.Process)
	was := p.cursors
	p.subscribed, p.group, p.members, p.cursors = false, nil, nil, make(map[history.Key]*cursor, len(o.Keys))
	for _, k := range o.Keys {
		if c := was[k]; c != nil && !o.Seek {
			p.cursors[k] = c
			continue
		}
		p.cursors[k] = &cursor{
			key: k, last: -1, high: -1, whole: true, since: o.Invoked, final: o.Phase == history.Final,
			at: o.Completed, empty: p.empties, op: -1,
		}
	}
}

func (w *walker) subscribe(o *history.Op) {
	p := w.proc(o.Process)
	p.subscribed, p.members = true, nil
	for k, c := range p.cursors {
		c.whole = false // it goes on where the group is
		if o.F == history.Subscribe && !slices.Contains(o.Keys, k) {
			delete(p.cursors, k)
		}
	}
	for _, c := range p.cursors {
		c.whole = false // from now on it begins where its group is
	}
	g := w.groups[o.Group]
	if g == nil {
		g = &group{name: o.Group, members: map[history.Key]*member{}}
		w.groups[o.Group] = g
	}
	p.group = g
	for _, k := range o.Keys {
		p.members = append(p.members, g.member(k, o))
	}
}

func (g *group) member(k history.Key, o *history.Op) *member {
	m := g.members[k]
	if m == nil {
		m = &member{cursor: cursor{key: k, last: -1, high: -1, since: o.Invoked, at: o.Completed, op: -1}, from: -1, polled: o.Completed}
		g.members[k] = m
	}
	return m
}

// poll is a poll of a consumer.
func (w *walker) poll(o *history.Op) {
	p := w.proc(o.Process)
	p.touched = p.touched[:0]
	var c *cursor
	var m *member
	for j := range o.Polls {
		rec := &o.Polls[j]
		l := &w.logs[rec.Key]
		i := l.index(rec.Offset)
		if i < 0 {
			continue
		}
		if c == nil || c.key != rec.Key {
			c, m = w.touch(p, o, rec.Key)
		}
		w.record(p, o, c, l, i)
		if m != nil {
			m.note(i)
		}
	}
	if o.Type == history.OK {
		w.polledOK(p, o)
	}
}

// note enters a record that a member of the group read.
func (m *member) note(i int32) {
	if m.read.has(i) {
		m.again++
	}
	m.read.set(i)
	if m.from < 0 || i < m.from {
		m.from = i
	}
	m.high = max(m.high, i)
}

// touch begins what an op read of a key.
func (w *walker) touch(p *proc, o *history.Op, k history.Key) (*cursor, *member) {
	c := p.cursors[k]
	if c == nil {
		c = &cursor{key: k, last: -1, high: -1, since: o.Invoked, at: o.Invoked, empty: p.empties, op: -1}
		p.cursors[k] = c
	}
	var m *member
	if p.group != nil && p.subscribed {
		m = p.group.member(k, o)
	}
	if c.op == o.Index {
		return c, m
	}
	c.op, c.inner, c.exempt = o.Index, -1, false
	for i := range o.Rebalance {
		c.exempt = c.exempt || slices.Contains(o.Rebalance[i].Keys, k)
	}
	p.touched = append(p.touched, c)
	w.late(o, c)
	if m == nil {
		w.behind(w.stuck, c, p.empties, o.Invoked, StuckBound, p)
	} else {
		m.goOn(o)
		w.behind(w.groupStuck, &m.cursor, m.empties, o.Invoked, GroupBound, p.group)
		m.at, m.empty = o.Completed, m.empties
	}
	return c, m
}

// record is one record of a poll.
func (w *walker) record(p *proc, o *history.Op, c *cursor, l *keyLog, i int32) {
	switch {
	case c.inner >= 0:
		if !c.exempt {
			w.step(o, c, l, i)
		}
	case o.Type == history.OK && c.last >= 0:
		w.across(p, o, c, l, i)
	case c.last < 0 && c.whole && c.high < 0:
		w.passed(o, c.key, -1, i)
	}
	c.inner = i
	c.high = max(c.high, i)
	if c.whole {
		l.scanned = max(l.scanned, i)
	}
	if len(l.trims) > 0 {
		w.trimmed(o, c, l, i)
	}
	if o.Phase == history.Final {
		l.final.see(l, i, o)
	}
}

// see enters a record that the final phase read.
func (f *final) see(l *keyLog, i int32, o *history.Op) {
	f.read.set(i)
	if off := l.offsets[i]; off > f.max {
		f.max, f.done = off, false
	}
	f.at = max(f.at, o.Completed)
}

// nothing enters that a reader of the final phase got nothing more until it gave
// up: if it had come as far as any, that is the end.
func (l *keyLog) nothing(c *cursor, at int64) {
	f := &l.final
	if c.high < 0 && f.max < 0 || c.high >= 0 && l.offsets[c.high] >= f.max {
		f.done, f.at = true, max(f.at, at)
	}
}

// pollGap is how long a consumer may not poll and still count as one that waits.
const pollGap = int64(10 * time.Second)

// goOn notes that a subscriber polls. If none did for long, the group only
// begins to wait.
func (m *member) goOn(o *history.Op) {
	if o.Invoked-m.polled > pollGap {
		m.at, m.empty = o.Invoked, m.empties
	}
	m.polled = max(m.polled, o.Invoked)
}

// polledOK ends an ok poll.
func (w *walker) polledOK(p *proc, o *history.Op) {
	if o.Invoked-p.polled > pollGap {
		for _, c := range p.cursors {
			c.at, c.empty = max(c.at, o.Invoked), p.empties
		}
	}
	p.polled = o.Invoked
	for _, m := range p.members {
		m.goOn(o)
	}
	switch {
	case len(o.Polls) > 0:
		p.quiet = 0
	default:
		p.empties++
		for _, m := range p.members {
			m.empties++
		}
		if o.Phase == history.Final && o.Err == "" {
			p.quiet++
		}
	}
	for _, c := range p.touched {
		c.last, c.at, c.empty = c.inner, o.Completed, p.empties
	}
}

// readAll is a poll of a whole key at one moment.
func (w *walker) readAll(o *history.Op) {
	if o.Type != history.OK {
		return
	}
	for _, k := range o.Keys {
		c := &cursor{key: k, last: -1, high: -1, whole: true, since: o.Invoked, op: o.Index, inner: -1}
		l := &w.logs[k]
		for j := range o.Polls {
			if rec := &o.Polls[j]; rec.Key == k {
				if i := l.index(rec.Offset); i >= 0 {
					w.record(nil, o, c, l, i)
				}
			}
		}
		w.ended(o, k, c.high)
		if o.Phase == history.Final {
			l.final.done, l.final.at = true, max(l.final.at, o.Completed)
		}
	}
}

// ended is a part of L20: a whole log has the records that were there before.
func (w *walker) ended(o *history.Op, k history.Key, last int32) {
	l := &w.logs[k]
	was, ok := l.seen.before(o.Invoked)
	if !ok || l.losing() || was.max < l.floor {
		return
	}
	if i := l.from(was.max + 1); i > last+1 {
		w.unstable.add(int64(i-last), func() Anomaly {
			return Anomaly{
				Text: fmt.Sprintf("the whole of %s ended at %s, and offset %d had been there before", w.name(k), l.at(last), was.max),
				Key:  k, At: o.Completed, Ops: []int64{o.Index, w.Ops[was.op].Index},
			}
		})
	}
}

// at names the offset of an index.
func (l *keyLog) at(i int32) string {
	if i < 0 {
		return "its start"
	}
	return fmt.Sprintf("offset %d", l.offsets[i])
}

// skipped says whether records between two indices should have been read.
func (l *keyLog) skipped(from, to int32) bool {
	return to > from+1 && !l.losing() && l.offsets[to-1] >= l.floor
}

// step is L9 and L10: from one record to the next of one op.
func (w *walker) step(o *history.Op, c *cursor, l *keyLog, i int32) {
	w.innerSkip.Checked++
	w.innerBack.Checked++
	switch {
	case i <= c.inner:
		w.innerBack.add(int64(c.inner-i), w.moved(o, c.key, c.inner, i, onePoll{}))
	case l.skipped(c.inner, i):
		w.innerSkip.add(int64(i-c.inner), w.moved(o, c.key, c.inner, i, onePoll{}))
		w.passed(o, c.key, c.inner, i)
	}
}

// across is L7 and L8: from the last record of a poll to the first of the next.
func (w *walker) across(p *proc, o *history.Op, c *cursor, l *keyLog, i int32) {
	w.pollSkip.Checked++
	w.pollBack.Checked++
	text := w.moved(o, c.key, c.last, i, p)
	switch {
	case i <= c.last && p.subscribed:
		w.pollBack.tolerate(whySubscribed, int64(c.last-i), text)
	case i <= c.last:
		w.pollBack.add(int64(c.last-i), text)
	case !l.skipped(c.last, i):
	case p.subscribed:
		w.pollSkip.tolerate(whySubscribed, int64(i-c.last), text)
	default:
		w.pollSkip.add(int64(i-c.last), text)
		w.passed(o, c.key, c.last, i)
	}
}

func (w *walker) moved(o *history.Op, k history.Key, from, to int32, who fmt.Stringer) func() Anomaly {
	return func() Anomaly {
		l := &w.logs[k]
		text := fmt.Sprintf("%s went from offset %d of %s back to %d", who, l.offsets[from], w.name(k), l.offsets[to])
		ops := []int64{o.Index}
		mark := w.value(l.vals[to])
		if to > from {
			text = fmt.Sprintf("%s went from offset %d of %s to %d and left out %d, value %d", who, l.offsets[from], w.name(k), l.offsets[to], l.offsets[from+1], w.value(l.vals[from+1]))
			mark = w.value(l.vals[from+1])
			ops = append(ops, w.writer(l.vals[from+1]).Index)
		}
		return Anomaly{Text: text, Key: k, At: o.Completed, Ops: ops, Mark: mark}
	}
}

// passed is L20: an op went over records that were read before.
func (w *walker) passed(o *history.Op, k history.Key, from, to int32) {
	l := &w.logs[k]
	w.unstable.Checked++
	if !l.skipped(from, to) {
		return
	}
	const most = 4096
	for i := to - 1; i > from && i > to-most && l.offsets[i] >= l.floor; i-- {
		if l.polled[i] < o.Invoked {
			w.unstable.add(int64(to-from), func() Anomaly {
				return Anomaly{
					Text: fmt.Sprintf("offset %d of %s, value %d, had been read before, and this poll went from %s to %d", l.offsets[i], w.name(k), w.value(l.vals[i]), l.at(from), l.offsets[to]),
					Key:  k, At: o.Completed, Ops: []int64{o.Index, w.writer(l.vals[i]).Index}, Mark: w.value(l.vals[i]),
				}
			})
			return
		}
	}
}

// trimmed is a part of L26: nobody who begins to read after records were deleted
// is given them.
func (w *walker) trimmed(o *history.Op, c *cursor, l *keyLog, i int32) {
	w.kept.Checked++
	was, ok := l.trims.before(c.since)
	if !ok || l.offsets[i] >= was.max || l.gone {
		return
	}
	w.kept.add(was.max-l.offsets[i], func() Anomaly {
		return Anomaly{
			Text: fmt.Sprintf("offset %d of %s was read by one who began after records up to %d were deleted", l.offsets[i], w.name(c.key), was.max),
			Key:  c.key, At: o.Completed, Ops: []int64{o.Index, w.Ops[was.op].Index}, Mark: w.value(l.vals[i]),
		}
	})
}

// late is L16: how old was the news that a process had not got.
func (w *walker) late(o *history.Op, c *cursor) {
	l := &w.logs[c.key]
	if c.high < 0 || int(c.high)+1 >= len(l.known) || o.Phase == history.Final {
		return
	}
	w.lag.Checked++
	lag := o.Invoked - l.known[c.high+1]
	w.lagMost = max(w.lagMost, lag)
	if w.health.healed > 0 && l.known[c.high+1] > w.health.healed {
		w.lagHealed = max(w.lagHealed, lag)
	}
}

// behind is V6 and G6: nobody polls nothing for long while there is something.
func (w *walker) behind(f *found, c *cursor, empties int, now int64, bound time.Duration, who fmt.Stringer) {
	l := &w.logs[c.key]
	f.Checked++
	if empties-c.empty < emptyPolls || l.losing() || now-c.at < int64(bound) {
		return
	}
	i := c.high + 1
	if c.high < 0 && !c.whole {
		at, _ := slices.BinarySearch(l.known, c.since)
		i = int32(at)
	}
	i = max(i, l.from(l.floor))
	if int(i) >= len(l.known) {
		return
	}
	if most := w.health.longest(max(l.known[i], c.at), now, RecoveryBound); most > int64(bound) {
		f.add(most, func() Anomaly {
			return Anomaly{
				Text: fmt.Sprintf("%s polled nothing of %s for %v without a fault, and offset %d was there", who, w.name(c.key), time.Duration(most).Round(time.Millisecond), l.offsets[i]),
				Key:  c.key, At: now, Ops: []int64{w.writer(l.vals[i]).Index}, Mark: w.value(l.vals[i]),
			}
		})
	}
}

// retire ends a process.
func (w *walker) retire(p *proc) {
	if p.subscribed {
		return
	}
	quiet := p.quiet >= emptyPolls
	for _, c := range inOrder(p.cursors) {
		if quiet {
			w.logs[c.key].nothing(c, p.polled)
		}
		if c.final && c.whole {
			w.toEnd(p, c, quiet)
		}
		w.behind(w.stuck, c, p.empties, p.polled, StuckBound, p)
	}
}

// toEnd is a part of L20: who reads from the start in the final phase comes to the end of
// what had been known before and was read by anybody. One that was not quiet in the end
// shows nothing; V5 says so.
func (w *walker) toEnd(p *proc, c *cursor, quiet bool) {
	l := &w.logs[c.key]
	if l.losing() {
		return
	}
	w.unstable.Checked++
	end, _ := slices.BinarySearch(l.known, c.since)
	i := int32(end) - 1
	for i > c.high && l.polled[i] == never {
		i--
	}
	if i <= c.high || l.offsets[i] < l.floor {
		return
	}
	if !quiet {
		w.cutOff = append(w.cutOff, fmt.Sprintf("%s read %s up to %s of %d", p, w.name(c.key), l.at(c.high), l.offsets[i]))
		return
	}
	w.unstable.add(int64(i-c.high), func() Anomaly {
		return Anomaly{
			Text: fmt.Sprintf("offset %d of %s was there before and has been read, and %s read from the start in the final phase and found nothing behind %s", l.offsets[i], w.name(c.key), p, l.at(c.high)),
			Key:  c.key, At: p.polled, Ops: []int64{w.writer(l.vals[i]).Index}, Mark: w.value(l.vals[i]),
		}
	})
}

// repeats is L17.
func (w *walker) repeats() {
	for _, g := range inOrder(w.groups) {
		for _, m := range inOrder(g.members) {
			for _, word := range m.read {
				w.counts.Checked += int64(bits.OnesCount64(word))
			}
			if m.again > 0 {
				w.counts.tolerate(whyCounted, m.again, func() Anomaly {
					return Anomaly{Text: fmt.Sprintf("group %s read %d records of %s more than once", g.name, m.again, w.name(m.key)), Key: m.key}
				})
			}
		}
	}
}

// inOrderKeys are the keys of a map of offsets, in order.
func inOrderKeys[V any](m map[groupOffset]V) []groupOffset {
	return slices.SortedFunc(maps.Keys(m), compareGroups)
}

// inOrderPairs are keys and values of a map, in order.
func inOrderPairs[K cmp.Ordered, V any](m map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// inOrder are the values of a map by key, so that a history is judged the same
// again.
func inOrder[K cmp.Ordered, V any](m map[K]V) []V {
	out := make([]V, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}
