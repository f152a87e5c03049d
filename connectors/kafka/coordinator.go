package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-etl/sluice/connectors"
)

// answerPatience is how long a broker may take to answer a request of a
// transaction's control path before another one is looked for.
const answerPatience = 5 * time.Second

// ask is connection.ask for requests to coordinators that can be repeated.
func (t *txnSet) ask(ctx context.Context, what string, f func(ctx context.Context) error) error {
	err := t.conn.ask(ctx, t.dials, what, func(ctx context.Context) error {
		for {
			again, err := t.reach(ctx, f)
			if !again || pause(ctx, coordinatorRetry) != nil {
				return err
			}
		}
	})
	return t.named(err)
}

// errSilent is a coordinator that gives no answer where another broker does.
var errSilent = errors.New("the coordinator does not answer, while other brokers do")

// reach runs f, requests to coordinators, for as long as an answer may take. A client
// goes on with a coordinator that it knows until that one denies to be it, which a dead
// broker never does. So where there is no answer, the clients learn which brokers there
// are now; they forget the others, and look for the coordinators anew. again tells that
// this has been done, for an error that is errSilent.
func (t *txnSet) reach(ctx context.Context, f func(ctx context.Context) error) (again bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	err = f(bounded)
	if err == nil || answered(err) || ctx.Err() != nil {
		return false, err
	}
	if t.learnBrokers(ctx) != nil {
		return false, err
	}
	return true, fmt.Errorf("%w: %w", errSilent, err)
}

// answered reports whether an error is, or holds, what a broker said, or what is wrong
// with it for good.
func answered(err error) bool {
	var answer *kerr.Error
	return errors.As(err, &answer) || connectors.IsPermanent(err)
}

// learnBrokers has the clients of the control path learn which brokers there are.
func (t *txnSet) learnBrokers(ctx context.Context) error {
	clients := []*kgo.Client{t.admin}
	t.mu.Lock()
	if old := t.raw(t.version); old != t.admin {
		clients = append(clients, old)
	}
	t.mu.Unlock()
	for _, cl := range clients {
		if err := brokersOf(ctx, cl); err != nil {
			return err
		}
	}
	return nil
}

// brokersOf has a client learn which brokers there are. Each try goes to another
// broker, so the first ones are short: any that lives knows.
func brokersOf(ctx context.Context, cl *kgo.Client) error {
	for wait := answerPatience / 8; ; wait *= 2 {
		bounded, cancel := context.WithTimeout(ctx, wait)
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{} // none, where nil is all
		_, err := req.RequestWith(bounded, cl)
		cancel()
		if err == nil || wait >= answerPatience || ctx.Err() != nil {
			return err
		}
	}
}
