package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
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
}

func newClusterStatus() *cobra.Command {
	var f clientFlags
	var format string
	cmd := &cobra.Command{
		Use: "status", Short: "Brokers, zones, partitions and load per broker", Args: takes(0, 0),
		Long: "Brokers, zones, partitions and load per broker; a broker that is gone is 'fenced'.\nExits with 1 if a partition has no leader.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error {
				v, err := clusterStatus(ctx, adm)
				if err != nil {
					return err
				}
				if err := render(cmd, format, v, func(p *printer) { printCluster(p, v) }); err != nil {
					return err
				}
				if v.Offline == 0 {
					return nil
				}
				err = fmt.Errorf("%d partitions have no leader", v.Offline)
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

func clusterStatus(ctx context.Context, adm *kadm.Client) (clusterView, error) {
	md, err := adm.Metadata(ctx)
	if err != nil {
		return clusterView{}, fmt.Errorf("read metadata: %w", err)
	}
	leaders, replicas := map[int32]int{}, map[int32]int{}
	v := clusterView{ID: md.Cluster, Topics: len(md.Topics), Brokers: []brokerView{}}
	md.Topics.EachPartition(func(p kadm.PartitionDetail) {
		v.Partitions++
		if p.Leader < 0 {
			v.Offline++
		}
		leaders[p.Leader]++
		for _, r := range p.Replicas {
			replicas[r]++
		}
	})
	loads := map[int32]*brokerLoad{}
	if balance, err := askBalance(ctx, adm); err == nil { // another make of cluster has none
		for _, b := range balance.Brokers {
			loads[int32(b.ID)] = &brokerLoad{State: b.State, Role: b.Role, Bytes: b.Bytes, Requests: b.Requests, OldestMillis: b.OldestUnresolved.Milliseconds()}
		}
	}
	for _, b := range md.Brokers {
		bv := brokerView{ID: b.NodeID, Address: fmt.Sprintf("%s:%d", b.Host, b.Port), Leaders: leaders[b.NodeID], Replicas: replicas[b.NodeID], brokerLoad: loads[b.NodeID]}
		if b.Rack != nil {
			bv.Zone = *b.Rack
		}
		v.Brokers = append(v.Brokers, bv)
		delete(loads, b.NodeID)
	}
	for id, l := range loads { // which clients are not told of
		if l.State == "fenced" {
			v.Brokers = append(v.Brokers, brokerView{ID: id, Address: "-", Leaders: leaders[id], Replicas: replicas[id], brokerLoad: l})
		}
	}
	slices.SortFunc(v.Brokers, func(a, b brokerView) int { return cmp.Compare(a.ID, b.ID) })
	return v, nil
}

func printCluster(p *printer, v clusterView) {
	p.line("cluster %s  %d topics, %d partitions, %d without leader", v.ID, v.Topics, v.Partitions, v.Offline)
	p.row("BROKER", "ADDRESS", "ZONE", "LEADER OF", "REPLICA OF", "STATE", "RAFT", "MB/s", "REQUESTS/s", "OLDEST")
	for _, b := range v.Brokers {
		if b.brokerLoad == nil {
			p.row(b.ID, b.Address, b.Zone, b.Leaders, b.Replicas, "-", "-", "-", "-", "-")
			continue
		}
		p.row(b.ID, b.Address, b.Zone, b.Leaders, b.Replicas, b.State, b.Role, fmt.Sprintf("%.1f", b.Bytes/1e6), fmt.Sprintf("%.0f", b.Requests), fmt.Sprintf("%d ms", b.OldestMillis))
	}
}
