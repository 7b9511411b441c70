// Package proxy stands between clients and brokers, and between nodes, to do to
// their connections what networks do. A Kafka proxy knows requests one by one: it
// holds, drops and doubles single ones, and loses answers. A Link knows bytes and
// who dialled: it cuts directions. Everything that was done is counted, so that a
// fault that met nobody is known to be none.
package proxy
