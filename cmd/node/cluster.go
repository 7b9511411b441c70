package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func newCluster() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Look at the cluster as a whole", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newClusterStatus())
	return cmd
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
}

func newClusterStatus() *cobra.Command {
	var f clientFlags
	var format string
	cmd := &cobra.Command{
		Use: "status", Short: "Brokers, zones, partitions per broker", Args: cobra.NoArgs,
		Long: "Brokers, zones, partitions per broker. Exits with 1 if a partition has no leader.",
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
	for _, b := range md.Brokers {
		bv := brokerView{ID: b.NodeID, Address: fmt.Sprintf("%s:%d", b.Host, b.Port), Leaders: leaders[b.NodeID], Replicas: replicas[b.NodeID]}
		if b.Rack != nil {
			bv.Zone = *b.Rack
		}
		v.Brokers = append(v.Brokers, bv)
	}
	return v, nil
}

func printCluster(p *printer, v clusterView) {
	p.line("cluster %s  %d topics, %d partitions, %d without leader", v.ID, v.Topics, v.Partitions, v.Offline)
	p.row("BROKER", "ADDRESS", "ZONE", "LEADER OF", "REPLICA OF")
	for _, b := range v.Brokers {
		p.row(b.ID, b.Address, b.Zone, b.Leaders, b.Replicas)
	}
}
