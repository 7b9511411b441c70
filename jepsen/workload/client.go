package workload

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/jepsen/history"
)

// client is the library of a process: a producer and at most one consumer. One
// goroutine uses it. What fails for another reason than a broker's answer says so
// in its error, and has an unknown effect.
type client interface {
	// open makes the producer, if it is not there yet.
	open() error
	// send appends records, those of one partition as one batch, and says what
	// became of each. Attempts are produce requests that were written, 0 if that is
	// not known.
	send(records []*kgo.Record) (answers []answer, attempts int32)
	// repeats says that requests may be sent again without anybody being told.
	repeats() bool

	// assign makes a consumer of partitions, from the given offsets, which may be
	// startOfLog. There is none.
	assign(from map[history.Partition]int64) error
	// subscribe makes a member of a group, whose rebalances are told. There is none.
	subscribe(m member, told rebalanced) error
	// poll waits up to a time for records of the consumer, and takes some.
	poll(wait time.Duration, most int) polled
	// proceed lets rebalances begin that waited for the records of the last poll.
	proceed()
	// commit writes down the offsets of a member, or without any all that it polled,
	// and gives the answer for each partition.
	commit(upTo map[history.Partition]int64, within time.Duration) (map[history.Partition]error, error)
	// identity is the member's id and generation or epoch; 0: not known.
	identity() (id string, gen int32)
	// leave ends the consumer, if there is one. A member has given its partitions
	// back when it returns, or leaveWait has passed.
	leave()

	// stall keeps everything back that comes and goes until resume is called. Works
	// says that the client can be called meanwhile.
	stall() (resume func(), works bool)
	// crash ends it as the death of a program does.
	crash()
}

// answer is what became of a record.
type answer struct {
	offset int64
	err    error
}

// polled is what a poll gave. Fatal: the consumer does not go on reading a
// partition.
type polled struct {
	records []*kgo.Record
	notes   []string // errors in words
	fatal   bool
}

// member is how a consumer takes part in a group.
type member struct {
	group    string
	topics   []string
	assignor string // one of those below; empty: the library's choice
	instance string // of a static member
}

// Assignors of members.
const (
	assignRange       = "range"
	assignCooperative = "cooperative-sticky"
	assignServer      = "server" // the coordinator's, for groups of KIP-848
)

// rebalanced is told of a change of a member's partitions, before anybody else can
// have those that were revoked.
type rebalanced func(kind string, parts []history.Partition, id string, gen int32)

// startOfLog is the offset where a partition's log begins.
const startOfLog = -2

const (
	// sessionTimeout and the others are a member's.
	sessionTimeout    = 6 * time.Second
	heartbeatInterval = time.Second
	rebalanceTimeout  = 15 * time.Second
	// leaveWait is how long a member waits for its leaving.
	leaveWait = 3 * time.Second
	// fetchWait is how long a broker waits for records.
	fetchWait = 500 * time.Millisecond
	// produceTimeout is how long a broker waits for its replicas.
	produceTimeout = 5 * time.Second
)

// Errors of clients.
var (
	// errUnanswered: the client said nothing about a record in time.
	errUnanswered = errors.New("no answer in time")
	// errUnsent: the library refused it, before a broker could hear of it.
	errUnsent = errors.New("not sent")
)

// Codecs that producers choose from.
var codecs = []string{"none", "snappy", "lz4", "zstd"}

// kafkaErrors are the errors of the protocol by their names.
var kafkaErrors = func() map[string]error {
	byName := make(map[string]error)
	for code := int16(1); code < 200; code++ {
		var e *kerr.Error
		if errors.As(kerr.ErrorForCode(code), &e) && e.Code == code {
			byName[e.Message] = e
		}
	}
	return byName
}()

// namedError is an error with a name of Kafka's, or of a library's own.
func namedError(name, text string) error {
	if e, ok := kafkaErrors[name]; ok {
		return e
	}
	return fmt.Errorf("%s: %s", name, text)
}
