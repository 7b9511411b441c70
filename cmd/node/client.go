package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/controller"
	"ponor/rpc"
)

const defaultBootstrap = "127.0.0.1:9092"

// clientFlags are what every client verb takes; they work against any cluster
// that speaks the Kafka protocol.
type clientFlags struct {
	bootstrap string
	timeout   time.Duration
}

func (f *clientFlags) register(cmd *cobra.Command) {
	def := defaultBootstrap
	if env := os.Getenv("PONOR_BOOTSTRAP"); env != "" {
		def = env
	}
	cmd.Flags().StringVarP(&f.bootstrap, "bootstrap", "b", def, "addresses of the cluster, comma-separated [env: PONOR_BOOTSTRAP]")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 30*time.Second, "how long to wait for the cluster")
}

var errNoSeeds = usagef("--bootstrap is empty: give it a broker's address, such as %s", defaultBootstrap)

// seeds are the bootstrap addresses.
func (f *clientFlags) seeds() []string {
	var seeds []string
	for s := range strings.SplitSeq(f.bootstrap, ",") {
		if s = strings.TrimSpace(s); s != "" {
			seeds = append(seeds, s)
		}
	}
	return seeds
}

// connect makes a client and checks that a broker answers, so that a wrong
// address is told as such and at once.
func (f *clientFlags) connect(ctx context.Context, opts ...kgo.Opt) (*kgo.Client, error) {
	seed, err := f.answering(ctx)
	if err != nil {
		return nil, err
	}
	return f.client(append([]kgo.Opt{kgo.SeedBrokers(seed)}, opts...)...)
}

func (f *clientFlags) client(opts ...kgo.Opt) (*kgo.Client, error) {
	opts = append([]kgo.Opt{kgo.ClientID("ponor-cli"), kgo.DisableClientMetrics(),
		kgo.DialTimeout(5 * time.Second), kgo.RetryTimeout(f.timeout), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, usagef("make client: %w", err)
	}
	return cl, nil
}

// answering is the first bootstrap address at which a broker answers. All are
// asked at once: a broker that hangs takes connections and says nothing.
func (f *clientFlags) answering(ctx context.Context) (string, error) {
	seeds := f.seeds()
	if len(seeds) == 0 {
		return "", errNoSeeds
	}
	ctx, cancel := context.WithTimeout(ctx, min(f.timeout, 10*time.Second))
	defer cancel()
	var clients []*kgo.Client
	for _, seed := range seeds {
		cl, err := f.client(kgo.SeedBrokers(seed))
		if err != nil {
			return "", err
		}
		defer cl.Close()
		clients = append(clients, cl)
	}
	type answer struct {
		i   int
		err error
	}
	answers := make(chan answer, len(seeds))
	for i, cl := range clients {
		go func() { answers <- answer{i, cl.Ping(ctx)} }() // ends with ctx
	}
	errs := make([]error, len(seeds))
	for range seeds {
		a := <-answers
		if a.err == nil {
			return seeds[a.i], nil
		}
		errs[a.i] = a.err
	}
	return "", f.silence(errs[0])
}

// silence says that no broker answers.
func (f *clientFlags) silence(err error) error {
	return fmt.Errorf("no broker answers at %s: %w; is the cluster running ('ponor demo' starts one), is --bootstrap the --listen address of a broker?", f.bootstrap, err)
}

// withAdmin runs fn with an admin client and the command's timeout.
func (f *clientFlags) withAdmin(cmd *cobra.Command, fn func(context.Context, *kadm.Client) error) error {
	return f.withClient(cmd, func(ctx context.Context, cl *kgo.Client) error {
		adm := kadm.NewClient(cl)
		// A little less than we wait, so that the broker can say why it did not do it.
		adm.SetTimeoutMillis(int32((f.timeout - f.timeout/10).Milliseconds()))
		return fn(ctx, adm)
	})
}

// withClient runs fn with a client and the command's timeout.
func (f *clientFlags) withClient(cmd *cobra.Command, fn func(context.Context, *kgo.Client) error) error {
	cl, err := f.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	err = fn(ctx, cl)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w (--timeout %v); %s", err, f.timeout, quorumHint)
	}
	return err
}

// quorumHint is where to look when the cluster does not get to do something.
const quorumHint = "'ponor quorum status --controllers ADDRESSES' shows the voters of the metadata quorum, of which a majority must run"

// brokerError joins a Kafka error code and the broker's own words for it.
func brokerError(err error, message string) error {
	var ke *kerr.Error
	switch {
	case err == nil:
		return nil
	case message != "" && errors.As(err, &ke):
		return fmt.Errorf("%s (%s)", message, ke.Message)
	case message != "":
		return fmt.Errorf("%s (%w)", message, err)
	case errors.As(err, &ke):
		return fmt.Errorf("%s: %s", ke.Message, ke.Description)
	}
	return err
}

// complete offers what the cluster lists to the shell; nothing if it does not
// answer soon.
func (f *clientFlags) complete(list func(ctx context.Context, adm *kadm.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	cl, err := f.connect(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cl.Close()
	names, err := list(ctx, kadm.NewClient(cl))
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeTopics offers the cluster's topic names to the shell.
func (f *clientFlags) completeTopics(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return f.complete(func(ctx context.Context, adm *kadm.Client) ([]string, error) {
		topics, err := adm.ListTopics(ctx)
		return topics.Names(), err
	})
}

func hostPort(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }

// dialBroker connects to a broker for what Kafka's protocol cannot say.
func dialBroker(ctx context.Context, address string) (*rpc.Client, error) {
	return rpc.Dial(ctx, new(net.Dialer).DialContext, address, rpc.ClientConfig{ClientID: "ponor-cli"})
}

// brokerAddresses lists the listeners for clients of the brokers that the cluster knows.
func brokerAddresses(ctx context.Context, adm *kadm.Client) ([]string, error) {
	md, err := adm.BrokerMetadata(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the brokers: %w", err)
	}
	var addresses []string
	for _, b := range md.Brokers {
		addresses = append(addresses, hostPort(b.Host, b.Port))
	}
	return addresses, nil
}

// askEach is how long a broker may take to say what any could say.
const askEach = 2 * time.Second

// askAny asks one broker after another until one answers, each for a limited time: one
// that hangs takes connections and says nothing. If none does what it is asked, what one
// said counts more than what was not heard, one that hangs more than one that is not
// there, and only if none is a Ponor broker is the error controller.ErrForeign: one that
// goes away looks like that too.
func askAny[T any](ctx context.Context, addresses []string, each time.Duration, ask func(context.Context, *rpc.Client) (T, error)) (T, error) {
	const foreign, away, hangs, refused = 1, 2, 3, 4
	err, rank := errors.New("there is no broker to ask"), 0
	for _, address := range addresses {
		answer, said, e := askOne(ctx, address, each, ask)
		if e == nil {
			return answer, nil
		}
		r := away
		switch {
		case errors.Is(e, controller.ErrForeign):
			r = foreign
		case said:
			r = refused
		case errors.Is(e, context.DeadlineExceeded):
			r = hangs
		}
		if r > rank {
			err, rank = e, r
		}
	}
	var none T
	return none, err
}

// askOne says whether the broker said something.
func askOne[T any](ctx context.Context, address string, limit time.Duration, ask func(context.Context, *rpc.Client) (T, error)) (answer T, said bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := dialBroker(ctx, address)
	if err != nil {
		return answer, false, err
	}
	defer func() { _ = c.Close() }()
	answer, err = ask(ctx, c)
	return answer, ctx.Err() == nil, err
}
