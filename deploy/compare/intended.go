package main

import "regexp"

// intends finds the intention that a difference is of.
func intends(script string, d difference) (int, bool) {
	for i, in := range intended {
		if in.where.MatchString(script + ": " + d.String()) {
			return i, true
		}
	}
	return 0, false
}

// intended are the differences that are meant: COMPATIBILITY.md says the same.
var intended = []struct {
	where *regexp.Regexp
	why   string
}{
	{regexp.MustCompile(`^find coordinator: type [12] `), "transactions and share groups are not served yet"},
	{regexp.MustCompile(`^delete groups: .*ErrorMessage: ponor a message, kafka none$`), "every error has its text"},
	{regexp.MustCompile(`^classic pending: static with that id `), "Kafka fails on it"},
	{regexp.MustCompile(`^fetch of consumer groups: nobody of a generation, .*: ponor UNKNOWN_MEMBER_ID, kafka UNKNOWN_SERVER_ERROR$`), "Kafka fails on it"},
	{regexp.MustCompile(`^commit of members: the epoch before, of what it had and of what is new .*: ponor NONE, kafka STALE_MEMBER_EPOCH$`), "each partition is judged by itself"},
	{regexp.MustCompile(`^consumer .*HeartbeatIntervalMillis: ponor 500, kafka 5000$`), "who waits for partitions comes again soon"},
	{regexp.MustCompile(`^consumer (two members: a of the epoch before, with less|epochs: epoch -1, owns) .* Assignment`), "whose last answer was lost gets its assignment again"},
	{regexp.MustCompile(`^(consumer (life|static|regex)|describe groups): .*AssignmentEpoch: `), "a group without members is assigned nothing until one joins"},
	{regexp.MustCompile(`^consumer regex: a regex of an unknown member .* ErrorCode: `), "of two errors it may be the other"},
	{regexp.MustCompile(`^consumer and classic: .*MemberID: ponor "compare-id\d", kafka "id\d"$`), "ids of classic members begin with the client id, in every group"},
	{regexp.MustCompile(`^consumer and classic: a classic member .* Generation: ponor 6, kafka 7$`), "epochs begin at 1, Kafka's at 2"},
	{regexp.MustCompile(`^consumer and classic: another protocol `), "a classic member among consumers may change all its protocols"},
}
