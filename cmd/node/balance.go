package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"ponor/controller"
)

func newBalance() *cobra.Command {
	return family("balance", "How evenly brokers are loaded", newBalanceExplain())
}

// balanceView is what 'balance explain' prints.
type balanceView struct {
	Enabled bool        `json:"enabled"`
	Verdict string      `json:"verdict"`
	Brokers []loadView  `json:"brokers"`
	Moves   []movedView `json:"moves"`
}

type loadView struct {
	Broker     int32   `json:"broker"`
	Zone       string  `json:"zone"`
	State      string  `json:"state"`
	Partitions int     `json:"partitions"`
	Preferred  int     `json:"preferred"`
	Known      bool    `json:"load_known"`
	Bytes      float64 `json:"bytes_per_second"`
	Requests   float64 `json:"requests_per_second"`
	Share      float64 `json:"share"`
	Store      string  `json:"store_trouble,omitempty"`
	StoreFor   int64   `json:"store_trouble_ms,omitempty"`
}

type movedView struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int32  `json:"from"`
	To        int32  `json:"to"`
	Cause     string `json:"cause"`
	Reason    string `json:"reason"`
}

func newBalanceExplain() *cobra.Command {
	var f clientFlags
	var format string
	cmd := &cobra.Command{
		Use: "explain", Short: "What the balancer would do now, and why", Args: takes(0, 0),
		Long: `The load of every broker as the controller knows it, and what the balancer would
do now and why, or why nothing. Rates are of the partitions' records, in and out,
smoothed over some 15 s.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error {
				b, err := askBalance(ctx, adm)
				if err != nil {
					return err
				}
				v := balanceViewOf(b)
				return render(cmd, format, v, func(p *printer) { printBalance(p, v) })
			})
		},
	}
	f.register(cmd)
	formatFlag(cmd, &format)
	return cmd
}

// askBalance asks any broker, over its listener for clients.
func askBalance(ctx context.Context, adm *kadm.Client) (controller.Balance, error) {
	addresses, err := brokerAddresses(ctx, adm)
	if err != nil {
		return controller.Balance{}, err
	}
	return askAny(ctx, addresses, askEach, controller.AskBalance)
}

func balanceViewOf(b controller.Balance) balanceView {
	v := balanceView{Enabled: b.Enabled, Verdict: b.Verdict, Brokers: []loadView{}, Moves: []movedView{}}
	for _, l := range b.Brokers {
		v.Brokers = append(v.Brokers, loadView{Broker: int32(l.ID), Zone: l.Zone, State: l.State, Partitions: l.Partitions, Preferred: l.Preferred,
			Known: l.Known, Bytes: l.Bytes, Requests: l.Requests, Share: l.Share, Store: l.Trouble, StoreFor: l.TroubleFor.Milliseconds()})
	}
	for _, m := range b.Moves {
		v.Moves = append(v.Moves, movedView{Topic: m.Topic, Partition: m.Partition, From: int32(m.From), To: int32(m.To), Cause: m.Cause, Reason: m.Reason})
	}
	return v
}

func printBalance(p *printer, v balanceView) {
	p.row("BROKER", "ZONE", "STATE", "LEADER OF", "PREFERRED", "MB/s", "REQUESTS/s", "SHARE", "STORE")
	for _, b := range v.Brokers {
		if !b.Known {
			p.row(b.Broker, b.Zone, b.State, b.Partitions, b.Preferred, "-", "-", "-", storeText(b.Store, b.StoreFor))
			continue
		}
		p.row(b.Broker, b.Zone, b.State, b.Partitions, b.Preferred, fmt.Sprintf("%.1f", b.Bytes/1e6), fmt.Sprintf("%.0f", b.Requests), fmt.Sprintf("%.0f %%", b.Share*100), storeText(b.Store, b.StoreFor))
	}
	p.line("")
	p.line("%s", v.Verdict)
	for _, m := range v.Moves {
		p.line("move %s/%d from broker %d to broker %d (%s): %s", m.Topic, m.Partition, m.From, m.To, m.Cause, m.Reason)
	}
}
