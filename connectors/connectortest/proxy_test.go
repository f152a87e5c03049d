package connectortest

import (
	"bufio"
	"net"
	"testing"
)

func TestTheProxyLosesTheReplyThatIsAskedFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan string, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for in := bufio.NewScanner(c); in.Scan(); {
					asked <- in.Text()
					if _, err := c.Write([]byte("yes\n")); err != nil {
						return
					}
				}
			}()
		}
	}()
	p := NewProxy(t, l.Addr().String())
	ask := func(c net.Conn, text string) error {
		if _, err := c.Write([]byte(text + "\n")); err != nil {
			return err
		}
		_, err := bufio.NewReader(c).ReadString('\n')
		return err
	}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := dial()
	p.LoseReply(2)
	if err := ask(c, "a"); err != nil {
		t.Fatal(err)
	}
	if err := ask(c, "b"); err == nil {
		t.Error("the second reply came")
	}
	<-asked
	if got := <-asked; got != "b" || p.Requests() != 2 {
		t.Errorf("the server was asked %q, of %d requests", got, p.Requests())
	}
	p.Down(true)
	if err := ask(dial(), "c"); err == nil {
		t.Error("the server answers while it is down")
	}
	p.Down(false)
	if err := ask(dial(), "d"); err != nil {
		t.Errorf("when it is back: %v", err)
	}
}
