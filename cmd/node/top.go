package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"golang.org/x/term"

	"ponor/cmd/node/process"
	"ponor/internal/metrics"
)

// topPatience is how long one look at a broker may take.
const topPatience = 3 * time.Second

func newTop() *cobra.Command {
	var f clientFlags
	var addresses, format string
	var every time.Duration
	var once bool
	cmd := &cobra.Command{
		Use: "top", Short: "Watch what every broker does", Args: takes(0, 0),
		Long: `Watch what every broker does: partitions, traffic, latency of writes to the
store, memory. It asks the brokers of the cluster at --bootstrap over their Kafka
listeners, or the endpoints of --metrics. Rates are of the time between two looks.
On a pipe, or with --once, it prints one table and ends.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond {
				return usagef("--interval %v: use 100ms or more", every)
			}
			out, isFile := cmd.OutOrStdout().(*os.File)
			t := &top{every: every, out: cmd.OutOrStdout(), format: format}
			t.once = once || format == formatJSON || !isFile || !term.IsTerminal(int(out.Fd()))
			if addresses != "" {
				return t.run(cmd.Context(), scrapesOf(addresses))
			}
			cl, err := f.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer cl.Close()
			return t.run(cmd.Context(), brokersOf(kadm.NewClient(cl)))
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&addresses, "metrics", "", "addresses of --metrics-listen to ask instead, comma-separated")
	cmd.Flags().DurationVar(&every, "interval", time.Second, "time between two looks")
	cmd.Flags().BoolVar(&once, "once", false, "print one table and end")
	formatFlag(cmd, &format)
	return cmd
}

// endpoint is one broker to look at.
type endpoint struct {
	name string
	ask  func(context.Context) ([]byte, error)
}

// scrapesOf are the endpoints of --metrics.
func scrapesOf(addresses string) func(context.Context) ([]endpoint, error) {
	var list []endpoint
	for a := range strings.SplitSeq(addresses, ",") {
		a = strings.TrimSpace(a)
		list = append(list, endpoint{name: a, ask: func(ctx context.Context) ([]byte, error) { return scrape(ctx, a) }})
	}
	return func(context.Context) ([]endpoint, error) { return list, nil }
}

func scrape(ctx context.Context, addr string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", addr, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s: %s", addr, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// brokersOf are the brokers that the cluster lists at the moment.
func brokersOf(adm *kadm.Client) func(context.Context) ([]endpoint, error) {
	return func(ctx context.Context) ([]endpoint, error) {
		md, err := adm.BrokerMetadata(ctx)
		if err != nil {
			return nil, fmt.Errorf("find the brokers: %w", err)
		}
		list := make([]endpoint, len(md.Brokers))
		for i, b := range md.Brokers {
			addr := hostPort(b.Host, b.Port)
			list[i] = endpoint{name: strconv.Itoa(int(b.NodeID)), ask: func(ctx context.Context) ([]byte, error) { return askBroker(ctx, addr) }}
		}
		return list, nil
	}
}

func askBroker(ctx context.Context, addr string) ([]byte, error) {
	c, err := dialBroker(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	return process.AskMetrics(ctx, c)
}

// look is one broker at one moment.
type look struct {
	at   time.Time
	page map[string]*metrics.Family
	err  error
}

// top looks again and again.
type top struct {
	every  time.Duration
	once   bool
	format string
	out    io.Writer
}

func (t *top) run(ctx context.Context, find func(context.Context) ([]endpoint, error)) error {
	before := map[string]look{}
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	for round := 0; ; round++ {
		list, err := find(ctx)
		if err != nil {
			return err
		}
		now := lookAt(ctx, list)
		if round > 0 {
			if err := t.print(list, before, now); t.once || err != nil {
				return err
			}
		}
		before = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// lookAt asks all at once.
func lookAt(ctx context.Context, list []endpoint) map[string]look {
	ctx, cancel := context.WithTimeout(ctx, topPatience)
	defer cancel()
	looks := make([]look, len(list))
	var wg sync.WaitGroup
	for i, e := range list {
		wg.Go(func() {
			text, err := e.ask(ctx)
			if err == nil {
				looks[i].page, err = metrics.Parse(bytes.NewReader(text))
			}
			looks[i].at, looks[i].err = time.Now(), err
		})
	}
	wg.Wait()
	out := make(map[string]look, len(list))
	for i, e := range list {
		out[e.name] = looks[i]
	}
	return out
}

// topView is a line of the table.
type topView struct {
	Broker       string  `json:"broker"`
	Error        string  `json:"error,omitempty"`
	Ready        bool    `json:"ready"`
	Role         string  `json:"raft"`
	Partitions   float64 `json:"partitions"`
	Opening      float64 `json:"not_open"`
	BytesIn      float64 `json:"bytes_in_per_second"`
	BytesOut     float64 `json:"bytes_out_per_second"`
	Records      float64 `json:"records_in_per_second"`
	Requests     float64 `json:"requests_per_second"`
	PutP50       float64 `json:"put_p50_ms"`
	PutP99       float64 `json:"put_p99_ms"`
	OldestMillis float64 `json:"oldest_unresolved_ms"`
	Store        string  `json:"store_trouble,omitempty"` // full, refused, silent or error
	StoreMillis  float64 `json:"store_trouble_ms,omitempty"`
	Hits         float64 `json:"memory_reads_percent"`
	CPU          float64 `json:"cpu_percent"`
	Memory       float64 `json:"resident_bytes"`
}

// view compares two looks at a broker.
func view(name string, before, now look) topView {
	v := topView{Broker: name, Role: "-"}
	if now.err != nil {
		v.Error = now.err.Error()
		return v
	}
	of := func(l look, id metrics.ID) *metrics.Family { return l.page[id.Name()] }
	took := now.at.Sub(before.at).Seconds()
	grown := func(id metrics.ID, labels ...string) float64 {
		return max(0, of(now, id).Sum(labels...)-of(before, id).Sum(labels...))
	}
	v.Ready = of(now, metrics.Ready).Sum() == 1
	if f := of(now, metrics.RaftState); f != nil {
		for _, s := range f.Samples {
			if s.Value == 1 {
				v.Role = s.Labels["state"]
			}
		}
	}
	v.Partitions = of(now, metrics.Partitions).Sum("state", "open")
	v.Opening = of(now, metrics.Partitions).Sum() - v.Partitions
	v.OldestMillis = of(now, metrics.OldestUnresolved).Sum() * 1000
	v.Memory = of(now, metrics.ProcessMemory).Sum()
	if f := of(now, metrics.StoreTroubleTime); f != nil {
		for _, s := range f.Samples {
			if s.Value > 0 {
				v.Store, v.StoreMillis = s.Labels["reason"], s.Value*1000
			}
		}
	}
	if before.page == nil || took <= 0 {
		return v
	}
	v.BytesIn, v.BytesOut = grown(metrics.ProduceBytes)/took, grown(metrics.FetchBytes)/took
	v.Records, v.Requests = grown(metrics.ProduceRecords)/took, grown(metrics.Requests)/took
	v.CPU = grown(metrics.ProcessCPU) / took * 100
	if memory, store := grown(metrics.Reads, "from", "memory"), grown(metrics.Reads, "from", "store"); memory+store > 0 {
		v.Hits = memory / (memory + store) * 100
	}
	a, b := of(before, metrics.SlotPutSeconds).Buckets(), of(now, metrics.SlotPutSeconds).Buckets()
	if p := metrics.Quantile(0.5, a, b); !math.IsNaN(p) {
		v.PutP50, v.PutP99 = p*1000, metrics.Quantile(0.99, a, b)*1000
	}
	return v
}

func (t *top) print(list []endpoint, before, now map[string]look) error {
	views := make([]topView, len(list))
	down := 0
	for i, e := range list {
		views[i] = view(e.name, before[e.name], now[e.name])
		if views[i].Error != "" {
			down++
		}
	}
	if t.format == formatJSON {
		return writeJSON(t.out, views)
	}
	if t.format != formatText {
		return usagef("unknown format %q: text or json", t.format)
	}
	var b bytes.Buffer
	p := &printer{w: tabwriter.NewWriter(&b, 0, 8, 2, ' ', tabwriter.AlignRight)}
	p.row("BROKER", "PARTITIONS", "NOT OPEN", "IN MB/s", "OUT MB/s", "RECORDS/s", "REQUESTS/s", "PUT p50", "PUT p99", "OLDEST", "STORE", "MEMORY READS", "CPU", "RSS", "RAFT", "")
	for _, v := range views {
		if v.Error != "" {
			p.row(v.Broker, "no answer: "+v.Error, "")
			continue
		}
		p.row(v.Broker, v.Partitions, v.Opening, fmt.Sprintf("%.1f", v.BytesIn/1e6), fmt.Sprintf("%.1f", v.BytesOut/1e6),
			fmt.Sprintf("%.0f", v.Records), fmt.Sprintf("%.0f", v.Requests), fmt.Sprintf("%.1f ms", v.PutP50), fmt.Sprintf("%.1f ms", v.PutP99),
			ageText(int64(v.OldestMillis)), storeText(v.Store, int64(v.StoreMillis)), fmt.Sprintf("%.0f %%", v.Hits), fmt.Sprintf("%.0f %%", v.CPU), bytesText(int64(v.Memory)), v.Role, "")
	}
	if err := p.w.Flush(); err != nil {
		return err
	}
	if !t.once {
		// Home, then the table, then clear what is left of the last one.
		_, err := fmt.Fprintf(t.out, "\x1b[H%s\x1b[J%s  every %v, Ctrl-C ends\n", strings.ReplaceAll(b.String(), "\n", "\x1b[K\n"), time.Now().Format(time.TimeOnly), t.every)
		return err
	}
	if _, err := t.out.Write(b.Bytes()); err != nil {
		return err
	}
	if down == len(list) {
		return errors.New("no broker answers")
	}
	return nil
}
