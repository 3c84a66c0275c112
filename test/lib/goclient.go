// go-zookeeper's lock for Foreign.pm: goclient SERVERS TIMEOUT
//
// Speaks as CuratorClient.java does.  Its Lock() can only wait for ever, and
// leaves its contender behind if it fails.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/samuel/go-zookeeper/zk"
)

type actor struct {
	lock *zk.Lock
	done chan struct{}
	err  error
}

func (a *actor) begin(operation string) error {
	run := map[string]func() error{"acquire": a.lock.Lock, "release": a.lock.Unlock}[operation]
	if run == nil {
		return fmt.Errorf("unknown operation %s", operation)
	}
	done := make(chan struct{})
	a.done = done
	go func() {
		a.err = run()
		close(done)
	}()
	return nil
}

type client struct {
	conn   *zk.Conn
	actors []*actor
}

func (c *client) answer(request []interface{}) (interface{}, error) {
	var a *actor

	method := request[0].(string)
	if method == "begin" || method == "done" || method == "end" {
		a = c.actors[int(request[1].(float64))]
	}
	switch method {
	case "session":
		return c.conn.SessionID(), nil
	case "make":
		lock := zk.NewLock(c.conn, request[2].(string), zk.WorldACL(zk.PermAll))
		c.actors = append(c.actors, &actor{lock: lock})
		return len(c.actors) - 1, nil
	case "begin":
		return nil, a.begin(request[2].(string))
	case "done":
		select {
		case <-a.done:
			return true, nil
		default:
			return false, nil
		}
	case "end":
		<-a.done
		return true, a.err
	}
	return nil, fmt.Errorf("unknown method %s", method)
}

func main() {
	seconds, err := strconv.ParseFloat(os.Args[2], 64)
	if err != nil {
		log.Fatal(err)
	}
	conn, events, err := zk.Connect(strings.Split(os.Args[1], ","),
		time.Duration(seconds*float64(time.Second)),
		zk.WithLogInfo(false))
	if err != nil {
		log.Fatal(err)
	}
	for event := range events {
		if event.State == zk.StateHasSession {
			break
		}
	}
	c := &client{conn: conn}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		var request []interface{}
		answer := map[string]interface{}{}
		err = json.Unmarshal(line, &request)
		if err == nil {
			answer["result"], err = c.answer(request)
		}
		if err != nil {
			answer = map[string]interface{}{"error": err.Error()}
		}
		text, _ := json.Marshal(answer)
		fmt.Printf("%s\n", text)
	}
	conn.Close()
}
