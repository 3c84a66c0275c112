// A client of the sale, whose lock is etcd's clientv3/concurrency.Mutex.
//
// Reads a command a line and answers each with a line: see rivals/README.md.
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
	"time"

	"github.com/lib/pq"
	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
	"go.uber.org/zap"
)

type client struct {
	etcd     *clientv3.Client
	session  *concurrency.Session
	mutex    *concurrency.Mutex
	database *sql.Conn
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// lock returns the revision of the key, which is the fencing token.
func (c *client) lock() string {
	must(c.mutex.Lock(context.Background()))
	return fmt.Sprintf("ok %d", c.mutex.Header().Revision)
}

// check asks etcd whether the key is still there, as a write to etcd would have
// that is to be made by the owner only.
func (c *client) check() string {
	select {
	case <-c.session.Done():
		return "lost the session is done"
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	// without the get any member answers from what it has, which may be old
	get := clientv3.OpGet(c.mutex.Key())
	answer, err := c.etcd.Txn(ctx).If(c.mutex.IsOwner()).Then(get).Commit()
	if err != nil {
		return "lost " + err.Error()
	}
	if !answer.Succeeded {
		return "lost the key is gone"
	}
	return "ok"
}

func (c *client) unlock() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := c.mutex.Unlock(ctx); err != nil {
		return "lost " + err.Error()
	}
	return "ok"
}

// sql returns the first value of the result, or an empty string.
func (c *client) sql(text string) string {
	var value sql.NullString
	rows, err := c.database.QueryContext(context.Background(), text)
	if err == nil {
		if columns, _ := rows.Columns(); len(columns) > 0 && rows.Next() {
			err = rows.Scan(&value)
		}
		rows.Close()
		if err == nil {
			err = rows.Err()
		}
	}
	if failed, ok := err.(*pq.Error); ok {
		return fmt.Sprintf("error %s %s", failed.Code, failed.Message)
	}
	if err != nil {
		return "error none " + err.Error()
	}
	return "ok " + value.String
}

func (c *client) obey(command, argument string) string {
	switch command {
	case "lock":
		return c.lock()
	case "check":
		return c.check()
	case "unlock":
		return c.unlock()
	default:
		return c.sql(argument)
	}
}

func main() {
	ttl, err := strconv.Atoi(os.Getenv("RIVAL_TTL"))
	must(err)
	quiet := zap.NewProductionConfig()
	quiet.Level = zap.NewAtomicLevelAt(zap.FatalLevel)
	c := &client{}
	c.etcd, err = clientv3.New(clientv3.Config{
		Endpoints: strings.Split(os.Getenv("RIVAL_SERVERS"), ","), LogConfig: &quiet,
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second})
	must(err)
	c.session, err = concurrency.NewSession(c.etcd, concurrency.WithTTL(ttl))
	must(err)
	c.mutex = concurrency.NewMutex(c.session, "/rivals/"+os.Getenv("RIVAL_LOCK"))
	db, err := sql.Open("postgres", os.Getenv("RIVAL_DATABASE"))
	must(err)
	c.database, err = db.Conn(context.Background())
	must(err)

	fmt.Println("ok")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		parts := strings.SplitN(in.Text()+" ", " ", 2)
		answer := c.obey(parts[0], strings.TrimSpace(parts[1]))
		fmt.Println(strings.SplitN(answer, "\n", 2)[0])
	}
}
