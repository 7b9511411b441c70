package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"ponor/controller"
)

func newCluster() *cobra.Command {
	return family("cluster", "Look at the cluster as a whole", newClusterStatus())
}

// clusterView is what 'cluster status' prints.
type clusterView struct {
	ID         string       `json:"cluster_id"`
	Brokers    []brokerView `json:"brokers"`
	Topics     int          `json:"topics"`
	Partitions int          `json:"partitions"`
	Offline    int          `json:"offline_partitions"`
	// Problems are what needs somebody, in words; the command exits with 1 if there
	// are any.
	Problems []string `json:"problems,omitempty"`
}

type brokerView struct {
	ID       int32  `json:"id"`
	Address  string `json:"address"`
	Zone     string `json:"zone"`
	Leaders  int    `json:"leaders"`
	Replicas int    `json:"replicas"`
	// What follows only the controller of a Ponor cluster knows.
	*brokerLoad
}

type brokerLoad struct {
	State        string  `json:"state"`
	Role         string  `json:"raft"`
	Bytes        float64 `json:"bytes_per_second"`
	Requests     float64 `json:"requests_per_second"`
	OldestMillis int64   `json:"oldest_unresolved_ms"`
	Store        string  `json:"store_trouble,omitempty"`
	StoreMillis  int64   `json:"store_trouble_ms,omitempty"`
}

// away says that a broker does not serve now.
func (l *brokerLoad) away() bool { return l != nil && (l.State == "down" || l.State == "silent") }

// loadOf is what the controller says of a broker.
func loadOf(b controller.BrokerBalance) *brokerLoad {
	return &brokerLoad{State: b.State, Role: b.Role, Bytes: b.Bytes, Requests: b.Requests, OldestMillis: b.OldestUnresolved.Milliseconds(),
		Store: b.Trouble, StoreMillis: b.TroubleFor.Milliseconds()}
}

func newClusterStatus() *cobra.Command {
	var f clientFlags
	var format string
	cmd := &cobra.Command{
		Use: "status", Short: "Brokers, zones, partitions and load per broker", Args: takes(0, 0),
		Long: `Brokers, zones, partitions and load per broker. A broker that is stopped or dead is
'down'; one that the controller waits for, as after a restart of the cluster, is
'silent'. OLDEST is the age of the oldest record that is not durable yet.

Exits with 1, and says why, if a broker is down or silent, its store does not take
writes, a partition has no leader that serves, or the controller does not answer.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error {
				v, err := clusterStatus(ctx, adm)
				if err != nil {
					return err
				}
				if err := render(cmd, format, v, func(p *printer) { printCluster(p, v) }); err != nil {
					return err
				}
				if len(v.Problems) == 0 {
					return nil
				}
				err = errors.New(strings.Join(v.Problems, "; "))
				if format == formatJSON {
					return silentError{err}
				}
				return err
			})
		},
	}
	f.register(cmd)
	formatFlag(cmd, &format)
	return cmd
}

// controllerPatience is how long the controller may take to say how the brokers are.
const controllerPatience = 5 * time.Second

func clusterStatus(ctx context.Context, adm *kadm.Client) (clusterView, error) {
	md, err := adm.Metadata(ctx)
	if err != nil {
		return clusterView{}, fmt.Errorf("read metadata: %w", err)
	}
	v := clusterView{ID: md.Cluster, Topics: len(md.Topics), Brokers: []brokerView{}}
	for _, b := range md.Brokers {
		bv := brokerView{ID: b.NodeID, Address: hostPort(b.Host, b.Port)}
		if b.Rack != nil {
			bv.Zone = *b.Rack
		}
		v.Brokers = append(v.Brokers, bv)
	}
	ask, cancel := context.WithTimeout(ctx, controllerPatience)
	defer cancel()
	balance, err := askBalance(ask, adm)
	switch {
	case err == nil:
		v.join(balance.Brokers)
	case !errors.Is(err, controller.ErrForeign): // another make of cluster has none
		v.Problems = append(v.Problems, fmt.Sprintf("the controller does not say how the brokers are, so that what is above may be old (%v): %s", err, quorumHint))
	}
	slices.SortFunc(v.Brokers, func(a, b brokerView) int { return cmp.Compare(a.ID, b.ID) })
	v.countPartitions(md.Topics)
	v.judge()
	return v, nil
}

// join adds what the controller knows, also of brokers that clients are not told of.
func (v *clusterView) join(brokers []controller.BrokerBalance) {
	for _, b := range brokers {
		i := slices.IndexFunc(v.Brokers, func(bv brokerView) bool { return bv.ID == int32(b.ID) })
		if i < 0 {
			i = len(v.Brokers)
			v.Brokers = append(v.Brokers, brokerView{ID: int32(b.ID), Address: cmp.Or(b.Address, "-"), Zone: b.Zone})
		}
		v.Brokers[i].brokerLoad = loadOf(b)
	}
}

// countPartitions counts per broker and those whose leader does not serve.
func (v *clusterView) countPartitions(topics kadm.TopicDetails) {
	at := map[int32]*brokerView{}
	for i := range v.Brokers {
		at[v.Brokers[i].ID] = &v.Brokers[i]
	}
	topics.EachPartition(func(p kadm.PartitionDetail) {
		v.Partitions++
		leader := at[p.Leader]
		if leader == nil || leader.away() {
			v.Offline++
		}
		if leader != nil {
			leader.Leaders++
		}
		for _, r := range p.Replicas {
			if b := at[r]; b != nil {
				b.Replicas++
			}
		}
	})
}

// judge says what is wrong.
func (v *clusterView) judge() {
	if v.Offline > 0 {
		v.Problems = append(v.Problems, fmt.Sprintf("%s without a leader", count(v.Offline, "partition")))
	}
	for _, b := range v.Brokers {
		switch {
		case b.brokerLoad == nil:
		case b.State == "down":
			v.Problems = append(v.Problems, fmt.Sprintf("broker %d (%s) is down", b.ID, b.Address))
		case b.State == "silent":
			v.Problems = append(v.Problems, fmt.Sprintf("broker %d (%s) does not answer", b.ID, b.Address))
		case b.Store != "":
			v.Problems = append(v.Problems, fmt.Sprintf("the store takes no writes of broker %d: %s", b.ID, storeText(b.Store, b.StoreMillis)))
		}
	}
}

// storeText is whether a broker can write to the store, and if not, why and for how
// long.
func storeText(trouble string, millis int64) string {
	if trouble == "" {
		return "ok"
	}
	return fmt.Sprintf("%s, for %s", trouble, ageText(millis))
}

// ageText is a time that passed.
func ageText(millis int64) string {
	switch {
	case millis <= 0:
		return "-"
	case millis < 1000:
		return fmt.Sprintf("%d ms", millis)
	}
	return spanText(time.Duration(millis) * time.Millisecond)
}

func printCluster(p *printer, v clusterView) {
	p.line("cluster %s  %s, %s, %d without leader", v.ID, count(v.Topics, "topic"), count(v.Partitions, "partition"), v.Offline)
	p.row("BROKER", "ADDRESS", "ZONE", "LEADER OF", "REPLICA OF", "STATE", "RAFT", "MB/s", "REQUESTS/s", "OLDEST", "STORE")
	for _, b := range v.Brokers {
		switch {
		case b.brokerLoad == nil:
			p.row(b.ID, b.Address, b.Zone, b.Leaders, b.Replicas, "-", "-", "-", "-", "-", "-")
		case b.away():
			p.row(b.ID, b.Address, b.Zone, b.Leaders, b.Replicas, b.State, b.Role+" ("+b.State+")", "-", "-", "-", "-")
		default:
			p.row(b.ID, b.Address, b.Zone, b.Leaders, b.Replicas, b.State, b.Role, fmt.Sprintf("%.1f", b.Bytes/1e6), fmt.Sprintf("%.0f", b.Requests),
				ageText(b.OldestMillis), storeText(b.Store, b.StoreMillis))
		}
	}
}
