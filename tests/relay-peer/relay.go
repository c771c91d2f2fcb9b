package main

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
)

const (
	// bufferSize is what virt-api gives each direction of each WebSocket, and each copy.
	bufferSize = 10240
	// subprotocol is spoken on both sides.
	subprotocol = "plain.kubevirt.io"
	// handshakeTimeout bounds both handshakes.
	handshakeTimeout = 10 * time.Second
)

// relay serves WebSockets and leads each to the same path of its upstream.
type relay struct {
	upgrader websocket.Upgrader
	dialer   websocket.Dialer
	upstream string
}

func newRelay(upstream string, trust *tls.Config) *relay {
	return &relay{
		upgrader: websocket.Upgrader{
			HandshakeTimeout: handshakeTimeout,
			ReadBufferSize:   bufferSize,
			WriteBufferSize:  bufferSize,
			Subprotocols:     []string{subprotocol},
		},
		dialer: websocket.Dialer{
			HandshakeTimeout: handshakeTimeout,
			ReadBufferSize:   bufferSize,
			WriteBufferSize:  bufferSize,
			Subprotocols:     []string{subprotocol},
			TLSClientConfig:  trust,
		},
		upstream: "wss://" + upstream,
	}
}

func (r *relay) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	server, _, err := r.dialer.DialContext(request.Context(), r.upstream+request.URL.RequestURI(), nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer server.Close()
	client, err := r.upgrader.Upgrade(w, request, nil)
	if err != nil {
		// The upgrader has answered.
		return
	}
	defer client.Close()
	ended := make(chan error, 2)
	go func() { ended <- copyMessages(server, client) }()
	go func() { ended <- copyMessages(client, server) }()
	// The end of one direction ends both. An end without a goodbye is a client that was killed.
	err = <-ended
	if err != nil && !websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseAbnormalClosure) {
		log.Print(err)
	}
	say := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	for _, conn := range []*websocket.Conn{server, client} {
		// Best effort: the other side may be gone already.
		_ = conn.WriteControl(websocket.CloseMessage, say, time.Now().Add(time.Second))
	}
}

// copyMessages copies until an end, a buffer at a time: what is read of a message goes on as a message.
func copyMessages(to, from *websocket.Conn) error {
	_, err := io.CopyBuffer(writer{to}, &reader{conn: from}, make([]byte, bufferSize))
	return err
}

// reader is a WebSocket's messages as one stream.
type reader struct {
	conn    *websocket.Conn
	message io.Reader
}

func (r *reader) Read(bytes []byte) (int, error) {
	for {
		if r.message == nil {
			_, message, err := r.conn.NextReader()
			if err != nil {
				return 0, err
			}
			r.message = message
		}
		n, err := r.message.Read(bytes)
		if err == io.EOF {
			r.message, err = nil, nil
			if n == 0 {
				continue
			}
		}
		return n, err
	}
}

// writer makes each write a binary message.
type writer struct {
	conn *websocket.Conn
}

func (w writer) Write(bytes []byte) (int, error) {
	if err := w.conn.WriteMessage(websocket.BinaryMessage, bytes); err != nil {
		return 0, err
	}
	return len(bytes), nil
}
