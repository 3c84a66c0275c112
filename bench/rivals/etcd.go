// etcd's own lock, clientv3/concurrency.Mutex: etcd ENDPOINT [renew]
//
// See bench/README.md for the requests.  A mutex belongs to a lease, so each
// client has a lease of its own; they share one connection.  With "renew" a cycle
// is a keepalive of the lease, in place of the lock.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	_ "github.com/lib/pq"
	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
	"go.etcd.io/etcd/etcdserver/etcdserverpb"
	"go.uber.org/zap"
)

type request struct {
	clients, locks, pause int
	prefix                string
	begin, end            time.Time
}

type sample struct {
	client                    int
	asked, acquired, released time.Time
}

var epoch = time.Now()

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// parse reads "lock clients=16 ..." into the kind and its numbers.
func parse(line string) (string, request) {
	words := strings.Fields(line)
	numbers := map[string]int{"clients": 1, "locks": 1}
	r := request{prefix: "p"}
	for _, word := range words[1:] {
		pair := strings.SplitN(word, "=", 2)
		if pair[0] == "prefix" {
			r.prefix = pair[1]
		} else {
			n, err := strconv.Atoi(pair[1])
			must(err)
			numbers[pair[0]] = n
		}
	}
	r.clients, r.locks = numbers["clients"], numbers["locks"]
	r.pause = numbers["pause"]
	r.begin = time.Now().Add(time.Duration(numbers["warmup"]) * time.Millisecond)
	r.end = r.begin.Add(time.Duration(numbers["ms"]) * time.Millisecond)
	return words[0], r
}

// locks are those that the client goes round.
func (r request) mutexes(session *concurrency.Session, client int) []*concurrency.Mutex {
	var mutexes []*concurrency.Mutex
	for i := client % r.locks; i < r.locks; i += r.clients {
		mutexes = append(mutexes,
			concurrency.NewMutex(session, fmt.Sprintf("/bench/%s%d", r.prefix, i)))
	}
	return mutexes
}

// untilEnd is canceled at the end.  It has no deadline: the server would hear of
// that, and answer with an error of its own ahead of it.
func (r request) untilEnd() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(time.Until(r.end), cancel)
	return ctx, cancel
}

// note keeps what was measured, and pauses.
func (r request) note(samples *[]sample, client int, asked, acquired, released time.Time) {
	if released.After(r.begin) && released.Before(r.end) {
		*samples = append(*samples, sample{client, asked, acquired, released})
	}
	if r.pause > 0 {
		time.Sleep(time.Duration(r.pause) * time.Microsecond)
	}
}

// renewals go one after the other on one stream, as those of clientv3's KeepAlive.
func renewals(r request, session *concurrency.Session, client int) (samples []sample) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := etcdserverpb.NewLeaseClient(session.Client().ActiveConnection()).LeaseKeepAlive(ctx)
	must(err)
	for {
		asked := time.Now()
		if asked.After(r.end) {
			return
		}
		must(stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(session.Lease())}))
		answer, err := stream.Recv()
		must(err)
		if answer.TTL <= 0 {
			log.Fatal("the lease has ended")
		}
		now := time.Now()
		r.note(&samples, client, asked, now, now)
	}
}

func cycles(r request, session *concurrency.Session, client int) (samples []sample) {
	ctx := context.Background()
	untilEnd, cancel := r.untilEnd()
	defer cancel()
	mutexes := r.mutexes(session, client)
	for i := 0; ; i++ {
		mutex := mutexes[i%len(mutexes)]
		asked := time.Now()
		if asked.After(r.end) {
			return
		}
		err := mutex.Lock(untilEnd)
		if untilEnd.Err() != nil && err != nil {
			return
		}
		must(err)
		acquired := time.Now()
		must(mutex.Unlock(ctx))
		r.note(&samples, client, asked, acquired, time.Now())
	}
}

// sell sells in one of the shops until the stock is gone, or the time is over.
func sell(r request, session *concurrency.Session, client int) (samples []sample) {
	ctx := context.Background()
	untilEnd, cancel := r.untilEnd()
	defer cancel()
	shops := strings.Split(os.Getenv("BENCH_SHOPS"), ",")
	db, err := sql.Open("postgres", fmt.Sprintf(
		"host=127.0.0.1 port=%s user=shop dbname=shop password=%s sslmode=disable",
		shops[client%len(shops)], os.Getenv("PGPASSWORD")))
	must(err)
	defer db.Close()
	statement, err := db.Prepare("CALL sell('lamp')")
	must(err)
	mutex := concurrency.NewMutex(session, "/bench/lamp")
	for sold := true; time.Now().Before(r.end); {
		asked := time.Now()
		err := mutex.Lock(untilEnd)
		if untilEnd.Err() != nil && err != nil {
			return
		}
		must(err)
		acquired := time.Now()
		err = statement.QueryRow().Scan(&sold)
		must(mutex.Unlock(ctx))
		must(err)
		if !sold {
			return
		}
		samples = append(samples, sample{client, asked, acquired, time.Now()})
	}
	return
}

// atOnce runs n tasks and waits for all.
func atOnce(n int, task func(i int)) {
	var all sync.WaitGroup
	for i := 0; i < n; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			task(i)
		}(i)
	}
	all.Wait()
}

func main() {
	quiet := zap.NewProductionConfig()
	quiet.Level = zap.NewAtomicLevelAt(zap.ErrorLevel)
	client, err := clientv3.New(clientv3.Config{Endpoints: os.Args[1:2], LogConfig: &quiet})
	must(err)
	lock := cycles
	if len(os.Args) > 2 && os.Args[2] == "renew" {
		lock = renewals
	}
	in := bufio.NewScanner(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	for in.Scan() {
		kind, _ := parse(in.Text())
		run := map[string]func(request, *concurrency.Session, int) []sample{
			"lock": lock, "sell": sell}[kind]
		if run == nil {
			log.Fatalf("unknown request %s", kind)
		}
		_, r := parse(in.Text())
		sessions := make([]*concurrency.Session, r.clients)
		atOnce(r.clients, func(i int) {
			session, err := concurrency.NewSession(client, concurrency.WithTTL(60))
			must(err)
			sessions[i] = session
		})

		_, r = parse(in.Text())
		results := make([][]sample, r.clients)
		atOnce(r.clients, func(i int) { results[i] = run(r, sessions[i], i) })
		atOnce(r.clients, func(i int) { sessions[i].Close() })
		for _, samples := range results {
			for _, s := range samples {
				fmt.Fprintf(out, "%d %d %d %d\n", s.client, s.asked.Sub(epoch).Microseconds(),
					s.acquired.Sub(epoch).Microseconds(), s.released.Sub(epoch).Microseconds())
			}
		}
		fmt.Fprintln(out, "done")
		out.Flush()
	}
	client.Close()
}
