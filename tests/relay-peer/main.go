// relay-peer is what hack/bench relay compares the server with: a WebSocket relay as virt-api is one.
//
// It accepts a client's WebSocket over TLS, dials the same path of the upstream over TLS, and copies messages both ways
// through gorilla/websocket with KubeVirt's buffers. Its first line says where it listens.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
)

func main() {
	cert := flag.String("cert", "", "file of the serving certificate")
	key := flag.String("key", "", "file of its key")
	upstream := flag.String("upstream", "", "host:port of the upstream")
	name := flag.String("upstream-name", "localhost", "name in the upstream's certificate")
	authority := flag.String("upstream-ca", "", "file of the authority that signed it")
	flag.Parse()
	if err := run(*cert, *key, *upstream, *name, *authority); err != nil {
		log.Fatalf("relay-peer: %v", err)
	}
}

func run(cert, key, upstream, name, authority string) error {
	pem, err := os.ReadFile(authority)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s holds no certificate", authority)
	}
	relay := newRelay(upstream, &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	// As virt-api serves: HTTP/1.1, since a WebSocket begins with it.
	server := &http.Server{
		Handler: relay,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			ClientAuth: tls.RequestClientCert,
			NextProtos: []string{"http/1.1"},
		},
	}
	return server.ServeTLS(listener, cert, key)
}
