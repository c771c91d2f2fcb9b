package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
)

// echo sends every message back.
func echo(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := (&websocket.Upgrader{Subprotocols: []string{subprotocol}}).Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		for {
			kind, message, err := conn.ReadMessage()
			if err != nil {
				return
			}
			if err := conn.WriteMessage(kind, message); err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func trust(server *httptest.Server) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return &tls.Config{RootCAs: roots}
}

func TestEveryByteComesBackWhateverTheMessagesAre(t *testing.T) {
	upstream := echo(t)
	relay := httptest.NewTLSServer(newRelay(strings.TrimPrefix(upstream.URL, "https://"), trust(upstream)))
	defer relay.Close()
	dialer := websocket.Dialer{TLSClientConfig: trust(relay), Subprotocols: []string{subprotocol}}
	conn, _, err := dialer.Dial("wss://"+strings.TrimPrefix(relay.URL, "https://")+"/any", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if conn.Subprotocol() != subprotocol {
		t.Errorf("speaks %q", conn.Subprotocol())
	}
	var sent, got []byte
	for _, size := range []int{0, 1, 125, bufferSize, bufferSize + 1, 100_000} {
		message := bytes.Repeat([]byte{byte(size), 7}, size/2+1)[:size]
		sent = append(sent, message...)
		if err := conn.WriteMessage(websocket.BinaryMessage, message); err != nil {
			t.Fatal(err)
		}
		for len(got) < len(sent) {
			_, more, err := conn.ReadMessage()
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, more...)
		}
	}
	if !bytes.Equal(sent, got) {
		t.Error("other bytes came back")
	}
}
